"""Which roles a template shows, and what becomes of the messages of others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.counting.rendering.gotemplate import GoTemplate
from ollama_gate.counting.roles import NOTE_DEVELOPER, Roles, strange
from ollama_gate.dialects.native import parse
from ollama_gate.requests import InferenceRequest, Weight

TEMPLATES = Path(__file__).parent.parent / "data/gotemplate/templates"
LOST = {
    "gemma": {"developer", "tool", "critic"},
    "gptoss": {"developer", "critic"},
    "qwen3": {"developer", "critic"},
    "llama31": {"developer", "critic"},
    "legacy_chatml": {"developer", "tool", "critic"},
    "legacy_bare": {"system", "developer", "tool", "critic"},
    "llama32": set(),
    "hermes3": set(),
    "granite": set(),
}
"""What templates of these kinds leave out, whether they show others by name, by `{{ .Role }}` or by `{{ else }}`."""


def card_of(template: str, mode: Mode = Mode.GO_TEMPLATE) -> ModelCard:
    return ModelCard("m", "m", "d", mode, template=template)


def asked(*roles: str) -> InferenceRequest:
    messages = [{"role": role, "content": f"says {role}"} for role in roles]
    return parse("/api/chat", {"model": "m", "messages": messages})


def heard(request: InferenceRequest, card: ModelCard, known: Roles | None = None) -> InferenceRequest:
    roles, known = strange(request, card), known or Roles()
    learn = known.to_learn(card, roles)
    if learn is not None:
        known.learn(learn())
    assert known.to_learn(card, roles) is None
    return known.heard(request, card, roles)


@pytest.mark.parametrize("name", LOST)
def test_what_a_template_leaves_out_is_found_and_nothing_else(name: str) -> None:
    card = card_of((TEMPLATES / f"{name}.gotmpl").read_text("utf-8"))
    for role in ("system", "developer", "tool", "critic"):
        request = asked(role, "user")
        made = heard(request, card)
        if role == "developer" and role in LOST[name]:
            assert made.body["messages"] == [
                {"role": "system", "content": "says developer"},
                request.body["messages"][1],
            ]
            assert made.notes == (NOTE_DEVELOPER,)
        elif role in LOST[name]:
            assert made.body is request.body
            assert made.notes[0].endswith(f"messages of {role}")
        else:
            assert made is request


def test_ordinary_talk_costs_a_look() -> None:
    assert strange(asked("user", "assistant", "user"), card_of("{{ .Prompt }}")) == frozenset()


@pytest.mark.parametrize("mode", [Mode.JINJA, Mode.CHATML, Mode.REMOTE])
def test_roles_are_left_to_whoever_knows_them(mode: Mode) -> None:
    assert strange(asked("developer", "user"), card_of("", mode)) == frozenset()


def test_a_template_that_cannot_be_read_here_is_taken_to_show_everybody() -> None:
    request = asked("developer", "user")
    assert heard(request, card_of("{{ nonsense . }} {{ .Messages }}")) is request


def test_any_number_of_strange_roles_is_one_thing_to_learn() -> None:
    card, known = card_of((TEMPLATES / "gemma.gotmpl").read_text("utf-8")), Roles()
    heard(asked("critic", "user"), card, known)
    assert known.to_learn(card, frozenset({"judge", "jury", ""})) is None


def test_of_a_template_with_any_number_of_names_so_many_are_looked_into_and_it_is_parsed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"role{at}" for at in range(1000)]
    told = "".join(f'{{{{ if eq .Role "{name}" }}}}{{{{ end }}}}' for name in names)
    card, known = card_of(f"{{{{ range .Messages }}}}{told}{{{{ end }}}}"), Roles()
    parsed: list[str] = []
    parse = GoTemplate.parse

    def noted(template: str, **more: Any) -> GoTemplate:
        parsed.append(template)
        return parse(template, **more)

    monkeypatch.setattr(GoTemplate, "parse", noted)
    monkeypatch.setattr("ollama_gate.counting.roles._NAMED", 3)
    request = asked("user", *names, "developer", "critic")

    made = heard(request, card, known)

    assert (len(parsed), len(known._shown)) == (1, 4)  # what is between two names is in quotes, too
    assert made.notes[0].endswith("messages of critic, role0, role1")
    assert made.notes[1:] == (NOTE_DEVELOPER,)
    assert [message["role"] for message in made.body["messages"]][-2:] == ["system", "critic"]


def test_what_is_remembered_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ollama_gate.counting.roles._MOST", 3)
    known = Roles()
    for at in range(8):
        card = card_of(f"{{{{ .System }}}} {{{{ .Prompt }}}} {at}")
        assert heard(asked("developer"), card, known).notes == (NOTE_DEVELOPER,)
        assert len(known._shown) <= 3
        assert NOTE_DEVELOPER in heard(asked("developer", "tool", "critic"), card, known).notes


def test_what_is_found_out_at_the_same_time_is_all_remembered() -> None:
    known, request = Roles(), asked("developer", "user")
    cards = [card_of((TEMPLATES / f"{name}.gotmpl").read_text("utf-8")) for name in ("gemma", "qwen3")]
    learns = [known.to_learn(card, strange(request, card)) for card in cards]
    for found in [learn() for learn in learns if learn is not None]:
        known.learn(found)
    for card in cards:
        assert known.heard(request, card, strange(request, card)).notes == (NOTE_DEVELOPER,)


def test_a_large_body_keeps_what_was_learnt_of_it() -> None:
    request = asked("Developer", "user")
    weight = Weight(request.body, None, (), b"", b"", b"", frozenset({"Developer", "user"}))
    made = heard(replace(request, weight=weight), card_of((TEMPLATES / "gemma.gotmpl").read_text("utf-8")))
    assert made.weighed == replace(weight, body=made.body)
    assert [message["role"] for message in made.body["messages"]] == ["system", "user"]
