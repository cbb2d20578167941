"""What Ollama's server makes of a request before it is rendered."""

from datetime import date
from typing import Any

import pytest

from ollama_gate.counting.normalise import (
    Conversation,
    Flow,
    ModelTraits,
    Think,
    chat_conversation,
    generate_conversation,
    harmony_names,
    native_arguments,
    native_tools,
    native_value,
    strip_thinking,
    tag_images,
)
from ollama_gate.counting.rendering.gotemplate import Era, GoTemplate
from ollama_gate.counting.structs import Message, ToolCall, decode_free, decode_tools
from ollama_gate.errors import TemplateRefused
from support.gotemplates import recorded

PREPARATION = recorded("preparation")
USER = {"role": "user", "content": "hi"}
ALL = frozenset({"completion", "tools", "thinking", "insert"})
HARMONY = "<|start|>{{ .Messages }}<|end|>"


def chat(messages: list[dict[str, Any]], model: ModelTraits | None = None, **fields: Any) -> Conversation:
    return chat_conversation({"messages": messages, **fields}, model or ModelTraits(capabilities=ALL))


def roles(conversation: Conversation) -> list[str]:
    return [message.role for message in conversation.messages]


# --- SYSTEM and MESSAGEs


def test_the_system_prompt_of_the_model_stands_in_front_of_everything() -> None:
    model = ModelTraits(system="S", messages=(Message("user", "q"), Message("assistant", "a")))
    assert [message.content for message in chat([USER], model).messages] == ["S", "q", "a", "hi"]


def test_a_system_message_of_the_request_replaces_it() -> None:
    model = ModelTraits(system="S", messages=(Message("user", "q"),))
    got = chat([{"role": "SYSTEM", "content": "own"}, USER], model)
    assert [message.content for message in got.messages] == ["q", "own", "hi"]
    late = chat([USER, {"role": "system", "content": "own"}], model)
    assert [message.content for message in late.messages] == ["S", "q", "hi", "own"]


def test_no_messages_mean_that_nothing_is_rendered() -> None:
    model = ModelTraits(system="S", messages=(Message("user", "q"),))
    bodies: list[dict[str, Any]] = [{}, {"messages": []}, {"messages": None}]
    for body in bodies:
        assert chat_conversation(body, model).messages == ()


# --- think


@pytest.mark.parametrize(
    ("given", "think", "level"),
    [
        (None, True, "medium"),
        (True, True, "medium"),
        (False, False, ""),
        ("low", "low", "low"),
        ("max", "max", "max"),
    ],
)
def test_thinking_is_on_by_itself_for_a_model_that_can(given: Think, think: Think, level: str) -> None:
    got = chat([USER], think=given)
    assert got.think == think
    assert got.think_level == level


def test_thinking_is_unset_for_a_model_that_cannot() -> None:
    model = ModelTraits()
    assert chat([USER], model).think is None
    assert chat([USER], model, think=False).think is False


@pytest.mark.parametrize("think", [True, "high"])
def test_thinking_is_refused_for_a_model_that_cannot_unless_relaxed(think: Think) -> None:
    body = {"messages": [USER], "think": think}
    with pytest.raises(TemplateRefused, match="does not support thinking"):
        chat_conversation(body, ModelTraits())
    assert chat_conversation(body, ModelTraits(), relax_thinking=True).think is None


@pytest.mark.parametrize("think", ["", "huge", 1, [], {}])
def test_an_unknown_think_is_refused(think: object) -> None:
    with pytest.raises(TemplateRefused, match="think must be"):
        chat([USER], think=think)


def test_max_is_high_for_harmony_only() -> None:
    model = ModelTraits(family="gptoss", capabilities=ALL, template=HARMONY)
    assert chat([USER], model, think="max").think == "high"
    assert chat([USER], ModelTraits(family="gptoss", capabilities=ALL), think="max").think == "max"


# --- old thinking


def test_thinking_is_stripped_as_by_ollamas_parser() -> None:
    for text, rest in PREPARATION["thinking"]:
        assert strip_thinking(text) == rest


