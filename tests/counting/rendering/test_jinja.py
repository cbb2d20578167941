import json
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.counting.normalise import Conversation, ModelTraits, chat_conversation, generate_conversation
from ollama_gate.counting.rendering.jinja import JinjaTemplate
from ollama_gate.counting.structs import Message, decode_messages
from ollama_gate.errors import RenderError, TemplateRefused

DATA = Path(__file__).parents[2] / "data" / "jinja"
NATIVE = json.loads((DATA / "native.json").read_text())
LLAMACPP = json.loads((DATA / "llamacpp.json").read_text())
NOW = datetime(2026, 11, 30, 9, 5)  # noqa: DTZ001 (local time of the server)


@cache
def native_template(model: str) -> JinjaTemplate:
    known = NATIVE["models"][model]
    if known["template"] is None:
        return JinjaTemplate.chatml("<bos>", "<eos>", adds_bos=known["adds_bos"])
    return JinjaTemplate.compile(known["template"], "<bos>", "<eos>", adds_bos=known["adds_bos"])


def native_conversation(model: str, endpoint: str, request: dict[str, Any]) -> Conversation:
    known = NATIVE["models"][model]
    traits = ModelTraits(
        name=model,
        family=known["family"],
        capabilities=frozenset(known["capabilities"]),
        system=known["system"] or "",
        messages=decode_messages(known["messages"] or []),
    )
    return (chat_conversation if endpoint == "/api/chat" else generate_conversation)(request, traits)


@pytest.mark.parametrize("row", NATIVE["rows"], ids=[f"{row['id']} {row['kind']}" for row in NATIVE["rows"]])
def test_the_text_is_the_one_that_a_real_ollama_rendered(row: dict[str, Any]) -> None:
    conversation = native_conversation(row["model"], row["endpoint"], row["request"])
    text = conversation.raw
    if text is None:
        text = native_template(row["model"]).render(conversation, now=NOW)
    assert text == row["rendered"]


@cache
def llamacpp_template(name: str) -> JinjaTemplate:
    return JinjaTemplate.compile(LLAMACPP["templates"][name], "<s>", "</s>")


def conversation_of(body: dict[str, Any]) -> Conversation:
    capabilities = {"tools", "thinking"} if "think" in body else {"tools"}
    return chat_conversation(body, ModelTraits(capabilities=frozenset(capabilities)))


@pytest.mark.parametrize("name", LLAMACPP["templates"])
def test_each_way_of_a_template_is_met_as_llamacpp_meets_it(name: str) -> None:
    rows = [row for row in LLAMACPP["rows"] if row["template"] == name]
    assert len(rows) == len(LLAMACPP["bodies"])
    for row in rows:
        conversation = conversation_of(LLAMACPP["bodies"][row["conversation"]])
        if row["prompt"] is None:
            with pytest.raises((TemplateRefused, RenderError)):
                llamacpp_template(name).render(conversation, now=NOW)
        else:
            assert llamacpp_template(name).render(conversation, now=NOW) == row["prompt"], row["conversation"]


def test_arguments_as_text_are_spelled_as_go_spells_them() -> None:
    call = {"function": {"name": "f", "arguments": {"b": 1e-7, "a<": {"z": 2**63, "\b": "\u2028"}}}}
    talk = [{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [call]}, {"role": "user"}]
    text = llamacpp_template("arguments as text").render(conversation_of({"messages": talk}), now=NOW)
    assert r'f {"b":1e-7,"a\u003c":{"\b":"\u2028","z":9223372036854776000}}</call>' in text


def talk(*contents: str) -> Conversation:
    roles = ("user", "assistant")
    return Conversation(tuple(Message(roles[i % 2], content) for i, content in enumerate(contents)))


def test_a_template_that_refuses_a_conversation_is_ollamas_refusal() -> None:
    template = JinjaTemplate.compile("{{ raise_exception('roles must alternate') }}", "", "")
    with pytest.raises(TemplateRefused, match="roles must alternate"):
        template.render(talk("hi"), now=NOW)


