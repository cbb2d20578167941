"""The file of the keys: private, whole, and read again when it has changed."""

import fcntl
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.access import keyfile
from ollama_gate.access.keyfile import BadKeyFile, KeyFile, decode, encode, locked, read, write
from ollama_gate.access.keys import Key, KeyRing
from support.keyring import a_key, add_key

FULL = a_key(
    "all of it",
    limits={"requests_per_minute": 1, "tokens_per_day": 2, "parallel": 3},
    models=("qwen3*", "mylab/x"),
    priority=-5,
    admin=True,
    counts=True,
    expires=10.5,
    revoked=11.5,
)[1]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "keys.json"


def test_every_field_survives() -> None:
    ring = KeyRing((FULL, a_key("other")[1]))
    assert decode(encode(ring)) == ring


def test_no_file_is_no_key(path: Path) -> None:
    assert read(path) == (KeyRing(), None)


def test_the_file_is_its_owners_alone_and_replaced_as_a_whole(path: Path) -> None:
    text = add_key(path, "one")
    before = path.stat().st_ino
    add_key(path, "two")
    assert path.stat().st_ino != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["keys.json"]
    assert text not in path.read_text()
    assert text.split("_", 2)[2] not in path.read_text()


def test_written_by_root_it_belongs_to_the_services_user(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.parent.mkdir()
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", lambda _, uid, gid: given.append((uid, gid)))
    write(path, KeyRing())
    owner = path.parent.stat()
    assert given == [(owner.st_uid, owner.st_gid)]


def test_a_write_that_fails_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(path, "one")
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadKeyFile, match="No space left"):
        add_key(path, "two")
    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["keys.json"]


def test_a_file_that_others_may_write_is_not_believed(path: Path) -> None:
    add_key(path)
    path.chmod(0o620)
    with pytest.raises(BadKeyFile, match="chmod 600"):
        read(path)


def test_the_lock_is_exclusive(path: Path) -> None:
    with locked(path):
        handle = os.open(path.with_name(".keys.json.lock"), os.O_RDWR)
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(handle)


def test_a_change_is_taken_up_and_a_bad_one_changes_nothing(path: Path) -> None:
    found = KeyFile(path)
    assert not found.ring
    add_key(path, "one")
    assert found.refresh()
    assert len(found.ring.keys) == 1
    assert not found.refresh()
    path.write_text("not json")
    with pytest.raises(BadKeyFile):
        found.refresh()
    assert not found.refresh()  # said once
    assert len(found.ring.keys) == 1
    path.unlink()
    with pytest.raises(BadKeyFile, match="the file is gone"):
        found.refresh()
    assert not found.refresh()  # said once
    assert len(found.ring.keys) == 1  # a file that is gone opens nothing
    write(path, KeyRing())
    with pytest.raises(BadKeyFile, match="all keys are gone"):
        found.refresh()
    assert len(found.ring.keys) == 1  # nor does an empty one
    add_key(path, "two")
    assert found.refresh()
    assert [key.name for key in found.ring.keys] == ["two"]


def test_what_is_wrong_with_the_file_is_known_until_it_is_put_right(path: Path) -> None:
    add_key(path, "one")
    found, whole = KeyFile(path), path.read_bytes()
    problems = [found.problem]
    path.unlink()
    with pytest.raises(BadKeyFile):
        found.refresh()
    problems.append(found.problem)
    path.write_bytes(whole)
    path.chmod(0o600)
    found.refresh()
    problems.append(found.problem)
    assert [problem and problem.startswith(f"{path}: the file is gone") for problem in problems] == [None, True, None]


def row(**changes: Any) -> bytes:
    tree = json.loads(encode(KeyRing((FULL,))))
    tree["keys"][0].update(changes)
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":2,"keys":[]}',
        b'{"version":1,"keys":{}}',
        b'{"version":1,"keys":[1]}',
        b"[" * 100_000,
        row(unknown=1),
        row(id="x"),
        row(id=None),
        row(name="a\nb"),
        row(hash="zz"),
        row(hash=None),
        row(hash="00"),
        row(models="qwen3"),
        row(models=["a b"]),
        row(limits={"tokens_per_year": 1}),
        row(limits={"parallel": 0}),
        row(limits={"parallel": True}),
        row(limits=[]),
        row(priority=1.5),
        row(priority=101),
        row(expires="tomorrow"),
        row(admin=1),
        row(counts="yes"),
    ],
)
def test_what_is_no_file_of_keys_is_refused(text: bytes) -> None:
    with pytest.raises(BadKeyFile):
        decode(text)


def test_an_id_twice_is_refused() -> None:
    with pytest.raises(BadKeyFile, match="twice"):
        decode(encode(KeyRing((FULL, FULL))))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from([*keyfile._KEYS]), JSON))
def test_any_row_is_a_key_or_refused(changes: dict[str, Any]) -> None:
    try:
        ring = decode(row(**changes))
    except BadKeyFile:
        return
    assert all(isinstance(key, Key) for key in ring.keys)
    assert decode(encode(ring)) == ring
