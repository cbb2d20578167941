"""The status page: served by the gate, closed to everything else, and in step with what /gate/status tells."""

import base64
import hashlib
import re

from ollama_gate import dashboard
from ollama_gate.rehearsal import Rehearsal, Settings
from support.gate import running_gate
from support.http import ask

CHAT = {"model": "rehearsal-go", "messages": [{"role": "user", "content": "hi there"}]}


def source() -> str:
    return dashboard.page().decode()


async def test_the_gate_serves_it() -> None:
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        page = await ask(gate.address, "GET", "/gate/")
        head = await ask(gate.address, "HEAD", "/gate/")
        wrong = await ask(gate.address, "POST", "/gate/", {})
    assert (page.status, page.header("Content-Type")) == (200, "text/html; charset=utf-8")
    assert page.body == dashboard.page()
    assert (head.status, head.body, wrong.status) == (200, b"", 405)


async def test_it_asks_nobody_but_the_gate_and_runs_its_own_script_only() -> None:
    policy = dashboard.headers()["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    for kind in ("script", "style"):
        (text,) = re.findall(rf"<{kind}>(.*?)</{kind}>", source(), re.DOTALL)
        assert base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() in policy
    assert not re.search(r"https?://|innerHTML|outerHTML|insertAdjacent|\bon\w+=|style=|eval\(", source())


async def test_whatever_it_reads_is_told() -> None:
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url, memory={"limit": "24GiB"}) as gate:
        await ask(gate.address, "POST", "/api/chat", {**CHAT, "stream": False})
        status = (await ask(gate.address, "GET", "/gate/status")).json
    (model,) = (entry for entry in status["models"] if entry["name"] == "rehearsal-go:latest")
    told = {
        "status": status,
        "up": status["upstream"],
        "memory": status["memory"],
        "model": model,
        "slots": model["slots"],
        "of": model["counts"],
    }
    for name, values in told.items():
        read = set(re.findall(rf"(?<![\w.]){name}\??\.(\w+)", source())) - {"sort", "map"}
        assert read, name
        assert read <= set(values), name
    assert set(re.findall(r"model\.memory\??\.(\w+)", source())) <= set(model["memory"])
