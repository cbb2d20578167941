"""Long conversations that go on: what reaches Ollama in their place, and what the client is told."""

import asyncio
import io
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from ollama_gate.compaction.building import DIGEST, NOTED
from ollama_gate.compaction.pairing import units
from ollama_gate.config.compaction import Compaction
from support import long_talks
from support.cases import Front, assert_r400, case
from support.http import Reply
from support.long_talks import FACTS, Message
from support.shortened import compacting, full, sent

MARKER = re.compile(
    r"\[\.\.\. (\d+) characters dropped to fit the context budget — original archived as ([0-9a-f]{12})\]"
)
TARGET = Compaction().target
MODELS = ("long", "long-go", "long-renderer", "long-thinking")


async def chat(line: Front, talk: list[Message], model: str = "long", **more: Any) -> Reply:
    """Send a conversation, with its model loaded and its rendering compared before."""
    body = {"model": model, "stream": False, "options": {"num_predict": 2}, **more}
    if not sent(line):
        hello = [{"role": "user", "content": "hi"}]
        assert (await line.ask("/api/chat", {**body, "messages": hello})).status == 200
    return await line.ask("/api/chat", {**body, "messages": talk})


def fills(tokens: int, budget: int) -> bool:
    """Whether a prompt fills the target for this budget, and does not pass it."""
    return 0.85 * TARGET * budget <= tokens <= TARGET * budget


def out(line: Front) -> list[Message]:
    """The messages of the last chat that Ollama ran."""
    messages: list[Message] = sent(line)[-1].json()["messages"]
    return messages


def counted(reply: Reply) -> int:
    """The count after compaction, which is Ollama's own too."""
    to = int(reply.gate("compacted-to") or 0)
    assert reply.json["prompt_eval_count"] == to == int(reply.gate("prompt-tokens") or 0)
    return to


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
async def test_facts_from_long_ago_are_in_what_goes_out(model: str, written_log: io.StringIO) -> None:
    talk = long_talks.long_talk()
    async with compacting(13_000) as line:
        reply = await chat(line, talk, model)
        assert (reply.status, reply.gate("verdict"), reply.gate("checkpoint")) == (200, "compact", "new")
        assert len(talk) == 122
        before, after = int(reply.gate("compacted-from") or 0), counted(reply)
        assert before > 74_000
        assert fills(after, 13_000)
        said = out(line)
        assert said[0] == talk[0]
        assert said[-1] == talk[-1]
        assert [message["role"] for message in said[-8:]] == [message["role"] for message in talk[-8:]]
        for fact in FACTS:
            assert fact in said[1]["content"]
            assert fact not in "".join(message["content"] for message in said[2:])
        assert line.metric("compactions_total", model=full(model), outcome="new") == 1
        assert line.metric("compaction_saved_tokens_total", model=full(model)) == before - after
    lines = [json.loads(text) for text in written_log.getvalue().splitlines()]
    mine = next(one for one in lines if one.get("compaction"))
    assert (mine["compaction"], mine["compacted_from"], mine["prompt_tokens"]) == ("new", before, after)
    assert "QUARRY" not in written_log.getvalue()


@pytest.mark.slow
async def test_nine_tools_at_once_are_all_kept() -> None:
    talk = long_talks.analyst()
    async with compacting(13_000) as line:
        reply = await chat(line, talk)
        assert reply.status == 200
        assert fills(counted(reply), 13_000)
        said = own(out(line))
        assert len(said) == len(talk) == 22
        assert [same(one) for one in said] == [same(one) for one in talk]
        assert units(said) == units(talk)
        assert sum(bool(MARKER.search(message["content"])) for message in said) >= 9


def own(messages: list[Message]) -> list[Message]:
    """The client's own messages: all but the digest and what answers it."""
    return [
        message for message in messages if message["content"] != NOTED and not message["content"].startswith(DIGEST)
    ]


def same(message: Message) -> Any:
    """What of a message no cut changes."""
    return message["role"], message.get("tool_calls"), message.get("tool_call_id"), message.get("tool_name")


