"""What a machine tells of its Ollama: read from files as Linux has them."""

import socket
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.cli.surroundings import Surroundings, look_around, sockets_of
from ollama_gate.config import Address
from support.pages import ROOT

TABLE: Final = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2CAA 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 100 1 0 100 0 0 10 0
   1: 0100007F:2CAB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 200 1 0 100 0 0 10 0
   2: 0100007F:9C40 0100007F:2CAA 01 00000000:00000000 00:00000000 00000000     0        0 201 1 0 20 4 30 10 -1
   3: 0100007F:9C41 0100007F:2CAA 01 00000000:00000000 00:00000000 00000000     0        0 301 1 0 20 4 30 10 -1
   4: 0100007F:9C42 0100007F:2CAA 01 00000000:00000000 00:00000000 00000000     0        0 999 1 0 20 4 30 10 -1
"""
SIX: Final = (
    "  sl  local_address                         remote_address                        st tx_queue inode\n"
    "   0: 00000000000000000000000000000000:2CAA 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 400 1\n"
    "   1: 0000000000000000FFFF00000100007F:2CAA 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 401 1\n"
)
OLLAMA, GATE = Address("127.0.0.1", 11434), Address("127.0.0.1", 11435)


def machine(tmp_path: Path, environ: bytes = b"HOME=/x\0OLLAMA_NUM_PARALLEL=4\0") -> Path:
    """A /proc with an Ollama (10), a gate (20), and an editor (30) that talks past it."""
    proc = tmp_path / "proc"
    (proc / "net").mkdir(parents=True)
    (proc / "net" / "tcp").write_text(TABLE)
    for pid, name, inodes in ((10, "ollama", [100]), (20, "ollama-gate", [200, 201]), (30, "editor", [301])):
        (proc / str(pid) / "fd").mkdir(parents=True)
        (proc / str(pid) / "comm").write_text(f"{name}\n")
        for number, inode in enumerate(inodes):
            (proc / str(pid) / "fd" / str(number)).symlink_to(f"socket:[{inode}]")
    (proc / "10" / "environ").write_bytes(environ)
    (proc / "20" / "limits").write_text("Limit  Soft  Hard\nMax open files            1024    524288    files\n")
    return proc


@pytest.fixture(autouse=True)
def _no_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def test_the_process_that_listens_tells_its_environment(tmp_path: Path) -> None:
    around = look_around(OLLAMA, GATE, proc=machine(tmp_path))
    assert around.environment == {"OLLAMA_NUM_PARALLEL": "4"}
    assert (around.source, around.program) == ("/proc/10/environ", "ollama")


def test_who_is_connected_past_the_gate_is_named(tmp_path: Path) -> None:
    around = look_around(OLLAMA, GATE, proc=machine(tmp_path))
    assert around.connected == ("editor (process 30)", "somebody")
    assert around.open_files == 1024
    assert around.listens == ("127.0.0.1",)


def test_values_are_read_without_quotes_as_ollama_reads_them(tmp_path: Path) -> None:
    proc = machine(tmp_path, b'OLLAMA_KV_CACHE_TYPE= "q8_0" \0LLAMA_ARG_CACHE_RAM=512\0PATH=/bin\0OLLAMA_API_KEY=x\0')
    told = {"OLLAMA_KV_CACHE_TYPE": "q8_0", "LLAMA_ARG_CACHE_RAM": "512"}
    assert look_around(OLLAMA, GATE, proc=proc).environment == told


def test_where_the_process_is_secret_the_unit_is_asked(tmp_path: Path) -> None:
    script = tmp_path / "bin" / "systemctl"
    script.write_text(
        "#!/bin/sh\necho 'LoadState=loaded'\necho 'Environment=OLLAMA_HOST=0.0.0.0 \"OLLAMA_X=a b\"'\n"
        "echo MemoryMax=1073741824\n"
    )
    script.chmod(0o755)
    around = look_around(OLLAMA, GATE, proc=tmp_path)
    assert around.environment == {"OLLAMA_HOST": "0.0.0.0", "OLLAMA_X": "a b"}
    assert (around.source, around.memory_max) == ("the unit ollama", 2**30)


def test_where_there_is_no_unit_the_log_is_read(tmp_path: Path) -> None:
    log = str(ROOT / "tests" / "data" / "ollama-log" / "ollama-0.33.log")
    around = look_around(OLLAMA, GATE, log=log, proc=tmp_path)
    assert around.environment is not None
    assert (around.environment["OLLAMA_CONTEXT_LENGTH"], around.source) == ("2048", log)


def test_where_nothing_can_be_read_nothing_is_known(tmp_path: Path) -> None:
    around = look_around(OLLAMA, GATE, log=str(tmp_path / "none"), proc=tmp_path)
    assert around == Surroundings()


def test_of_an_ollama_elsewhere_nothing_is_told(tmp_path: Path) -> None:
    around = look_around(Address("10.0.0.5", 11434), GATE, proc=machine(tmp_path))
    assert (around.environment, around.connected) == (None, ())


def test_addresses_are_read_in_both_families() -> None:
    assert [(one.local, one.local_port, one.inode) for one in sockets_of(SIX)] == [
        ("::", 11434, 400),
        ("127.0.0.1", 11434, 401),
    ]


def test_the_table_of_this_machine_is_read() -> None:
    file = Path("/proc/net/tcp")
    if not file.exists():
        pytest.skip("only Linux has /proc/net/tcp")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = [one for one in sockets_of(file.read_text()) if one.local_port == port and one.state == "0A"]
    assert [one.local for one in found] == ["127.0.0.1"]


@given(st.text())
def test_no_table_breaks_the_reader(text: str) -> None:
    assert all(one.local for one in sockets_of(text))
