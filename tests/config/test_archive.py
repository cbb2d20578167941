from pathlib import Path

import pytest

from ollama_gate.config import load
from ollama_gate.config.archive import Archive, archive_url, default_state_dir
from ollama_gate.config.problems import InvalidConfig

HERE = Path("/etc/ollama-gate")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("/srv/a.db", "sqlite:////srv/a.db"),
        ("a.db", "sqlite:////etc/ollama-gate/a.db"),
        (" state/a b.db ", "sqlite:////etc/ollama-gate/state/a b.db"),
        ("sqlite:////srv/a.db", "sqlite:////srv/a.db"),
        ("sqlite:///a.db", "sqlite:////etc/ollama-gate/a.db"),
        ("SQLite:////srv/a.db", "sqlite:////srv/a.db"),
        ("postgresql://gate@db/gate", "postgresql://gate@db/gate"),
        (
            "postgres://gate:a%40b@[::1]:5433/gate?sslmode=require",
            "postgresql://gate:a%40b@[::1]:5433/gate?sslmode=require",
        ),
        ("postgresql:///gate?host=/run/postgresql", "postgresql:///gate?host=/run/postgresql"),
        ("postgresql://db?dbname=gate", "postgresql://db?dbname=gate"),
    ],
)
def test_an_archive_is_a_file_or_a_database(written: str, meant: str) -> None:
    assert archive_url(written, HERE) == meant
    assert archive_url(meant) == meant


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("", "name a file"),
        ("   ", "name a file"),
        ("sqlite://", "name a file"),
        (":memory:", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("a\0b", "name a file"),
        ("postgresql://gate:s3cret@db", "name the database too"),
        ("postgresql://gate:s3cret@db/", "name the database too"),
        ("mysql://gate:s3cret@db/gate", "mysql:// is not known here"),
        ("postgresql+asyncpg://gate:s3cret@db/gate", "is not known here"),
    ],
)
def test_what_is_none_is_told_without_what_may_be_secret(written: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as bad:
        archive_url(written, HERE)
    assert "s3cret" not in str(bad.value)


def test_a_mistake_in_the_file_does_not_show_a_password(tmp_path: Path) -> None:
    file = tmp_path / "ollama-gate.toml"
    file.write_text('[archive]\nurl = "mysql://gate:s3cret@db/gate"\nkeep_for = "soon"\n')
    with pytest.raises(InvalidConfig) as bad:
        load(file, {})
    assert "archive.url" in str(bad.value)
    assert "archive.keep_for" in str(bad.value)
    assert "s3cret" not in str(bad.value)


def test_a_relative_path_starts_at_the_file(tmp_path: Path) -> None:
    file = tmp_path / "ollama-gate.toml"
    file.write_text('[archive]\nurl = "a.db"\n')
    assert load(file, {}).archive.place() == f"sqlite:///{tmp_path / 'a.db'}"
    named = {"OLLAMA_GATE_ARCHIVE_URL": "postgresql://db/gate", "OLLAMA_GATE_ARCHIVE_ENABLED": "true"}
    assert load(file, named).archive.place() == "postgresql://db/gate"


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"STATE_DIRECTORY": "/var/lib/a:/var/lib/b", "HOME": "/h"}, "/var/lib/a"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/ollama-gate"),
        ({"XDG_STATE_HOME": "x", "HOME": "/h"}, "/h/.local/state/ollama-gate"),
        ({}, "/var/lib/ollama-gate"),
    ],
)
def test_without_a_place_it_lies_where_state_lies(environ: dict[str, str], directory: str) -> None:
    assert default_state_dir(environ) == Path(directory)
    assert Archive().place(environ) == f"sqlite:///{directory}/archive.db"


def test_it_is_off_unless_it_is_switched_on() -> None:
    archive = load(None, {}).archive
    assert (archive.enabled, archive.migrate, archive.keep_for) == (False, True, 30 * 86400)
