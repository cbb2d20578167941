"""Where the commands find the gate, and the Ollama that it stands in front of."""

import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ollama_gate.cli import NoAnswer, Unusable, main
from ollama_gate.cli.running import Named, Running, front
from ollama_gate.config import Config
from support.canned import Canned, canned

DATA = Path(__file__).parents[1] / "data" / "tls"
MODELS: dict[str, tuple[int, Any]] = {
    "/api/version": (200, {"version": "0.33.1"}),
    "/api/tags": (200, {"models": []}),
    "/api/ps": (200, {"models": []}),
}


def health(url: object) -> dict[str, tuple[int, Any]]:
    return {"/gate/health": (200, {"live": True, "ready": True, "upstream": {"url": url, "up": True}})}


@pytest.fixture
def ollama() -> Iterator[Canned]:
    with canned(MODELS) as server:
        yield server


@pytest.fixture
def gate(ollama: Canned, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Canned]:
    monkeypatch.chdir(tmp_path)
    for name in ("OLLAMA_UPSTREAM", "OLLAMA_GATE_UPSTREAM_URL", "OLLAMA_GATE_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    with canned(health(ollama.url)) as server:
        monkeypatch.setenv("OLLAMA_GATE_SERVER_LISTEN", server.url.removeprefix("http://"))
        yield server


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


@pytest.mark.parametrize("command", ["check", "models", "plan", "doctor"])
def test_the_running_gate_says_where_ollama_is(command: str, gate: Canned, ollama: Canned) -> None:
    done = run(command, *(["--no-probe"] if command == "doctor" else []))
    assert done.exit_code in {0, 1}, done.output
    assert f"{ollama.url}" in done.stdout
    assert f"as the gate at {gate.url} says" in done.stdout


def test_programs_are_told_who_named_it(gate: Canned, ollama: Canned) -> None:
    told = json.loads(run("check", "--json").stdout)
    assert (told["upstream"], told["upstream_from"]) == (ollama.url, gate.url)


def test_a_configuration_that_names_it_is_believed(
    gate: Canned, ollama: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_UPSTREAM", ollama.url)
    assert "as the configuration says" in run("check").stdout
    assert gate.asked == []


def test_a_gate_that_is_named_comes_before_the_configuration(
    gate: Canned, ollama: Canned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_UPSTREAM", "127.0.0.1:1")
    assert front(Named(gate.url), None).url == ollama.url
    assert front(Named(gate.url.removeprefix("http://")), None).gate == gate.url


@pytest.mark.usefixtures("gate")
def test_without_a_gate_it_is_where_ollama_mostly_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OLLAMA_GATE_SERVER_LISTEN", "127.0.0.1:1")
    assert (front(Named(), None).url, front(Named(), None).gate) == ("http://127.0.0.1:11434", None)
    with pytest.raises(NoAnswer, match="Start the gate"):
        front(Named("127.0.0.1:1"), None)


@pytest.mark.parametrize("url", [None, "", "file:///etc/passwd", "http://user@x", 7, {}])
def test_what_is_no_gate_or_names_no_ollama_is_not_believed(url: object, gate: Canned) -> None:
    gate.answers |= health(url)
    with pytest.raises(NoAnswer, match="not as ollama-gate does"):
        front(Named(gate.url), None)


def test_an_ollama_on_the_gates_own_machine_cannot_be_asked_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {"live": True, "upstream": {"url": "http://127.0.0.1:11434"}}
    monkeypatch.setattr(Running, "ask", lambda *_: (200, answer))
    with pytest.raises(NoAnswer, match="run this command there"):
        Running("http://gate.example.org:11435").upstream()
    answer["upstream"] = {"url": "http://gpu.example.org:11434"}
    assert Running("http://gate.example.org:11435").upstream() == "http://gpu.example.org:11434"


def test_an_address_that_is_none_is_told(gate: Canned) -> None:
    done = run("top", "--once", "--gate", "ftp://x")
    assert (done.exit_code, "--gate: " in done.stderr) == (2, True)
    assert gate.asked == []


# --- HTTPS with a certificate of one's own authority


@pytest.fixture
def https() -> Iterator[tuple[str, Path]]:
    """A gate that answers over HTTPS, and the file of the certificate that vouches for it."""
    certificate = DATA / "one.crt"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            data = json.dumps({"version": "1", "models": []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's signature
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, DATA / "one.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"https://localhost:{server.server_port}", certificate
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_certificate_of_ones_own_authority_is_trusted_when_it_is_named(
    https: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, certificate = https
    assert run("top", "--once", "--gate", url, "--ca", str(certificate)).exit_code == 0
    strange = run("top", "--once", "--gate", url)
    assert strange.exit_code == 3
    assert "is not trusted" in strange.stderr
    assert "--ca FILE" in strange.stderr
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert run("top", "--once", "--gate", url).exit_code == 0


def test_a_file_without_a_certificate_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(Unusable, match="no file of certificates"):
        Running.named(Named(ca=tmp_path / "empty.pem"), Config())
