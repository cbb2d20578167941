"""The merges of a SentencePiece vocabulary, which gives its tokens scores and no list of merges.

The engine joins, of all neighbours that make a token, those that make the best-scored one, wherever that was split
(`src/llama-vocab.cpp:llm_tokenizer_spm_session`, b10488). So every split of a token would be a merge: half a million
for 262 000 tokens. But whatever surrounds it, a token is joined inside its own text only, and there by the same joins
every time. Its last join is therefore the same everywhere, and a split that is not that one never happens. Leaving
those out halves the time in which a tokenizer is made or loaded, and its memory.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

_UNKNOWN: Final = -1
_BYTE: Final = "<0x"
"""Begins the texts that stand for a byte. They are there without having been joined: nothing said above holds."""


def merges(tokens: Sequence[str], scores: Sequence[float], ids: Mapping[str, int]) -> list[int]:
    """Ids of left and right parts in turn, in order.

    Of equal scores the lower id comes first, of one token's splits that with the shorter left part. A split is left out
    only where it is certain that it never happens.

    Args:
        tokens: by id.
        scores: one a token.
        ids: the tokens, and characters that take part in merges although they are no tokens.
    """
    order = sorted(range(len(tokens)), key=[-score for score in scores].__getitem__)
    # A text's number is its place in the order of joining, after those that nothing need join.
    texts = [text for text in ids if len(text) == 1]
    single = len(texts)
    texts += [text for text in map(tokens.__getitem__, order) if len(text) > 1]
    numbers = dict(zip(texts, range(len(texts)), strict=True))
    lasts = _last_joins(texts, single, numbers)
    by_number = list(map(ids.__getitem__, texts))
    return list(map(by_number.__getitem__, lasts))


def _last_joins(texts: Sequence[str], single: int, numbers: Mapping[str, int]) -> list[int]:
    """The splits of each text that can be its last join, mostly one; left and right parts in turn, by number.

    Args:
        texts: by number; those below `single` are not joined from anything.
        single: see there.
        numbers: the reverse.
    """
    # The parts of each text's last join, where they come before it in the order and as much is known of them.
    lefts, rights = ([0] * single + [_UNKNOWN] * (len(texts) - single) for _ in range(2))
    meet = _meeting(texts, single, numbers, lefts, rights)
    # The middle first, because most often it is there.
    sizes = {*map(len, texts)}
    cuts = {size: sorted(range(1, size), key=lambda cut: abs(2 * cut - size)) for size in sizes}
    get = numbers.get
    found: list[int] = []
    for number in range(single, len(texts)):
        text = texts[number]
        possible = []
        for cut in cuts[len(text)]:
            if (right := get(text[cut:])) is None or (left := get(text[:cut])) is None:
                continue
            met = meet(left, right)
            if met and _BYTE not in text:
                lefts[number], rights[number] = left, right
                found += (left, right)
                break
            if met is not False:
                possible.append((cut, left, right))
        else:
            for _, left, right in sorted(possible):
                found += (left, right)
    return found


def _meeting(
    texts: Sequence[str], single: int, numbers: Mapping[str, int], lefts: Sequence[int], rights: Sequence[int]
) -> Callable[[int, int], bool | None]:
    """Tells whether two neighbours come about beside each other, or something is joined across them before.

    It goes back in time from the two whole neighbours and takes apart whichever was joined last. The two texts that
    stood at the boundary then were joined, had they made a token that comes before.

    Returns:
        A function of two numbers; it gives None where it is not known how one of the two is joined, so that their order
        in time is not that of their numbers, and where two joins of the same token compete.
    """
    get, never = numbers.get, len(texts)

    def meet(left: int, right: int) -> bool | None:
        if lefts[left] < 0 or lefts[right] < 0:
            return None
        while True:
            if left > right:
                latest, left = left, rights[left]
            else:
                latest, right = right, lefts[right]
            if latest < single:
                return True
            across = get(texts[left] + texts[right], never)
            if across <= latest:
                return None if across == latest else False

    return meet
