"""The client leaves and Ollama works on for minutes (litellm#13774, #37140, llama-swap#43, ollama#11889).

What happens in every phase is in `tests/scenarios/test_cancellation.py`; this is the given input.
"""

import pytest

from ollama_gate.rehearsal import Fault
from support.cases import case, front, full
from support.http import Client
from support.waiting import until

CHAT = case("26-disconnect")


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions"])
async def test_when_the_client_goes_ollamas_work_goes_within_a_second(path: str) -> None:
    async with front(faults=(Fault("hang", path="/api/chat"),)) as line:
        client = await Client.connect(line.gate.address)
        await client.send("POST", path, CHAT)
        await line.ollama.journal.until(lambda journal: journal.to("/api/chat"))
        await client.close()
        await line.ollama.journal.until(lambda journal: journal.to("/api/chat")[0].client_left, within=1.0)
        await until(lambda: not line.gate.turns)
        assert line.metric("client_gone_total", phase="first byte") == 1
        assert line.metric("requests_total", route=path, model=full("qwen2.5-coder:7b"), verdict="admit") == 1
        assert line.metric("upstream_errors_total", kind="upstream_broken") == 0
