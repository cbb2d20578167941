import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ollama_gate.cli import main
from support.canned import Canned, canned

LONG = "".join(f"# Part {number}\n\n" + "all work and no play " * 160 + "\n\n" for number in range(8))
STATUS = {
    "models": [
        {"name": "small:1b", "window": 8192, "budget": 6000},
        {"name": "embed", "window": 512, "budget": 400, "embed_limit": 512},
    ]
}


@pytest.fixture
def gate() -> Iterator[Canned]:
    with canned({"/gate/status": (200, STATUS)}) as server:
        yield server


def audit(tmp_path: Path, text: str, *arguments: str) -> Result:
    file = tmp_path / "PROMPT.md"
    file.write_text(text)
    return CliRunner().invoke(main, ["audit", str(file), *arguments])


def test_a_short_prompt_needs_no_advice(tmp_path: Path, gate: Canned) -> None:
    done = audit(tmp_path, "# Rules\nBe short.\n", "--gate", gate.url)
    assert done.exit_code == 0
    assert "Rules" in done.stdout
    assert "→" not in done.stdout


def test_a_long_prompt_is_told_by_section_with_its_share_and_advice(tmp_path: Path, gate: Canned) -> None:
    done = audit(tmp_path, LONG, "--gate", gate.url, "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == 1
    assert (told["exact"], told["tokens"]) == (False, sum(one["tokens"] for one in told["sections"]))
    assert [one["title"] for one in told["sections"]] == [f"Part {number}" for number in range(8)]
    assert [share["model"] for share in told["shares"]] == ["small:1b"]
    assert any("2,000 tokens as the core" in line for line in told["advice"])
    assert any("small:1b 8" in line for line in told["advice"])


def test_without_a_gate_the_configuration_says_the_windows(tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    models = '[models."a:7b"]\nnum_ctx = 4096\nbudget = 3000\n[models."b:1b"]\nnum_ctx = 2048\nbudget = "100%"\n'
    config.write_text(f'[server]\nlisten = "127.0.0.1:1"\n{models}[models.c]\nnum_ctx = 1000\n')
    told = json.loads(audit(tmp_path, LONG, "--config", str(config), "--json").stdout)
    assert [(share["model"], share["window"], share["budget"]) for share in told["shares"]] == [
        ("a:7b", 4096, 3000),
        ("b:1b", 2048, 2047),
        ("c:latest", 1000, 800),
    ]


def test_with_a_model_its_own_vocabulary_counts(tmp_path: Path, gate: Canned) -> None:
    gate.answers["/gate/count?detail=1"] = (200, {"per_message": [{"role": "user", "tokens": 7}]})
    told = json.loads(audit(tmp_path, "# A\nx\n", "--gate", gate.url, "-m", "small:1b", "--json").stdout)
    assert (told["tokens"], told["exact"], told["model"]) == (7, True, "small:1b")


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ((404, {"error": "model 'x' not found"}), 2, "model 'x' not found"),
        ((401, {"error": "a key is needed"}), 2, "Say --key KEY"),
        ((200, {}), 3, "leave --model out"),
    ],
)
def test_a_model_that_cannot_count_is_told(tmp_path: Path, gate: Canned, answer: Any, code: int, said: str) -> None:
    gate.answers["/gate/count?detail=1"] = answer
    done = audit(tmp_path, LONG, "--gate", gate.url, "-m", "x")
    assert done.exit_code == code
    assert said in done.stderr


def test_split_writes_core_units_and_a_page_to_fill_in(tmp_path: Path, gate: Canned) -> None:
    folder = tmp_path / "units"
    done = audit(tmp_path, LONG, "--gate", gate.url, "--split", str(folder))
    names = sorted(file.name for file in folder.iterdir())
    assert names == ["00-core.md", "01-part-2.md", "02-part-5.md", "handover.md"]
    assert "".join((folder / name).read_text() for name in names[:-1]) == LONG
    assert "written to" in done.stdout
    assert "## Next step" in (folder / "handover.md").read_text()


