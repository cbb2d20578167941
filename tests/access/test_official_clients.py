"""The official clients with and without a key: they send it in their own way, and know each refusal for what it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import anthropic
import ollama
import openai
import pytest

from support.background import front_in_a_thread
from support.keyring import add_key

MODEL, OTHER = "qwen2.5:0.5b", "llama3.2:1b"


class Keyed(NamedTuple):
    """A gate with keys, at a URL."""

    url: str
    good: str
    once: str
    """May ask once a minute."""


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    keys: Path = tmp_path_factory.mktemp("keys") / "keys.json"
    good = add_key(keys, "good", models=("qwen2.5:*",))
    once = add_key(keys, "once", limits={"requests_per_minute": 1})
    with front_in_a_thread(access={"keys": str(keys)}) as (url, _):
        yield Keyed(url, good, once)


@pytest.mark.slow
def test_openai(gate: Keyed) -> None:
    def asked(key: str, model: str = MODEL) -> str | None:
        with openai.OpenAI(base_url=f"{gate.url}/v1", api_key=key, max_retries=0) as client:
            answer = client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hi"}])
        return answer.choices[0].message.content

    assert asked(gate.good)
    with pytest.raises(openai.AuthenticationError):
        asked("ollama")
    with pytest.raises(openai.PermissionDeniedError):
        asked(gate.good, OTHER)
    asked(gate.once)
    with pytest.raises(openai.RateLimitError) as over:
        asked(gate.once)
    assert int(over.value.response.headers["Retry-After"]) > 0
    with openai.OpenAI(base_url=f"{gate.url}/v1", api_key=gate.good, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == [MODEL]


@pytest.mark.slow
def test_anthropic(gate: Keyed) -> None:
    def asked(model: str = MODEL, **key: str) -> str:
        with anthropic.Anthropic(base_url=gate.url, max_retries=0, **key) as client:  # type: ignore[arg-type]
            answer = client.messages.create(model=model, max_tokens=5, messages=[{"role": "user", "content": "hi"}])
        return answer.type

    assert asked(api_key=gate.good) == asked(auth_token=gate.good) == "message"
    with pytest.raises(anthropic.AuthenticationError):
        asked(api_key="nothing")
    with pytest.raises(anthropic.PermissionDeniedError):
        asked(OTHER, api_key=gate.good)


def test_ollama(gate: Keyed) -> None:
    with ollama.Client(host=gate.url, headers={"Authorization": f"Bearer {gate.good}"}) as client:
        assert client.chat(model=MODEL, messages=[{"role": "user", "content": "hi"}]).message.content
        assert [model.model for model in client.list().models] == [MODEL]
        with pytest.raises(ollama.ResponseError, match="may not use the model"):
            client.show(OTHER)
        with pytest.raises(ollama.ResponseError, match="takes an admin key"):
            client.delete(MODEL)
    with ollama.Client(host=gate.url) as nobody:
        with pytest.raises(ollama.ResponseError, match="a key is needed") as refused:
            nobody.list()
        assert refused.value.status_code == 401