@pytest.mark.slow
async def test_a_loop_over_symbols_keeps_every_pair() -> None:
    talk = long_talks.indicators(lines=50)
    async with compacting(36_000) as line:
        reply = await chat(line, talk)
        assert reply.status == 200
        assert int(reply.gate("compacted-from") or 0) > 90_000
        assert fills(counted(reply), 36_000)
        assert counted(reply) < 22_000
        said = out(line)
        calls = [
            call["function"]["arguments"]["symbol"] for message in said for call in message.get("tool_calls") or ()
        ]
        assert calls == [f"SYM{number}" for number in range(40)]
        pairs = units(said)
        assert [len(unit.members) for unit in pairs] == [2] * 40
        for unit in pairs:
            data = said[unit.members[1]]["content"]
            assert data.startswith("date,open,high,low,close,volume\n")
            found = MARKER.search(data)
            whole = next(one for one in talk if same(one) == same(said[unit.members[1]]))["content"]
            if found is None:
                assert data == whole
                continue
            kept = MARKER.sub("", data)
            assert int(found[1]) + len(kept) - kept.count("\n\n") >= len(whole) - 2
            head, tail = data[: found.start()].rstrip("\n"), data[found.end() :].lstrip("\n")
            assert whole.startswith(head)
            assert whole.endswith(tail)
            assert len(tail) >= len(head) / 4
            assert len(head) < 120 or all(row.count(",") == 5 for row in f"{head}\n{tail}".splitlines()), (
                "cut at the end of lines"
            )
        assert talk[1] in said


@pytest.mark.slow
async def test_calls_that_do_not_fit_are_listed_with_their_arguments() -> None:
    talk = long_talks.indicators()
    async with compacting(4_000) as line:
        reply = await chat(line, talk)
        assert reply.status == 200
        assert TARGET * 4_000 < counted(reply) <= 0.9 * 4_000, "the budget is used before a result goes"
        said = out(line)
        listed = re.findall(
            r'- get_indicators\({"symbol":"(\w+)","interval":"1d"}\) — result archived as', said[1]["content"]
        )
        kept = [call["function"]["arguments"]["symbol"] for one in said for call in one.get("tool_calls") or ()]
        assert listed
        assert [*listed, *kept] == [f"SYM{number}" for number in range(40)]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
async def test_what_a_template_adds_to_results_is_learned(share: float) -> None:
    talk = long_talks.indicators(50, 0)
    async with compacting(100_000) as line:
        whole = (await line.ask("/gate/count?route=/api/chat", {"model": "long-wordy", "messages": talk})).json
    budget = int(share * whole["tokens"])
    async with compacting(budget) as line:
        reply = await chat(line, talk, "long-wordy")
        assert reply.status == 200, reply.json
        assert 0.5 * budget < counted(reply) <= budget
        said = out(line)
        listed = said[1]["content"].count("\n- get_indicators(")
        kept = [call["function"]["arguments"]["symbol"] for one in said for call in one.get("tool_calls") or ()]
        assert kept == [f"SYM{number}" for number in range(listed, 50)]
        assert [len(unit.members) for unit in units(said)] == [2] * len(kept)


@pytest.mark.slow
@pytest.mark.parametrize("budget", [9_000, 13_000, 25_000])
async def test_digits_fill_the_target_and_never_pass_it(budget: int) -> None:
    async with compacting(budget) as line:
        reply = await chat(line, long_talks.digits())
        assert reply.status == 200
        assert fills(counted(reply), budget)


@pytest.mark.slow
async def test_a_growing_conversation_changes_its_beginning_seldom() -> None:
    budget = 4_000
    requests = long_talks.growing(90, 25)[30:]
    async with compacting(budget, defaults={"num_ctx": 5120}) as line:
        firsts, evaluated, checkpoints = set[str](), list[float](), list[str | None]()
        before: list[Message] = []
        for talk in requests:
            reply = await chat(line, talk)
            assert reply.status == 200
            said = out(line)
            kept = len(before) - 1  # its last message is followed by the answer, then by a new question
            if said[:kept] != before[:kept]:
                firsts.add(json.dumps(said[:3]))
            checkpoints.append(reply.gate("checkpoint"))
            evaluated.append(reply.json["prompt_eval_duration"] / reply.json["prompt_eval_count"])
            before = said
        whole = (await line.ask("/gate/count?route=/api/chat", {"model": "long", "messages": requests[-1]})).json
        assert 2.7 * budget < whole["tokens"] < 3.3 * budget
        made = checkpoints.count("new")
        assert made == len(firsts) <= 5, "with the beginning as it came, six in all"
        assert checkpoints.count("reused") > 30
        # What Ollama has in its cache it does not evaluate again.
        cold = sorted(evaluated, reverse=True)[: made + (checkpoints[0] is None)]
        assert min(cold) > 3 * max(share for share in evaluated if share not in cold)


