"""Tools that a server runs, unlike those that the client runs: left out, refused or handed on, as the operator says.

Of all of them Ollama runs one, `web_search`, and only in its own layer for /v1; what it adds to the prompt there no
gate can count.
"""

from typing import Final

from ollama_gate.dialects.translation import ServerTools
from ollama_gate.errors import Refusal, Refused
from ollama_gate.requests import Json

NOTE_LEFT_OUT: Final = "server-side tools were left out"
NOTE_PASSED: Final = "server-side tools are run by Ollama, unguarded"
_SEARCH: Final = "web_search"


def search_function(description: str, query: str) -> Json:
    """What the model sees of the web search that Ollama runs: a function of one argument.

    Args:
        description: of the function.
        query: the description of its argument.
    """
    parameters = {
        "type": "object",
        "required": ["query"],
        "properties": {"query": {"type": "string", "description": query}},
    }
    return {"type": "function", "function": {"name": _SEARCH, "description": description, "parameters": parameters}}


def goes_on(server_tools: ServerTools, notes: list[str]) -> bool:
    """Whether a server-side tool is handed on to Ollama; a note tells what becomes of it.

    Raises:
        Refused: 400, the operator wants them refused.
    """
    if server_tools == "refuse":
        raise Refused(
            Refusal(
                400,
                "server_tools_not_allowed",
                "The request declares a server-side tool such as web_search. What such a tool adds to the prompt "
                "inside Ollama cannot be counted, so this gate does not allow them. Leave the tool out.",
                param="tools",
            )
        )
    notes.append(NOTE_LEFT_OUT if server_tools == "drop" else NOTE_PASSED)
    return server_tools == "pass"


def without_namesakes(tools: list[Json], search: Json) -> list[Json]:
    """Native tools without the client's own `web_search`, where Ollama's is among them: a call must have one meaning.

    Args:
        tools: native tools.
        search: Ollama's, as `search_function` made it.
    """
    if search not in tools:
        return tools
    return [tool for tool in tools if tool is search or tool["function"]["name"] != _SEARCH]
