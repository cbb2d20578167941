"""What agents need of a gate, points 1 to 10: how it refuses, and how seldom. Each name begins with its point."""

import asyncio
import re
from typing import Any

import pytest

from support.agents import prose
from support.cases import front
from support.cases import full as named
from support.gate import metric, running_gate
from support.http import Client, Reply, ask
from support.scripted import Got, ScriptedOllama, whole
from support.waiting import until

MODEL, EMBEDDER = "llama3.2", "all-minilm"
WINDOW, BUDGET = 2048, 1500
LONG = prose(400)
ASKED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": LONG}]},
    "/v1/completions": {"model": MODEL, "prompt": LONG},
    "/v1/responses": {"model": MODEL, "input": LONG},
    "/v1/embeddings": {"model": EMBEDDER, "input": LONG},
    "/v1/messages": {"model": MODEL, "messages": [{"role": "user", "content": LONG}], "max_tokens": 100},
    "/api/chat": {"model": MODEL, "messages": [{"role": "user", "content": LONG}]},
    "/api/generate": {"model": MODEL, "prompt": LONG},
    "/api/embed": {"model": EMBEDDER, "input": [LONG]},
    "/api/embeddings": {"model": EMBEDDER, "prompt": LONG},
}
OPENAI = [path for path in ASKED if path.startswith("/v1/") and path != "/v1/messages"]
NATIVE = [path for path in ASKED if path.startswith("/api/")]
SENTENCE = re.compile(
    r"prompt is too long: (\d+) tokens > (\d+) maximum\. This model's maximum context length is (\d+) tokens\. "
    r"However, your messages resulted in (\d+) tokens\. Please reduce the length of the messages or completion\."
)


def gate() -> Any:
    return front(window=WINDOW, defaults={"budget": BUDGET})


async def refused(*paths: str, **more: Any) -> list[tuple[str, Reply]]:
    """The refusals of an overlong prompt, route by route; nothing of it reaches Ollama."""
    async with gate() as line:
        replies = [(path, await line.ask(path, {**ASKED[path], **more})) for path in paths or ASKED]
        for path, _ in replies:
            line.assert_refused(path)
    return replies


def message_of(reply: Reply) -> str:
    error = reply.json["error"]
    message = error if isinstance(error, str) else error["message"]
    assert isinstance(message, str)
    return message


def facts_of(reply: Reply) -> dict[str, Any]:
    told = reply.json
    facts: dict[str, Any] = told.get("details") or told["error"]
    return facts


async def test_point_01_one_sentence_in_every_dialect_with_the_budget_that_is_applied() -> None:
    for path, reply in await refused():
        found = SENTENCE.match(message_of(reply))
        assert found is not None, path
        tokens, *limits, again = map(int, found.groups())
        facts = facts_of(reply)
        assert tokens == again == facts["prompt_tokens"]
        if "embed" in path:
            assert limits == [facts["limit"], facts["limit"]]
            assert facts["limit"] <= 512
        else:
            assert limits == [BUDGET, BUDGET]
            assert (facts["budget"], facts["window"]) == (BUDGET, WINDOW)


async def test_point_02_openais_error_is_an_object_with_the_code_that_codex_looks_for() -> None:
    for _, reply in await refused(*OPENAI):
        error = reply.json["error"]
        assert {"message", "type", "param", "code"} <= error.keys()
        assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")


async def test_point_03_anthropics_error_begins_with_the_words_and_plain_digits() -> None:
    [(_, reply)] = await refused("/v1/messages")
    told = reply.json
    assert (told["type"], told["error"]["type"]) == ("error", "invalid_request_error")
    assert re.match(r"prompt is too long: \d{4,} tokens > 1500 maximum", told["error"]["message"])


async def test_point_04_a_native_error_stays_a_string() -> None:
    for _, reply in await refused(*NATIVE):
        assert isinstance(reply.json["error"], str)
        assert reply.json["code"] == "context_length_exceeded"


