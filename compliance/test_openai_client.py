"""The official openai client through the gate: chat, completions, embeddings, models and transcriptions."""

import io
import wave
from typing import Any

import ollama
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from openai_asked import CALL, HELLO, LONG, TOOL, Town
from served import Served


class TestChat:
    def test_whole(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.chat.completions.create(
            model=served.chat, messages=HELLO, max_tokens=8, temperature=0, seed=1
        )
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

    def test_streamed_with_usage(self, openai_client: openai.OpenAI, served: Served) -> None:
        whole = openai_client.chat.completions.create(
            model=served.chat, messages=HELLO, max_tokens=8, temperature=0, seed=1
        )
        chunks = list(
            openai_client.chat.completions.create(
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

    def test_streamed_without_usage_has_none(self, openai_client: openai.OpenAI, served: Served) -> None:
        with openai_client.chat.completions.create(
            model=served.chat, messages=HELLO, max_tokens=8, stream=True
        ) as stream:
            chunks = list(stream)
        assert all(chunk.choices and chunk.usage is None for chunk in chunks)

    def test_max_completion_tokens_is_honoured(self, openai_client: openai.OpenAI, served: Served) -> None:
        question: list[ChatCompletionMessageParam] = [{"role": "user", "content": "write 50 tokens"}]
        answer = openai_client.chat.completions.create(model=served.chat, messages=question, max_completion_tokens=5)
        assert answer.usage is not None
        assert answer.usage.completion_tokens <= 5
        assert answer.choices[0].finish_reason == "length"

    @pytest.mark.usefixtures("rehearsed")
    def test_tools(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.chat.completions.create(model=served.tools, messages=CALL, tools=[TOOL])
        [choice] = answer.choices
        assert choice.finish_reason == "tool_calls"
        [call] = choice.message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "weather"
        assert call.function.arguments == '{"city":"Oslo","days":2}'

    @pytest.mark.usefixtures("rehearsed")
    def test_tools_streamed(self, openai_client: openai.OpenAI, served: Served) -> None:
        with openai_client.chat.completions.stream(model=served.tools, messages=CALL, tools=[TOOL]) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        assert "tool_calls.function.arguments.done" in kinds
        [call] = final.choices[0].message.tool_calls or []
        assert (call.function.name, call.function.arguments) == ("weather", '{"city":"Oslo","days":2}')
        assert final.choices[0].finish_reason == "tool_calls"

    def test_a_tools_result_is_taken(self, openai_client: openai.OpenAI, served: Served) -> None:
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
        with_result = openai_client.chat.completions.create(
            model=served.tools, messages=history, tools=[TOOL], max_tokens=8
        )
        without = openai_client.chat.completions.create(model=served.tools, messages=CALL, tools=[TOOL], max_tokens=8)
        assert with_result.usage is not None
        assert without.usage is not None
        assert with_result.usage.prompt_tokens > without.usage.prompt_tokens

    def test_tool_choice_none_leaves_the_tools_out(self, openai_client: openai.OpenAI, served: Served) -> None:
        bare = openai_client.chat.completions.create(model=served.tools, messages=CALL, max_tokens=8)
        answer = openai_client.chat.completions.create(
            model=served.tools, messages=CALL, tools=[TOOL], tool_choice="none", max_tokens=8
        )
        assert answer.choices[0].message.tool_calls is None
        assert answer.usage is not None
        assert bare.usage is not None
        assert answer.usage.prompt_tokens == bare.usage.prompt_tokens

    def test_structured_output_is_parsed(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.chat.completions.parse(model=served.chat, messages=HELLO, response_format=Town)
        assert isinstance(answer.choices[0].message.parsed, Town)

    def test_structured_output_streamed(self, openai_client: openai.OpenAI, served: Served) -> None:
        with openai_client.chat.completions.stream(model=served.chat, messages=HELLO, response_format=Town) as stream:
            kinds = {event.type for event in stream}
            assert isinstance(stream.get_final_completion().choices[0].message.parsed, Town)
        assert {"content.delta", "content.done"} <= kinds

    def test_json_mode(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.chat.completions.create(
            model=served.chat, messages=HELLO, response_format={"type": "json_object"}, max_tokens=64
        )
        assert (answer.choices[0].message.content or "").lstrip().startswith("{")

    def test_reasoning(self, openai_client: openai.OpenAI, served: Served) -> None:
        told = openai_client.chat.completions.create(model=served.thinking, messages=HELLO, max_tokens=200)
        silent = openai_client.chat.completions.create(
            model=served.thinking, messages=HELLO, reasoning_effort="none", max_tokens=20
        )
        assert (told.choices[0].message.model_extra or {}).get("reasoning")
        assert "reasoning" not in (silent.choices[0].message.model_extra or {})

    def test_reasoning_streamed(self, openai_client: openai.OpenAI, served: Served) -> None:
        chunks = openai_client.chat.completions.create(
            model=served.thinking, messages=HELLO, max_tokens=200, stream=True
        )
        thoughts = [(chunk.choices[0].delta.model_extra or {}).get("reasoning", "") for chunk in chunks]
        assert "".join(thoughts)

    def test_roles_parts_and_stop(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.chat.completions.create(
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

    def test_logprobs(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.chat.completions.create(
            model=served.chat, messages=HELLO, logprobs=True, top_logprobs=2, max_tokens=3
        )
        logprobs = answer.choices[0].logprobs
        if served.real:  # the rehearsal has none to tell
            assert logprobs is not None
            assert logprobs.content

    async def test_asynchronous(self, openai_async: openai.AsyncOpenAI, served: Served) -> None:
        answer = await openai_async.chat.completions.create(model=served.chat, messages=HELLO, max_tokens=8)
        stream = await openai_async.chat.completions.create(
            model=served.chat, messages=HELLO, max_tokens=8, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert answer.usage is not None
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.prompt_tokens == answer.usage.prompt_tokens
        parsed = await openai_async.chat.completions.parse(model=served.chat, messages=HELLO, response_format=Town)
        assert isinstance(parsed.choices[0].message.parsed, Town)

    @pytest.mark.usefixtures("rehearsed")
    async def test_asynchronous_with_tools(self, openai_async: openai.AsyncOpenAI, served: Served) -> None:
        async with openai_async.chat.completions.stream(model=served.tools, messages=CALL, tools=[TOOL]) as stream:
            final = await stream.get_final_completion()
        [call] = final.choices[0].message.tool_calls or []
        assert call.function.arguments == '{"city":"Oslo","days":2}'


class TestCompletions:
    def test_whole_and_streamed(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.completions.create(
            model=served.chat, prompt="Say hello.", max_tokens=6, temperature=0, seed=1
        )
        assert answer.object == "text_completion"
        assert answer.usage is not None
        chunks = list(
            openai_client.completions.create(
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
        self, openai_client: openai.OpenAI, served: Served
    ) -> None:
        assert openai_client.completions.create(model=served.chat, prompt=["Say hello."], max_tokens=4).choices[0].text
        for prompt in (["one", "two"], [1, 2, 3]):
            with pytest.raises(openai.BadRequestError) as refused:
                openai_client.completions.create(model=served.chat, prompt=prompt, max_tokens=4)
            assert refused.value.param == "prompt"
            assert "prompt" in refused.value.message

    async def test_asynchronous(self, openai_async: openai.AsyncOpenAI, served: Served) -> None:
        answer = await openai_async.completions.create(model=served.chat, prompt="Say hello.", max_tokens=6)
        assert answer.choices[0].finish_reason in ("stop", "length")


class TestEmbeddings:
    def test_base64_by_default_equals_float(self, openai_client: openai.OpenAI, served: Served) -> None:
        packed = openai_client.embeddings.create(model=served.embed, input=["hello", "world", ""])
        floats = openai_client.embeddings.create(
            model=served.embed, input=["hello", "world", ""], encoding_format="float"
        )
        assert [each.index for each in packed.data] == [0, 1, 2]
        for one, other in zip(packed.data, floats.data, strict=True):
            assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert packed.usage == floats.usage
        assert packed.usage.total_tokens == packed.usage.prompt_tokens > 0

    def test_one_text(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.embeddings.create(model=served.embed, input="hello")
        assert len(answer.data) == 1
        assert answer.model == served.embed

    def test_the_input_that_is_too_long_is_named(self, openai_client: openai.OpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client.embeddings.create(model=served.embed, input=["short", LONG])
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.param == "input[1]"

    def test_token_ids_and_other_encodings_are_refused(self, openai_client: openai.OpenAI, served: Served) -> None:
        with pytest.raises(openai.BadRequestError):
            openai_client.embeddings.create(model=served.embed, input=[1, 2, 3])
        with pytest.raises(openai.BadRequestError, match="encoding_format"):
            openai_client.post(
                "/embeddings",
                cast_to=object,
                body={"model": served.embed, "input": "x", "encoding_format": "hex"},
            )

    async def test_asynchronous(self, openai_async: openai.AsyncOpenAI, served: Served) -> None:
        answer = await openai_async.embeddings.create(model=served.embed, input=["a", "b"])
        assert len(answer.data) == 2


class TestModels:
    def test_list_and_retrieve(self, openai_client: openai.OpenAI, served: Served) -> None:
        listed = list(openai_client.models.list())
        assert any(model.id.startswith(served.chat) for model in listed)
        for model in listed:
            found = openai_client.models.retrieve(model.id)
            assert (found.id, found.object, found.owned_by) == (model.id, "model", model.owned_by)

    def test_a_name_with_slashes(self, openai_client: openai.OpenAI, served: Served) -> None:
        native = ollama.Client(host=served.url)
        native.copy(served.chat, "somebody/gate-compliance:v1")
        try:
            found = openai_client.models.retrieve("somebody/gate-compliance:v1")
            assert (found.id, found.owned_by) == ("somebody/gate-compliance:v1", "somebody")
            answer = openai_client.chat.completions.create(
                model="somebody/gate-compliance:v1", messages=HELLO, max_tokens=4
            )
            assert answer.model == "somebody/gate-compliance:v1"
        finally:
            native.delete("somebody/gate-compliance:v1")
            native._client.close()  # noqa: SLF001 - it has no close of its own

    async def test_asynchronous(self, openai_async: openai.AsyncOpenAI, served: Served) -> None:
        assert [model.id async for model in openai_async.models.list()]
        assert (await openai_async.models.retrieve(served.chat)).id == served.chat


@pytest.mark.usefixtures("rehearsed")
class TestTranscriptions:
    def test_json_and_text(self, openai_client: openai.OpenAI) -> None:
        sound = io.BytesIO()
        with wave.open(sound, "wb") as file:
            file.setparams((1, 2, 16000, 1600, "NONE", "not compressed"))
            file.writeframes(bytes(3200))
        for format_ in ("json", "text"):
            sound.seek(0)
            told: Any = openai_client.audio.transcriptions.create(
                model="rehearsal-vision", file=("sound.wav", sound), response_format=format_
            )
            assert (told if isinstance(told, str) else told.text).strip()
