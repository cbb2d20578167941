"""Which passages are worth quoting: 0.6 of likeness in meaning, where vectors are at hand, and 0.4 of words in common.

Words are ranked by BM25, as SQLite's full-text index works it out (FTS5, `bm25()`). Scripts without blanks between
words are ranked by pairs of characters.
"""

import re
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import Final

MEANING: Final = 0.6
WORDS: Final = 0.4
_MOST_TERMS: Final = 64
_WORD: Final = re.compile(r"[^\W_]+")
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+"
)


def words(text: str) -> list[str]:
    """The words of a text, for comparing; runs of Chinese, Japanese, Korean, Thai and the like as pairs."""
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        if word.isascii():
            found.append(word)
            continue
        at = 0
        for run in _UNSPACED.finditer(word):
            found += [word[at : run.start()]] if run.start() > at else []
            part, at = run.group(), run.end()
            found += [part[place : place + 2] for place in range(max(len(part) - 1, 1))]
        found += [word[at:]] if at < len(word) else []
    return found


def by_words(question: str, texts: Sequence[str]) -> list[float]:
    """How much each text has in common with the question: 1 for the best one, 0 for nothing."""
    split = [words(text) for text in texts]
    common = Counter(word for each in split for word in set(each))
    # Of a long question the words that tell most apart.
    terms = sorted({word for word in words(question) if word in common}, key=lambda word: (common[word], word))
    scores = [0.0] * len(texts)
    if not terms:
        return scores
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute("PRAGMA temp_store = MEMORY")
        index.execute("CREATE VIRTUAL TABLE passages USING fts5(words, content='')")
        rows = ((at, " ".join(each)) for at, each in enumerate(split))
        index.executemany("INSERT INTO passages(rowid, words) VALUES (?, ?)", rows)
        query = " OR ".join(f'"{term}"' for term in terms[:_MOST_TERMS])
        found = index.execute("SELECT rowid, -bm25(passages) FROM passages WHERE passages MATCH ?", (query,)).fetchall()
    # A word that stands in more than half of them counts as little more than nothing, never as less.
    best = max((score for _, score in found), default=0.0)
    for at, score in found:
        scores[at] = max(score / best, 1e-6) if best > 0 else 1.0
    return scores


def combined(keywords: Sequence[float], meanings: Sequence[float | None] | None) -> list[float]:
    """One score for each passage; without vectors it is that of the words."""
    if meanings is None:
        return list(keywords)
    return [
        WORDS * keyword + MEANING * max(meaning, 0.0) if meaning is not None else WORDS * keyword
        for keyword, meaning in zip(keywords, meanings, strict=True)
    ]
