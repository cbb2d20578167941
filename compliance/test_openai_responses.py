"""The official openai client's Responses API through the gate."""

from typing import Any

import openai
import pytest
from openai.types.responses import ResponseFunctionToolCall
from openai_asked import CALL, FUNCTION, Town
from served import Served


class TestResponses:
    def test_whole(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.responses.create(model=served.chat, instructions="Be brief.", input="Say hello.")
        # A small model that was not told to stop is cut at the end of its window.
        assert answer.status in (("completed", "incomplete") if served.real else ("completed",))
        assert answer.output_text
        assert answer.error is None
        usage = answer.usage
        assert usage is not None
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens

    def test_streamed(self, openai_client: openai.OpenAI, served: Served) -> None:
        with openai_client.responses.stream(model=served.chat, input="Say hello.", temperature=0) as stream:
            events = list(stream)
        end = events[-1]
        # A small model that was not told to stop is cut at the end of its window.
        assert end.type == "response.completed" or (served.real and end.type == "response.incomplete")
        final = end.response
        kinds = [event.type for event in events]
        assert kinds[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        assert kinds[-4:-1] == [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
        ]
        assert [getattr(event, "sequence_number", None) for event in events] == list(range(len(events)))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == (
            final.output_text
        )
        assert final.usage is not None

    @pytest.mark.usefixtures("rehearsed")
    def test_function_calls(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.responses.create(model=served.tools, input=str(CALL[0]["content"]), tools=[FUNCTION])
        [call] = [item for item in answer.output if isinstance(item, ResponseFunctionToolCall)]
        assert (call.name, call.arguments) == ("weather", '{"city":"Oslo","days":2}')
        history: list[Any] = [
            {"role": "user", "content": CALL[0]["content"]},
            {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments},
            {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."},
        ]
        after = openai_client.responses.create(model=served.tools, input=history, tools=[FUNCTION])
        assert after.output_text
        assert after.usage is not None
        assert answer.usage is not None
        assert after.usage.input_tokens > answer.usage.input_tokens

    @pytest.mark.usefixtures("rehearsed")
    def test_function_calls_streamed(self, openai_client: openai.OpenAI, served: Served) -> None:
        with openai_client.responses.stream(
            model=served.tools, input=str(CALL[0]["content"]), tools=[FUNCTION]
        ) as stream:
            kinds = [event.type for event in stream]
            [call] = [item for item in stream.get_final_response().output if item.type == "function_call"]
        assert "response.function_call_arguments.delta" in kinds
        assert "response.function_call_arguments.done" in kinds
        assert call.arguments == '{"city":"Oslo","days":2}'

    def test_structured_output_is_parsed(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.responses.parse(model=served.chat, input="Say hello.", text_format=Town)
        assert isinstance(answer.output_parsed, Town)
        with openai_client.responses.stream(model=served.chat, input="Say hello.", text_format=Town) as stream:
            assert isinstance(stream.get_final_response().output_parsed, Town)

    def test_reasoning(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.responses.create(model=served.thinking, input="Say hello.", max_output_tokens=300)
        assert answer.output[0].type == "reasoning"
        with openai_client.responses.stream(model=served.thinking, input="Say hello.", max_output_tokens=300) as stream:
            kinds = [event.type for event in stream]
        assert "response.reasoning_summary_text.delta" in kinds

    def test_a_cut_answer_is_incomplete(self, openai_client: openai.OpenAI, served: Served) -> None:
        answer = openai_client.responses.create(model=served.chat, input="write 50 tokens", max_output_tokens=5)
        assert answer.status == "incomplete"
        assert answer.incomplete_details is not None
        assert answer.incomplete_details.reason == "max_output_tokens"
        stream = openai_client.responses.create(
            model=served.chat, input="write 50 tokens", max_output_tokens=5, stream=True
        )
        assert [event.type for event in stream][-1] == "response.incomplete"

    def test_input_tokens_are_those_that_the_model_counts(self, openai_client: openai.OpenAI, served: Served) -> None:
        asked: dict[str, Any] = {
            "model": served.tools,
            "input": "Say hello to Bergen, Tromsø and 東京.",
            "instructions": "Be brief.",
            "tools": [FUNCTION],
        }
        counted = openai_client.responses.input_tokens.count(**asked)
        answer = openai_client.responses.create(**asked, max_output_tokens=4)
        assert counted.object == "response.input_tokens"
        assert answer.usage is not None
        assert counted.input_tokens == answer.usage.input_tokens

    async def test_asynchronous(self, openai_async: openai.AsyncOpenAI, served: Served) -> None:
        answer = await openai_async.responses.create(model=served.chat, input="Say hello.")
        assert answer.output_text
        async with openai_async.responses.stream(model=served.chat, input="Say hello.") as stream:
            end = [event async for event in stream][-1]
            # A small model that was not told to stop is cut at the end of its window; then the client has no final one.
            if not served.real or end.type == "response.completed":
                assert (await stream.get_final_response()).output_text
            else:
                assert end.type == "response.incomplete"
                assert end.response.output_text
        counted = await openai_async.responses.input_tokens.count(model=served.chat, input="Say hello.")
        assert answer.usage is not None
        assert counted.input_tokens == answer.usage.input_tokens
