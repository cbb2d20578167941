"""llama-index-llms-ollama through the gate: one JSON object on standard output says what came of each thing."""

import json
import sys

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.llms.ollama import Ollama


def weather(city: str) -> str:
    """Today's weather."""
    return city


def main() -> None:
    url, question, long = sys.argv[1:3] + [sys.argv[3] * 20_000]
    chat = Ollama(model="rehearsal", base_url=url, request_timeout=60.0, additional_kwargs={"num_predict": 8})
    hello = [ChatMessage(role="user", content="Say hello.")]
    told: dict[str, object] = {
        "chat": chat.chat(hello).message.content,
        "stream": "".join(part.delta or "" for part in chat.stream_chat(hello)),
        "window": chat.metadata.context_window,
    }
    caller = Ollama(model="rehearsal-tools", base_url=url, request_timeout=60.0)
    answer = caller.chat_with_tools([FunctionTool.from_defaults(fn=weather)], user_msg=question)
    calls = caller.get_tool_calls_from_response(answer, error_on_no_tool_call=False)
    told["tools"] = [call.tool_name for call in calls]
    told["embed"] = len(OllamaEmbedding(model_name="rehearsal-embed", base_url=url).get_text_embedding("hello"))
    try:
        chat.chat([ChatMessage(role="user", content=long)])
    except Exception as error:  # its type is what is asked for
        told["over"] = [type(error).__name__, str(error)]
    print(json.dumps(told))


main()
