"""A model whose counts are wrong is found out, says so everywhere, and still never has a prompt cut."""

import io
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import pytest

from ollama_gate.rehearsal import Mode, Model, Rehearsal, Settings
from ollama_gate.rehearsal.rendering import STYLES, Conversation, Style
from support.cases import Front, full
from support.gate import running_gate

WINDOW = 1024
NAME = "lying:latest"


class OtherVocabulary(Model):
    """It tells of tokens that its runner does not have: a run of one letter seems short."""

    @cached_property
    def model_info(self) -> Mapping[str, Any]:
        told = dict(super().model_info)
        runs = ["a" * 2**power for power in range(1, 8)]
        more = [run for run in runs if run not in told["tokenizer.ggml.tokens"]]
        told["tokenizer.ggml.tokens"] = [*told["tokenizer.ggml.tokens"], *more]
        told["tokenizer.ggml.token_type"] = [*told["tokenizer.ggml.token_type"], *[1] * len(more)]
        halves = [f"{run[: len(run) // 2]} {run[len(run) // 2 :]}" for run in runs]
        told["tokenizer.ggml.merges"] = [*halves, *told["tokenizer.ggml.merges"]]
        return told


@asynccontextmanager
async def front(model: Model, *, ask_upstream: bool = True) -> AsyncIterator[Front]:
    counting = {"ask_upstream": ask_upstream}
    async with (
        Rehearsal(Settings(models=(model,))) as ollama,
        running_gate(ollama.url, defaults={"num_ctx": WINDOW, "budget": 1000}, counting=counting) as gate,
    ):
        yield Front(gate, ollama)


def chat(text: str) -> dict[str, Any]:
    return {"model": NAME, "messages": [{"role": "user", "content": text}], "stream": False}


