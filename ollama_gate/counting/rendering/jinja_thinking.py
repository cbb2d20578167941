"""How a template marks thinking: found by rendering it twice and comparing, as llama.cpp finds it.

llama.cpp has no table of models; it renders a few made-up conversations that differ in one thing and reads the marks
off the difference (`common/chat-diff-analyzer.cpp:analyze_reasoning`, b10488). Two things in a prompt depend on the
result: whether `enable_thinking` is on when the request says nothing, and what is put before an answer that is to be
continued.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from ollama_gate.counting.rendering.jinja_messages import Capabilities, Run, tried

_QUESTION: Final = "U_USER_MSG Hello END_U"
_ANSWER: Final = "A_ASST_MSG I can help END_A"
_THOUGHT: Final = "REASON_PART I am thinking END_R"
_MARK: Final = r"(?:<[^>]*>|\[[^\]]*\])"
"""A tag or a bracketed word: what counts as a mark."""
_WRAPPED: Final = re.compile(rf"({_MARK}\s*){_THOUGHT}(\s*{_MARK}\s*)", re.ASCII)
_CLOSED: Final = re.compile(rf"{_THOUGHT}\s*({_MARK}\s*)", re.ASCII)
_SPACE: Final = " \t\n\v\f\r"
_ANCHOR: Final = 64


@dataclass(frozen=True, slots=True)
class Thinking:
    """What a template does about thinking."""

    known: bool = False
    """Whether it has a way for it at all."""
    opening: str = ""
    closing: str = ""

    @classmethod
    def of(cls, run: Run, source: str, takes: Capabilities) -> "Thinking":
        """Analyse a template.

        Args:
            run: renders the template with these variables.
            source: the template.
            takes: what it takes.
        """
        found = _switched(run, takes, _shown(run, takes))
        if takes.tool_calls:
            found = _with_tools_only(run, takes, found)
        return _patched(source, found)


def _conversation(takes: Capabilities, *answers: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        {"role": "user", "content": takes.content(_QUESTION)},
        *[{"role": "assistant", "content": takes.content(_ANSWER), **answer} for answer in answers],
    ]


def _shown(run: Run, takes: Capabilities) -> Thinking:
    """How the thoughts of an earlier answer are shown."""
    thinking = {"enable_thinking": True}
    without = tried(run, {"messages": _conversation(takes, {}), **thinking})
    shown = tried(run, {"messages": _conversation(takes, {"reasoning_content": _THOUGHT}), **thinking})
    if without is None or shown is None or _THOUGHT in without:
        return Thinking()
    if wrapped := _WRAPPED.search(shown):
        return Thinking(True, wrapped[1], wrapped[2])
    if closed := _CLOSED.search(shown):
        return Thinking(True, "", closed[1])
    return Thinking()


def _switched(run: Run, takes: Capabilities, found: Thinking) -> Thinking:
    """What the prompt for an answer gains or loses when thinking is switched on."""
    asked: dict[str, Any] = {"messages": _conversation(takes), "add_generation_prompt": True}
    off = tried(run, {**asked, "enable_thinking": False})
    on = tried(run, {**asked, "enable_thinking": True})
    if off is None or on is None:
        return found
    only_off, only_on = _difference(off, on)
    lost, gained = only_off.strip(_SPACE), only_on.strip(_SPACE)
    if not lost and gained:
        if on.endswith(gained) and not found.opening:
            found = replace(found, known=True, opening=only_on)
    elif lost and not gained:
        if off.endswith(lost) and not found.closing:
            segments = _without_space(_segments(off))
            opening = found.opening
            if len(segments) > 1 and segments[-1].text == lost and segments[-2].mark:
                opening = segments[-2].text
            found = Thinking(True, opening, only_off)
    elif lost and gained:
        found = _anchored(off, on, found)
    return found


def _anchored(off: str, on: str, found: Thinking) -> Thinking:
    """When more than the end differs: the end of one prompt may be inside the other, with both marks after it."""
    for base, extended in ((on, off), (off, on)):
        end = base[-_ANCHOR:]
        place = extended.rfind(end)
        if place < 0:
            continue
        segments = _without_space(_segments(extended[place + len(end) :].strip(_SPACE)))
        if len(segments) == 2 and all(segment.mark for segment in segments):
            return Thinking(True, found.opening or segments[0].text, found.closing or segments[1].text)
    return found


def _with_tools_only(run: Run, takes: Capabilities, found: Thinking) -> Thinking:
    """Some templates show thoughts only where tools were called."""
    call = {
        "id": "call00001",
        "type": "function",
        "function": {"name": "FFF_FIRST_FUN_F", "arguments": {"AA_ARG_FST_AA": "VVVV", "BB_ARG_SND_BB": "XXXX"}},
    }
    common: dict[str, Any] = {"enable_thinking": True, "tools": _TOOLS}
    thought = {"reasoning_content": _THOUGHT}
    plain = tried(run, {"messages": _conversation(takes, thought), **common})
    called = tried(
        run, {"messages": _conversation(takes, {**thought, "content": None, "tool_calls": [call]}), **common}
    )
    if plain is None or called is None or _THOUGHT in plain or _THOUGHT not in called:
        return found
    if wrapped := re.search(rf"({_MARK}\s*){_THOUGHT}\s*({_MARK}\s*)", called, re.ASCII):
        return Thinking(True, wrapped[1], wrapped[2])
    if closed := _CLOSED.search(called):
        return Thinking(True, found.opening, closed[1])
    return replace(found, known=False)


def _patched(source: str, found: Thinking) -> Thinking:
    """llama.cpp's own exceptions (`chat-diff-analyzer.cpp:workarounds`)."""
    if (
        "content.split('</think>')" in source
        and "reasoning_content" not in source
        and "<SPECIAL_12>" not in source
        and not found.known
    ):
        found = Thinking(True, "<think>", "</think>")
    granite = "Write your thoughts between <think></think> and write your response between <response></response>"
    if granite in source:
        found = Thinking(True, "<think>", "</think>")
    if all(mark in source for mark in ("<SPECIAL_10>", "<SPECIAL_11>", "<SPECIAL_12>", "<TOOL_RESPONSE>")):
        found = Thinking(True, "<think>\n", "</think>")
    if "laguna_glm_thinking" in source:
        found = replace(found, opening=found.opening.strip(_SPACE), closing=found.closing.strip(_SPACE))
    return found


