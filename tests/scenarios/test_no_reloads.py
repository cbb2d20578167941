"""Whatever clients send, on whatever route and in whatever order: each runner is loaded once, and nothing is left."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from ollama_gate.app import Gate
from ollama_gate.rehearsal import Rehearsal, Settings
from ollama_gate.rehearsal.models import Mode, Model
from support.gate import metric, running_gate
from support.http import Client
from support.waiting import until

WINDOW = 4096
MODELS = (
    Model("plain:latest", capabilities=("completion", "tools")),
    Model("twin-a:latest", mode=Mode.GO, text="go-chatml", blob="twins"),
    Model(
        "twin-b:latest", mode=Mode.GO, text="go-chatml", blob="twins", parameters={"num_ctx": 2048, "num_batch": 256}
    ),
    Model("vectors:latest", mode=Mode.EMBEDDING, text="none", capabilities=("embedding",), context_length=512),
)
CHATS = ("plain", "twin-a", "twin-b")
OWN_OPTIONS: dict[str, tuple[Any, ...]] = {
    "num_ctx": (512, 2048, WINDOW, 32768),
    "num_batch": (64, 2048),
    "num_gpu": (0, 99),
    "main_gpu": (0, 1),
    "use_mmap": (True, False),
    "num_thread": (1, 7),
}
MESSAGES = [{"role": "user", "content": "Say something."}]
Asked = tuple[str, dict[str, Any], int, bool]
"""Route, body, the status that it gets, and whether Ollama by itself would have loaded the model anew."""


def _options(chance: random.Random) -> tuple[dict[str, Any], bool]:
    names = chance.sample(sorted(OWN_OPTIONS), chance.randrange(4))
    options = {name: chance.choice(OWN_OPTIONS[name]) for name in names}
    return options, bool(options) and options != {"num_ctx": WINDOW}


def _request(chance: random.Random) -> Asked:
    model, (options, differs) = chance.choice(CHATS), _options(chance)
    told: dict[str, Any] = {"model": model, "stream": chance.random() < 0.5}
    match chance.randrange(9):
        case 0 | 1:
            shift = chance.choice((None, True, False))
            body = {**told, "messages": MESSAGES, "shift": shift, "options": {**options, "num_predict": 2}}
            return "/api/chat", body, 200, differs or bool(shift)
        case 2:
            truncate = {} if chance.random() < 0.5 else {"truncate": True}
            return "/api/generate", {**told, "prompt": "Once", "options": options, **truncate}, 200, differs
        case 3:  # preloads, as `ollama run` sends one
            return "/api/generate", {"model": model, "options": options, "keep_alive": "10m"}, 200, differs
        case 4:
            if chance.random() < 0.5:
                return "/v1/completions", {**told, "prompt": "Once", "max_tokens": 2}, 200, False
            return "/v1/chat/completions", {**told, "messages": MESSAGES, "max_tokens": 2}, 200, False
        case 5:
            return "/v1/messages", {**told, "messages": MESSAGES, "max_tokens": 2}, 200, False
        case 6:
            return "/v1/responses", {**told, "input": "Say something.", "max_output_tokens": 16}, 200, False
        case 7:
            if chance.random() < 0.5:
                return "/v1/embeddings", {"model": "vectors", "input": ["a", "b"]}, 200, False
            return "/api/embed", {"model": "vectors", "input": "a text", "options": _for_vectors(options)}, 200, differs
        case _:
            route, field = chance.choice([("/api/embed", "input"), ("/api/embeddings", "prompt")])
            return route, {"model": model, field: "a text", "options": options}, 400, False


def _for_vectors(options: dict[str, Any]) -> dict[str, Any]:
    return {name: 512 if name == "num_ctx" and value == WINDOW else value for name, value in options.items()}


async def _client(gate: Gate, requests: Iterator[Asked], seen: Counter[str]) -> None:
    """Ask one thing after another on one connection, as long as there is something to ask."""
    async with await Client.connect(gate.address) as client:
        for route, body, status, _ in requests:
            await client.send("POST", route, body)
            reply = await client.rest(await client.head(), method="POST")
            assert (reply.status, reply.complete) == (status, True), (route, body, reply.body[:300])
            seen[route] += 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_a_soak_of_all_routes_loads_each_runner_once(seed: int) -> None:
    chance = random.Random(seed)
    asked = [_request(chance) for _ in range(300)]
    seen: Counter[str] = Counter()
    settings = Settings(models=MODELS, num_parallel=2)
    async with (
        Rehearsal(settings) as ollama,
        running_gate(
            ollama.url, upstream={"num_parallel": 2}, defaults={"num_ctx": WINDOW}, queue={"depth": 100}
        ) as gate,
        asyncio.timeout(120),
    ):
        line = iter(asked)
        await asyncio.gather(*(_client(gate, line, seen) for _ in range(8)))
        assert sum(seen.values()) == 300
        assert len(seen) == 9
        loads = {name: ollama.loads(name) for name in ("plain", "twin-a", "twin-b", "vectors")}
        assert (loads["plain"], loads["twin-a"] + loads["twin-b"], loads["vectors"]) == (1, 1, 1)
        assert not [entry for entry in ollama.journal if "reload" in entry.notes]
        avoided = sum(
            metric(gate, "reloads_avoided_total", model=f"registry.ollama.ai/library/{model.name}") for model in MODELS
        )
        assert avoided == sum(differs for *_, differs in asked) > 50
        await until(lambda: not gate.turns)
        scheduler = gate.wiring.admission.gatekeeper.scheduler
        await until(lambda: not any(queue.running or queue.waiting for queue in scheduler.queues.values()))
        assert [holding.users for holding in scheduler.ledger] == [0, 0, 0]


async def test_by_policy_an_option_that_would_load_the_model_again_is_refused() -> None:
    async with (
        Rehearsal(Settings(models=MODELS)) as ollama,
        running_gate(ollama.url, models={"plain": {"on_load_option": "refuse", "num_batch": 64}}) as gate,
        await Client.connect(gate.address) as client,
    ):
        for model, options, status in (
            ("plain", {"num_gpu": 0, "seed": 1}, 400),
            ("plain", {"num_gpu": 0, "num_batch": 64}, 400),
            ("plain", {"num_gpu": None, "seed": 1, "num_ctx": 99}, 200),
            ("plain", {"num_batch": 64}, 200),
            ("twin-a", {"num_gpu": 0}, 200),
        ):
            body = {"model": model, "messages": MESSAGES, "stream": False, "options": options}
            await client.send("POST", "/api/chat", body)
            reply = await client.rest(await client.head(), method="POST")
            assert reply.status == status
            if status == 400:
                told = reply.json
                assert (told["code"], told["param"]) == ("load_options_not_allowed", "options.num_gpu")
        assert ollama.loads("plain") == 1


async def test_without_the_gate_the_same_options_load_a_model_again_and_again() -> None:
    chance = random.Random(1)
    asked = [one for one in (_request(chance) for _ in range(60)) if one[1]["model"] == "plain"]
    async with Rehearsal(Settings(models=MODELS)) as ollama:
        for route, body, _, _ in asked:
            async with await Client.connect(("127.0.0.1", ollama.port)) as client:
                await client.send("POST", route, body, {"Host": "localhost"})
                await client.rest(await client.head(), method="POST")
        assert ollama.loads("plain") > 5


@pytest.mark.parametrize("first", ["twin-a", "twin-b"])
async def test_two_names_over_one_file_take_turns_in_one_load(first: str) -> None:
    second = "twin-b" if first == "twin-a" else "twin-a"
    windows = {"twin-a": {"num_ctx": 1024}, "twin-b": {"num_ctx": 3072, "shift": True}}
    async with Rehearsal(Settings(models=MODELS)) as ollama, running_gate(ollama.url, models=windows) as gate:
        async with await Client.connect(gate.address) as client:
            for name in (first, second) * 3:
                await client.send("POST", "/api/chat", {"model": name, "messages": MESSAGES, "stream": False})
                assert (await client.rest(await client.head())).status == 200
        assert ollama.loads("twin-a") + ollama.loads("twin-b") == 1
        sent = [entry.json() for entry in ollama.journal.to("/api/chat")]
        assert {(body["options"]["num_ctx"], body["shift"]) for body in sent} == {(3072, True)}
