"""How often signals are wrong, and how often they see what is there: measured on many conversations."""

import re
from collections import Counter
from collections.abc import Iterable

import pytest

from ollama_gate.config.signals import Signals
from ollama_gate.observe.signals import SignalBook
from support.pages import ROOT
from support.transcripts import BROKEN, SOUND, Turn, Writer, recorded

PAGE = ROOT / "docs" / "signals.md"
OF_EACH = 50
KNOWN_POSITIVE = {"tests/data/cases/32-repeated-tool-call.json"}


def alarms(turns: Iterable[Turn]) -> list[str]:
    """The signals that a conversation showed, one entry for each turn with it."""
    book, found = SignalBook(Signals()), []
    for number, turn in enumerate(turns):
        look = book.look(turn.request, float(number))
        if look is not None:
            look.answered(turn.prompt_eval_count)
            found += [signal.kind.value for signal in look.signals]
    return found


def measured() -> str:
    """The tables of the page."""
    lines = ["| sound conversations | how many | turns | turns with a false alarm |", "|---|---|---|---|"]
    for name, write in SOUND.items():
        written = [write(Writer(seed)) for seed in range(OF_EACH)]
        lines.append(_row(name, written))
    data = [turns for name, turns in recorded() if name not in KNOWN_POSITIVE]
    lines.append(_row("recorded ones in the tests' data", data))
    lines += ["", "| broken conversations | how many | found |", "|---|---|---|"]
    for name, write in BROKEN.items():
        kind = name.split()[0]
        found = sum(kind in alarms(write(Writer(10_000 + seed))) for seed in range(OF_EACH))
        lines.append(f"| `{kind}`{name[len(kind) :]} | {OF_EACH} | {found} |")
    return "\n".join(lines) + "\n"


def _row(name: str, conversations: list[list[Turn]]) -> str:
    false = Counter(kind for turns in conversations for kind in alarms(turns))
    told = ", ".join(f"`{kind}` {times}" for kind, times in sorted(false.items()))
    turns = sum(map(len, conversations))
    return f"| {name} | {len(conversations)} | {turns} | {told or 0} |"


@pytest.mark.slow
def test_the_page_tells_what_is_measured() -> None:
    told = re.search(r"<!-- measured -->\n(.*?)<!-- end -->", PAGE.read_text("utf-8"), re.DOTALL)
    assert told is not None
    assert told[1] == measured()


@pytest.mark.slow
@pytest.mark.parametrize("name", SOUND)
def test_sound_conversations_show_nothing(name: str) -> None:
    assert [alarms(SOUND[name](Writer(seed))) for seed in range(3)] == [[]] * 3


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_seen_and_nothing_else(name: str) -> None:
    assert set(alarms(BROKEN[name](Writer(10_001)))) == {name.split(maxsplit=1)[0]}