@pytest.mark.parametrize(
    "model",
    [
        ModelTraits(family="qwen3"),
        ModelTraits(name="deepseek-r1"),
        ModelTraits(name="registry.ollama.ai/library/deepseek-r1:8b"),
    ],
)
def test_old_turns_lose_their_thinking_and_the_current_one_keeps_it(model: ModelTraits) -> None:
    thought = {"role": "assistant", "content": "<think>t</think>a"}
    got = chat([USER, thought, USER, thought], model)
    assert [message.content for message in got.messages] == ["hi", "a", "hi", "<think>t</think>a"]


def test_other_models_keep_their_thinking() -> None:
    thought = {"role": "assistant", "content": "<think>t</think>a"}
    for model in (ModelTraits(family="qwen2"), ModelTraits(name="deepseek-r1-distill"), ModelTraits(name="me/x:qwen3")):
        assert chat([thought, USER], model).messages[0].content == "<think>t</think>a"


# --- tools


def test_harmony_names_are_those_of_ollama() -> None:
    for names, renamed in PREPARATION["names"]:
        assert list(harmony_names(names)) == renamed


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (ModelTraits(capabilities=ALL, parser="harmony"), "get_it"),
        (ModelTraits(capabilities=ALL, family="gptoss", template=HARMONY), "get_it"),
        (ModelTraits(capabilities=ALL, family="gpt-oss", template=HARMONY), "get_it"),
        (ModelTraits(capabilities=ALL, family="gptoss", template=HARMONY, parser="passthrough"), "get-it"),
        (ModelTraits(capabilities=ALL, family="gptoss", template="<|start|>"), "get-it"),
        (ModelTraits(capabilities=ALL, family="llama", template=HARMONY), "get-it"),
    ],
)
def test_tools_are_renamed_where_harmony_is_parsed(model: ModelTraits, name: str) -> None:
    called = {"role": "assistant", "tool_calls": [{"function": {"name": "get-it"}}]}
    got = chat([called, USER], model, tools=[{"function": {"name": "get-it"}}])
    assert got.tools is not None
    assert got.tools[0].function.name == name
    assert got.messages[0].tool_calls[0].name == "get-it"


def test_tools_are_refused_for_a_model_without_them() -> None:
    with pytest.raises(TemplateRefused, match="does not support tools"):
        chat([USER], ModelTraits(), tools=[{}])
    assert chat([USER], ModelTraits(), tools=[]).tools == ()
    assert chat([USER], ModelTraits()).tools is None


SCHEMA = {
    "type": "function",
    "extra": 1,
    "items": {"b": 1, "a": 2.5},
    "function": {
        "parameters": {
            "$schema": "x",
            "properties": {
                "z": {"type": ["string"], "default": 1, "enum": [1, {"b": 1, "a": None}], "description": ""},
                "a": {"type": ["string", "null"], "items": {"y": 1, "x": 1e21}, "properties": {}, "required": []},
                "n": None,
            },
            "required": ["z"],
            "type": "object",
            "$defs": {"b": 1, "a": True},
        },
        "name": "f",
        "strict": True,
    },
}


def test_a_native_tool_is_what_llama_cpp_reads_from_ollamas_structs() -> None:
    (tool,) = native_tools(decode_tools([SCHEMA]) or ())
    assert repr(tool) == repr(
        {
            "type": "function",
            "items": {"a": 2.5, "b": 1},
            "function": {
                "name": "f",
                "description": "",
                "parameters": {
                    "type": "object",
                    "$defs": {"a": True, "b": 1},
                    "required": ["z"],
                    "properties": {
                        "z": {"type": "string", "enum": [1, {"a": None, "b": 1}]},
                        "a": {"type": ["string", "null"], "items": {"x": 1e21, "y": 1}, "properties": {}},
                        "n": {},
                    },
                },
            },
        }
    )


def test_a_native_tool_without_parameters_has_null_properties() -> None:
    (tool,) = native_tools(decode_tools([{"function": {"name": "f"}}]) or ())
    assert tool["function"]["parameters"] == {"type": "", "properties": None}


