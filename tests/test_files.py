"""Files that appear whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from ollama_gate.files import appearing, private_directory


def test_a_file_is_there_when_all_of_it_is_written_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")
    with appearing(path) as file:
        file.write(b"after")
        file.flush()
        assert path.read_text() == "before"
    assert path.read_text() == "after"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_fails_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before")

    def half() -> None:
        with appearing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("synced", [True, False])
def test_it_is_on_the_disk_before_it_takes_its_name_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, synced: bool
) -> None:
    path = tmp_path / "file"
    seen: list[tuple[int, bool]] = []
    monkeypatch.setattr(os, "fsync", lambda handle: seen.append((os.fstat(handle).st_size, path.exists())))
    with appearing(path, synced=synced) as file:
        file.write(b"all of it")
    assert seen == ([(9, False)] if synced else [])


def test_every_directory_that_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o755)
    before = os.umask(0)
    try:
        private_directory(tmp_path / "there" / "outer" / "inner")
        private_directory(tmp_path / "there" / "outer" / "inner")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / "there" / one).stat().st_mode) for one in ("", "outer", "outer/inner")]
    assert modes == [0o755, 0o700, 0o700]
