"""From a plan to the messages that go out: cut texts with their markers, the digest, and what joins them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from ollama_gate.compaction.conversation import Conversation
from ollama_gate.compaction.originals import SHOWN
from ollama_gate.compaction.pairing import arguments_of, name_of
from ollama_gate.compaction.plan import Excerpt, Kept, Plan

DIGEST: Final = (
    "[Parts of this conversation were dropped to fit the context budget. What follows are excerpts of them, word for "
    "word and in order, each with the hash that its original is archived under.]"
)
CALLED: Final = "Already called (not again unless something has changed):"
NOTED: Final = "Noted."
"""What stands for the assistant where a template wants somebody to speak between the digest and a user."""


def marker(dropped: int, digest: str) -> str:
    """The line that stands where so many characters were dropped.

    Args:
        dropped: how many.
        digest: the hash of the original, 64 hex digits.
    """
    return f"[... {dropped} characters dropped to fit the context budget — original archived as {digest[:SHOWN]}]"


def placeholder(images: int, digest: str) -> str:
    """The line that stands for so many pictures that were left out, with the hash of the original."""
    what = "image" if images == 1 else f"{images} images"
    return f"[{what} dropped to fit the context budget — original archived as {digest[:SHOWN]}]"


def cut(text: str, head: int, tail: int, digest: str) -> str:
    """A text of which so many characters of head and tail stay, with a marker for what is dropped between them.

    The whole text where the marker would take as much as it stands for.
    """
    dropped = len(text) - head - tail
    said = marker(dropped, digest)
    if dropped <= len(said):
        return text
    parts = [text[:head], said, text[len(text) - tail :] if tail else ""]
    return "\n".join(part for part in parts if part)


def build(talk: Conversation, plan: Plan) -> list[dict[str, Any]]:
    """The messages that a plan makes of a conversation: leading system messages, digest, the others in order.

    Raises:
        ValueError: a message cannot be written as JSON, so that it has no hash.
    """
    kept = [_kept(talk, one) for one in plan.kept]
    digest = digest_of(talk, plan)
    if digest is None:
        return kept
    leading = 0
    while leading < len(kept) and talk.roles[plan.kept[leading].index] == "system":
        leading += 1
    joined = [{"role": "user", "content": digest}]
    if plan.noted:
        joined.append({"role": "assistant", "content": NOTED})
    return [*kept[:leading], *joined, *kept[leading:]]


def digest_of(talk: Conversation, plan: Plan) -> str | None:
    """The digest's text; None where nothing was dropped."""
    if len(talk) == len(plan.kept) and not plan.excerpts:
        return None
    parts = [DIGEST]
    if plan.called:
        lines = [line for unit in plan.called for line in called(talk, unit, plan.arguments)]
        parts.append("\n".join([CALLED, *lines]))
    quoted: dict[int, list[Excerpt]] = {}
    for one in plan.excerpts:
        quoted.setdefault(one.index, []).append(one)
    parts += [_quoted(talk, index, found) for index, found in quoted.items()]
    return "\n\n".join(parts)


def called(talk: Conversation, unit: Sequence[int], most: int) -> list[str]:
    """A line for each call of a unit that is only listed: name, up to `most` characters of arguments, result's hash."""
    answers = talk.answers.get(unit[0], ())
    lines: list[str] = []
    for call, results in zip(talk.messages[unit[0]].get("tool_calls") or (), answers, strict=False):
        where = " ".join(talk.hash(at)[:SHOWN] for at in results)
        said = f"result archived as {where}" if where else f"no result, archived as {talk.hash(unit[0])[:SHOWN]}"
        lines.append(f"- {name_of(call)}({_line(arguments_of(call), most)}) — {said}")
    return lines


def _line(arguments: Mapping[str, Any], most: int) -> str:
    text = orjson.dumps(arguments).decode() if arguments else ""
    return text if len(text) <= most else text[:most] + "…"


def _quoted(talk: Conversation, index: int, excerpts: Sequence[Excerpt]) -> str:
    """Excerpts of one message under its tag; gaps between them show."""
    text, name = talk.text(index), talk.messages[index].get("tool_name")
    said, at = [tag(talk, index, name or "")], 0
    for start, end in _joined(excerpts):
        if start > at:
            said.append("[...]")
        said.append(text[start:end].strip("\n"))
        at = end
    if at < len(text):
        said.append("[...]")
    return "\n".join(said)


def _joined(excerpts: Sequence[Excerpt]) -> list[tuple[int, int]]:
    """Start and end of what is quoted in one piece: excerpts that follow on each other are one, as in the original."""
    found: list[tuple[int, int]] = []
    for one in excerpts:
        start = found.pop()[0] if found and found[-1][1] == one.start else one.start
        found.append((start, one.end))
    return found


def tag(talk: Conversation, index: int, name: str) -> str:
    """The line that stands over the excerpts of one message: role, tool's name if any, and hash."""
    return f"[{' '.join(filter(None, (talk.roles[index], name)))}, archived as {talk.hash(index)[:SHOWN]}]"


def _kept(talk: Conversation, one: Kept) -> dict[str, Any]:
    """A message as the plan keeps it."""
    message = talk.messages[one.index]
    out = dict(message)
    if one.whole:
        return out
    if one.head >= 0:
        out["content"] = cut(talk.text(one.index), one.head, one.tail, talk.hash(one.index))
    if not one.thinking:
        out.pop("thinking", None)
    if not one.images and message.get("images"):
        del out["images"]
        stands = placeholder(len(message["images"]), talk.hash(one.index))
        out["content"] = f"{out['content']}\n{stands}" if out.get("content") else stands
    if one.arguments >= 0 and message.get("tool_calls"):
        digest = talk.hash(one.index)
        out["tool_calls"] = [_shorter(call, one.arguments, digest) for call in message["tool_calls"]]
    return out


def _shorter(call: Any, most: int, digest: str) -> Any:
    """A call whose arguments hold no text that is longer than `most` characters and a marker."""
    if not arguments_of(call):
        return call
    function = {**call["function"], "arguments": _trimmed(call["function"]["arguments"], most, digest)}
    return {**call, "function": function}


def _trimmed(value: Any, most: int, digest: str) -> Any:
    if isinstance(value, str):
        return cut(value, most - most // 3, most // 3, digest) if len(value) > most else value
    if isinstance(value, list):
        return [_trimmed(item, most, digest) for item in value]
    if isinstance(value, dict):
        return {name: _trimmed(item, most, digest) for name, item in value.items()}
    return value
