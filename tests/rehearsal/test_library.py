"""Models come, go and are described; blobs of any size are taken; the control routes tell what happened."""

import asyncio
import hashlib
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ollama_gate.rehearsal import MODELS, Journal, Mode, Model, Rehearsal
from ollama_gate.rehearsal.__main__ import main
from ollama_gate.rehearsal.catalogue import from_json
from support.rawhttp import RawAnswer, exchange, read_answer


@pytest.fixture
async def upstream() -> AsyncIterator[Rehearsal]:
    async with Rehearsal() as rehearsal:
        yield rehearsal


async def send(upstream: Rehearsal, method: str, path: str, body: Any = None) -> RawAnswer:
    return await exchange(upstream.url, method, path, body=b"" if body is None else json.dumps(body).encode())


async def names(upstream: Rehearsal) -> set[str]:
    return {model["name"] for model in json.loads((await send(upstream, "GET", "/api/tags")).body)["models"]}


def test_every_installed_name_says_that_it_is_a_rehearsal() -> None:
    assert all(model.name.startswith("rehearsal") for model in MODELS)


async def test_copy_and_delete(upstream: Rehearsal) -> None:
    copied = await send(upstream, "POST", "/api/copy", {"source": "rehearsal", "destination": "rehearsal-copy"})
    assert (copied.status, copied.body) == (200, b"")
    assert "rehearsal-copy:latest" in await names(upstream)
    assert (await send(upstream, "DELETE", "/api/delete", {"model": "REHEARSAL-COPY"})).status == 200
    assert "rehearsal-copy:latest" not in await names(upstream)
    assert (await send(upstream, "DELETE", "/api/delete", {"model": "rehearsal-copy"})).status == 404


async def test_create_changes_what_it_says_and_the_digest(upstream: Rehearsal) -> None:
    before = json.loads((await send(upstream, "POST", "/api/show", {"model": "rehearsal-go"})).body)
    asked = {"model": "rehearsal-new", "from": "rehearsal-go", "system": "Be new.", "parameters": {"num_ctx": 512}}
    lines = [json.loads(chunk)["status"] for chunk in (await send(upstream, "POST", "/api/create", asked)).chunks]
    assert lines[-1] == "success"
    after = json.loads((await send(upstream, "POST", "/api/show", {"model": "rehearsal-new"})).body)
    assert (after["system"], after["template"]) == ("Be new.", before["template"])
    assert "num_ctx                        512" in after["parameters"]
    digests = {m["name"]: m["digest"] for m in json.loads((await send(upstream, "GET", "/api/tags")).body)["models"]}
    asked["parameters"] = {"num_ctx": 1024}
    whole = await send(upstream, "POST", "/api/create", asked | {"stream": False})
    assert json.loads(whole.body) == {"status": "success"}
    again = {m["name"]: m["digest"] for m in json.loads((await send(upstream, "GET", "/api/tags")).body)["models"]}
    assert again["rehearsal-new:latest"] != digests["rehearsal-new:latest"]
    assert again["rehearsal-go:latest"] == digests["rehearsal-go:latest"]


async def test_pull_and_push_tell_their_progress(upstream: Rehearsal) -> None:
    pulled = await send(upstream, "POST", "/api/pull", {"model": "rehearsal"})
    lines = [json.loads(chunk) for chunk in pulled.chunks]
    assert pulled.header("Content-Type") == "application/x-ndjson"
    assert [lines[0]["status"], lines[-1]["status"]] == ["pulling manifest", "success"]
    assert [line["completed"] for line in lines if "completed" in line][-1] == lines[1]["total"]
    missing = await send(upstream, "POST", "/api/pull", {"model": "nope"})
    assert missing.status == 200
    assert json.loads(missing.chunks[-1]) == {"error": "pull model manifest: file does not exist"}
    pushed = await send(upstream, "POST", "/api/push", {"model": "rehearsal", "stream": False})
    assert json.loads(pushed.body) == {"status": "success"}


async def test_blobs_are_checked_and_not_kept(upstream: Rehearsal) -> None:
    blob = b"0123456789" * 2_000_000
    path = f"/api/blobs/sha256:{hashlib.sha256(blob).hexdigest()}"
    assert (await exchange(upstream.url, "HEAD", path)).status == 404
    assert (await exchange(upstream.url, "POST", path, body=blob)).status == 201
    assert (await exchange(upstream.url, "HEAD", path)).status == 200
    assert (await exchange(upstream.url, "POST", path, body=blob)).status == 200
    assert (await exchange(upstream.url, "POST", "/api/blobs/sha256:00", body=b"x")).status == 400
    sent = upstream.journal.to(path)[1]
    assert (sent.size, sent.body) == (len(blob), b"")


async def test_the_modelfile_parameters_of_a_model_rule_its_answers(upstream: Rehearsal) -> None:
    body = {"model": "rehearsal-go-system", "stream": False, "prompt": "write 100 tokens"}
    assert json.loads((await send(upstream, "POST", "/api/generate", body)).body)["eval_count"] == 24
    body["options"] = {"num_predict": 5}
    assert json.loads((await send(upstream, "POST", "/api/generate", body)).body)["eval_count"] == 5


