"""The official openai client through the gate: everything that Ollama offers works, and a refusal is its own error."""

import io
import wave
from collections.abc import AsyncIterator, Iterator
from typing import Any

import ollama
import openai
import pydantic
import pytest
from compressing import CODINGS, Compressing
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
from served import Served
from streams import until_it_fails

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say hello."}]
CALL: list[ChatCompletionMessageParam] = [
    {"role": "user", "content": 'Please call tool weather with {"city": "Oslo", "days": 2}'}
]
PARAMETERS: dict[str, object] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather of a city", "parameters": PARAMETERS},
}
FUNCTION: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city",
    "parameters": PARAMETERS,
    "strict": False,
}
LONG = "The keeper of the ferry wrote down what came in and what went out. " * 3000
DIES = {"x-rehearsal-fault": "dies:after=3"}
CUT = {"x-rehearsal-fault": "cut:after=3"}


class Town(pydantic.BaseModel):
    """What structured output is asked for."""

    name: str
    people: int


@pytest.fixture
def client(served: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        yield client


@pytest.fixture
async def async_client(served: Served) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        yield client


@pytest.fixture
def rehearsed(served: Served) -> None:
    """For tests whose model must do as it is told, or break on demand."""
    if served.real:
        pytest.skip("a real model neither obeys to the letter nor dies on demand")


class TestChat:
    def test_whole(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.chat.completions.create(model=served.chat, messages=HELLO, max_tokens=8, temperature=0, seed=1)
        [choice] = answer.choices
        assert choice.message.role == "assistant"
        assert choice.message.content
        assert choice.finish_reason in ("stop", "length")
        assert answer.object == "chat.completion"
        assert answer.model == served.chat
        assert answer.system_fingerprint == "fp_ollama"
        usage = answer.usage
        assert usage is not None
        assert 0 < usage.completion_tokens <= 8
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens

    def test_streamed_with_usage(self, client: openai.OpenAI, served: Served) -> None:
        whole = client.chat.completions.create(model=served.chat, messages=HELLO, max_tokens=8, temperature=0, seed=1)
        chunks = list(
            client.chat.completions.create(
                model=served.chat,
                messages=HELLO,
                max_tokens=8,
                temperature=0,
                seed=1,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        said = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        assert said[0].role == "assistant"
        assert "".join(delta.content or "" for delta in said) == whole.choices[0].message.content
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
        assert chunks[-1].choices == []
        assert chunks[-1].usage == whole.usage
        assert len({chunk.id for chunk in chunks}) == 1

    def test_streamed_without_usage_has_none(self, client: openai.OpenAI, served: Served) -> None:
        with client.chat.completions.create(model=served.chat, messages=HELLO, max_tokens=8, stream=True) as stream:
            chunks = list(stream)
        assert all(chunk.choices and chunk.usage is None for chunk in chunks)

    def test_max_completion_tokens_is_honoured(self, client: openai.OpenAI, served: Served) -> None:
        question: list[ChatCompletionMessageParam] = [{"role": "user", "content": "write 50 tokens"}]
        answer = client.chat.completions.create(model=served.chat, messages=question, max_completion_tokens=5)
        assert answer.usage is not None
        assert answer.usage.completion_tokens <= 5
        assert answer.choices[0].finish_reason == "length"

    @pytest.mark.usefixtures("rehearsed")
    def test_tools(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.chat.completions.create(model=served.tools, messages=CALL, tools=[TOOL])
        [choice] = answer.choices
        assert choice.finish_reason == "tool_calls"
        [call] = choice.message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "weather"
        assert call.function.arguments == '{"city":"Oslo","days":2}'

    @pytest.mark.usefixtures("rehearsed")
    def test_tools_streamed(self, client: openai.OpenAI, served: Served) -> None:
        with client.chat.completions.stream(model=served.tools, messages=CALL, tools=[TOOL]) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        assert "tool_calls.function.arguments.done" in kinds
        [call] = final.choices[0].message.tool_calls or []
        assert (call.function.name, call.function.arguments) == ("weather", '{"city":"Oslo","days":2}')
        assert final.choices[0].finish_reason == "tool_calls"

    def test_a_tools_result_is_taken(self, client: openai.OpenAI, served: Served) -> None:
        history: list[ChatCompletionMessageParam] = [
            *CALL,
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "weather", "arguments": '{"city":"Oslo"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "Rain."},
        ]
        with_result = client.chat.completions.create(model=served.tools, messages=history, tools=[TOOL], max_tokens=8)
        without = client.chat.completions.create(model=served.tools, messages=CALL, tools=[TOOL], max_tokens=8)
        assert with_result.usage is not None
        assert without.usage is not None
        assert with_result.usage.prompt_tokens > without.usage.prompt_tokens

    def test_tool_choice_none_leaves_the_tools_out(self, client: openai.OpenAI, served: Served) -> None:
        bare = client.chat.completions.create(model=served.tools, messages=CALL, max_tokens=8)
        answer = client.chat.completions.create(
            model=served.tools, messages=CALL, tools=[TOOL], tool_choice="none", max_tokens=8
        )
        assert answer.choices[0].message.tool_calls is None
        assert answer.usage is not None
        assert bare.usage is not None
        assert answer.usage.prompt_tokens == bare.usage.prompt_tokens

    def test_structured_output_is_parsed(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.chat.completions.parse(model=served.chat, messages=HELLO, response_format=Town)
        assert isinstance(answer.choices[0].message.parsed, Town)

    def test_structured_output_streamed(self, client: openai.OpenAI, served: Served) -> None:
        with client.chat.completions.stream(model=served.chat, messages=HELLO, response_format=Town) as stream:
            kinds = {event.type for event in stream}
            assert isinstance(stream.get_final_completion().choices[0].message.parsed, Town)
        assert {"content.delta", "content.done"} <= kinds

    def test_json_mode(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.chat.completions.create(
            model=served.chat, messages=HELLO, response_format={"type": "json_object"}, max_tokens=64
        )
        assert (answer.choices[0].message.content or "").lstrip().startswith("{")

    def test_reasoning(self, client: openai.OpenAI, served: Served) -> None:
        told = client.chat.completions.create(model=served.thinking, messages=HELLO, max_tokens=200)
        silent = client.chat.completions.create(
            model=served.thinking, messages=HELLO, reasoning_effort="none", max_tokens=20
        )
        assert (told.choices[0].message.model_extra or {}).get("reasoning")
        assert "reasoning" not in (silent.choices[0].message.model_extra or {})

    def test_reasoning_streamed(self, client: openai.OpenAI, served: Served) -> None:
        chunks = client.chat.completions.create(model=served.thinking, messages=HELLO, max_tokens=200, stream=True)
        thoughts = [(chunk.choices[0].delta.model_extra or {}).get("reasoning", "") for chunk in chunks]
        assert "".join(thoughts)

    def test_roles_parts_and_stop(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.chat.completions.create(
            model=served.chat,
            messages=[
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]},
                {"role": "assistant", "content": "Three."},
                {"role": "user", "content": "Four."},
            ],
            stop=["\n\n", "rehearsal"],
            max_tokens=30,
        )
        assert answer.choices[0].finish_reason in ("stop", "length")
        assert "rehearsal" not in (answer.choices[0].message.content or "")

    def test_logprobs(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.chat.completions.create(
            model=served.chat, messages=HELLO, logprobs=True, top_logprobs=2, max_tokens=3
        )
        logprobs = answer.choices[0].logprobs
        if served.real:  # the rehearsal has none to tell
            assert logprobs is not None
            assert logprobs.content

    async def test_asynchronous(self, async_client: openai.AsyncOpenAI, served: Served) -> None:
        answer = await async_client.chat.completions.create(model=served.chat, messages=HELLO, max_tokens=8)
        stream = await async_client.chat.completions.create(
            model=served.chat, messages=HELLO, max_tokens=8, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert answer.usage is not None
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.prompt_tokens == answer.usage.prompt_tokens
        parsed = await async_client.chat.completions.parse(model=served.chat, messages=HELLO, response_format=Town)
        assert isinstance(parsed.choices[0].message.parsed, Town)

    @pytest.mark.usefixtures("rehearsed")
    async def test_asynchronous_with_tools(self, async_client: openai.AsyncOpenAI, served: Served) -> None:
        async with async_client.chat.completions.stream(model=served.tools, messages=CALL, tools=[TOOL]) as stream:
            final = await stream.get_final_completion()
        [call] = final.choices[0].message.tool_calls or []
        assert call.function.arguments == '{"city":"Oslo","days":2}'


class TestCompletions:
    def test_whole_and_streamed(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.completions.create(model=served.chat, prompt="Say hello.", max_tokens=6, temperature=0, seed=1)
        assert answer.object == "text_completion"
        assert answer.usage is not None
        chunks = list(
            client.completions.create(
                model=served.chat,
                prompt="Say hello.",
                max_tokens=6,
                temperature=0,
                seed=1,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == answer.choices[0].text
        assert chunks[-1].usage == answer.usage

    def test_a_list_of_one_prompt_is_taken_and_other_lists_are_refused_in_words(
        self, client: openai.OpenAI, served: Served
    ) -> None:
        assert client.completions.create(model=served.chat, prompt=["Say hello."], max_tokens=4).choices[0].text
        for prompt in (["one", "two"], [1, 2, 3]):
            with pytest.raises(openai.BadRequestError) as refused:
                client.completions.create(model=served.chat, prompt=prompt, max_tokens=4)
            assert refused.value.param == "prompt"
            assert "prompt" in refused.value.message

    async def test_asynchronous(self, async_client: openai.AsyncOpenAI, served: Served) -> None:
        answer = await async_client.completions.create(model=served.chat, prompt="Say hello.", max_tokens=6)
        assert answer.choices[0].finish_reason in ("stop", "length")


class TestEmbeddings:
    def test_base64_by_default_equals_float(self, client: openai.OpenAI, served: Served) -> None:
        packed = client.embeddings.create(model=served.embed, input=["hello", "world", ""])
        floats = client.embeddings.create(model=served.embed, input=["hello", "world", ""], encoding_format="float")
        assert [each.index for each in packed.data] == [0, 1, 2]
        for one, other in zip(packed.data, floats.data, strict=True):
            assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert packed.usage == floats.usage
        assert packed.usage.total_tokens == packed.usage.prompt_tokens > 0

    def test_one_text(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.embeddings.create(model=served.embed, input="hello")
        assert len(answer.data) == 1
        assert answer.model == served.embed

    def test_the_input_that_is_too_long_is_named(self, client: openai.OpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model=served.embed, input=["short", LONG])
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.param == "input[1]"

    def test_token_ids_and_other_encodings_are_refused(self, client: openai.OpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError):
            client.embeddings.create(model=served.embed, input=[1, 2, 3])
        with pytest.raises(openai.BadRequestError, match="encoding_format"):
            client.post(
                "/embeddings",
                cast_to=object,
                body={"model": served.embed, "input": "x", "encoding_format": "hex"},
            )

    async def test_asynchronous(self, async_client: openai.AsyncOpenAI, served: Served) -> None:
        answer = await async_client.embeddings.create(model=served.embed, input=["a", "b"])
        assert len(answer.data) == 2


class TestModels:
    def test_list_and_retrieve(self, client: openai.OpenAI, served: Served) -> None:
        listed = list(client.models.list())
        assert any(model.id.startswith(served.chat) for model in listed)
        for model in listed:
            found = client.models.retrieve(model.id)
            assert (found.id, found.object, found.owned_by) == (model.id, "model", model.owned_by)

    def test_a_name_with_slashes(self, client: openai.OpenAI, served: Served) -> None:
        native = ollama.Client(host=served.url)
        native.copy(served.chat, "somebody/gate-compliance:v1")
        try:
            found = client.models.retrieve("somebody/gate-compliance:v1")
            assert (found.id, found.owned_by) == ("somebody/gate-compliance:v1", "somebody")
            answer = client.chat.completions.create(model="somebody/gate-compliance:v1", messages=HELLO, max_tokens=4)
            assert answer.model == "somebody/gate-compliance:v1"
        finally:
            native.delete("somebody/gate-compliance:v1")
            native._client.close()  # noqa: SLF001 - it has no close of its own

    async def test_asynchronous(self, async_client: openai.AsyncOpenAI, served: Served) -> None:
        assert [model.id async for model in async_client.models.list()]
        assert (await async_client.models.retrieve(served.chat)).id == served.chat


class TestResponses:
    def test_whole(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.responses.create(model=served.chat, instructions="Be brief.", input="Say hello.")
        assert answer.status == "completed"
        assert answer.output_text
        assert answer.error is None
        usage = answer.usage
        assert usage is not None
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens

    def test_streamed(self, client: openai.OpenAI, served: Served) -> None:
        with client.responses.stream(model=served.chat, input="Say hello.", temperature=0) as stream:
            events = list(stream)
            final = stream.get_final_response()
        kinds = [event.type for event in events]
        assert kinds[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        assert kinds[-4:] == [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ]
        assert [getattr(event, "sequence_number", None) for event in events] == list(range(len(events)))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == (
            final.output_text
        )
        assert final.usage is not None

    @pytest.mark.usefixtures("rehearsed")
    def test_function_calls(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.responses.create(model=served.tools, input=str(CALL[0]["content"]), tools=[FUNCTION])
        [call] = [item for item in answer.output if isinstance(item, ResponseFunctionToolCall)]
        assert (call.name, call.arguments) == ("weather", '{"city":"Oslo","days":2}')
        history: list[Any] = [
            {"role": "user", "content": CALL[0]["content"]},
            {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."},
        ]
        after = client.responses.create(model=served.tools, input=history, tools=[FUNCTION])
        assert after.output_text
        assert after.usage is not None
        assert answer.usage is not None
        assert after.usage.input_tokens > answer.usage.input_tokens

    @pytest.mark.usefixtures("rehearsed")
    def test_function_calls_streamed(self, client: openai.OpenAI, served: Served) -> None:
        with client.responses.stream(model=served.tools, input=str(CALL[0]["content"]), tools=[FUNCTION]) as stream:
            kinds = [event.type for event in stream]
            [call] = [item for item in stream.get_final_response().output if item.type == "function_call"]
        assert "response.function_call_arguments.delta" in kinds
        assert "response.function_call_arguments.done" in kinds
        assert call.arguments == '{"city":"Oslo","days":2}'

    def test_structured_output_is_parsed(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.responses.parse(model=served.chat, input="Say hello.", text_format=Town)
        assert isinstance(answer.output_parsed, Town)
        with client.responses.stream(model=served.chat, input="Say hello.", text_format=Town) as stream:
            assert isinstance(stream.get_final_response().output_parsed, Town)

    def test_reasoning(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.responses.create(model=served.thinking, input="Say hello.", max_output_tokens=300)
        assert answer.output[0].type == "reasoning"
        with client.responses.stream(model=served.thinking, input="Say hello.", max_output_tokens=300) as stream:
            kinds = [event.type for event in stream]
        assert "response.reasoning_summary_text.delta" in kinds

    def test_a_cut_answer_is_incomplete(self, client: openai.OpenAI, served: Served) -> None:
        answer = client.responses.create(model=served.chat, input="write 50 tokens", max_output_tokens=5)
        assert answer.status == "incomplete"
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"
        stream = client.responses.create(model=served.chat, input="write 50 tokens", max_output_tokens=5, stream=True)
        assert [event.type for event in stream][-1] == "response.incomplete"

    def test_input_tokens_are_those_that_the_model_counts(self, client: openai.OpenAI, served: Served) -> None:
        asked: dict[str, Any] = {
            "model": served.tools,
            "input": "Say hello to Bergen, Tromsø and 東京.",
            "instructions": "Be brief.",
            "tools": [FUNCTION],
        }
        counted = client.responses.input_tokens.count(**asked)
        answer = client.responses.create(**asked, max_output_tokens=4)
        assert counted.object == "response.input_tokens"
        assert answer.usage is not None
        assert counted.input_tokens == answer.usage.input_tokens

    async def test_asynchronous(self, async_client: openai.AsyncOpenAI, served: Served) -> None:
        answer = await async_client.responses.create(model=served.chat, input="Say hello.")
        assert answer.output_text
        async with async_client.responses.stream(model=served.chat, input="Say hello.") as stream:
            assert (await stream.get_final_response()).output_text
        counted = await async_client.responses.input_tokens.count(model=served.chat, input="Say hello.")
        assert answer.usage is not None
        assert counted.input_tokens == answer.usage.input_tokens


@pytest.mark.usefixtures("rehearsed")
class TestTranscriptions:
    def test_json_and_text(self, client: openai.OpenAI) -> None:
        sound = io.BytesIO()
        with wave.open(sound, "wb") as file:
            file.setparams((1, 2, 16000, 1600, "NONE", "not compressed"))
            file.writeframes(bytes(3200))
        for format_ in ("json", "text"):
            sound.seek(0)
            told: Any = client.audio.transcriptions.create(
                model="rehearsal-vision", file=("sound.wav", sound), response_format=format_
            )
            assert (told if isinstance(told, str) else told.text).strip()


class TestRefusals:
    @pytest.mark.parametrize("stream", [False, True])
    def test_an_overlong_chat(self, client: openai.OpenAI, served: Served, stream: bool) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(
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

    def test_tools_that_take_the_room_are_named(self, client: openai.OpenAI, served: Served) -> None:
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
            client.chat.completions.create(model=served.tools, messages=HELLO, tools=tools)
        assert refused.value.param == "tools"

    def test_overlong_completions_and_responses(self, client: openai.OpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(model=served.chat, prompt=LONG)
        assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "prompt")
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as refused:
                client.responses.create(model=served.chat, input=LONG, stream=stream)
            assert refused.value.code == "context_length_exceeded"

    async def test_asynchronous(self, async_client: openai.AsyncOpenAI, served: Served) -> None:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as refused:
                await async_client.chat.completions.create(
                    model=served.chat, messages=[{"role": "user", "content": LONG}], stream=stream
                )
            assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.BadRequestError):
            await async_client.responses.create(model=served.chat, input=LONG)

    def test_a_model_that_is_not_there(self, client: openai.OpenAI) -> None:
        calls = (
            lambda: client.chat.completions.create(model="no-such-model", messages=HELLO),
            lambda: client.chat.completions.create(model="no-such-model", messages=HELLO, stream=True),
            lambda: client.completions.create(model="no-such-model", prompt="x"),
            lambda: client.embeddings.create(model="no-such-model", input="x"),
            lambda: client.responses.create(model="no-such-model", input="x"),
            lambda: client.responses.input_tokens.count(model="no-such-model", input="x"),
            lambda: client.models.retrieve("no-such-model"),
            lambda: client.models.retrieve("no/such/model"),
        )
        for call in calls:
            with pytest.raises(openai.NotFoundError) as missing:
                call()
            assert missing.value.type == "not_found_error"
            assert "not found" in missing.value.message

    def test_what_is_wrong_with_a_request_is_told(self, client: openai.OpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError, match="is too short - 'messages'"):
            client.chat.completions.create(model=served.chat, messages=[])
        with pytest.raises(openai.BadRequestError, match="does not support embeddings"):
            client.embeddings.create(model=served.chat, input="x")

    @pytest.mark.parametrize("coding", CODINGS)
    def test_compressed_bodies(self, served: Served, coding: str) -> None:
        http = openai.DefaultHttpxClient(transport=Compressing(coding))
        with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", http_client=http) as client:
            assert client.chat.completions.create(model=served.chat, messages=HELLO, max_tokens=4).choices
            with pytest.raises(openai.BadRequestError) as refused:
                client.chat.completions.create(model=served.chat, messages=[{"role": "user", "content": LONG}])
        assert refused.value.code == "context_length_exceeded"


@pytest.mark.usefixtures("rehearsed")
class TestBrokenStreams:
    @pytest.mark.parametrize("fault", [DIES, CUT], ids=["dies", "cut"])
    def test_chat(self, client: openai.OpenAI, served: Served, fault: dict[str, str]) -> None:
        stream = client.chat.completions.create(model=served.chat, messages=HELLO, stream=True, extra_headers=fault)
        chunks, failure = until_it_fails(stream, openai.OpenAIError)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert isinstance(failure, openai.APIError)
        assert failure.type == "api_error"
        assert failure.message

    @pytest.mark.parametrize("fault", [DIES, CUT], ids=["dies", "cut"])
    def test_completions(self, client: openai.OpenAI, served: Served, fault: dict[str, str]) -> None:
        stream = client.completions.create(model=served.chat, prompt="Hi", stream=True, extra_headers=fault)
        with pytest.raises(openai.APIError):
            list(stream)

    @pytest.mark.parametrize("fault", [DIES, CUT], ids=["dies", "cut"])
    def test_responses(self, client: openai.OpenAI, served: Served, fault: dict[str, str]) -> None:
        stream = client.responses.create(model=served.chat, input="Hi", stream=True, extra_headers=fault)
        events, failure = until_it_fails(stream, openai.OpenAIError)
        assert events[-1].type == "response.failed"
        assert events[-1].response.error.code == "server_error"
        assert events[-1].response.error.message
        assert failure is None or isinstance(failure, openai.APIConnectionError)

    async def test_asynchronous(self, async_client: openai.AsyncOpenAI, served: Served) -> None:
        stream = await async_client.chat.completions.create(
            model=served.chat, messages=HELLO, stream=True, extra_headers=DIES
        )
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass

    def test_death_before_the_first_byte_is_a_server_error(self, client: openai.OpenAI, served: Served) -> None:
        dies = {"x-rehearsal-fault": "dies:after=0"}
        once = client.with_options(max_retries=0)
        with pytest.raises(openai.InternalServerError):
            once.chat.completions.create(model=served.chat, messages=HELLO, extra_headers=dies)
        with pytest.raises(openai.InternalServerError):
            once.chat.completions.create(model=served.chat, messages=HELLO, stream=True, extra_headers=dies)