class _Segment(NamedTuple):
    text: str
    mark: bool


def _segments(text: str) -> list[_Segment]:
    """Text cut into marks and what is between them; a mark that is not closed is text."""
    segments = []
    end = 0
    for match in re.finditer(_MARK, text):
        if end < match.start():
            segments.append(_Segment(text[end : match.start()], mark=False))
        segments.append(_Segment(match[0], mark=True))
        end = match.end()
    if end < len(text):
        segments.append(_Segment(text[end:], mark=False))
    return segments


def _without_space(segments: list[_Segment]) -> list[_Segment]:
    return [segment for segment in segments if segment.text.strip(_SPACE)]


def _difference(left: str, right: str) -> tuple[str, str]:
    """What each of two texts has between their common beginning and end, which are found segment by segment.

    Only where both remainders begin or end with text, not with a mark, is that text compared letter by letter.
    """
    if left == right:
        return "", ""
    if right.startswith(left):
        return "", right[len(left) :]
    ours, theirs = _segments(left), _segments(right)
    while len(ours) > 1 and len(theirs) > 1:
        if ours[0] == theirs[0]:
            del ours[0], theirs[0]
        elif ours[-1] == theirs[-1]:
            del ours[-1], theirs[-1]
        else:
            break
    for one, other in ((ours, theirs), (theirs, ours)):
        if len(one) == 1 and len(other) > 1:
            if one[0] == other[-1]:
                del one[0], other[-1]
            elif one[0] == other[0]:
                del one[0], other[0]
            break
    ours_left, theirs_left = "".join([s.text for s in ours]), "".join([s.text for s in theirs])
    if ours and theirs and not ours[-1].mark and not theirs[-1].mark:
        shared = _shared(ours_left[::-1], theirs_left[::-1])
        ours_left, theirs_left = ours_left[: len(ours_left) - shared], theirs_left[: len(theirs_left) - shared]
    if ours and theirs and not ours[0].mark and not theirs[0].mark:
        shared = _shared(ours_left, theirs_left)
        ours_left, theirs_left = ours_left[shared:], theirs_left[shared:]
    return ours_left, theirs_left


def _shared(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginnings."""
    length = 0
    for ours, theirs in zip(one, other, strict=False):
        if ours != theirs:
            break
        length += 1
    return length


def _tool(name: str, what: str) -> dict[str, Any]:
    properties = {
        "AA_ARG_FST_AA": {"type": "string", "description": "First argument"},
        "BB_ARG_SND_BB": {"type": "string", "description": "Second argument"},
    }
    parameters = {"type": "object", "properties": properties, "required": []}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": parameters}}


_TOOLS: Final = [_tool("FFF_FIRST_FUN_F", "Test function foo"), _tool("SSS_SECOND_FUN_S", "Test function bar")]
