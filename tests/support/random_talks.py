"""Conversations as hypothesis makes them: valid ones, with every way in which calls and results may stand."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

Message = dict[str, Any]

_ALPHABET = "abc de.\n,1239éß漢字🇩🇪👩\u200d👧x{}\"'\\"
TEXTS = st.one_of(
    st.text(_ALPHABET, max_size=40),
    st.builds(lambda piece, times: piece * times, st.text(_ALPHABET, min_size=1, max_size=30), st.integers(1, 120)),
)
_ARGUMENTS = st.dictionaries(
    st.sampled_from(["path", "text", "deep"]),
    st.one_of(TEXTS, st.integers(0, 9), st.lists(TEXTS, max_size=2)),
    max_size=2,
)


@st.composite
def batches(draw: st.DrawFn, number: int) -> list[Message]:
    """A message with calls and their results, named by id, name or nothing, in any order, perhaps not all of them."""
    names = draw(st.lists(st.sampled_from(["read", "write", "find"]), min_size=1, max_size=4))
    by = draw(st.sampled_from(["id", "name", "place", "id and name"]))
    calls: list[Any] = []
    results: list[Message] = []
    for at, name in enumerate(names):
        call: dict[str, Any] = {"function": {"name": name, "arguments": draw(_ARGUMENTS)}}
        result: Message = {"role": "tool", "content": draw(st.one_of(TEXTS, st.none()))}
        if by in ("id", "id and name"):
            call["id"] = result["tool_call_id"] = f"c{number}_{at}"
        if by in ("name", "id and name"):
            result["tool_name"] = name
        calls.append(call)
        results.append(result)
    if by.startswith("id"):
        results = list(draw(st.permutations(results)))
    if draw(st.integers(0, 5)) == 0:
        results = results[:-1]
    asking: Message = {"role": "assistant", "content": draw(st.one_of(TEXTS, st.none())), "tool_calls": calls}
    if draw(st.booleans()):
        asking["thinking"] = draw(TEXTS)
    return [asking, *results]


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """A conversation that a client could send."""
    prompts = draw(st.lists(st.text(_ALPHABET, max_size=40), max_size=2))
    talk: list[Message] = [{"role": "system", "content": prompt} for prompt in prompts]
    for turn in range(draw(st.integers(1, 7))):
        said: Message = {"role": draw(st.sampled_from(["user", "User"])), "content": draw(TEXTS)}
        if draw(st.integers(0, 5)) == 0:
            said["images"] = ["aGVsbG8="]
        talk.append(said)
        if draw(st.integers(0, 5)) == 0:
            talk.append({"role": "system", "content": "Files may have changed."})
        if draw(st.integers(0, 7)) == 0:
            whose = draw(st.sampled_from([{"tool_call_id": f"gone{turn}"}, {"tool_name": "read"}, {}]))
            talk.append({"role": "tool", "content": draw(TEXTS), **whose})
        for number in range(draw(st.integers(0, 3))):
            talk += draw(batches(10 * turn + number))
        if draw(st.integers(0, 3)):
            talk.append({"role": "assistant", "content": draw(TEXTS)})
    if draw(st.booleans()):
        talk.append({"role": "user", "content": draw(st.text(_ALPHABET, max_size=60))})
    return talk


def count(texts: Sequence[str]) -> list[int]:
    """A stand-in for a vocabulary: three bytes a token."""
    return [-(-len(text.encode()) // 3) for text in texts]
