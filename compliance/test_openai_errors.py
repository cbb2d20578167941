"""The official openai client through the gate: refusals and broken streams are its own errors, with their fields."""

import openai
import pytest
from compressing import CODINGS, Compressing
from openai.types.chat import ChatCompletionToolParam
from openai_asked import CUT, DIES, HELLO, LONG
from served import Served
from streams import until_it_fails


class TestRefusals:
    @pytest.mark.parametrize("stream", [False, True])
    def test_an_overlong_chat(self, openai_client: openai.OpenAI, served: Served, stream: bool) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client.chat.completions.create(
                model=served.chat, messages=[{"role": "user", "content": LONG}], stream=stream
            )
        error = refused.value
        assert (error.status_code, error.code, error.type) == (400, "context_length_exceeded", "invalid_request_error")
        assert error.param == "messages"
        assert "prompt is too long: " in error.message
        assert "maximum context length is" in error.message
        body = error.body
        assert isinstance(body, dict)
        assert body["prompt_tokens"] > body["budget"] > 0
        assert body["window"] > body["budget"]
        assert error.response.headers["x-should-retry"] == "false"

    def test_tools_that_take_the_room_are_named(self, openai_client: openai.OpenAI, served: Served) -> None:
        tools: list[ChatCompletionToolParam] = [
            {
                "type": "function",
                "function": {
                    "name": f"tool_{number}",
                    "description": LONG[:3000],
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                },
            }
            for number in range(24)
        ]
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client.chat.completions.create(model=served.tools, messages=HELLO, tools=tools)
        assert refused.value.param == "tools"

    def test_overlong_completions_and_responses(self, openai_client: openai.OpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client.completions.create(model=served.chat, prompt=LONG)
        assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as refused:
                openai_client.responses.create(model=served.chat, input=LONG, stream=stream)
            assert refused.value.code == "context_length_exceeded"

    async def test_asynchronous(self, openai_async: openai.AsyncOpenAI, served: Served) -> None:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as refused:
                await openai_async.chat.completions.create(
                    model=served.chat, messages=[{"role": "user", "content": LONG}], stream=stream
                )
            assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError):
            await openai_async.responses.create(model=served.chat, input=LONG)

    def test_a_model_that_is_not_there(self, openai_client: openai.OpenAI) -> None:
        calls = (
            lambda: openai_client.chat.completions.create(model="no-such-model", messages=HELLO),
            lambda: openai_client.chat.completions.create(model="no-such-model", messages=HELLO, stream=True),
            lambda: openai_client.completions.create(model="no-such-model", prompt="x"),
            lambda: openai_client.embeddings.create(model="no-such-model", input="x"),
            lambda: openai_client.responses.create(model="no-such-model", input="x"),
            lambda: openai_client.responses.input_tokens.count(model="no-such-model", input="x"),
            lambda: openai_client.models.retrieve("no-such-model"),
            lambda: openai_client.models.retrieve("no/such/model"),
        )
        for call in calls:
            with pytest.raises(openai.NotFoundError) as missing:
                call()
            assert missing.value.type == "not_found_error"
            assert "not found" in missing.value.message

    def test_what_is_wrong_with_a_request_is_told(self, openai_client: openai.OpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError, match="is too short - 'messages'"):
            openai_client.chat.completions.create(model=served.chat, messages=[])
        with pytest.raises(openai.BadRequestError, match="does not support embeddings"):
            openai_client.embeddings.create(model=served.chat, input="x")

    @pytest.mark.parametrize("coding", CODINGS)
    def test_compressed_bodies(self, served: Served, coding: str) -> None:
        http = openai.DefaultHttpxClient(transport=Compressing(coding))
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", http_client=http) as openai_client:
            assert openai_client.chat.completions.create(model=served.chat, messages=HELLO, max_tokens=4).choices
            with pytest.raises(openai.BadRequestError) as refused:
                openai_client.chat.completions.create(model=served.chat, messages=[{"role": "user", "content": LONG}])
        assert refused.value.code == "context_length_exceeded"


@pytest.mark.usefixtures("rehearsed")
class TestBrokenStreams:
    @pytest.mark.parametrize("fault", [DIES, CUT], ids=["dies", "cut"])
    def test_chat(self, openai_client: openai.OpenAI, served: Served, fault: dict[str, str]) -> None:
        stream = openai_client.chat.completions.create(
            model=served.chat, messages=HELLO, stream=True, extra_headers=fault
        )
        chunks, failure = until_it_fails(stream, openai.OpenAIError)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert isinstance(failure, openai.APIError)
        assert failure.type == "api_error"
        assert failure.message

    @pytest.mark.parametrize("fault", [DIES, CUT], ids=["dies", "cut"])
    def test_completions(self, openai_client: openai.OpenAI, served: Served, fault: dict[str, str]) -> None:
        stream = openai_client.completions.create(model=served.chat, prompt="Hi", stream=True, extra_headers=fault)
        with pytest.raises(openai.APIError):
            list(stream)

    @pytest.mark.parametrize("fault", [DIES, CUT], ids=["dies", "cut"])
    def test_responses(self, openai_client: openai.OpenAI, served: Served, fault: dict[str, str]) -> None:
        stream = openai_client.responses.create(model=served.chat, input="Hi", stream=True, extra_headers=fault)
        events, failure = until_it_fails(stream, openai.OpenAIError)
        assert events[-1].type == "response.failed"
        assert events[-1].response.error.code == "server_error"
        assert events[-1].response.error.message
        assert failure is None or isinstance(failure, openai.APIConnectionError)

    async def test_asynchronous(self, openai_async: openai.AsyncOpenAI, served: Served) -> None:
        stream = await openai_async.chat.completions.create(
            model=served.chat, messages=HELLO, stream=True, extra_headers=DIES
        )
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass

    def test_death_before_the_first_byte_is_a_server_error(self, openai_client: openai.OpenAI, served: Served) -> None:
        dies = {"x-rehearsal-fault": "dies:after=0"}
        once = openai_client.with_options(max_retries=0)
        with pytest.raises(openai.InternalServerError):
            once.chat.completions.create(model=served.chat, messages=HELLO, extra_headers=dies)
        with pytest.raises(openai.InternalServerError):
            once.chat.completions.create(model=served.chat, messages=HELLO, stream=True, extra_headers=dies)