def told_as(monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> Model:
    """A model whose template is told otherwise than it is run."""
    real = STYLES["go-chatml"]
    assert old in real.text
    monkeypatch.setitem(STYLES, "told otherwise", Style(real.text.replace(old, new), real.write))
    return Model(NAME, mode=Mode.GO, text="told otherwise", context_length=8192)


async def status(line: Front) -> dict[str, Any]:
    told = (await line.ask("/gate/status", method="GET")).json
    counts: dict[str, Any] = told["models"][0]["counts"]
    return counts


async def until_checked(line: Front) -> dict[str, Any]:
    """The model is loaded now; its self-check takes a few exchanges on loopback."""
    counts: dict[str, Any] = {}
    for _ in range(1000):
        counts = await status(line)
        if counts["checked"]:
            break
    assert counts["checked"]
    return counts


def assert_demoted(line: Front, written_log: io.StringIO, *, times: int = 1) -> None:
    """It is in the metrics and in the log."""
    assert line.metric("count_demotions_total", model=full(NAME)) == times
    rows = [json.loads(row) for row in written_log.getvalue().splitlines()]
    assert len([row for row in rows if row["event"] == "counts of this model are not exact"]) == times


def assert_nothing_was_cut(line: Front) -> None:
    """Whatever was believed: no request went out that allowed a cut, and none was cut."""
    assert line.got()
    for entry in line.got():
        body = entry.json()
        assert body["truncate"] is body["shift"] is False
        assert body["options"]["num_ctx"] == WINDOW
        assert not [note for note in entry.notes if note not in {"load", "reload"}], entry.notes


async def test_a_template_that_is_not_the_one_in_use_is_found_by_the_self_check(
    monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    model = told_as(monkeypatch, "<|im_end|>", "!<|im_end|>")
    async with front(model) as line:
        assert (await line.ask("/api/chat", chat("hi"))).status == 200
        counts = await until_checked(line)
        assert (counts["rendering_believed"], counts["vocabulary_believed"]) == (False, True)
        assert counts["why"].startswith("self-check: one question: the texts differ from character")
        assert_demoted(line, written_log)
        reply = await line.ask("/api/chat", chat("word " * 400))
        assert (reply.status, reply.gate("rung")) == (200, "exact")
        assert reply.gate("prompt-tokens") == str(reply.json["prompt_eval_count"])
        assert (await line.ask("/api/chat", chat("word " * 1200))).json["code"] == "context_length_exceeded"
        assert_nothing_was_cut(line)


async def test_without_asking_it_is_found_by_the_first_answer(
    monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    model = told_as(monkeypatch, "<|im_end|>", "!<|im_end|>")
    async with front(model, ask_upstream=False) as line:
        first = await line.ask("/api/chat", chat("word " * 300))
        assert (first.status, first.gate("rung")) == (200, "estimate")
        assert first.gate("prompt-tokens") != str(first.json["prompt_eval_count"])
        counts = await status(line)
        assert not counts["rendering_believed"]
        assert "text rendered here" in counts["why"]
        assert_demoted(line, written_log)
        second = await line.ask("/api/chat", chat("word " * 301))
        assert (second.status, second.gate("rung")) == (200, "estimate")
        assert_nothing_was_cut(line)


async def test_a_template_that_hides_the_text_lets_nothing_be_cut(
    monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    model = told_as(monkeypatch, "{{ .Content }}", "")
    async with front(model) as line:
        reply = await line.ask("/api/chat", chat("word " * 3000))
        assert (reply.status, reply.reason) == (400, "Context Length Exceeded")
        assert reply.json["details"]["counted_by"] == "ollama"
        assert_nothing_was_cut(line)
        assert not (await status(line))["rendering_believed"]
        assert_demoted(line, written_log)
        sent = len(line.got())
        again = await line.ask("/api/chat", chat("word " * 3001))
        assert again.json["details"]["rung"] == "exact"
        assert len(line.got()) == sent


async def test_a_vocabulary_that_is_not_the_runners_is_found_and_lets_nothing_be_cut(
    written_log: io.StringIO,
) -> None:
    async with front(
        OtherVocabulary(NAME, mode=Mode.GO, text="go-chatml", blob="other words", context_length=8192)
    ) as line:
        assert (await line.ask("/api/chat", chat("hi"))).status == 200
        await until_checked(line)
        reply = await line.ask("/api/chat", chat("a" * 3000))
        assert (reply.status, reply.json["details"]["counted_by"]) == (400, "ollama")
        assert not (await status(line))["rendering_believed"]
        reply = await line.ask("/api/chat", chat("a" * 3001))
        assert reply.json["details"]["counted_by"] == "ollama"
        counts = await status(line)
        assert not counts["vocabulary_believed"]
        assert "text from Ollama" in counts["why"]
        assert_demoted(line, written_log, times=2)
        reply = await line.ask("/api/chat", chat("a" * 3002))
        assert reply.status == 400
        sent = len(line.got())
        reply = await line.ask("/api/chat", chat("a" * 3003))
        assert (reply.status, reply.json["details"]["rung"]) == (400, "estimate")
        assert len(line.got()) == sent
        assert_nothing_was_cut(line)


async def test_an_ollama_that_renders_otherwise_since_its_update_is_found(
    monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    real = STYLES["go-chatml"]
    suffix = ""

    def write(talk: Conversation) -> str:
        return real.write(talk) + suffix

    monkeypatch.setitem(STYLES, "of its version", Style(real.text, write))
    async with front(Model(NAME, mode=Mode.GO, text="of its version", context_length=8192)) as line:
        await line.ask("/api/chat", chat("hi"))
        assert (await until_checked(line))["rendering_believed"]
        assert (await line.ask("/api/chat", chat("word " * 300))).gate("rung") == "exact"
        suffix = "<think>\n"
        line.ollama.service.settings = replace(line.ollama.service.settings, version="0.34.0")
        line.ollama.service.scheduler.clear()
        await line.ask("/gate/health", method="GET")
        assert (await line.ask("/gate/count", chat("word " * 300))).json["rung"] == "estimate"
        assert not (await status(line))["checked"]
        await line.ask("/api/chat", chat("hi"))
        assert not (await until_checked(line))["rendering_believed"]
        assert_demoted(line, written_log)
        reply = await line.ask("/api/chat", chat("word " * 300))
        assert (reply.gate("rung"), reply.gate("prompt-tokens")) == ("exact", str(reply.json["prompt_eval_count"]))
        assert_nothing_was_cut(line)


async def test_an_ollama_that_changes_without_another_version_is_found_by_its_answers(
    monkeypatch: pytest.MonkeyPatch, written_log: io.StringIO
) -> None:
    real = STYLES["go-chatml"]
    suffix = ""
    monkeypatch.setitem(STYLES, "of its mood", Style(real.text, lambda talk: real.write(talk) + suffix))
    async with front(Model(NAME, mode=Mode.GO, text="of its mood", context_length=8192)) as line:
        await line.ask("/api/chat", chat("hi"))
        await until_checked(line)
        suffix = "<think>\n"
        assert (await line.ask("/api/chat", chat("word " * 300))).gate("rung") == "exact"
        counts = await status(line)
        assert not counts["rendering_believed"]
        assert_demoted(line, written_log)
        reply = await line.ask("/api/chat", chat("word " * 301))
        assert (reply.gate("rung"), reply.gate("prompt-tokens")) == ("exact", str(reply.json["prompt_eval_count"]))
        assert_nothing_was_cut(line)