@pytest.mark.parametrize("stream", [True, False])
async def test_point_05_it_is_a_400_before_the_first_byte_streamed_or_not(*, stream: bool) -> None:
    for _, reply in await refused(stream=stream):
        assert reply.status == 400
        assert (reply.header("Content-Type") or "").startswith("application/json")


async def test_point_06_the_reason_phrase_says_it_too() -> None:
    assert {reply.reason for _, reply in await refused()} == {"Context Length Exceeded"}


NOT_IN_A_REFUSAL = (
    "rate limit",
    "too many requests",
    "per minute",
    "timeout",
    "timed out",
    "overloaded",
    "aborted",
    "connection reset",
)
NOT_IN_A_503 = (
    "too many tokens",
    "exceeds the limit of",
    "token limit exceeded",
    "context length",
    "prompt is too long",
)


async def test_point_07_words_that_mislead_do_not_occur_in_a_refusal() -> None:
    for path, reply in await refused():
        written = reply.body.decode().lower()
        assert not [words for words in NOT_IN_A_REFUSAL if words in written], path


async def test_point_07_words_of_a_refusal_do_not_occur_in_a_503() -> None:
    async def script(got: Got, writer: asyncio.StreamWriter) -> None:
        writer.write(whole({}))

    async with ScriptedOllama(script) as ollama:
        gone = ollama.url
    async with running_gate(gone) as alone:
        for path, body in ASKED.items():
            reply = await ask(alone.address, "POST", path, body)
            written = reply.body.decode().lower()
            assert reply.status == 503, path
            assert not [words for words in NOT_IN_A_503 if words in written], path


async def test_point_08_a_413_is_for_bytes_and_is_answered_from_the_headers() -> None:
    """Codex and aider repeat it six to nine times."""
    async with front(server={"max_body": "1MiB"}) as line:
        for path in ASKED:
            async with await Client.connect(line.gate.address) as client:
                await client.send("POST", path, headers={"Content-Length": str(10 << 30)})
                reply = await client.rest(await client.head())  # not a byte of the body was sent
            assert reply.status == 413
            assert reply.header("x-should-retry") == "false"
            assert "1048576 bytes" in message_of(reply)
        assert not line.got()


async def test_point_09_a_refusal_asks_not_to_be_repeated_and_costs_nothing_when_it_is() -> None:
    async with gate() as line:
        for number, path in enumerate(ASKED, 1):
            replies = [await line.ask(path, ASKED[path]) for _ in range(30)]
            line.assert_refused(path, times=30)
            assert {reply.header("x-should-retry") for reply in replies} == {"false"}
            told = [reply.json for reply in replies]
            if path == "/v1/messages":
                ids = [f"req_{reply.gate('request-id')}".replace("-", "") for reply in replies]
                assert [one.pop("request_id") for one in told] == ids
            assert all(one == told[0] for one in told)
            assert [reply.gate("repeated") for reply in replies] == [None] + ["true"] * 29
            model = named(f"{ASKED[path]['model']}:latest")
            assert line.metric("requests_total", route=path, model=model, verdict="refuse") == 30
            counts = (metric(line.gate, "count_seconds_count", rung=rung) for rung in ("exact", "estimate", "bound"))
            assert sum(counts) == number


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"])
async def test_point_10_busy_means_waiting_and_a_503_says_how_long(path: str) -> None:
    """One busy answer turned into six to thirty requests."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 50, "stream": False}
    if path == "/v1/responses":
        body["input"] = "Hello."
    async with front(queue={"depth": 4}) as line:
        replies = await asyncio.gather(*(line.ask(path, body) for _ in range(5)))
        assert {reply.status for reply in replies} == {200}
        line.ollama.fault("hang", path="/api/chat", at="start")
        waiting = [asyncio.ensure_future(line.ask(path, body)) for _ in range(5)]
        queues = line.gate.wiring.admission.gatekeeper.scheduler.queues
        await until(lambda: sum(queue.waiting for queue in queues.values()) == 4)
        full = await line.ask(path, body)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    assert (full.status, full.reason) == (503, "Queue Full")
    assert int(full.header("Retry-After") or 0) >= 1
    written = full.body.decode().lower()
    assert not [words for words in NOT_IN_A_503 if words in written]