def test_units_keep_the_line_ends_of_the_text(tmp_path: Path, gate: Canned) -> None:
    (tmp_path / "prompt.md").write_bytes(b"# A\r\none\r\n\r\nB\r\n===\r\ntwo\rthree\n")
    arguments = ["audit", str(tmp_path / "prompt.md"), "--gate", gate.url, "--split", str(tmp_path / "units")]
    assert CliRunner().invoke(main, arguments).exit_code in {0, 1}
    units = sorted((tmp_path / "units").glob("[0-9]*"))
    assert b"".join(unit.read_bytes() for unit in units) == (tmp_path / "prompt.md").read_bytes()


def test_a_hundred_units_sort_as_they_follow_each_other(tmp_path: Path, gate: Canned) -> None:
    text = "".join(f"## Part {number}\n{'word ' * 2400}\n" for number in range(102))
    audit(tmp_path, text, "--gate", gate.url, "--split", str(tmp_path / "units"))
    names = sorted(file.name for file in (tmp_path / "units").glob("[0-9]*"))
    assert names[0] == "000-core.md"
    assert "".join((tmp_path / "units" / name).read_text() for name in names) == text


def test_a_heading_behind_a_byte_order_mark_is_one(tmp_path: Path, gate: Canned) -> None:
    assert "before the first heading" not in audit(tmp_path, "\ufeff# A\nx\n", "--gate", gate.url).stdout


def test_split_overwrites_nothing(tmp_path: Path, gate: Canned) -> None:
    (tmp_path / "units").mkdir()
    (tmp_path / "units" / "mine.md").write_text("mine")
    done = audit(tmp_path, LONG, "--gate", gate.url, "--split", str(tmp_path / "units"))
    assert done.exit_code == 2
    assert "is not empty: name a folder that is" in done.stderr
    assert [file.name for file in (tmp_path / "units").iterdir()] == ["mine.md"]


def test_titles_are_shown_as_they_are(tmp_path: Path, gate: Canned) -> None:
    assert "[red]Title" in audit(tmp_path, "# [red]Title\nx\n", "--gate", gate.url).stdout


def test_an_empty_file_is_a_mistake(tmp_path: Path) -> None:
    assert audit(tmp_path, " \n").exit_code == 2


def test_a_section_is_told_with_what_is_below_it(tmp_path: Path, gate: Canned) -> None:
    done = audit(tmp_path, f"# A\n## B\n{'x' * 400}\n## C\n{'y' * 400}\n# D\nz\n", "--gate", gate.url)
    [line] = [line for line in done.stdout.splitlines() if line.startswith("A ")]
    assert "in all" in line
    [line] = [line for line in done.stdout.splitlines() if line.startswith("D ")]
    assert "in all" not in line


def test_a_few_words_said_twice_need_no_advice(tmp_path: Path, gate: Canned) -> None:
    passage = "one two three four five six seven eight nine ten eleven twelve thirteen"
    assert audit(tmp_path, f"# A\n{passage}\n# B\n{passage}\n", "--gate", gate.url).exit_code == 0
    told = audit(tmp_path, f"# A\n{passage * 20}\n# B\n{passage * 20}\n", "--gate", gate.url)
    assert "Say once what is said twice" in told.stdout


def test_a_passage_that_stands_often_is_shown_once(tmp_path: Path, gate: Canned) -> None:
    passage = "Never ever write into the generated files of this project, not even when you are asked to do so. "
    done = audit(tmp_path, f"# A\n\n{passage}\n\n# B\n\n{passage}\n\n# C\n\n{passage}\n", "--gate", gate.url)
    assert "3 times: " in done.stdout
    assert "twice: " not in done.stdout


@pytest.mark.slow
def test_a_terminal_is_shown_that_it_looks_where_the_output_goes_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("# One\nword\n")
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "ollama_gate", "audit", "prompt.md"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "TERM": "xterm"}, stdout=subprocess.PIPE, stderr=theirs, check=False
    )
    os.close(theirs)
    shown = os.read(ours, 4096)
    os.close(ours)
    assert b"looking" in shown
    assert b"looking" not in done.stdout
    assert b"One" in done.stdout