def test_two_answers_at_the_end_are_llama_servers_refusal() -> None:
    messages = (Message("user", "hi"), Message("assistant", "a"), Message("assistant", "b"))
    with pytest.raises(TemplateRefused, match="2 or more assistant messages"):
        JinjaTemplate.chatml().render(Conversation(messages), now=NOW)


def test_a_tool_that_is_no_function_is_llama_servers_refusal() -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "mcp", "function": {"name": "f"}}]}
    with pytest.raises(TemplateRefused, match="Unsupported tool type"):
        JinjaTemplate.chatml().render(conversation_of(body), now=NOW)


def test_a_mistake_of_the_template_is_not_called_ollamas_refusal() -> None:
    template = JinjaTemplate.compile("{{ messages[0].content < 3 }}", "", "")
    with pytest.raises(RenderError) as caught:
        template.render(talk("hi"), now=NOW)
    assert not isinstance(caught.value, TemplateRefused)


def test_one_bos_in_front_and_one_eos_at_the_end_are_left_to_the_tokenizer() -> None:
    source = "{{ bos_token }}{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ eos_token }}"
    plain = JinjaTemplate.compile(source, "<s>", "</s>").render(talk("hi"), now=NOW)
    added = JinjaTemplate.compile(source, "<s>", "</s>", adds_bos=True, adds_eos=True).render(talk("hi"), now=NOW)
    assert plain == "<s><s>hi</s></s>"
    assert added == "<s>hi</s>"


def test_a_vocabulary_without_bos_and_eos_takes_nothing_away() -> None:
    template = JinjaTemplate.compile("{{ messages[0].content }}", "", "", adds_bos=True, adds_eos=True)
    assert template.render(talk("hi"), now=NOW) == "hi"


def test_the_date_is_the_one_that_is_passed_in() -> None:
    source = "{{ date_string }}|{{ datetime }}|{{ strftime_now('%Y-%m-%d %H:%M') }}"
    template = JinjaTemplate.compile(source, "", "")
    assert template.dated
    assert template.render(talk("hi"), now=NOW) == "30 Nov 2026|Nov 30 2026|2026-11-30 09:05"


def test_a_template_without_a_date_says_so() -> None:
    assert not JinjaTemplate.chatml().dated


def test_thinking_of_earlier_answers_is_not_sent() -> None:
    template = JinjaTemplate.compile("{% for m in messages %}{{ m|tojson }}{% endfor %}", "", "")
    messages = (Message("user", "a"), Message("assistant", "b", thinking="secret"), Message("user", "c"))
    assert "secret" not in template.render(Conversation(messages), now=NOW)


def test_a_picture_takes_no_text() -> None:
    parts = (
        "{% for m in messages %}{% for p in m.content %}{{ p.type }}:{{ p.text|default('') }};{% endfor %}{% endfor %}"
    )
    with_picture = Conversation((Message("user", "what?", images=2),))
    assert JinjaTemplate.compile(parts, "", "").render(with_picture, now=NOW) == (
        "text:what?;media_marker:;media_marker:;"
    )
    assert JinjaTemplate.chatml().render(with_picture, now=NOW) == (
        "<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_rendering_leaves_the_conversation_as_it_was() -> None:
    source = "{% set _ = messages.append(1) %}{{ messages|length }}"
    template = JinjaTemplate.compile(source, "", "")
    conversation = talk("hi")
    assert [template.render(conversation, now=NOW) for _ in range(2)] == ["2", "2"]


def test_nothing_to_render_is_no_prompt() -> None:
    with pytest.raises(RenderError):
        JinjaTemplate.chatml().render(Conversation(), now=NOW)


@pytest.mark.parametrize(
    "source",
    [
        "{% if",
        "{{ x | no_such_filter }}",
        "{% for x in y %}",
        "{" * 1000,
        "{% for a in x %}" * 25 + "{% endfor %}" * 25,
        "{% if x %}" * 120 + "{% endif %}" * 120,
        "{{ " + "[" * 500 + "]" * 500 + " }}",
        "{{ " + "9" * 5000 + " }}",
        "x" * (512 * 1024 + 1),
    ],
)
def test_a_template_that_cannot_be_compiled_is_not_rendered_here(source: str) -> None:
    with pytest.raises(RenderError):
        JinjaTemplate.compile(source, "", "")
