"""Hostile templates end with a RenderError, whatever the request; honest ones never come near the limits."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ollama_gate.counting.normalise import Conversation, ModelTraits, chat_conversation
from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate, template
from ollama_gate.counting.rendering.gotemplate.limits import MAX_SOURCE, Budget
from ollama_gate.counting.structs import Message, Tool
from ollama_gate.errors import RenderError, TemplateRefused
from support.gotemplates import RECORDED, one_user, recorded, render, template_names, template_text

TOOLS = recorded("conversations")["tools with system"]["tools"]
BIG = {"messages": [{"role": "user", "content": "é" * 50_000}], "tools": TOOLS}
MENTION = "{{ if .Messages }}{{ end }}"
ENDLESS = "{{ range 1000000000 }}"
HOSTILE = {
    "an endless loop": ENDLESS + "{{ end }}",
    "loops in loops": "{{ range 99999 }}{{ range 99999 }}{{ range 99999 }}a{{ end }}{{ end }}{{ end }}",
    "a template that calls itself": '{{ define "a" }}{{ template "a" . }}{{ end }}{{ template "a" . }}',
    "one that doubles itself": '{{ define "a" }}{{ template "a" 1 }}{{ template "a" 1 }}{{ end }}{{ template "a" 1 }}',
    "a doubling variable": '{{ $a := "x" }}{{ range 99 }}{{ $a = print $a $a }}{{ end }}',
    "a doubling format": '{{ $a := "xyz" }}{{ range 99 }}{{ $a = printf "%s%s" $a $a }}{{ end }}',
    "a doubling json": '{{ $a := "<" }}{{ range 99 }}{{ $a = json (print $a $a) }}{{ end }}',
    "a doubling escape": '{{ $a := "<<" }}{{ range 99 }}{{ $a = html (print $a $a) }}{{ end }}',
    "wide fields": '{{ range 99 }}{{ printf "%999999d" 1 }}{{ end }}',
    "wide fields in one format": '{{ printf "' + "%999999d" * 99 + '" 1 }}',
    "long fractions": '{{ printf "' + "%.999999f" * 99 + '" 1.5 }}',
    "many tools in one print": "{{ print" + " .Tools" * 20_000 + " }}",
    "the length of a long text": ENDLESS + "{{ if len (index $.Messages 0).Content }}{{ end }}{{ end }}",
    "cuts of a long text": ENDLESS + "{{ if slice (index $.Messages 0).Content 2 4 }}{{ end }}{{ end }}",
    "comparisons of long texts": "{{ $c := (index .Messages 0).Content }}{{ $d := print $c }}"
    + ENDLESS
    + "{{ if eq $c $d }}{{ end }}{{ if lt $c $d }}{{ end }}{{ end }}",
    "tools as text": ENDLESS + "{{ if $.Tools.String }}{{ end }}{{ end }}",
    "escapes of a long text": ENDLESS + "{{ if js (index $.Messages 0).Content }}{{ end }}{{ end }}",
    "many operands": ENDLESS + "{{ print " + "1 " * 15_000 + "}}{{ end }}",
    "many variables": "".join(f"{{{{ $v{i} := 1 }}}}" for i in range(3000)) + ENDLESS + "{{ $v0 }}{{ end }}",
    "too many tokens": "{{ print " + "1 " * 60_000 + "}}",
    "too much source": "x" * (MAX_SOURCE + 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("body", [one_user(), BIG], ids=["a small request", "a big request"])
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_template_is_given_up(name: str, body: dict[str, object]) -> None:
    with pytest.raises(RenderError) as caught:
        render(MENTION + HOSTILE[name], body)
    assert not isinstance(caught.value, TemplateRefused)


@pytest.mark.slow
@pytest.mark.parametrize("name", template_names())
def test_an_honest_template_uses_a_small_part_of_its_budget(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    granted: list[Budget] = []
    make = template._budget

    def spy(conversation: Conversation) -> Budget:
        granted.append(make(conversation))
        return granted[-1]

    monkeypatch.setattr(template, "_budget", spy)
    tools = [] if name == "gptoss_older" else TOOLS  # it fails on a property without a type
    talk = [{"role": role, "content": "some words of it"} for _ in range(2000) for role in ("user", "assistant")]
    try:
        render(template_text(name), {"messages": talk, "tools": tools})
    except TemplateRefused:
        assert name.startswith("legacy_")
    fresh = make(Conversation(tuple(Message(one["role"], one["content"]) for one in talk)))
    assert granted[0].steps > fresh.steps / 2
    assert granted[0].size > fresh.size / 2


PIECES = st.sampled_from(
    [
        *(
            "{{ range .Messages }}",
            "{{ range 9 }}",
            "{{ range $.Tools }}",
            "{{ if .Content }}",
            "{{ else }}",
            "{{ end }}",
        ),
        *(
            "{{ . }}",
            "{{ $x := print $ }}",
            "{{ $x := .Messages }}",
            "{{ json . }}",
            "{{ .Response }}",
            "{{ .Prompt }}",
        ),
        *(
            '{{ template "a" . }}',
            '{{ define "a" }}',
            "{{ printf `%9999d` 1 }}",
            "{{ slice .Content 1 }}",
            "{{ break }}",
        ),
        *("{{ index . 0 }}", "{{ len . }}", "{{ with .System }}", "{{ .Function }}", "{{ eq . $ }}", "text"),
    ]
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join), st.sampled_from(list(recorded("conversations"))))
def test_any_template_renders_or_raises_our_error(source: str, name: str) -> None:
    try:
        text = render(source + "{{ end }}" * source.count("{{ range"), recorded("conversations")[name])
    except RenderError:
        return
    assert len(text) < 2 * 1024 * 1024
    text.encode()


def test_an_error_of_pythons_becomes_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    parsed = GoTemplate.parse("{{ .Prompt }}", era=Era.JSON_TOOLS)
    monkeypatch.setattr(template, "collate", broken)
    with pytest.raises(RenderError, match="KeyError"):
        parsed.render(Conversation((Message("user", "x"),)), today=RECORDED)


def test_a_request_nested_too_deeply_is_given_up() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [{"items": deep}]}
    traits = ModelTraits(capabilities=frozenset({"tools"}))
    with pytest.raises(RenderError, match="too deeply"):
        chat_conversation(body, traits)

    conversation = Conversation((Message("user", "x"),), (Tool(items=deep),))
    parsed = GoTemplate.parse("{{ range .Messages }}{{ json $.Tools }}{{ end }}", era=Era.JSON_TOOLS)
    with pytest.raises(RenderError, match="too deeply"):
        parsed.render(conversation, today=RECORDED)
