"""Which conversation a request belongs to, for what is kept of it."""

from hashlib import blake2b

from ollama_gate.conversations import conversation_key, without_billing
from ollama_gate.requests import InferenceRequest


def conversation_of(request: InferenceRequest) -> str:
    """A name of the conversation: 48 hex digits.

    A session id that the client sends comes first, else the model and how the conversation began
    (`conversations.conversation_key`). Agents run several conversations in one session (a title, a search by a second
    agent), so how it began tells those apart.
    """
    mark = blake2b(digest_size=8, person=b"began")
    for message in request.body.get("messages") or ():
        if message.get("role") == "user":
            mark.update(without_billing((message.get("content") or "")[:65_536]).encode("utf-8", "surrogatepass"))
            break
    return conversation_key(request).hex() + mark.hexdigest()
