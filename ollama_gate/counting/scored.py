"""The merges of a SentencePiece vocabulary, which gives its tokens scores and no list of merges.

The engine joins, of all neighbours that make a token, those that make the best-scored one, wherever that was split
(`src/llama-vocab.cpp:llm_tokenizer_spm_session`, b10488). So every split of a token would be a merge: half a million
for 262 000 tokens. But whatever surrounds it, a token is joined inside its own text only, and there by the same joins
every time. Its last join is therefore the same everywhere, and a split that is not that one never happens. Leaving
those out halves the time in which a tokenizer is made or loaded, and its memory.

Finding them takes most of the time in which a tokenizer is made, and most of that is waiting for memory: each of more
than a million texts is looked for somewhere in forty megabytes. So as few as possible are looked for, and each only
among what is joined before.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, compress, islice
from typing import Final

_BYTE: Final = "<0x"
"""Begins the texts that stand for a byte. They are there without having been joined: nothing said above holds."""


def merges(tokens: Sequence[str], scores: Sequence[float], ids: Mapping[str, int]) -> list[int]:
    """Ids of left and right parts in turn, in order.

    Of equal scores the lower id comes first, of one token's splits that with the shorter left part. A split is left out
    only where it is certain that it never happens.

    Args:
        tokens: by id.
        scores: one a token.
        ids: the tokens in order, then characters that take part in merges although they are no tokens.
    """
    lone = [size == 1 for size in map(len, tokens)]
    order = sorted(range(len(tokens)), key=scores.__getitem__, reverse=True)  # equal ones stay in their order
    # A text's number is its place in the order of joining, after those that nothing need join.
    by_number = [*compress(range(len(tokens)), lone), *range(len(tokens), len(ids))]
    texts = [*compress(tokens, lone), *islice(ids, len(tokens), None)]
    single = len(texts)
    by_number += [number for number in order if not lone[number]]
    texts += map(tokens.__getitem__, by_number[single:])
    return list(map(by_number.__getitem__, _last_joins(texts, single)))


def _last_joins(texts: Sequence[str], single: int) -> list[int]:
    """The splits of each text that can be its last join, mostly one; left and right parts in turn, by number.

    Args:
        texts: by number; those below `single` are not joined from anything.
        single: see there.
    """
    # Of each text's last join the parts, and how long the left one is: 0 where none is known, or not yet.
    lefts, rights, cut_at = ([0] * len(texts) for _ in range(3))
    numbers = dict(zip(texts[:single], range(single), strict=True))
    meet = _meeting(single, numbers, lefts, rights, cut_at)
    # The middle first, because most often it is there.
    sizes = {*map(len, texts)}
    cuts = {size: sorted(range(1, size), key=lambda cut: abs(2 * cut - size)) for size in sizes}
    get = numbers.get
    unclear = []
    for number, text in enumerate(texts[single:], single):
        for cut in cuts[len(text)]:
            if (right := get(text[cut:])) is None or (left := get(text[:cut])) is None:
                continue
            if meet(text, cut, left, right) and _BYTE not in text:
                lefts[number], rights[number], cut_at[number] = left, right, cut
                break
        else:
            unclear.append(number)
        numbers[text] = number
    found: list[int] = []
    begin = single
    for number in unclear:
        found += chain.from_iterable(zip(lefts[begin:number], rights[begin:number], strict=True))
        begin, text = number + 1, texts[number]
        for cut in range(1, len(text)):
            if (right := get(text[cut:])) is None or (left := get(text[:cut])) is None:
                continue
            # A part that is joined later than the whole leaves open in what order things happen.
            if max(left, right) > number or meet(text, cut, left, right) is not False:
                found += (left, right)
    found += chain.from_iterable(zip(lefts[begin:], rights[begin:], strict=True))
    return found


def _meeting(
    single: int, numbers: Mapping[str, int], lefts: Sequence[int], rights: Sequence[int], cut_at: Sequence[int]
) -> Callable[[str, int, int, int], bool | None]:
    """Tells whether two neighbours come about beside each other, or something is joined across them before.

    It goes back in time from the two whole neighbours and takes apart whichever was joined last. The two texts that
    stood at the boundary then were joined, had they made a token that comes before. Had they made one that comes later
    and whose own last join they are, then it is known of them already that they come about beside each other.

    Returns:
        A function of a text, where it is cut, and the numbers of the two parts; it gives None where it is not known how
        one of the two is joined, so that their order in time is not that of their numbers, and where two joins of the
        same token compete.
    """
    get = numbers.get

    def meet(text: str, cut: int, left: int, right: int) -> bool | None:
        if (left >= single and not cut_at[left]) or (right >= single and not cut_at[right]):
            return None
        begin, end = 0, len(text)
        while True:
            if left > right:
                latest, begin, left = left, begin + cut_at[left], rights[left]
            else:
                latest, end, right = right, cut + cut_at[right], lefts[right]
            if latest < single:
                return True
            across = get(text[begin:end])
            if across is None:
                continue
            if across <= latest:
                return None if across == latest else False
            if cut_at[across] == cut - begin:
                return True

    return meet
