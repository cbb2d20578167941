"""langchain-ollama through the gate: one JSON object on standard output says what came of each thing."""

import json
import sys

from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings


@tool
def weather(city: str) -> str:
    """Today's weather."""
    return city


def main() -> None:
    url, question, long = sys.argv[1:3] + [sys.argv[3] * 20_000]
    chat = ChatOllama(model="rehearsal", base_url=url, num_predict=8)
    told: dict[str, object] = {
        "chat": chat.invoke("Say hello.").content,
        "stream": "".join(str(part.content) for part in chat.stream("Say hello.")),
    }
    caller = ChatOllama(model="rehearsal-tools", base_url=url).bind_tools([weather])
    told["tools"] = [call["name"] for call in caller.invoke(question).tool_calls]
    told["embed"] = len(OllamaEmbeddings(model="rehearsal-embed", base_url=url).embed_query("hello"))
    try:
        chat.invoke(long)
    except Exception as error:  # its type is what is asked for
        told["over"] = [type(error).__name__, str(error)]
    print(json.dumps(told))


main()
