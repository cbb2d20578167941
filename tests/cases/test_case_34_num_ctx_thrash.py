"""Each turn another num_ctx: a full reload each time (aider#4687, #4764, ollama#8029, #8903, hindsight#2572)."""

from support.cases import case, front, full

SEQUENCE = case("34-num-ctx-thrash")["sequence"]


async def test_ollama_itself_loads_the_model_again_and_again() -> None:
    async with front() as line:
        for body in SEQUENCE:
            await line.straight("/api/chat", body)
        assert line.ollama.loads("llama3.2:1b") > 4


async def test_through_the_gate_it_is_loaded_once() -> None:
    async with front(window=8192) as line:
        notes = []
        for body in SEQUENCE:
            reply = await line.ask("/api/chat", body)
            assert reply.status == 200
            notes.append(reply.gate("note"))
        openai = await line.ask("/v1/chat/completions", {**SEQUENCE[0], "num_ctx": 12_000})
        sent = [(got.json()["options"]["num_ctx"], got.json()["shift"], got.json()["truncate"]) for got in line.got()]
        loads = line.ollama.loads("llama3.2:1b")
        avoided = line.metric("reloads_avoided_total", model=full("llama3.2:1b"))
    assert openai.status == 200
    assert sent == [(8192, False, False)] * (len(SEQUENCE) + 1)
    assert loads == 1
    assert [note is not None for note in notes] == [False, True, True, True, True, False, False]
    assert "num_ctx 4096 ignored: the window is 8192" in (notes[3] or "")
    assert avoided == 4
