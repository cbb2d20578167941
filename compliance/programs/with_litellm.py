"""litellm through the gate, as its provider in the fourth argument: one JSON object says what came of each thing."""

import json
import sys

import litellm

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Today's weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def main() -> None:
    url, question, long, provider = sys.argv[1:3] + [sys.argv[3] * 20_000, sys.argv[4]]
    base = f"{url}/v1" if provider == "openai" else url
    known = {"api_base": base, "api_key": "none", "max_tokens": 8}

    def ask(model: str, text: str, **more: object) -> object:
        messages = [{"role": "user", "content": text}]
        return litellm.completion(f"{provider}/{model}", messages=messages, **known, **more)

    told: dict[str, object] = {
        "chat": ask("rehearsal", "Say hello.").choices[0].message.content,
        "stream": "".join(part.choices[0].delta.content or "" for part in ask("rehearsal", "Say hello.", stream=True)),
    }
    del known["max_tokens"]
    calls = ask("rehearsal-tools", question, tools=[TOOL]).choices[0].message.tool_calls or []
    told["tools"] = [call.function.name for call in calls]
    if provider != "anthropic":
        embedder = "ollama" if provider == "ollama_chat" else provider
        more = {"encoding_format": "float"} if provider == "openai" else {}
        made = litellm.embedding(f"{embedder}/rehearsal-embed", input=["hello"], api_base=base, api_key="none", **more)
        told["embed"] = len(made.data[0]["embedding"])
    try:
        ask("rehearsal", long)
    except Exception as error:  # its type is what is asked for
        told["over"] = [type(error).__name__, str(error)]
    print(json.dumps(told))


main()
