"""The log: one JSON object a line, or lines for people; never what a local variable holds."""

import io
import json
from typing import Literal

import pytest

from ollama_gate.observe import log


def written(level: Literal["debug", "info", "warning", "error"], style: Literal["json", "console"]) -> str:
    out = io.StringIO()
    log.configure(level, style, out)
    logger = log.logger()
    logger.debug("fine detail")
    logger.info("request", id="a-1", note='é\n"x"', odd=object, keys={1: 2})
    secret = "the prompt itself"
    try:
        int(secret[:3])
    except ValueError as failure:
        logger.error("internal error", exc_info=failure)
    return out.getvalue()


def test_each_line_is_an_object() -> None:
    lines = [json.loads(line) for line in written("debug", "json").splitlines()]
    assert [line["event"] for line in lines] == ["fine detail", "request", "internal error"]
    assert [line["level"] for line in lines] == ["debug", "info", "error"]
    assert lines[1]["note"] == 'é\n"x"'
    assert lines[1]["timestamp"].endswith("Z")
    assert lines[2]["exception"][0]["exc_type"] == "ValueError"


@pytest.mark.parametrize("style", ["json", "console"])
def test_local_variables_are_left_out(style: Literal["json", "console"]) -> None:
    text = written("debug", style)
    assert "internal error" in text
    assert "ValueError" in text
    assert "the prompt itself" not in text.replace('secret = "the prompt itself"', "")


@pytest.mark.parametrize(("level", "lines"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 1)])
def test_what_is_below_the_level_is_not_written(
    level: Literal["debug", "info", "warning", "error"], lines: int
) -> None:
    assert len(written(level, "json").splitlines()) == lines


def test_lines_for_people_are_no_json_and_have_no_colours_in_a_file() -> None:
    text = written("info", "console")
    assert "request" in text
    assert "\x1b[" not in text
    assert not text.startswith("{")
