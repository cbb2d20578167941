"""The official anthropic client through the gate: messages and counts work, and a refusal is its own error."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import anthropic
import pydantic
import pytest
from anthropic.types import MessageParam, ToolParam, ToolUseBlock
from compressing import CODINGS, Compressing
from served import Served
from streams import until_it_fails

HELLO: list[MessageParam] = [{"role": "user", "content": "Say hello."}]
CALL: list[MessageParam] = [{"role": "user", "content": 'Please call tool weather with {"city": "Oslo", "days": 2}'}]
TOOL: ToolParam = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
LONG = "The keeper of the ferry wrote down what came in and what went out. " * 3000
COLD = {"temperature": 0}
DIES = {"x-rehearsal-fault": "dies:after=3"}
CUT = {"x-rehearsal-fault": "cut:after=3"}
PIXEL = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6260f8ffff3f0005fe02fea72d"
        "a5b50000000049454e44ae426082"
    )
).decode()


class Town(pydantic.BaseModel):
    """What structured output is asked for; small models never end a text, and this client sends no bounds of one."""

    name: Literal["Oslo", "Rome"]
    people: int


@pytest.fixture
def client(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="none") as client:
        yield client


@pytest.fixture
async def async_client(served: Served) -> AsyncIterator[anthropic.AsyncAnthropic]:
    async with anthropic.AsyncAnthropic(base_url=served.url, auth_token="none") as client:
        yield client


class TestMessages:
    def test_whole(self, client: anthropic.Anthropic, served: Served) -> None:
        answer = client.messages.create(model=served.chat, messages=HELLO, max_tokens=8)
        assert (answer.type, answer.role, answer.model) == ("message", "assistant", served.chat)
        [block] = answer.content
        assert block.type == "text"
        assert block.text
        assert answer.stop_reason in ("end_turn", "max_tokens")
        assert answer.usage.input_tokens > 0
        assert 0 < answer.usage.output_tokens <= 8

    def test_streamed(self, client: anthropic.Anthropic, served: Served) -> None:
        whole = client.messages.create(model=served.chat, messages=HELLO, max_tokens=8, extra_body=COLD)
        with client.messages.stream(model=served.chat, messages=HELLO, max_tokens=8, extra_body=COLD) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert [block.text for block in whole.content if block.type == "text"] == [text]
        assert final.stop_reason == whole.stop_reason
        assert final.usage.output_tokens == whole.usage.output_tokens
        assert final.usage.input_tokens == whole.usage.input_tokens

    def test_the_events_and_their_order(self, client: anthropic.Anthropic, served: Served) -> None:
        counted = client.messages.count_tokens(model=served.chat, messages=HELLO).input_tokens
        events = list(client.messages.create(model=served.chat, messages=HELLO, max_tokens=8, stream=True))
        kinds = [event.type for event in events]
        assert kinds[:2] == ["message_start", "content_block_start"]
        assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
        assert set(kinds[2:-3]) == {"content_block_delta"}
        started = events[0]
        assert started.type == "message_start"
        assert started.message.usage.input_tokens == counted

    def test_system_blocks(self, client: anthropic.Anthropic, served: Served) -> None:
        blocks = client.messages.create(
            model=served.chat,
            system=[
                {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": " Be kind."},
            ],
            messages=HELLO,
            max_tokens=4,
        )
        text = client.messages.create(model=served.chat, system="Be brief. Be kind.", messages=HELLO, max_tokens=4)
        assert blocks.usage.input_tokens == text.usage.input_tokens

    def test_stop_sequences_and_sampling(self, client: anthropic.Anthropic, served: Served) -> None:
        answer = client.messages.create(
            model=served.chat,
            messages=HELLO,
            max_tokens=20,
            stop_sequences=["rehearsal"],
            extra_body={"top_k": 5, "top_p": 0.9, "temperature": 0.5, "metadata": {"user_id": "x"}},
        )
        assert all("rehearsal" not in block.text for block in answer.content if block.type == "text")

    @pytest.mark.usefixtures("rehearsed")
    def test_tools_and_their_results(self, client: anthropic.Anthropic, served: Served) -> None:
        answer = client.messages.create(model=served.tools, messages=CALL, tools=[TOOL], max_tokens=100)
        assert answer.stop_reason == "tool_use"
        [call] = [block for block in answer.content if isinstance(block, ToolUseBlock)]
        assert (call.name, call.input) == ("weather", {"city": "Oslo", "days": 2})
        history: list[MessageParam] = [
            *CALL,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.input}],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Rain."}]},
                    {"type": "text", "text": "And tomorrow?", "cache_control": {"type": "ephemeral"}},
                ],
            },
        ]
        after = client.messages.create(model=served.tools, messages=history, tools=[TOOL], max_tokens=100)
        assert after.stop_reason == "end_turn"
        assert after.usage.input_tokens > answer.usage.input_tokens

    @pytest.mark.usefixtures("rehearsed")
    def test_tools_streamed(self, client: anthropic.Anthropic, served: Served) -> None:
        with client.messages.stream(model=served.tools, messages=CALL, tools=[TOOL], max_tokens=100) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        assert "input_json" in kinds
        [call] = [block for block in final.content if block.type == "tool_use"]
        assert call.input == {"city": "Oslo", "days": 2}
        assert final.stop_reason == "tool_use"

    def test_thinking(self, client: anthropic.Anthropic, served: Served) -> None:
        asked: dict[str, Any] = {"model": served.thinking, "messages": HELLO, "max_tokens": 300}
        wishes: list[Any] = [{"type": "enabled", "budget_tokens": 1024}, {"type": "adaptive"}]
        for wish in wishes:
            answer = client.messages.create(**asked, thinking=wish)
            assert answer.content[0].type == "thinking"
        silent = client.messages.create(**asked, thinking={"type": "disabled"})
        assert [block.type for block in silent.content] == ["text"]

    def test_thinking_streamed(self, client: anthropic.Anthropic, served: Served) -> None:
        with client.messages.stream(
            model=served.thinking, messages=HELLO, max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024}
        ) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_message()
        assert "thinking" in kinds
        assert final.content[0].type == "thinking"

    def test_thinking_asked_of_a_model_that_cannot_is_left_out(
        self, client: anthropic.Anthropic, served: Served
    ) -> None:
        raw = client.messages.with_raw_response.create(
            model=served.tools,
            messages=HELLO,
            max_tokens=8,
            thinking={"type": "enabled", "budget_tokens": 1024},
        )
        assert raw.parse().content
        assert "does not think" in raw.headers["x-ollama-gate-note"]

    @pytest.mark.usefixtures("rehearsed")
    def test_images(self, client: anthropic.Anthropic) -> None:
        question: list[MessageParam] = [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "What is it?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
                ],
            }
        ]
        assert client.messages.create(model="rehearsal-vision", messages=question, max_tokens=8).content

    def test_structured_output_is_parsed(self, client: anthropic.Anthropic, served: Served) -> None:
        answer = client.messages.parse(model=served.chat, messages=HELLO, max_tokens=200, output_format=Town)
        assert isinstance(answer.parsed_output, Town)
        with client.messages.stream(model=served.chat, messages=HELLO, max_tokens=200, output_format=Town) as stream:
            assert isinstance(stream.get_final_message().parsed_output, Town)

    async def test_asynchronous(self, async_client: anthropic.AsyncAnthropic, served: Served) -> None:
        answer = await async_client.messages.create(model=served.chat, messages=HELLO, max_tokens=8)
        async with async_client.messages.stream(model=served.chat, messages=HELLO, max_tokens=8) as stream:
            final = await stream.get_final_message()
        assert final.usage.input_tokens == answer.usage.input_tokens


class TestCounts:
    def test_a_count_is_what_the_model_counts(self, client: anthropic.Anthropic, served: Served) -> None:
        asked: dict[str, Any] = {
            "model": served.tools,
            "system": "Be brief. Bergen, Tromsø, 東京.",
            "messages": CALL,
            "tools": [TOOL],
        }
        counted = client.messages.count_tokens(**asked)
        answer = client.messages.create(**asked, max_tokens=1)
        assert counted.input_tokens == answer.usage.input_tokens

    def test_a_count_is_not_refused_for_its_length(self, client: anthropic.Anthropic, served: Served) -> None:
        counted = client.messages.count_tokens(model=served.chat, messages=[{"role": "user", "content": LONG}])
        assert counted.input_tokens > 30_000

    async def test_many_at_once(self, async_client: anthropic.AsyncAnthropic, served: Served) -> None:
        texts = ["foo" + " bar" * number for number in range(14)]
        counts = await asyncio.gather(
            *(
                async_client.messages.count_tokens(
                    model=served.tools, messages=[{"role": "user", "content": text}], tools=[TOOL]
                )
                for text in texts
            )
        )
        tokens = [count.input_tokens for count in counts]
        assert tokens == sorted(tokens)
        assert len(set(tokens)) == len(tokens)

    def test_the_beta_route(self, client: anthropic.Anthropic, served: Served) -> None:
        plain = client.messages.count_tokens(model=served.chat, messages=HELLO)
        beta = client.beta.messages.count_tokens(
            model=served.chat, messages=[{"role": "user", "content": "Say hello."}]
        )
        assert beta.input_tokens == plain.input_tokens
        answer = client.beta.messages.create(
            model=served.chat, messages=[{"role": "user", "content": "Say hello."}], max_tokens=4
        )
        assert answer.usage.input_tokens == plain.input_tokens


class TestRefusals:
    @pytest.mark.parametrize("stream", [False, True])
    def test_an_overlong_prompt(self, client: anthropic.Anthropic, served: Served, stream: bool) -> None:
        with pytest.raises(anthropic.BadRequestError) as refused:
            client.messages.create(
                model=served.chat, messages=[{"role": "user", "content": LONG}], max_tokens=8, stream=stream
            )
        error = refused.value
        assert error.status_code == 400
        assert error.type == "invalid_request_error"
        body: Any = error.body
        assert body["type"] == "error"
        assert body["error"]["type"] == "invalid_request_error"
        assert body["error"]["message"].startswith("prompt is too long: ")
        assert body["code"] == "context_length_exceeded"
        assert body["details"]["prompt_tokens"] > body["details"]["budget"] > 0
        assert error.response.headers["x-should-retry"] == "false"

    def test_an_overlong_prompt_with_the_streaming_helper(self, client: anthropic.Anthropic, served: Served) -> None:
        manager = client.messages.stream(model=served.chat, messages=[{"role": "user", "content": LONG}], max_tokens=8)
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long: "), manager:
            pass

    async def test_asynchronous(self, async_client: anthropic.AsyncAnthropic, served: Served) -> None:
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long: "):
            await async_client.messages.create(
                model=served.chat, messages=[{"role": "user", "content": LONG}], max_tokens=8
            )

    def test_a_long_answer_is_clamped_and_not_refused(self, client: anthropic.Anthropic, served: Served) -> None:
        answer = client.messages.create(model=served.chat, messages=HELLO, max_tokens=20_000)
        assert answer.content

    def test_a_model_that_is_not_there(self, client: anthropic.Anthropic) -> None:
        calls = (
            lambda: client.messages.create(model="no-such-model", messages=HELLO, max_tokens=8),
            lambda: client.messages.create(model="no-such-model", messages=HELLO, max_tokens=8, stream=True),
            lambda: client.messages.count_tokens(model="no-such-model", messages=HELLO),
        )
        for call in calls:
            with pytest.raises(anthropic.NotFoundError) as missing:
                call()
            assert missing.value.type == "not_found_error"

    def test_what_is_wrong_with_a_request_is_told(self, client: anthropic.Anthropic, served: Served) -> None:
        with pytest.raises(anthropic.BadRequestError, match="messages is required"):
            client.messages.create(model=served.chat, messages=[], max_tokens=8)
        with pytest.raises(anthropic.BadRequestError, match="max_tokens is required and must be positive"):
            client.messages.create(model=served.chat, messages=HELLO, max_tokens=0)

    @pytest.mark.parametrize("coding", CODINGS)
    def test_compressed_bodies(self, served: Served, coding: str) -> None:
        http = anthropic.DefaultHttpxClient(transport=Compressing(coding))
        with anthropic.Anthropic(base_url=served.url, api_key="none", http_client=http) as client:
            assert client.messages.create(model=served.chat, messages=HELLO, max_tokens=4).content
            assert client.messages.count_tokens(model=served.chat, messages=HELLO).input_tokens
            with pytest.raises(anthropic.BadRequestError, match="prompt is too long: "):
                client.messages.create(model=served.chat, messages=[{"role": "user", "content": LONG}], max_tokens=4)


@pytest.mark.usefixtures("rehearsed")
class TestBrokenStreams:
    @pytest.mark.parametrize("fault", [DIES, CUT], ids=["dies", "cut"])
    def test_an_error_event_is_raised(self, client: anthropic.Anthropic, served: Served, fault: dict[str, str]) -> None:
        stream = client.messages.create(
            model=served.chat, messages=HELLO, max_tokens=50, stream=True, extra_headers=fault
        )
        events, failure = until_it_fails(stream, anthropic.AnthropicError)
        assert [event.type for event in events].count("content_block_delta") >= 1
        assert events[-1].type != "message_stop"
        assert isinstance(failure, anthropic.APIStatusError)
        assert failure.type == "api_error"

    async def test_asynchronous(self, async_client: anthropic.AsyncAnthropic, served: Served) -> None:
        manager = async_client.messages.stream(model=served.chat, messages=HELLO, max_tokens=50, extra_headers=DIES)
        async with manager as stream:
            with pytest.raises(anthropic.APIStatusError):
                await stream.get_final_message()

    def test_death_before_the_first_byte_is_a_server_error(self, client: anthropic.Anthropic, served: Served) -> None:
        dies = {"x-rehearsal-fault": "dies:after=0"}
        once = client.with_options(max_retries=0)
        for stream in (False, True):
            with pytest.raises(anthropic.InternalServerError):
                once.messages.create(
                    model=served.chat, messages=HELLO, max_tokens=50, stream=stream, extra_headers=dies
                )