async def test_a_checkpoint_is_taken_up_byte_for_byte() -> None:
    talk = long_talks.long_talk(42, 60)
    async with compacting(3_000) as line:
        assert (await chat(line, talk)).gate("checkpoint") == "new"
        first = out(line)
        longer = [*talk, {"role": "assistant", "content": "I see."}, {"role": "user", "content": "And then?"}]
        reply = await chat(line, longer)
        assert reply.gate("checkpoint") == "reused"
        assert json.dumps(out(line)).startswith(json.dumps(first)[:-1])
        assert out(line)[len(first) :] == longer[-2:]
        edited = [*talk[:3], {**talk[3], "content": "I meant something else."}, *longer[4:]]
        assert (await chat(line, edited)).gate("checkpoint") == "new"


async def test_requests_of_one_conversation_at_once_share_one_compaction() -> None:
    talk = long_talks.long_talk(30, 60)
    questions = [{"role": "user", "content": f"And {number}?"} for number in range(4)]
    async with compacting(3_000) as line:
        await chat(line, [{"role": "user", "content": "hi"}])
        replies = await asyncio.gather(*(chat(line, [*talk[:-1], question]) for question in questions))
        assert sorted(str(reply.gate("checkpoint")) for reply in replies) == ["new", "reused", "reused", "reused"]
        beginnings = {str(entry.json()["messages"][:-1]) for entry in sent(line)[-4:]}
        assert len(beginnings) == 1


@pytest.mark.parametrize("session", ["x-session-id", "x-claude-code-session-id"])
async def test_conversations_of_one_session_do_not_take_each_others_checkpoints(session: str) -> None:
    first, second = long_talks.long_talk(42, 60), long_talks.long_talk(40, 61)
    second[1]["content"] = "Something else entirely. " + second[1]["content"]
    async with compacting(3_000) as line:
        seen = []
        for talk in (first, second, first, second):
            body = {"model": "long", "messages": talk, "stream": False, "options": {"num_predict": 2}}
            seen.append((await line.ask("/api/chat", body, headers={session: "s1"})).gate("checkpoint"))
        assert seen == ["new", "new", "reused", "reused"]


async def test_conversations_that_begin_alike_and_have_no_session_keep_their_checkpoints() -> None:
    start = long_talks.long_talk(42, 60)[:4]
    talks = [[*start, *long_talks.long_talk(42, seed)[4:]] for seed in range(61, 65)]
    later = [{"role": "assistant", "content": "I see."}, {"role": "user", "content": "And then?"}]
    async with compacting(3_000) as line:
        assert [(await chat(line, talk)).gate("checkpoint") for talk in talks] == ["new"] * 4
        longer = [[*talk, *later] for talk in (*talks, *talks)]
        assert [(await chat(line, talk)).gate("checkpoint") for talk in longer] == ["reused"] * 8
        fifth = [*start, *long_talks.long_talk(42, 70)[4:]]
        assert (await chat(line, fifth)).gate("checkpoint") == "new"
        assert (await chat(line, [*talks[0], *later])).gate("checkpoint") == "reused"


async def test_one_long_question_stays_and_is_refused() -> None:
    body = {**case("01-chat-over-window"), "model": "long"}
    async with compacting(400, defaults={"num_ctx": 512}) as line:
        for route in ("/api/chat", "/v1/chat/completions"):
            refused = assert_r400(await line.ask(route, body), "messages")
            assert "Compaction was tried and did not help: what has to stay whole takes too much." in refused.message
            assert refused.facts["compaction"]["outcome"] == "does_not_fit"
        assert not sent(line)
        assert line.metric("compactions_total", model=full("long"), outcome="does_not_fit") == 2


async def test_tools_alone_over_the_budget_are_refused_as_such() -> None:
    body = {**case("07-tools-dominate"), "model": "long-go"}
    async with compacting(1600, defaults={"num_ctx": 2048}) as line:
        refused = assert_r400(await line.ask("/api/chat", body), "tools")
        assert refused.facts["compaction"]["why"] == "tools and template alone take more than the budget"
        assert refused.message.endswith("Compaction was not tried: it makes messages shorter, not tools.")


async def test_a_result_longer_than_the_budget_is_cut() -> None:
    called = long_talks.call(1, "read", path="log.txt")
    talk = [
        long_talks.system(),
        {"role": "user", "content": "Read the log."},
        {"role": "assistant", "content": "", "tool_calls": [called]},
        long_talks.result(1, "read", long_talks.prose("log", 4000) + "\nThe last line says COBALT."),
        {"role": "user", "content": "What does the last line say?"},
    ]
    async with compacting(3_000) as line:
        reply = await chat(line, talk)
        assert reply.status == 200
        assert fills(counted(reply), 3_000)
        said = own(out(line))
        assert [same(one) for one in said] == [same(one) for one in talk]
        assert said[3]["content"].endswith("The last line says COBALT.")
        assert MARKER.search(said[3]["content"])