def test_native_arguments_keep_the_order_of_their_keys_at_the_top() -> None:
    call = ToolCall(arguments={"b": 1.0, "a": {"d": 2.5, "c": [-3.0]}})
    assert repr(native_arguments(call)) == "{'b': 1, 'a': {'c': [-3], 'd': 2.5}}"
    assert native_arguments(ToolCall()) == {}
    assert native_arguments(ToolCall(null_arguments=True)) is None


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (2**53 + 1, 2**53),
        (1e16, 10**16),
        (2**63, 9223372036854776000 - 2**64),
        (12345678901234567890, 12345678901234567000 - 2**64),
        (-(2**63), -9.223372036854775808e18),
        (2**64 - 1, 18446744073709551616.0),
        (1e21, 1e21),
        (-0.0, 0),
    ],
)
def test_a_native_number_is_what_llama_cpp_reads_of_gos_digits(sent: float, read: float) -> None:
    # Recorded from Ollama v0.33.0-rc2: 2**63 is shown as -9223372036854775616, -(2**63) as -9.22337e+18.
    found = native_value(decode_free(sent))
    assert (type(found), found) == (type(read), read)


def test_a_model_without_any_template_generates_from_the_bare_prompt() -> None:
    # Recorded from Ollama v0.33.0-rc2: its chats go through llama-server's chatml, its prompts do not.
    made = generate_conversation({"prompt": "hi", "system": "Be brief."}, ModelTraits(bare=True))
    assert GoTemplate.parse(made.override, era=Era.of("0.33.0")).render(made, today=date(2026, 11, 30)) == "hi"


# --- images


def test_images_are_marked_in_order() -> None:
    messages = (Message("user", "a", images=2), Message("user", "b"), Message("user", "c [img] d [img]", images=3))
    assert [message.content for message in tag_images(messages)] == [
        "[img-0][img-1]a",
        "b",
        "[img-4]c [img-2] d [img-3]",
    ]


def test_a_literal_marker_stays_without_an_image() -> None:
    messages = (Message("user", "an [img] here"),)
    assert tag_images(messages) == messages


# --- generate


def generate(model: ModelTraits | None = None, **body: Any) -> Conversation:
    return generate_conversation(body, model or ModelTraits(capabilities=ALL, system="S", messages=(Message("user"),)))


def test_a_prompt_becomes_a_user_message_after_the_models_own() -> None:
    got = generate(prompt="p", images=["x", "y"])
    assert roles(got) == ["system", "user", "user"]
    assert got.messages[-1] == Message("user", "p", images=2)
    assert got.tools == ()
    assert got.flow is Flow.CHAT
    assert got.images == 2


def test_the_requests_system_replaces_the_models() -> None:
    assert generate(prompt="p", system="own").messages[0].content == "own"


def test_a_context_leaves_out_the_models_messages() -> None:
    got = generate(prompt="p", context=[1, 2])
    assert roles(got) == ["system", "user"]
    assert got.context == (1, 2)
    assert roles(generate(prompt="p", context=None)) == ["system", "user", "user"]


def test_a_suffix_leaves_out_all_messages() -> None:
    got = generate(prompt="p", suffix="s")
    assert got == Conversation(think=True, flow=Flow.SUFFIX, prompt="p", suffix="s")
    with pytest.raises(TemplateRefused, match="does not support insert"):
        generate(ModelTraits(), prompt="p", suffix="s")


def test_a_template_of_the_request_sees_no_tools_at_all() -> None:
    got = generate(prompt="p", template="{{ .Tools }}")
    assert got.flow is Flow.OVERRIDE
    assert got.override == "{{ .Tools }}"
    assert got.tools is None


def test_a_raw_prompt_is_left_alone() -> None:
    assert generate(prompt="p", raw=True, suffix="s") == Conversation(raw="p")
    for field in ({"template": "t"}, {"system": "s"}, {"context": [1]}):
        with pytest.raises(TemplateRefused, match="raw mode"):
            generate(prompt="p", raw=True, **field)


def test_without_a_prompt_nothing_is_rendered() -> None:
    for body in ({}, {"prompt": ""}, {"prompt": None, "system": "s"}):
        got = generate(**body)
        assert got.messages == ()
        assert got.raw is None


@pytest.mark.parametrize(
    "wrong",
    [{"prompt": 1}, {"system": []}, {"suffix": 2}, {"think": 3}, {"context": "x"}, {"context": [1.5]}, {"images": "x"}],
)
def test_wrong_types_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TemplateRefused):
        generate(**{"prompt": "p", **wrong})
