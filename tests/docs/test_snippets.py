"""Programs and files that the pages show: programs run, files can be read."""

import asyncio
import importlib.util
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ollama_gate.catalog.names import canonical
from ollama_gate.cli import main
from ollama_gate.config import load
from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings
from support.gate import running_gate
from support.pages import PAGES, ROOT, name_of

CLIENTS = ROOT / "docs" / "clients.md"
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, kind: str) -> Iterator[str]:
    for found in _BLOCK.finditer(page.read_text("utf-8")):
        if found[1] == kind:
            yield found[2]


def named(text: str) -> str:
    return text.strip().splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "program", [text for page in (ROOT / "README.md", CLIENTS) for text in blocks(page, "python")], ids=named
)
async def test_programs_of_clients_run_and_know_a_refusal(program: str) -> None:
    needed = re.search(r"^(?:import|from) (\w+)", program, re.MULTILINE)
    assert needed is not None
    if importlib.util.find_spec(needed[1]) is None:
        pytest.skip(f"{needed[1]} is not among the tests' dependencies")
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        address = ":".join(map(str, gate.address))
        text = program.replace("127.0.0.1:11435", address).replace("qwen3-coder:30b", "rehearsal-go")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", text, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed
    if "except" not in program:
        assert ("tokens reached it" in printed) is ("print(" in program)  # else it only says how the client is made
        return
    assert re.search(r"400 prompt is too long|context_length_exceeded messages|prompt is too long", printed), printed


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_the_pages_show_can_be_read(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "json"):
        json.loads(text)
    for text in blocks(page, "toml"):
        tables = tomllib.loads(text)
        if "model_providers" not in tables:  # another program's file
            (tmp_path / "ollama-gate.toml").write_text(text)
            load(tmp_path / "ollama-gate.toml", {}, canonical)


_COMMAND = re.compile(r"ollama-gate((?: [a-z][a-z-]*)+)((?: +(?:--?[a-z][\w-]*|[\w./:<>\"'-]+))*)")


def commands(page: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Words and options of each command of the gate's in a block or in the text."""
    text = page.read_text("utf-8")
    shown = [body for kind, body in _BLOCK.findall(text) if kind in {"sh", "console", "yaml", "ini"}]
    for line in "\n".join([*shown, *re.findall(r"`(ollama-gate [^`]+)`", text)]).splitlines():
        for words, rest in _COMMAND.findall(line.partition("#")[0]):
            yield words.split(), re.findall(r"(?<=\s)--?[a-z][\w-]*", rest)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words, options in commands(page):
        command: click.Command = main
        for word in words:
            if not isinstance(command, click.Group):
                break  # an argument
            found = command.get_command(click.Context(command), word)
            assert found is not None, f"ollama-gate {' '.join(words)}"
            command = found
        known = {"--help", "-h", "--version"}.union(*(one.opts + one.secondary_opts for one in command.params))
        if command.name != "rehearse":  # it hands its options on
            assert set(options) <= known, f"ollama-gate {' '.join(words)} {options}"


def test_the_pages_show_commands_with_options() -> None:
    assert sum(bool(options) for page in PAGES for _, options in commands(page)) > 10