async def test_calls_across_the_last_messages_and_an_orphan_keep_their_places() -> None:
    talk = long_talks.analyst(1)
    orphan = {"role": "tool", "content": "from a call that the client has dropped", "tool_call_id": "gone"}
    talk = [*talk[:2], orphan, *talk[2:], {"role": "user", "content": "So?"}]
    async with compacting(4_500) as line:
        reply = await chat(line, talk)
        assert reply.status == 200
        said = own(out(line))
        assert orphan in said
        assert units(said) == units([talk[0], *talk[2:]]), "of the first question only the digest tells"


@pytest.mark.parametrize("model", ["long", "long-strict"])
async def test_user_and_assistant_stay_in_turn_where_they_were(model: str) -> None:
    talk = long_talks.long_talk(42, 60)
    async with compacting(3_000) as line:
        assert (await chat(line, talk, model)).status == 200
        roles = [message["role"] for message in out(line) if message["role"] != "system"]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)


DIALECTS: Mapping[str, Any] = {
    "/v1/chat/completions": lambda talk: {"messages": talk},
    "/v1/responses": lambda talk: {
        "instructions": talk[0]["content"],
        "input": [{"type": "message", "role": one["role"], "content": one["content"]} for one in talk[1:]],
    },
    "/v1/messages": lambda talk: {
        "system": talk[0]["content"],
        "max_tokens": 4,
        "messages": [{"role": one["role"], "content": [{"type": "text", "text": one["content"]}]} for one in talk[1:]],
    },
}


@pytest.mark.parametrize("streamed", ["whole", "streamed"])
@pytest.mark.parametrize("path", DIALECTS)
async def test_every_dialect_is_compacted_streamed_or_not(path: str, streamed: str) -> None:
    talk = long_talks.long_talk(42, 60)
    async with compacting(3_000) as line:
        hello = {"model": "long", "messages": [{"role": "user", "content": "hi"}], "stream": False}
        await line.ask("/api/chat", hello)
        before = len(sent(line))
        reply = await line.ask(path, {"model": "long", "stream": streamed == "streamed", **DIALECTS[path](talk)})
        assert (reply.status, reply.gate("verdict"), reply.complete) == (200, "compact", True)
        assert len(sent(line)) == before + 1
        said = out(line)
        assert said[0]["content"] == talk[0]["content"]
        assert said[-1]["content"] == talk[-1]["content"]
        assert all(fact in said[1]["content"] for fact in FACTS)
        assert sent(line)[-1].prompt_tokens == int(reply.gate("compacted-to") or 0) <= TARGET * 3_000


async def test_an_agents_own_compaction_passes_whole() -> None:
    talk = long_talks.long_talk(10, 120)
    async with compacting(2_600, window=4096, compaction={"max_input": 100}) as line:
        refused = await chat(line, talk)
        assert refused.json["details"]["compaction"]["outcome"] == "too_large"
        asked = [*talk[:-1], {"role": "user", "content": "Summarise all of this."}]
        reply = await chat(line, asked)
        assert reply.gate("verdict") == "grace"
        assert out(line) == asked


async def test_models_without_it_are_refused_as_ever() -> None:
    async with compacting(3_000, defaults={"compaction": False}, models={"long-go": {"compaction": True}}) as line:
        talk = long_talks.long_talk(42, 60)
        refused = assert_r400(await line.ask("/api/chat", {"model": "long", "messages": talk}), "messages")
        assert "compaction" not in refused.facts
        assert "ompaction was" not in refused.message
        assert (await line.ask("/api/chat", {"model": "long-go", "messages": talk})).gate("verdict") == "compact"
        prompt = {"model": "long-go", "prompt": long_talks.prose("x", 4000)}
        assert "compaction" not in assert_r400(await line.ask("/api/generate", prompt), "prompt").facts


async def test_a_count_says_that_it_would_be_compacted() -> None:
    async with compacting(3_000) as line:
        talk = long_talks.long_talk(42, 60)
        told = (await line.ask("/gate/count?route=/api/chat", {"model": "long", "messages": talk})).json
        assert told["verdict"] == "compact"
        assert (await line.ask("/gate/count", {"model": "long", "messages": talk[:3]})).json["verdict"] == "admit"
        prompt = {"model": "long", "prompt": long_talks.prose("x", 4000)}
        assert (await line.ask("/gate/count?route=/api/generate", prompt)).json["verdict"] == "refuse"