async def test_names_match_in_any_spelling(upstream: Rehearsal) -> None:
    for name in ("rehearsal", "Rehearsal:LATEST", "library/rehearsal", "registry.ollama.ai/library/rehearsal:latest"):
        answer = json.loads((await send(upstream, "POST", "/api/generate", {"model": name})).body)
        assert (answer["model"], answer["done_reason"]) == (name, "load")
    assert upstream.loads("rehearsal") == 1


async def test_the_journal_tells_what_came(upstream: Rehearsal) -> None:
    body = b'{"model":"rehearsal","prompt":"say exactly: \xff"}'
    headers = [("Host", "localhost"), ("X-Thing", "1")]
    await exchange(upstream.url, "POST", "/api/generate?q=1", headers=headers, body=body)
    entry = upstream.journal[-1]
    assert (entry.target, entry.path, entry.body, entry.header("x-thing")) == (
        "/api/generate?q=1",
        "/api/generate",
        body,
        "1",
    )
    assert (entry.status, entry.client_left, entry.notes) == (200, False, ["load"])
    assert entry.generated > 0
    told = json.loads((await exchange(upstream.url, "GET", "/rehearsal/journal")).body)
    assert (told[-1]["target"], told[-1]["size"], told[-1]["prompt_tokens"]) == (
        entry.target,
        len(body),
        entry.prompt_tokens,
    )
    assert "body_base64" in told[-1]
    await exchange(upstream.url, "POST", "/rehearsal/reset")
    assert len(upstream.journal) == 0
    assert upstream.loads("rehearsal") == 0


async def test_the_journal_is_bounded() -> None:
    journal = Journal(keep_body=4, keep_bytes=10, keep_entries=5)
    for number in range(7):
        journal.keep(journal.open("POST", f"/{number}", []), b"123456")
    assert [(entry.target, entry.body, entry.size) for entry in journal] == [
        ("/2", b"", 6), ("/3", b"", 6), ("/4", b"", 6), ("/5", b"1234", 6), ("/6", b"1234", 6),
    ]  # fmt: skip


async def test_models_can_be_installed_while_it_runs(upstream: Rehearsal) -> None:
    described = [{"name": "rehearsal-mine", "mode": "go", "text": "go-chatml", "parameters": {"num_ctx": 64}}]
    answer = await send(upstream, "POST", "/rehearsal/models", described)
    assert json.loads(answer.body) == {"installed": ["rehearsal-mine:latest"]}
    assert from_json(json.dumps(described).encode()) == (
        Model("rehearsal-mine:latest", Mode.GO, "go-chatml", parameters={"num_ctx": 64}),
    )
    assert (await send(upstream, "POST", "/rehearsal/models", [{"name": "x", "colour": 1}])).status == 400


async def test_connections_can_be_broken_as_when_the_server_is_killed(upstream: Rehearsal) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", upstream.port)
    writer.write(b"GET /api/version HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await read_answer(reader)).status == 200
    upstream.drop_connections()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()


@pytest.mark.slow
async def test_the_command_says_what_it_is_and_serves() -> None:
    command = [
        "-m",
        "ollama_gate.rehearsal",
        "--listen",
        "127.0.0.1:0",
        "--rate",
        "0",
        "--fault",
        "busy:path=/api/chat",
    ]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    assert line.startswith("This is a rehearsal, not Ollama")
    url = line.split()[-1]
    assert (await exchange(url, "GET", "/")).body == b"Ollama is running"
    body = b'{"model":"rehearsal","messages":[{"role":"user","content":"x"}]}'
    assert (await exchange(url, "POST", "/api/chat", body=body)).status == 503
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(10):
        assert await process.wait() == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--listen", "127.0.0.1:99999"], "at most 65535"),
        (["--listen", "127.0.0.1:²"], "HOST:PORT"),
        (["--num-ctx", "0"], "--num-ctx"),
        (["--rate", "-1"], "--rate"),
        (["--fault", "nonsense"], "--fault"),
        (["--models", "{file}"], "--models"),
    ],
)
def test_a_command_line_that_cannot_be_used_is_told_so(arguments: list[str], says: str, tmp_path: Path) -> None:
    (tmp_path / "models.json").write_bytes(b'{"model":')
    arguments = [one.replace("{file}", str(tmp_path / "models.json")) for one in arguments]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, says in result.output) == (2, True)


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[1]", b'[{"mode":"go"}]', b'[{"name":"x","mode":"none"}]', b'[{"name":"x","layers":"many"}]']
)
def test_a_list_of_models_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        from_json(text)


async def test_an_address_in_use_is_told_with_the_exit_code_of_what_cannot_be_used(upstream: Rehearsal) -> None:
    command = ["-m", "ollama_gate.rehearsal", "--listen", f"127.0.0.1:{upstream.port}"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(30):
        _, said = await process.communicate()
    assert process.returncode == 2
    assert b"cannot listen on" in said
