"""Templates that llama.cpp knows by what they hold, and what it does for them beyond rendering.

`common/chat.cpp:common_chat_try_specialized_template` (b10488) looks for marks in a template's source. For most
families that only decides how the answer is parsed; three get their messages reshaped, and each has its own beginning
of an answer when the conversation ends with an assistant message that the model is to continue.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Family:
    """A family of templates."""

    name: str
    has: tuple[str, ...]
    """Marks that are all in its templates,"""
    lacks: tuple[str, ...] = ()
    """and marks that are not."""
    continued: str = ""
    """What stands before the text of an answer that is to be continued."""
    thinks: bool = True
    """Whether thinking is on in its prompts when the request says nothing."""
    after_prompt: bool = False
    """Whether the template's own generation prompt stands before that."""
    reshape: Callable[[Messages], Messages] | None = None


def family_of(source: str) -> Family | None:
    """The family of a template, None for one that llama.cpp analyses by itself."""
    for family in _FAMILIES:
        if all(mark in source for mark in family.has) and not any(mark in source for mark in family.lacks):
            return family
    return None


def thinks_by_default(family: Family, source: str) -> bool:
    """Whether llama.cpp switches thinking on for a template of a family."""
    return family.thinks and (family.name != "qwen3-coder" or "<think>" in source)


def close_turn(family: Family | None, text: str) -> str:
    """Put the model's turn at the end of a Gemma 4 prompt whose template forgot it."""
    if family is not None and family.name.startswith("gemma4") and text.endswith("<turn|>\n"):
        return text + "<|turn>model\n"
    return text


def continuation(family: Family, source: str, text: str, generation_prompt: str) -> str:
    """What llama.cpp puts between the rendered messages and an answer that is to be continued."""
    before = family.continued
    if family.name.startswith("gemma4") and text.endswith("<turn|>\n"):
        before = "<|turn>model\n" + before
    if family.name == "qwen3-coder" and "<think>" in source:
        before += "<think>\n\n</think>\n\n"
    return generation_prompt + before if family.after_prompt else before


def _typed_content(messages: Messages) -> Messages:
    """Ministral 3: system and assistant messages have a list of parts."""
    for message in messages:
        if message["role"] in {"system", "assistant"} and isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
    return messages


def _results_in_call_order(messages: Messages) -> Messages:
    """DeepSeek V4: tool results of one run stand in the order of the calls, by their ids."""
    order: dict[str, int] = {}
    start = 0
    while start < len(messages):
        message = messages[start]
        if message["role"] == "assistant" and message.get("tool_calls"):
            order = {call["id"]: index for index, call in enumerate(message["tool_calls"]) if call.get("id")}
        end = start
        while end < len(messages) and messages[end]["role"] in {"user", "tool"}:
            end += 1
        places = [place for place in range(start, end) if messages[place]["role"] == "tool"]
        if len(places) > 1 and order:
            results = sorted(
                (messages[place] for place in places), key=lambda m: order.get(m.get("tool_call_id", ""), 0)
            )
            for place, result in zip(places, results, strict=True):
                messages[place] = result
        start = max(end, start + 1)
    return messages


def _responses_with_calls(messages: Messages) -> Messages:
    """Older Gemma 4 templates: calls, their results and the answer are one message."""
    made: Messages = []
    place = 0
    while place < len(messages):
        message = messages[place]
        place += 1
        if message["role"] != "assistant" or not message.get("tool_calls"):
            made.append(message)
            continue
        calls = message["tool_calls"]
        turn: dict[str, Any] = {"role": "assistant", "tool_calls": calls}
        responses: list[dict[str, Any]] = []
        while place < len(messages) and messages[place]["role"] == "tool":
            result = messages[place]
            name = calls[len(responses)]["function"]["name"] if len(responses) < len(calls) else ""
            responses.append({"name": name or result.get("tool_call_id", ""), "response": _parsed(result["content"])})
            place += 1
        if responses:
            turn["tool_responses"] = responses
        if place < len(messages):
            answer = messages[place]
            if answer["role"] == "assistant" and not answer.get("tool_calls") and answer["content"]:
                turn["content"] = answer["content"]
                place += 1
        made.append(turn)
    return made


