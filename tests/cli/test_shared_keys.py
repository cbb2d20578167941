"""`ollama-gate keys` where gates share them, and what `check` says of their database."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ollama_gate.access.keyfile import read
from ollama_gate.archive import offline as archives
from ollama_gate.cli import main
from ollama_gate.config.archive import SQLITE
from support.keyring import add_key


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "shared" / "archive.db"
    (tmp_path / "ollama-gate.toml").write_text(f'[shared]\nenabled = true\n[archive]\nurl = "{file}"\n')
    return file


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments])


def told(*arguments: str) -> Any:
    done = run("keys", *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_keys_are_made_listed_revoked_and_replaced_in_the_database(database: Path) -> None:
    first = run("keys", "add", "laptop", "--model", "qwen3*", "--requests-per-day", "7")
    assert first.exit_code == 0
    assert "every client needs a key" in first.stderr
    assert "the database of archive.url holds its hash" in first.stderr
    assert run("keys", "add", "laptop").exit_code == 2
    secret = first.stdout.strip().split("_", 2)[2]
    assert secret.encode() not in b"".join(file.read_bytes() for file in database.parent.iterdir())
    [row] = told("list")
    assert (row["name"], row["models"], row["limits"]) == ("laptop", ["qwen3*"], {"requests_per_day": 7})
    new = told("rotate", "laptop")
    assert new["limits"] == row["limits"]
    assert [each["state"] for each in told("list", "--all")] == ["revoked", "in force"]
    assert (
        "No key is in force, so nobody gets in. Add one, or empty its table" in run("keys", "revoke", "laptop").stdout
    )
    assert run("keys", "revoke", "laptop").exit_code == 2
    assert "nobody gets in" in run("keys", "list").stdout


def test_the_keys_of_a_file_can_be_taken_over_once(database: Path, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    for name in ("one", "two"):
        add_key(file, name)
    run("keys", "add", "three")
    assert run("keys", "import", str(file)).stdout.startswith("2 of 2 keys")
    assert run("keys", "import", str(file)).stdout.startswith("0 of 2 keys")
    assert {row["id"] for row in told("list")} >= {key.id for key in read(file)[0].keys}
    assert len(told("list")) == 3
    (tmp_path / "none.json").write_text('{"version": 1, "keys": []}')
    assert run("keys", "import", str(tmp_path / "none.json")).exit_code == 2


def test_a_database_that_does_not_answer_is_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"postgresql://gate:s3cret@127.0.0.1:{unused_tcp_port}/gate"
    (tmp_path / "ollama-gate.toml").write_text(f'[shared]\nenabled = true\n[archive]\nurl = "{url}"\n')
    for command in (("list",), ("add", "laptop"), ("revoke", "laptop")):
        done = run("keys", *command)
        assert done.exit_code == 3
        assert "s3cret" not in done.output


def test_check_says_that_the_database_cannot_be_used(database: Path, tmp_path: Path, unused_tcp_port: int) -> None:
    def found() -> list[Any]:
        done = run("check", "--json")
        return [one for one in json.loads(done.stdout)["findings"] if one["about"] in {"shared", "archive"}]

    archives.migrate(f"{SQLITE}{database}")
    assert found() == []
    url = f"postgresql://gate@127.0.0.1:{unused_tcp_port}/gate"
    (tmp_path / "ollama-gate.toml").write_text(f'[shared]\nenabled = true\n[archive]\nurl = "{url}"\n')
    [one] = found()
    assert (one["level"], one["about"]) == ("error", "shared")
    assert "Connect call failed" in one["what"]


def test_sharing_takes_a_database_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ollama-gate.toml").write_text("[shared]\nenabled = true\n")
    done = run("keys", "list")
    assert done.exit_code == 2
    assert "shared.enabled" in done.output
    assert "archive.url" in done.output
