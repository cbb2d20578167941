"""The counter over a fake tokenizer and a fake Ollama: which way a count is made, and what is believed afterwards."""

# ruff: noqa: ARG002, ARG005 - fakes take what the real ones take

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from ollama_gate.catalog.card import Mode, ModelCard
from ollama_gate.counting.counter import Counter
from ollama_gate.counting.facts import TokenizerFacts
from ollama_gate.counting.learned import LearnedBook
from ollama_gate.counting.policy import CountingPolicy
from ollama_gate.counting.rendering.local import LocalRenderer
from ollama_gate.counting.specials import Specials
from ollama_gate.counting.trust import DriftKind, Trust
from ollama_gate.dialects import native
from ollama_gate.errors import CountingError, Refusal, Refused, RenderError, TemplateRefused, UnknownVocabulary
from ollama_gate.requests import Basis, InferenceRequest, Kind, PromptCount, Rung
from ollama_gate.window import Window
from ollama_gate.wire.ndjson import StreamEnd
from support.gotemplates import template_text
from support.waiting import until

FACTS = TokenizerFacts("gpt2", 10, False, False, "", "", Specials(()), 1, 2, 4)
NOW = datetime(2026, 11, 30, tzinfo=UTC)
ROOM = Window(2048, 1638)


@dataclass(slots=True)
class FakeTokenizer:
    """One token for every two characters, rounded up."""

    facts: TokenizerFacts = FACTS
    alive: bool = True
    texts: list[str] = field(default_factory=list)

    def count(self, texts: Sequence[str]) -> list[int]:
        self.texts += texts
        return [-(-len(text) // 2) for text in texts]

    def ids(self, text: str) -> list[int]:
        return list(range(-(-len(text) // 2)))

    def pieces(self, text: str) -> bytes:
        return orjson.dumps([text[at : at + 2] for at in range(0, len(text), 2)])


@dataclass(slots=True)
class World:
    """Everything around one counter, to be changed by a test."""

    tokenizer: FakeTokenizer = field(default_factory=FakeTokenizer)
    unknown: Exception | None = None
    built: asyncio.Event = field(default_factory=asyncio.Event)
    loaded: bool = True
    render: Callable[[InferenceRequest], str] | None = None
    """How Ollama renders; None as we do."""
    asked: list[InferenceRequest] = field(default_factory=list)
    drifts: list[DriftKind] = field(default_factory=list)
    demoted: list[Trust] = field(default_factory=list)
    now: float = 0.0
    version: str = "0.33.0"

    def __post_init__(self) -> None:
        self.built.set()

    def mark(self, card: ModelCard) -> str:
        return ""

    async def get(self, card: ModelCard) -> FakeTokenizer:
        await self.built.wait()
        if self.unknown is not None:
            raise self.unknown
        return self.tokenizer

    async def ask(self, request: InferenceRequest, card: ModelCard, room: Window) -> str:
        self.asked.append(request)
        if self.render is not None:
            return self.render(request)
        return LocalRenderer.of(card, FACTS, version=self.version).text(request, NOW)

    async def probe(self, request: InferenceRequest, card: ModelCard, room: Window) -> str:
        if not self.loaded:
            raise RenderError("not loaded")
        return await self.ask(request, card, room)

    async def is_loaded(self, card: ModelCard) -> bool:
        return self.loaded


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def make(world: World, tmp_path: Path) -> AsyncIterator[Callable[..., Counter]]:
    made: list[Counter] = []

    def build(**policy: Any) -> Counter:
        counter = Counter(
            world,
            ask=world.ask,
            probe=world.probe,
            loaded=world.is_loaded,
            version=lambda: world.version,
            report=lambda _card, _rung, kind, _drift: world.drifts.append(kind),
            demoted=lambda _card, trust: world.demoted.append(trust),
            policy=CountingPolicy(**policy),
            book=LearnedBook(tmp_path / "learned.json"),
            clock=lambda: world.now,
            now=lambda: NOW,
        )
        made.append(counter)
        return counter

    yield build
    for counter in made:
        counter.close()


@pytest.fixture
def counter(make: Callable[..., Counter]) -> Counter:
    return make()


def card(template: str = "qwen25", **more: Any) -> ModelCard:
    return ModelCard(
        **{
            "key": "m",
            "name": "m",
            "digest": "d",
            "mode": Mode.GO_TEMPLATE,
            "template": template_text(template) if template else "",
            "capabilities": frozenset({"completion"}),
            "model_info": {"tokenizer.ggml.model": "gpt2"},
            **more,
        }
    )


def chat(content: str = "word " * 400, **more: Any) -> InferenceRequest:
    return native.parse("/api/chat", {"model": "m", "messages": [{"role": "user", "content": content}], **more})


def truth(request: InferenceRequest, one: ModelCard) -> int:
    """What Ollama reports for a request, if it renders and cuts as we do."""
    return -(-len(LocalRenderer.of(one, FACTS, version="0.33.0").text(request, NOW)) // 2)


def done(tokens: int | None) -> StreamEnd:
    return StreamEnd(done=True, done_reason="stop", prompt_eval_count=tokens, eval_count=1)


class TestTheWayOfACount:
    async def test_a_loaded_model_is_checked_once_and_then_counted_exactly_here(
        self, counter: Counter, world: World
    ) -> None:
        one = card()
        count = await counter.count(chat(), one, ROOM)
        assert (count.rung, count.basis, count.tokens, count.at_most) == (
            Rung.EXACT,
            Basis.HERE,
            truth(chat(), one),
            truth(chat(), one),
        )
        probes = len(world.asked)
        assert probes > 0
        await counter.count(chat("other " * 300), one, ROOM)
        assert len(world.asked) == probes

    async def test_a_model_that_is_not_loaded_is_an_estimate_until_it_was_compared(
        self, counter: Counter, world: World
    ) -> None:
        world.loaded = False
        count = await counter.count(chat(), card(), ROOM)
        assert (count.rung, count.basis) == (Rung.ESTIMATE, Basis.HERE)
        assert count.tokens < count.at_most <= count.tokens * 1.02 + 1
        assert not world.asked

    async def test_a_rendering_that_differs_is_not_believed_and_ollama_is_asked(
        self, counter: Counter, world: World
    ) -> None:
        world.render = lambda request: "R" * 601
        count = await counter.count(chat(), card(), ROOM)
        assert (count.rung, count.basis, count.tokens) == (Rung.EXACT, Basis.ASKED, 301)
        assert [trust.rendering for trust in world.demoted] == [False]
        assert world.asked[-1].body["messages"] == chat().body["messages"]

    async def test_a_check_that_ollama_does_not_answer_leaves_the_count_an_estimate(
        self, counter: Counter, world: World
    ) -> None:
        def silent(request: InferenceRequest) -> str:
            raise RenderError("no answer")

        def busy(request: InferenceRequest) -> str:
            raise Refused(Refusal(503, "queue_full", "so many wait already"))

        for world.render in (silent, busy):
            count = await counter.count(chat(), card(), ROOM)
            assert (count.rung, count.basis) == (Rung.ESTIMATE, Basis.HERE)
            assert world.demoted == []
        world.render = None
        assert (await counter.count(chat(), card(), ROOM)).rung is Rung.EXACT

    async def test_what_only_ollama_can_render_is_asked_for_and_exact(self, counter: Counter, world: World) -> None:
        one = card("", mode=Mode.RENDERER, renderer="qwen3-coder")
        world.render = lambda request: "x" * 1000
        count = await counter.count(chat(), one, ROOM)
        assert (count.rung, count.basis, count.tokens) == (Rung.EXACT, Basis.ASKED, 500)

    async def test_and_a_raw_prompt_is_exact_without_asking(self, counter: Counter, world: World) -> None:
        one = card("", mode=Mode.RENDERER, renderer="qwen3-coder")
        body = {"model": "m", "prompt": "word " * 400, "raw": True}
        raw = InferenceRequest(Kind.GENERATE, "/api/generate", "m", body, stream=False)
        count = await counter.count(raw, one, ROOM)
        assert (count.rung, count.basis, world.asked) == (Rung.EXACT, Basis.HERE, [])

    async def test_where_it_may_not_be_asked_the_contents_are_estimated(
        self, make: Callable[..., Counter], world: World
    ) -> None:
        one = card("", mode=Mode.RENDERER, renderer="qwen3-coder")
        count = await make(ask_upstream=False, margin=0.5).count(chat(), one, ROOM)
        assert (count.rung, count.basis) == (Rung.ESTIMATE, Basis.ESTIMATED)
        assert count.at_most == -(-count.tokens * 3 // 2)
        assert not world.asked
        assert "only Ollama can render" in count.why

    async def test_a_cold_model_is_not_loaded_for_a_prompt_that_is_far_too_long(
        self, counter: Counter, world: World
    ) -> None:
        world.loaded = False
        one = card("", mode=Mode.RENDERER, renderer="qwen3-coder")
        count = await counter.count(chat("word " * 1400), one, ROOM)
        assert count.rung is Rung.ESTIMATE
        assert "the model is not loaded" in count.why
        assert not world.asked

    async def test_a_lower_bound_decides_without_a_count(self, counter: Counter, world: World) -> None:
        count = await counter.count(chat("word " * 20_000), card(), ROOM)
        assert count.rung is Rung.BOUND
        assert 2 * ROOM.num_ctx < count.tokens <= count.at_most
        assert not world.tokenizer.texts
        exact = await counter.count(chat("word " * 20_000), card(), ROOM, exactly=True)
        assert exact.rung is Rung.EXACT
        assert count.tokens <= exact.tokens <= count.at_most

    async def test_what_the_template_refuses_is_ollamas_to_refuse(self, counter: Counter, world: World) -> None:
        def refuses(request: InferenceRequest) -> str:
            raise TemplateRefused("roles must alternate")

        world.render = refuses
        one = card("", mode=Mode.RENDERER, renderer="x")
        with pytest.raises(TemplateRefused):
            await counter.count(chat(), one, ROOM)
        with pytest.raises(Refused):
            await counter.count(chat(), one, Window(2048, 1638, guarded=False))


class TestWithoutAVocabulary:
    async def test_bytes_bound_the_count_and_say_why(self, counter: Counter, world: World) -> None:
        world.unknown = UnknownVocabulary("its pre-tokenizer is not known")
        count = await counter.count(chat(), card(), ROOM)
        assert (count.rung, count.why) == (Rung.BOUND, "its pre-tokenizer is not known")
        assert count.tokens == count.at_most >= 2000

    async def test_or_it_is_refused_where_the_operator_says_so(
        self, make: Callable[..., Counter], world: World
    ) -> None:
        world.unknown = UnknownVocabulary("its pre-tokenizer is not known")
        with pytest.raises(Refused) as refused:
            await make(refuse_unknown=True).count(chat(), card(), ROOM)
        assert refused.value.refusal.code == "not_countable"
        with pytest.raises(Refused):
            await make(refuse_unknown=True).count_inputs(["x" * 5000], card(), 512)

    async def test_a_build_that_takes_too_long_is_not_waited_for(
        self, make: Callable[..., Counter], world: World
    ) -> None:
        world.built.clear()
        count = await make(timeout=0.02).count(chat(), card(), ROOM)
        assert (count.rung, count.why) == (Rung.BOUND, "its tokenizer is still being built")
        world.built.set()

    async def test_after_a_failure_it_is_tried_again_in_a_minute(self, counter: Counter, world: World) -> None:
        world.unknown = CountingError("Ollama did not tell its vocabulary")
        assert (await counter.count(chat(), card(), ROOM)).rung is Rung.BOUND
        world.unknown = None
        assert (await counter.count(chat(), card(), ROOM)).rung is Rung.BOUND
        world.now += 61
        assert (await counter.count(chat(), card(), ROOM)).rung is Rung.EXACT

    async def test_a_template_of_the_clients_own_has_no_bound(self, counter: Counter, world: World) -> None:
        world.unknown = UnknownVocabulary("unknown")
        own = native.parse("/api/generate", {"model": "m", "prompt": "x", "template": "{{ .Prompt }}"})
        assert counter.bound(own, card(), None) is None
        with pytest.raises(Refused):
            await counter.count(own, card(), ROOM)


class TestLearning:
    async def test_a_confirmed_count_is_believed(self, counter: Counter, world: World) -> None:
        one = card()
        count = await counter.count(chat(), one, ROOM)
        counter.learn(chat(), one, ROOM, count, done(count.tokens))
        assert world.drifts == [DriftKind.EXACT]
        assert counter.known(one).trust.agreed == 1

    async def test_one_wrong_count_costs_the_rendering_and_the_next_is_asked_for(
        self, counter: Counter, world: World
    ) -> None:
        one = card()
        count = await counter.count(chat(), one, ROOM)
        counter.learn(chat(), one, ROOM, count, done(count.tokens + 1))
        assert [trust.rendering for trust in world.demoted] == [False]
        again = await counter.count(chat(), one, ROOM)
        assert again.basis is Basis.ASKED

    async def test_a_wrong_count_of_ollamas_own_text_costs_the_vocabulary(self, counter: Counter, world: World) -> None:
        one = card("", mode=Mode.RENDERER, renderer="x")
        world.render = lambda request: "x" * 1000
        count = await counter.count(chat(), one, ROOM)
        counter.learn(chat(), one, ROOM, count, done(count.tokens - 9))
        assert not counter.known(one).trust.vocabulary
        assert (await counter.count(chat(), one, ROOM)).rung is Rung.ESTIMATE

    async def test_a_bound_that_broke_is_not_used_again(self, counter: Counter, world: World) -> None:
        one = card()
        await counter.count(chat(), one, ROOM)
        most = counter.bound(chat("hi"), one, None)
        assert most is not None
        counter.learn(chat("hi"), one, ROOM, PromptCount(most, most, Rung.BOUND), done(most + 1))
        assert counter.bound(chat("hi"), one, None) is None
        assert DriftKind.BROKEN in world.drifts

    async def test_what_bytes_have_settled_is_sampled_now_and_then(self, counter: Counter, world: World) -> None:
        one = card()
        await counter.count(chat(), one, ROOM)
        most = counter.bound(chat("hi"), one, None)
        assert most is not None
        bound = PromptCount(most, most, Rung.BOUND)
        for _ in range(3):
            counter.learn(chat("hi"), one, ROOM, bound, done(truth(chat("hi"), one)))
        await until(lambda: DriftKind.EXACT in world.drifts)
        assert world.drifts.count(DriftKind.EXACT) == 1
        world.now += 11
        counter.learn(chat("hi"), one, ROOM, bound, done(truth(chat("hi"), one)))
        await until(lambda: world.drifts.count(DriftKind.EXACT) == 2)

    @pytest.mark.parametrize("background", ["sample", "check"])
    async def test_what_is_compared_in_the_background_ends_with_the_counter(
        self, counter: Counter, written_log: io.StringIO, background: str
    ) -> None:
        one = card()
        if background == "sample":
            await counter.count(chat(), one, ROOM)
        else:
            await until(lambda: counter.known(one).preparing is None)
        most = counter.bound(chat("hi"), one, None)
        assert most is not None
        counter.learn(chat("hi"), one, ROOM, PromptCount(most, most, Rung.BOUND), done(truth(chat("hi"), one)))
        [task] = [task for task in asyncio.all_tasks() if task.get_name().startswith(("sample of", "self-check of"))]
        counter.close()
        await asyncio.wait({task})
        assert task.cancelled()
        assert "background task failed" not in written_log.getvalue()

    @pytest.mark.parametrize(
        ("more", "body", "version"),
        [
            ({"capabilities": frozenset({"completion", "thinking"})}, {"format": "json"}, "0.33.0"),
            ({"parser": "harmony"}, {"format": "json"}, "0.33.0"),
            ({}, {}, "0.30.0"),
        ],
    )
    async def test_a_number_that_says_nothing_teaches_nothing(
        self, counter: Counter, world: World, more: dict[str, Any], body: dict[str, Any], version: str
    ) -> None:
        world.version = version
        one = card(**more)
        counter.learn(chat(**body), one, ROOM, PromptCount(10, 10, Rung.EXACT, basis=Basis.HERE), done(99))
        assert world.drifts == [DriftKind.NO_SAMPLE]
        assert counter.known(one).trust == Trust()

    async def test_an_answer_that_was_not_whole_teaches_nothing(self, counter: Counter, world: World) -> None:
        end = StreamEnd(done=False, prompt_eval_count=99)
        counter.learn(chat(), card(), ROOM, PromptCount(10, 10, Rung.EXACT, basis=Basis.HERE), end)
        assert world.drifts == [DriftKind.NO_SAMPLE]

    async def test_the_cost_of_an_image_is_learned_and_the_dearest_counts(self, counter: Counter, world: World) -> None:
        one = card(capabilities=frozenset({"completion", "vision"}))
        picture = native.parse(
            "/api/chat", {"model": "m", "messages": [{"role": "user", "content": "what?", "images": ["eA==", "eA=="]}]}
        )
        first = await counter.count(picture, one, ROOM)
        assert (first.rung, first.parts.media) == (Rung.ESTIMATE, 2 * 768)
        assert first.at_most == first.tokens + 2 * 192
        text = first.tokens - first.parts.media
        for reported in (text + 2 * 300, text + 2 * 100):
            counter.learn(picture, one, ROOM, first, done(reported))
        assert counter.known(one).image_tokens == 300
        configured = await counter.count(picture, one, ROOM, image_tokens=50)
        assert (configured.parts.media, configured.tokens) == (100, configured.at_most)


class TestRemembering:
    async def test_a_body_that_comes_again_is_not_counted_again(self, counter: Counter, world: World) -> None:
        one = card()
        await counter.count(chat(), one, ROOM)
        before = len(world.tokenizer.texts)
        again = await counter.count(chat(options={"seed": 2}, stream=False), one, ROOM)
        assert again.rung is Rung.EXACT
        assert len(world.tokenizer.texts) == before

    async def test_what_was_learned_since_changes_the_count_of_a_body_that_comes_again(
        self, make: Callable[..., Counter], world: World
    ) -> None:
        counter, one = make(ask_upstream=False), card("", mode=Mode.RENDERER, renderer="qwen3-coder")
        first = await counter.count(chat(), one, ROOM)
        counter.learn(chat(), one, ROOM, first, done(first.tokens * 2))
        again = await counter.count(chat(), one, ROOM)
        assert again.tokens == first.tokens
        assert again.at_most > first.tokens * 2 > first.at_most
        picture = native.parse(
            "/api/chat", {"model": "m", "messages": [{"role": "user", "content": "what?", "images": ["eA=="]}]}
        )
        seen = card(capabilities=frozenset({"completion", "vision"}))
        first = await counter.count(picture, seen, ROOM)
        counter.learn(picture, seen, ROOM, first, done(first.tokens - 768 + 1500))
        assert (await counter.count(picture, seen, ROOM)).parts.media == 1500

    async def test_another_description_of_the_model_is_another_model(self, counter: Counter, world: World) -> None:
        await counter.count(chat(), card(), ROOM)
        assert counter.known(card(digest="other")) is not counter.known(card())
        first = counter.known(card())
        world.version = "0.34.0"
        assert counter.known(card()) is not first

    async def test_a_count_is_not_repeated_under_another_version_of_ollama(
        self, counter: Counter, world: World
    ) -> None:
        one = card("", mode=Mode.RENDERER, renderer="qwen3-coder")
        world.render = lambda request: "x" * 1000
        assert (await counter.count(chat(), one, ROOM)).tokens == 500
        world.version, world.render = "0.34.0", lambda request: "x" * 1002
        assert (await counter.count(chat(), one, ROOM)).tokens == 501

    async def test_a_copy_loses_old_thinking_where_its_name_says_so(self, counter: Counter) -> None:
        thought = [
            {"role": "user", "content": "a" * 900},
            {"role": "assistant", "content": "<think>why</think>b"},
            {"role": "user", "content": "c"},
        ]
        one, copy = card(), card(name="deepseek-r1:8b")
        counts = [await counter.count(chat(messages=thought), each, ROOM) for each in (one, copy, one)]
        true = [truth(chat(messages=thought), each) for each in (one, copy, one)]
        assert true[1] < true[0]
        assert [(count.rung, count.tokens) for count in counts] == [(Rung.EXACT, tokens) for tokens in true]

    async def test_what_is_known_is_bounded(self, counter: Counter) -> None:
        for number in range(400):
            counter.known(card(digest=str(number)))
        assert len(counter._models) <= 256


class TestInputs:
    async def test_short_texts_need_no_tokenizer(self, counter: Counter, world: World) -> None:
        count = await counter.count_inputs(["abc", "d" * 100], card(), 512)
        assert (count.rung, count.items) == (Rung.BOUND, (5, 102))
        assert not world.tokenizer.texts

    async def test_each_text_is_held_against_the_limit_with_its_specials(self, counter: Counter, world: World) -> None:
        count = await counter.count_inputs(["a" * 1000, "b" * 1001, ""], card(), 512)
        assert (count.rung, count.items, count.tokens) == (Rung.EXACT, (502, 503, 2), 1001)

    async def test_work_is_done_with_a_models_own_tokens(self, counter: Counter) -> None:
        assert await counter.work(card(), lambda meter: meter.tokenizer.pieces("abcde")) == b'["ab","cd","e"]'


class TestOpening:
    async def test_it_ends_with_the_system_message(self, counter: Counter) -> None:
        text = "<|turn|>system\n Be brief."
        said = [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Be brief."}]
        assert await counter.opening(chat(messages=said), card()) == -(-len(text) // 2)

    async def test_without_one_there_is_none(self, counter: Counter) -> None:
        assert await counter.opening(chat(), card()) == 0

    async def test_where_only_ollama_renders_it_is_rough(self, counter: Counter) -> None:
        said = [{"role": "system", "content": "x" * 100}, {"role": "user", "content": "hi"}]
        renders = card("", mode=Mode.RENDERER, renderer="qwen3-coder")
        assert 50 < await counter.opening(chat(messages=said), renders) < 60
