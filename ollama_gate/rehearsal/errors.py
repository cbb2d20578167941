"""How the rehearsal says no: with Ollama's statuses and texts (`api/types.go:StatusError`, v0.33)."""

import orjson


class StatusError(Exception):
    """An error answer: its status and the text of its `error` field."""

    def __init__(self, status: int, message: str, *, of_runner: bool = False) -> None:
        """Carry a status and a text; `of_runner` when it comes from the runner and not from the route's handler."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.of_runner = of_runner


RUNNER_DIED = "an error was encountered while running the model: unexpected EOF"
BUSY = "server busy, please try again.  maximum pending requests exceeded"
TOO_LONG_WITHOUT_SHIFT = (
    "the prompt is longer than the context length currently available to the model; "
    "shorten the prompt, adjust the context length in settings, or use a model with a longer context length"
)
INPUT_TOO_LONG = "the input length exceeds the context length"
NO_EMBEDDINGS = "This server does not support embeddings. Start it with `--embeddings`"
NOT_FINITE = "embedding contains NaN or Inf values"


def llama_server(status: int, message: str, kind: str, **numbers: int) -> StatusError:
    """An error of llama-server, whose whole JSON body Ollama passes on as its own error text."""
    body = {"error": {"code": status, "message": message, "type": kind, **numbers}}
    return StatusError(status, orjson.dumps(body).decode(), of_runner=True)


def prompt_too_long(prompt_tokens: int, slot_size: int) -> StatusError:
    """llama-server's refusal of a prompt that fills its slot (`tools/server/server-context.cpp`, b10488)."""
    message = (
        f"request ({prompt_tokens} tokens) exceeds the available context size ({slot_size} tokens), try increasing it"
    )
    return llama_server(400, message, "exceed_context_size_error", n_prompt_tokens=prompt_tokens, n_ctx=slot_size)


NO_IMAGES = ("Multimodal data provided, but model does not support multimodal requests.", "invalid_request_error")
