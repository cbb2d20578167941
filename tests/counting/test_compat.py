from typing import Any

import pytest

from ollama_gate.counting.compat import corrected
from ollama_gate.counting.specials import TokenType
from support.small_vocabularies import BYTE, CONTROL, NORMAL, metadata

PRE, MODEL, TOKENS = "tokenizer.ggml.pre", "tokenizer.ggml.model", "tokenizer.ggml.tokens"


def values(architecture: str, **more: Any) -> dict[str, Any]:
    return metadata(more.pop("model", "gpt2"), ["a", "b", "c"], [NORMAL] * 3, **more) | {
        "general.architecture": architecture
    }


@pytest.mark.parametrize(
    ("given", "pre"),
    [
        (values("gptoss", pre="default"), "gpt-4o"),
        (values("gpt-oss", pre="gpt-4o"), "gpt-4o"),
        (values("glmocr", pre="llama-bpe"), "chatglm-bpe"),
        (values("glmocr"), None),
        (values("qwen2", pre="default"), "default"),
    ],
)
def test_pre_tokenizers_that_ollama_corrects(given: dict[str, Any], pre: str | None) -> None:
    assert corrected(given, {}).get(PRE) == pre


def test_llama_3_without_a_pre_tokenizer_gets_its_own() -> None:
    tokens = [str(number) for number in range(128256)]
    tokens[128006], tokens[128009] = "<|start_header_id|>", "<|eot_id|>"
    llama_3 = values("llama") | {TOKENS: tokens}

    assert corrected(llama_3, {})[PRE] == "llama-bpe"
    assert corrected(llama_3 | {PRE: "default"}, {})[PRE] == "llama-bpe"
    assert corrected(llama_3 | {PRE: "tekken"}, {})[PRE] == "tekken"
    assert PRE not in corrected(values("llama"), {})


def test_lfm2_is_corrected_where_its_tensors_are_named_the_old_way() -> None:
    old, new = {"output_norm.weight": (4,)}, {"token_embd_norm.weight": (4,)}
    assert corrected(values("lfm2", pre="llama-bpe"), old)[PRE] == "lfm2"
    assert corrected(values("lfm2", pre="llama-bpe"), new)[PRE] == "llama-bpe"


def test_gemma_4_is_no_sentencepiece_model() -> None:
    assert corrected(values("gemma4", model="llama"), {})[MODEL] == "gemma4"


def test_gemma_3_loses_tokens_without_a_row() -> None:
    given = values("gemma3", model="llama", scores=[0.0, 1.0, 2.0])
    cut = corrected(given, {"token_embd.weight": (640, 2)})

    assert (cut[TOKENS], cut["tokenizer.ggml.scores"], len(cut["tokenizer.ggml.token_type"])) == (["a", "b"], [0, 1], 2)
    assert corrected(given, {"token_embd.weight": (640, 3)}) == given
    assert corrected(given, {}) == given


def test_gemma_3n_is_cut_to_its_smaller_embedding_and_retyped() -> None:
    given = metadata("bpe", ["<0x0A>", "<unused7>", "x", "<image>"], [NORMAL, CONTROL, NORMAL, CONTROL])
    given["general.architecture"] = "gemma3n"
    cut = corrected(given, {"token_embd.weight": (8, 4), "per_layer_token_embd.weight": (8, 3)})

    assert cut[MODEL] == "llama"
    assert cut[TOKENS] == ["<0x0A>", "<unused7>", "x"]
    assert cut["tokenizer.ggml.token_type"] == [BYTE, TokenType.NORMAL, NORMAL]
    same = {"token_embd.weight": (8, 4), "per_layer_token_embd.weight": (8, 4)}
    assert corrected(given, same) == given


def test_a_charsmap_of_letters_becomes_one_text() -> None:
    given = values("bert", model="t5", precompiled_charsmap=list("AQL/"))
    assert corrected(given, {})["tokenizer.ggml.precompiled_charsmap"] == "AQL/"


def test_the_metadata_itself_is_not_changed() -> None:
    given = values("gptoss", pre="default")
    corrected(given, {})
    assert given[PRE] == "default"
