"""Every count and every id as llama.cpp has it, on texts made to break tokenizers."""

from hashlib import sha256

import pytest

from support.vocabularies import FAMILIES, PRE_TOKENIZERS, each, oracle, oracle_texts, tokenizer

pytestmark = pytest.mark.vocab


def digest(ids: list[int]) -> str:
    return sha256(",".join(map(str, ids)).encode()).hexdigest()[:16]


@pytest.mark.slow
@pytest.mark.parametrize("name", each(FAMILIES))
def test_counts_and_ids_are_the_engines_and_bounds_hold(name: str) -> None:
    built, expected, texts = tokenizer(name), oracle(name), oracle_texts()

    counts = dict(zip(texts, built.count(list(texts.values())), strict=True))

    assert counts == {key: row.tokens for key, row in expected.items()}
    assert {key: count + built.facts.adds for key, count in counts.items()} == {
        key: row.with_specials for key, row in expected.items()
    }
    assert {key: digest(built.ids(text)) for key, text in texts.items()} == {
        key: row.digest for key, row in expected.items()
    }
    for key, text in texts.items():
        size = len(text.encode("utf-8", "replace"))
        bound, longest = built.facts.byte_bound(size), built.facts.bytes_per_token
        assert size <= expected[key].tokens * longest or not longest, key
        assert bound is None or expected[key].with_specials <= bound, key


@pytest.mark.slow
@pytest.mark.parametrize("pre", each([f"gpt-2~{pre}" for pre in PRE_TOKENIZERS]))
def test_each_pre_tokenizer_cuts_as_the_engine_does(pre: str) -> None:
    built, expected, texts = tokenizer(pre), oracle(pre), oracle_texts()

    assert {key: digest(built.ids(text)) for key, text in texts.items()} == {
        key: row.digest for key, row in expected.items()
    }
    assert {row.with_specials - row.tokens for row in expected.values()} == {built.facts.adds}
