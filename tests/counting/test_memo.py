from collections.abc import Sequence
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ollama_gate.counting.memo import MemoCounter
from ollama_gate.counting.specials import Special, TokenType
from ollama_gate.counting.tokenizer import Tokenizer, build
from ollama_gate.counting.vocabulary import Vocabulary
from support.small_vocabularies import CONTROL, byte_level, sentencepiece, unigram, wordpiece
from support.vocabularies import each, tokenizer

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
GEMMA = "<start_of_turn>{{ role }}\n{{ content }}<end_of_turn>\n"
MARKERS = {
    "qwen2": ["<|im_start|>", "<|im_end|>"],
    "qwen35": ["<|im_start|>", "<|im_end|>"],
    "llama-bpe": ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|begin_of_text|>"],
    "gemma-4": ["<|turn>", "<turn|>", "<|channel>", "<channel|>"],
    "gemma3-270m": ["<start_of_turn>", "<end_of_turn>"],
    "phi-3": ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>"],
    "llama-spm": ["<s>", "</s>", "[INST]", "[/INST]"],
    "command-r": ["<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|USER_TOKEN|>"],
    "starcoder": ["<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<|endoftext|>"],
    "deepseek-llm": ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"],
    "deepseek-coder": ["<｜begin▁of▁sentence｜>", "<|EOT|>"],
    "falcon": [">>QUESTION<<", ">>ANSWER<<", "<|endoftext|>"],
    "bert-bge": ["[CLS]", "[SEP]"],
    "nomic-bert-moe": ["<s>", "</s>", "<mask>"],
}
FRAGMENTS = [
    *"aZ09 \n\t\r'’.,!?~▁éçñ\u0301ßжλعह世界한カ\u200d\ufe0f\u3000\xa0\x00",
    "  ",
    "\n\n",
    " \n ",
    "user\n",
    "'s",
    "1234567",
    "👨‍👩‍👧‍👦",
    "🏳️‍🌈",
    "👍🏽",
    "e\u0301",
    "<|im_",
    "end|>",
    "|>",
    "<",
    ">>",
    "</s>",
    "<s>",
    "<unk>",
    "[INST]",
    "<0x0A>",
    "def f(x):\n    return x\n",
]


class Counting:
    """A tokenizer of one token a character, that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def count(self, texts: Sequence[str]) -> list[int]:
        self.asked.append(list(texts))
        return [len(text) for text in texts]


SEPARATOR = Special(7, "<|x|>", TokenType.CONTROL)


def test_only_new_pieces_are_counted() -> None:
    tokenizer = Counting()
    memo = MemoCounter(tokenizer, [SEPARATOR])

    assert memo.count("one<|x|>two<|x|>one") == 3 + 1 + 3 + 1 + 3
    assert memo.count("one<|x|>two<|x|>one<|x|>three") == 11 + 1 + 5
    assert memo.count("one<|x|>two<|x|>one<|x|>three") == 17
    assert tokenizer.asked == [["one", "two"], ["three"]]


def test_pieces_that_are_missing_are_counted_in_one_call_and_empty_ones_not_at_all() -> None:
    tokenizer = Counting()
    assert MemoCounter(tokenizer, [SEPARATOR]).count("<|x|>a<|x|><|x|>" + "b" * 1000 + "<|x|>") == 4 + 1001
    assert tokenizer.asked == [["a", "b" * 1000]]


def test_the_least_recently_used_piece_goes_first() -> None:
    tokenizer = Counting()
    memo = MemoCounter(tokenizer, [SEPARATOR], capacity=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        memo.count(text)
    assert tokenizer.asked == [["a"], ["b"], ["c"], ["b"]]
    assert len(memo) == 2


def test_long_pieces_are_told_apart() -> None:
    memo = MemoCounter(Counting(), [SEPARATOR])
    assert memo.count("a" * 500) == 500
    assert memo.count("a" * 499 + "b") == 500
    assert memo.count("\ud800" * 500) == 500
    assert len(memo) == 3


def test_white_space_that_a_marker_swallows_is_not_counted() -> None:
    memo = MemoCounter(Counting(), [Special(7, "<|x|>", TokenType.CONTROL, rstrip=True)])
    assert memo.count("<|x|> \n a <|x|>\n") == 2 + len("a ")


@cache
def small(kind: str) -> Tokenizer:
    values = {
        "byte-level": byte_level(),
        "sentencepiece": sentencepiece(specials={"<|im_start|>": CONTROL, "<|im_end|>": CONTROL}),
        "sentencepiece without a prefix": sentencepiece(
            specials={"<|im_start|>": CONTROL, "<|im_end|>": CONTROL}, add_space_prefix=False
        ),
        "wordpiece": wordpiece(),
        "unigram": unigram(),
    }[kind]
    return build(Vocabulary.from_metadata(values, "phi3" if kind == "sentencepiece" else "test"))


@pytest.mark.parametrize(
    "kind", ["byte-level", "sentencepiece", "sentencepiece without a prefix", "wordpiece", "unigram"]
)
@given(parts=st.lists(st.sampled_from([*FRAGMENTS, "<|im_start|>", "<|im_end|>", "hello", "ab"]), max_size=30))
def test_the_sum_of_the_pieces_is_the_count_of_the_whole(kind: str, parts: list[str]) -> None:
    built, text = small(kind), "".join(parts)
    assert MemoCounter(built, built.facts.split_set(CHATML)).count(text) == built.count([text])[0]


@pytest.mark.slow
@pytest.mark.vocab
@pytest.mark.parametrize("name", each(tuple(MARKERS)))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_conversations_of_every_family_are_counted_exactly(name: str, data: st.DataObject) -> None:
    built, markers = tokenizer(name), MARKERS[name]
    special = [token.text for token in built.facts.specials.tokens]
    part = st.one_of(
        st.sampled_from(FRAGMENTS),
        st.sampled_from(markers),
        st.sampled_from(special),
        st.text(max_size=5),
        st.integers(1, 40).map(lambda length: " " * length),
        st.integers(1, 40).map(lambda length: "\n" * length),
    )
    memo = MemoCounter(built, built.facts.split_set(" ".join(markers)))
    text = ""
    for turn in data.draw(st.lists(st.lists(part, max_size=8), min_size=1, max_size=4)):
        text += "".join(turn)  # a growing conversation: the memo knows its beginning
        assert memo.count(text) == built.count([text])[0]
