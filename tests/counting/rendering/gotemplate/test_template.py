"""How Ollama runs a template: by messages, once a turn, or around a suffix; and what it mentions."""

from datetime import date

import pytest

from ollama_gate.counting.normalise import Conversation, Flow
from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate
from ollama_gate.counting.structs import Message, ToolCall
from ollama_gate.errors import RenderError, TemplateRefused
from support.gotemplates import RECORDED, conversation, one_user, render, template_text


def parsed(source: str, era: Era = Era.JSON_TOOLS) -> GoTemplate:
    return GoTemplate.parse(source, era=era)


def talk(*pairs: tuple[str, str]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in pairs]}


@pytest.mark.parametrize(
    ("source", "by_messages"),
    [
        ("{{ .Messages }}", True),
        ("{{ $.messages }}", True),
        ("{{ range .Tools }}{{ end }}{{ len (slice $.Messages 1) }}", True),
        ('{{ define "a" }}{{ .X.Messages }}{{ end }}', True),
        ("{{ (print .).Messages }}", False),
        ("{{ .Prompt }}", False),
        ("text", False),
    ],
)
def test_a_template_that_mentions_the_messages_gets_them(source: str, *, by_messages: bool) -> None:
    assert parsed(source).by_messages is by_messages


def test_a_response_is_appended_where_nothing_is_mentioned() -> None:
    body = talk(("user", "a"), ("assistant", "b"), ("user", "c"))
    assert render("<{{ .Prompt }}>", body) == "<a>b<c>"
    assert render("<{{ .Prompt }}>{{ .Response }}!", body) == "<a>b!<c>"


def test_the_last_turn_ends_at_the_response() -> None:
    assert render("{{ .Prompt }}:{{ .Response }}</s>", one_user("q")) == "q:"
    assert render("{{ .Prompt }}:{{ .Response }}</s>", talk(("user", "q"), ("assistant", "pre"))) == "q:pre"


def test_a_response_in_a_branch_with_an_else_is_refused_when_it_runs() -> None:
    template = parsed(template_text("legacy_else"))
    with pytest.raises(TemplateRefused):
        template.render(conversation(one_user()), today=RECORDED)


def test_a_template_without_an_argument_makes_all_of_it_invalid() -> None:
    with pytest.raises(TemplateRefused, match="undefined template specified"):
        parsed('{{ define "a" }}x{{ end }}{{ .Messages }}{{ template "a" }}')


def test_uses_tells_what_is_mentioned() -> None:
    template = parsed(template_text("gptoss"))
    for name in ("Messages", "messages", "Tools", "Thinking", "ThinkLevel", "currentDate", "ToolName", "System"):
        assert template.uses(name), name
    for name in ("Suffix", "Prompt", "Response", "yesterdayDate"):
        assert not template.uses(name), name
    assert template.dated
    assert not parsed("{{ .Prompt }}").dated
    assert parsed("{{ (index .Messages 0).Thinking }}").uses("Thinking")


def test_the_date_is_the_one_that_is_given() -> None:
    source = "{{ currentDate }} {{ yesterdayDate `x` }}{{ if .Messages }}{{ end }}"
    assert parsed(source).render(conversation(one_user()), today=date(2027, 3, 1)) == "2027-03-01 2027-02-28"


def test_nothing_is_rendered_for_an_empty_conversation() -> None:
    assert parsed("x{{ .Prompt }}").render(Conversation(), today=RECORDED) == ""


def test_a_raw_prompt_is_its_own_text() -> None:
    assert parsed("x{{ .Prompt }}").render(Conversation(raw="as {{ is }}"), today=RECORDED) == "as {{ is }}"


def test_the_text_of_a_context_stands_in_front() -> None:
    with_context = Conversation((Message("user", "b"),), context=(1, 2))
    assert parsed("<{{ .Prompt }}>").render(with_context, today=RECORDED, context_text="a") == "a<b>"
    with pytest.raises(RenderError, match="context"):
        parsed("<{{ .Prompt }}>").render(with_context, today=RECORDED)


def test_images_are_marked_in_a_chat_and_not_in_an_override() -> None:
    messages = (Message("user", "see", images=2), Message("user", "and [img] this", images=1))
    template = parsed("{{ range .Messages }}{{ .Content }}|{{ len .Images }}{{ end }}")
    assert template.render(Conversation(messages), today=RECORDED) == "[img-0][img-1]see\n\nand [img-2] this|2"
    override = Conversation(messages, flow=Flow.OVERRIDE)
    assert template.render(override, today=RECORDED) == "see\n\nand [img] this|2"


def test_the_bytes_of_an_image_are_not_known() -> None:
    with_image = Conversation((Message("user", "see", images=1),))
    for source in ("{{ range .Messages }}{{ .Images }}{{ end }}", "{{ json .Messages }}"):
        with pytest.raises(RenderError) as caught:
            parsed(source).render(with_image, today=RECORDED)
        assert not isinstance(caught.value, TemplateRefused)


def test_a_cut_through_a_character_shows_as_broken_bytes() -> None:
    source = "{{ range .Messages }}{{ slice .Content 0 1 }}~{{ slice .Content 0 1 }}{{ slice .Content 1 }}{{ end }}"
    assert render(source, one_user("é")) == "\ufffd~é"
    assert render("{{ range .Messages }}{{ slice .Content 0 2 }}{{ end }}", one_user("日")) == "\ufffd\ufffd"


def test_a_lone_surrogate_in_the_source_is_repaired() -> None:
    assert render("\ud800{{ .Prompt }}", one_user("x")) == "\ufffdx"


def test_before_0_14_tools_are_not_known_but_the_rest_is() -> None:
    template = parsed("{{ range .Messages }}{{ .Content }}{{ end }}", Era.API_STRUCTS)
    assert template.render(conversation(one_user("hi")), today=RECORDED) == "hi"
    calling = Conversation((Message("assistant", "", tool_calls=(ToolCall(name="f"),)),))
    with pytest.raises(RenderError):
        template.render(calling, today=RECORDED)


@pytest.mark.parametrize(
    ("version", "era"),
    [
        ("0.13.5", Era.API_STRUCTS),
        ("0.9.0-rc1", Era.API_STRUCTS),
        ("0.14.0", Era.SHORT_PROPERTIES),
        ("0.19.1", Era.SHORT_PROPERTIES),
        ("0.20.0-rc0", Era.TEMPLATE_STRUCTS),
        ("v0.29.9", Era.TEMPLATE_STRUCTS),
        ("0.30.0", Era.JSON_TOOLS),
        ("0.33.0-rc2", Era.JSON_TOOLS),
        ("1.0.0", Era.JSON_TOOLS),
        ("0.0.0", Era.JSON_TOOLS),
        ("", Era.JSON_TOOLS),
    ],
)
def test_the_era_is_told_by_the_version(version: str, era: Era) -> None:
    assert Era.of(version) is era
