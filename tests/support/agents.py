"""Requests in the shape in which well-known agents send them, small enough for tests.

The shapes were seen on the wire (Claude Code 2.1, Codex 0.171, opencode 1.18, aider 0.86); the texts are ours.
"""

from typing import Any

SENTENCE = "The ferry left the northern landing in the grey of the morning and nobody waved. "


def prose(sentences: int) -> str:
    """Text of about 28 tokens a sentence in the rehearsal's vocabulary."""
    return SENTENCE * sentences


SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "A file"}, "limit": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}
CLAUDE_HEADERS = {
    "anthropic-version": "2023-06-01",
    "anthropic-beta": "interleaved-thinking-2025-05-14,context-management-2025-06-27,effort-2025-11-24",
    "anthropic-dangerous-direct-browser-access": "true",
    "x-app": "cli",
    "x-claude-code-session-id": "5e55-10n",
    "x-stainless-retry-count": "0",
    "Authorization": "Bearer none",
}


def claude_code(model: str, *turns: str, billing: str = "cc_version=2.1.197.a1b; cc_entrypoint=cli;") -> dict[str, Any]:
    """A turn of Claude Code: user and assistant texts in turn, the first one the user's."""
    messages: list[dict[str, Any]] = [
        {"role": "assistant" if at % 2 else "user", "content": [{"type": "text", "text": text}]}
        for at, text in enumerate(turns)
    ]
    messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
    # Its reminders are a system message in the middle of the conversation.
    messages.insert(1, {"role": "system", "content": [{"type": "text", "text": "Files may have changed."}]})
    return {
        "model": model,
        "max_tokens": 32000,
        "system": [
            {"type": "text", "text": f"x-anthropic-billing-header: {billing}"},
            {"type": "text", "text": "You are an agent for code.", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": " Be careful.", "cache_control": {"type": "ephemeral"}},
        ],
        "messages": messages,
        "tools": [
            {"name": name, "description": f"{name} a file", "input_schema": SCHEMA}
            for name in ("Read", "Write", "Edit")
        ],
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": '{"device_id":"d","session_id":"s"}'},
        "stream": True,
    }


CODEX_HEADERS = {
    "accept": "text/event-stream",
    "session-id": "c0d3x",
    "thread-id": "c0d3x",
    "x-client-request-id": "c0d3x",
    "x-codex-window-id": "c0d3x:0",
    "x-codex-turn-metadata": '{"turn":"' + "x" * 700 + '"}',
}


def codex(model: str, *turns: str) -> dict[str, Any]:
    """A turn of Codex; its user's texts, after what its developers say."""
    return {
        "model": model,
        "instructions": "",
        "input": [
            _item("developer", "Follow the rules of this place."),
            _item("developer", "The shell is sh."),
            *(_item("user", text) for text in turns),
        ],
        "tools": [
            {"type": "function", "name": "shell", "description": "Run it", "strict": False, "parameters": SCHEMA},
            {
                "type": "namespace",
                "name": "plans",
                "description": "Plans",
                "tools": [
                    {"type": "function", "name": name, "description": name, "parameters": SCHEMA}
                    for name in ("plans.make", "drop")
                ],
            },
            {"type": "web_search", "external_web_access": True},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "c0d3x",
        "client_metadata": {"x-codex-turn-metadata": "{}"},
    }


def _item(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "id": f"msg_{role}", "role": role, "content": [{"type": "input_text", "text": text}]}


OPENCODE_HEADERS = {"x-session-id": "0pen", "x-session-affinity": "0pen", "Authorization": "Bearer none"}


def openai_turn(model: str, *turns: str, tools: bool = True) -> dict[str, Any]:
    """A turn as opencode, pi, Cline and Qwen Code send it."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [
            {"role": "system", "content": "You are an agent for code."},
            *({"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(turns)),
        ],
        "max_tokens": 32000,
        "stream": True,
        "stream_options": {"include_usage": True},
        "store": False,
    }
    if tools:
        function = {"name": "read", "description": "Read a file", "parameters": SCHEMA}
        body |= {"tools": [{"type": "function", "function": function}], "tool_choice": "auto"}
    return body
