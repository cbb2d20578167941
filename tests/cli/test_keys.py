"""`ollama-gate keys`: made, shown once, listed, revoked and replaced."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ollama_gate.access.keyfile import read
from ollama_gate.access.keys import Key
from ollama_gate.cli import main


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "keys.json"
    monkeypatch.setenv("OLLAMA_GATE_ACCESS_KEYS", str(path))
    monkeypatch.setenv("OLLAMA_GATE_CONFIG", str(tmp_path / "ollama-gate.toml"))
    (tmp_path / "ollama-gate.toml").write_text("")
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["keys", *arguments])


def told(*arguments: str) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def kept(file: Path, text: str) -> Key:
    found = read(file)[0].find(text)
    assert found is not None
    return found


def test_a_key_is_shown_once_and_alone_on_standard_output(file: Path) -> None:
    result = run("add", "laptop")
    assert result.exit_code == 0
    text = result.stdout.strip()
    assert kept(file, text).name == "laptop"
    assert "shown this once" in result.stderr
    assert "every client needs a key" in result.stderr
    assert "every client needs a key" not in run("add", "desktop").stderr
    listed = run("list").stdout
    assert "laptop" in listed
    assert text not in listed
    assert text.split("_", 2)[2] not in listed + file.read_text()


def test_every_right_can_be_said(file: Path) -> None:
    limits = ["requests-per-minute", "requests-per-day", "tokens-per-minute", "tokens-per-day", "parallel"]
    said = [argument for number, name in enumerate(limits, 1) for argument in (f"--{name}", str(number))]
    more = ["--model", "qwen3*", "--model", "mylab/x", "--priority", "-3", "--admin", "--count", "--expires", "30d"]
    new = told("add", "all", *said, *more)
    key = kept(file, new["key"])
    assert key.models == ("qwen3*", "mylab/x")
    assert list(new["limits"].values()) == [1, 2, 3, 4, 5]
    assert (key.priority, key.admin, key.counts) == (-3, True, True)
    assert key.expires is not None
    assert 29 * 86400 < key.expires - time.time() <= 30 * 86400
    [row] = told("list")
    assert "key" not in row
    assert {name: row[name] for name in row} == {name: new[name] for name in row}


def test_a_day_ends_at_its_end(file: Path) -> None:
    new = told("add", "x", "--expires", "2099-06-30")
    assert new["expires"] == "2099-07-01T00:00:00Z"
    assert kept(file, new["key"]).over(4086547199.0) is None


def test_revoke_by_name_or_id(file: Path) -> None:
    first, second = told("add", "a"), told("add", "b")
    assert run("revoke", "a").exit_code == 0
    assert told("revoke", second["id"])[0]["state"] == "revoked"
    assert kept(file, first["key"]).over(time.time()) == "revoked"
    assert told("list") == []
    assert [row["state"] for row in told("list", "--all")] == ["revoked", "revoked"]
    assert told("add", "a")["id"] != first["id"]  # the name is free again


def test_rotate_keeps_the_rights_and_may_leave_the_old_key_a_while(file: Path) -> None:
    old = told("add", "a", "--model", "qwen3", "--parallel", "2", "--admin")
    new = told("rotate", "a", "--grace", "1h")
    assert {name: new[name] for name in ("models", "limits", "admin")} == {
        name: old[name] for name in ("models", "limits", "admin")
    }
    now = time.time()
    was = kept(file, old["key"])
    assert was.over(now) is None
    assert was.over(now + 3601) == "expired"
    newest = told("rotate", "a")
    assert kept(file, new["key"]).over(time.time()) == "revoked"
    assert kept(file, old["key"]).over(time.time()) == "revoked"
    assert kept(file, newest["key"]).over(time.time()) is None


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("add", "-"), "write a name"),
        (("add", "a\nb"), "write a name"),
        (("add", "x", "--model", "a b"), "is no model"),
        (("add", "x", "--parallel", "0"), "parallel"),
        (("add", "x", "--priority", "101"), "priority"),
        (("add", "x", "--expires", "soon"), "--expires"),
        (("add", "x", "--expires", "0s"), "--expires"),
        (("add", "x", "--expires", "2027-13-01"), "--expires"),
        (("revoke", "nobody"), "no key 'nobody'"),
        (("rotate", "nobody"), "no key 'nobody'"),
        (("rotate", "nobody", "--grace", "x"), "not a time"),
    ],
)
def test_what_cannot_be_done_is_said_with_exit_code_2(file: Path, arguments: tuple[str, ...], hint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert hint in result.stderr
    assert not read(file)[0]


def test_a_name_is_taken_once(file: Path) -> None:
    assert run("add", "a").exit_code == 0
    again = run("add", "a")
    assert (again.exit_code, "rotate or revoke" in again.stderr) == (2, True)
    assert len(read(file)[0].keys) == 1


def test_a_broken_file_is_said_and_left_as_it_is(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("{")
    for arguments in (("list",), ("add", "a"), ("revoke", "a")):
        result = run(*arguments)
        assert result.exit_code == 2, result.output
        assert str(file) in result.stderr
    assert file.read_text() == "{"


def test_an_empty_list_says_where_it_looked(file: Path) -> None:
    assert str(file) in run("list").stdout


def test_when_no_key_is_left_in_force_it_says_that_nobody_gets_in(file: Path) -> None:
    assert "nobody gets in" not in run("list").stdout
    run("add", "one")
    run("add", "two")
    assert "nobody gets in" not in run("revoke", "one").stdout
    assert (
        f"nobody gets in. Add one, or remove that file and restart the gate, to serve without keys again: {file}"
        in (run("revoke", "two").stdout)
    )
    assert "nobody gets in" in run("list").stdout