def _parsed(content: Any) -> Any:
    """A result that is JSON as its value."""
    if not isinstance(content, str):
        return content
    try:
        return json.loads(content, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return content


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_FAMILIES: Final = (
    Family(
        "ministral-3",
        ("[SYSTEM_PROMPT]", "[TOOL_CALLS]", "[ARGS]"),
        ("[CALL_ID]",),
        continued="[THINK][/THINK]",
        reshape=_typed_content,
    ),
    Family(
        "gpt-oss",
        ("<|channel|>",),
        continued="<|start|>assistant<|channel|>analysis<|message|><|end|>"
        "<|start|>assistant<|channel|>final<|message|>",
    ),
    Family(
        "muse-glimmer",
        ("<atem:function_calls>", "<|eom|>"),
        continued="<|start|>assistant to=self<|message|><|eom|><|start|>assistant to=user<|message|>",
    ),
    Family(
        "functionary-3.2",
        (">>>all", ">>>${recipient}"),
        continued="<|start_header_id|>assistant<|end_header_id|>\n\n>>>all\n",
        thinks=False,
    ),
    Family(
        "kimi-k2",
        ("<|tool_calls_section_begin|>", "<|tool_call_begin|>"),
        continued="<|im_assistant|>assistant<|im_middle|><think></think>",
    ),
    Family(
        "kimi-k3",
        ("<|open|>", "<|close|>", "<|end_of_msg|>"),
        continued='<|open|>message role="assistant"<|sep|><|open|>think<|sep|><|close|>think<|sep|>'
        "<|open|>response<|sep|>",
    ),
    Family(
        "cohere2-moe",
        ("<|START_TEXT|>", "<|START_ACTION|>"),
        continued="<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|><|START_THINKING|><|END_THINKING|><|START_TEXT|>",
    ),
    Family(
        "lfm2",
        ("<|tool_list_start|>", "<|tool_list_end|>"),
        continued="<|im_start|>assistant\n<think></think>",
    ),
    Family(
        "lfm2.5",
        ("List of tools: [",),
        ("<|tool_list_start|>",),
        continued="<|im_start|>assistant\n<think></think>",
    ),
    Family(
        "gigachat-3",
        ("<|role_sep|>", "<|message_sep|>"),
        ("<|function_call|>",),
        continued="assistant<|role_sep|>\n",
        thinks=False,
    ),
    Family(
        "minimax-m3",
        ("]<]minimax[>[", "<tool_call>", "<invoke name="),
        continued="<mm:think></mm:think>",
        after_prompt=True,
    ),
    Family(
        "deepseek-3.2",
        ("dsml_token", "DSML", "function_calls"),
        continued="<｜Assistant｜><think></think>",
    ),
    Family(
        "deepseek-4",
        ("dsml_token", "DSML", "tool_calls"),
        continued="<｜Assistant｜></think>",
        reshape=_results_in_call_order,
    ),
    Family(
        "gemma4-older",
        ("'<|tool_call>call:'",),
        ("{#- OpenAI Chat Completions:",),
        continued="<|channel>thought\n<channel|>",
        reshape=_responses_with_calls,
    ),
    Family(
        "gemma4",
        ("'<|tool_call>call:'",),
        continued="<|channel>thought\n<channel|>",
    ),
    Family(
        "minicpm-5",
        ("Tool usage guidelines:", '<function name="', '<param name="'),
        continued="<|im_start|>assistant\n<think>\n\n</think>\n\n",
    ),
    Family(
        "qwen3-coder",
        ("<tool_call>", "<function=", "<parameter="),
        continued="<|im_start|>assistant\n",
    ),
)
