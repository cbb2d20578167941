"""The official ollama client through the gate: everything that it offers works, and a refusal is its own error."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import ollama
import pytest
from served import Served
from streams import until_it_fails

OPTIONS = {"num_predict": 8, "temperature": 0, "seed": 1}
HELLO = [{"role": "user", "content": "Say hello."}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Today's weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
LONG = "The keeper of the ferry wrote down what came in and what went out. " * 3000


@pytest.fixture
def client(served: Served) -> Iterator[ollama.Client]:
    client = ollama.Client(host=served.url)
    yield client
    client._client.close()  # noqa: SLF001 - it has no close of its own


@pytest.fixture
async def async_client(served: Served) -> AsyncIterator[ollama.AsyncClient]:
    client = ollama.AsyncClient(host=served.url)
    yield client
    await client._client.aclose()  # noqa: SLF001 - it has no close of its own


def test_chat(client: ollama.Client, served: Served) -> None:
    answer = client.chat(served.chat, HELLO, options=OPTIONS)
    assert answer.done
    assert answer.model == served.chat
    assert answer.prompt_eval_count


def test_chat_streamed(client: ollama.Client, served: Served) -> None:
    parts = list(client.chat(served.chat, HELLO, options=OPTIONS, stream=True))
    assert len(parts) > 1
    assert [part.done for part in parts].count(True) == 1
    assert parts[-1].done
    assert parts[-1].eval_count


def test_chat_with_tools(client: ollama.Client, served: Served) -> None:
    answer = client.chat(served.tools, HELLO, tools=[TOOL], options=OPTIONS)
    assert answer.done
    bare = client.chat(served.tools, HELLO, options=OPTIONS)
    assert (answer.prompt_eval_count or 0) > (bare.prompt_eval_count or 0)


def test_chat_with_thinking(client: ollama.Client, served: Served) -> None:
    assert client.chat(served.thinking, HELLO, think=True, options=OPTIONS).done
    assert client.chat(served.thinking, HELLO, think=False, options=OPTIONS).message.thinking is None


def test_chat_with_a_format(client: ollama.Client, served: Served) -> None:
    assert client.chat(served.chat, HELLO, format="json", options=OPTIONS).done


def test_generate(client: ollama.Client, served: Served) -> None:
    answer = client.generate(served.chat, "Say hello.", options=OPTIONS)
    assert answer.done
    parts = list(client.generate(served.chat, "Say hello.", options=OPTIONS, stream=True))
    assert parts[-1].done


def test_generate_raw_and_with_context(client: ollama.Client, served: Served) -> None:
    assert client.generate(served.chat, "Once upon", raw=True, options=OPTIONS).done
    first = client.generate(served.chat, "Say hello.", options=OPTIONS)
    if first.context:
        assert client.generate(served.chat, "Again.", context=list(first.context), options=OPTIONS).done


def test_load_and_unload(client: ollama.Client, served: Served) -> None:
    assert client.generate(served.chat, "").done_reason == "load"
    assert any(model.model and model.model.startswith(served.chat) for model in client.ps().models)
    assert client.generate(served.chat, "", keep_alive=0).done_reason == "unload"


def test_embed(client: ollama.Client, served: Served) -> None:
    one = client.embed(served.embed, "hello")
    assert len(one.embeddings) == 1
    many = client.embed(served.embed, ["hello", "world", ""])
    assert len(many.embeddings) == 3
    assert len(client.embed(served.embed, []).embeddings) == 0
    assert client.embeddings(served.embed, "hello").embedding


def test_list_show_and_ps(client: ollama.Client, served: Served) -> None:
    names = [model.model for model in client.list().models]
    assert any(name and name.startswith(served.chat) for name in names)
    shown = client.show(served.chat)
    assert shown.template is not None
    assert client.ps().models is not None


def test_copy_and_delete(client: ollama.Client, served: Served) -> None:
    assert client.copy(served.chat, "gate-compliance-copy").status == "success"
    assert client.chat("gate-compliance-copy", HELLO, options=OPTIONS).done
    assert client.delete("gate-compliance-copy").status == "success"
    with pytest.raises(ollama.ResponseError) as missing:
        client.chat("gate-compliance-copy", HELLO)
    assert missing.value.status_code == 404


def test_create(client: ollama.Client, served: Served) -> None:
    steps = list(client.create("gate-compliance-new", from_=served.chat, system="Be brief.", stream=True))
    assert steps[-1].status == "success"
    assert client.show("gate-compliance-new").modelfile
    assert client.delete("gate-compliance-new").status == "success"


def test_create_blob(client: ollama.Client, tmp_path: Path) -> None:
    file = tmp_path / "blob"
    file.write_bytes(b"x" * 3_000_000)
    assert client.create_blob(file).startswith("sha256:")


def test_pull_of_what_is_not_there_is_ollamas_error(client: ollama.Client) -> None:
    with pytest.raises(ollama.ResponseError):
        client.pull("no-such-namespace/no-such-model-at-all")


@pytest.mark.parametrize("stream", [False, True])
def test_an_overlong_chat_is_a_response_error_with_the_sentence(
    client: ollama.Client, served: Served, stream: bool
) -> None:
    with pytest.raises(ollama.ResponseError) as refused:
        list(client.chat(served.chat, [{"role": "user", "content": LONG}], stream=stream))  # type: ignore[call-overload]
    assert refused.value.status_code == 400
    assert refused.value.error.startswith("prompt is too long: ")
    assert "maximum context length is" in refused.value.error


def test_an_overlong_generate_and_embed_are_refused(client: ollama.Client, served: Served) -> None:
    for call in (
        lambda: client.generate(served.chat, LONG),
        lambda: client.embed(served.embed, ["short", LONG]),
        lambda: client.embeddings(served.embed, LONG),
    ):
        with pytest.raises(ollama.ResponseError) as refused:
            call()
        assert refused.value.status_code == 400
        assert refused.value.error.startswith("prompt is too long: ")


async def test_async_chat_streamed_and_not(async_client: ollama.AsyncClient, served: Served) -> None:
    answer = await async_client.chat(served.chat, HELLO, options=OPTIONS)
    assert answer.done
    parts = [part async for part in await async_client.chat(served.chat, HELLO, options=OPTIONS, stream=True)]
    assert parts[-1].done


async def test_async_generate_embed_and_refusal(async_client: ollama.AsyncClient, served: Served) -> None:
    assert (await async_client.generate(served.chat, "Hi.", options=OPTIONS)).done
    assert (await async_client.embed(served.embed, ["a", "b"])).embeddings
    assert (await async_client.list()).models
    with pytest.raises(ollama.ResponseError) as refused:
        await async_client.chat(served.chat, [{"role": "user", "content": LONG}])
    assert refused.value.status_code == 400


@pytest.mark.usefixtures("rehearsed")
@pytest.mark.parametrize("fault", ["no_done", "dies", "close"])
def test_a_stream_without_its_last_line_is_no_whole_answer(served: Served, fault: str) -> None:
    """By itself this client takes what it has for the answer when a stream just ends."""
    client = ollama.Client(host=served.url, headers={"x-rehearsal-fault": f"{fault}:after=2"})
    stream = client.chat(served.chat, HELLO, options=OPTIONS, stream=True)
    lost = httpx.RemoteProtocolError if fault == "close" else ollama.ResponseError
    came, failure = until_it_fails(stream, lost)
    assert isinstance(failure, lost)
    assert [part.done for part in came] == [False, False]
    client._client.close()  # noqa: SLF001 - it has no close of its own
