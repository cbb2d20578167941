"""The line of a finished request goes the short way and looks as if it had gone the long one."""

import io
import json
import re

import pytest

from ollama_gate.observe import log

LINE = {"id": "a-1", "route": "/api/chat", "status": 200, "seconds": 0.25, "notes": ["näher"]}


def test_the_short_way_writes_what_the_long_way_writes() -> None:
    below = io.BytesIO()
    log.configure("info", "json", io.TextIOWrapper(below, write_through=True))
    log.write(log.finished(dict(LINE)) + log.finished(dict(LINE)))
    assert below.getvalue().count(b"\n") == 2
    log.logger().info("request", **LINE)
    short, again, long = (json.loads(line) for line in below.getvalue().splitlines())
    for told in (short, again):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", told.pop("timestamp"))
    del long["timestamp"]
    assert short == again == long == {**LINE, "event": "request", "level": "info"}


def test_where_lines_go_the_long_way_nothing_is_left_to_write() -> None:
    out = io.StringIO()
    log.configure("info", "json", out)
    assert not log.finished(dict(LINE))
    assert json.loads(out.getvalue())["event"] == "request"


@pytest.mark.parametrize("style", ["json", "console"])
def test_lines_of_requests_are_left_out_above_their_level(style: log.Style) -> None:
    out = io.StringIO()
    log.configure("warning", style, out)
    log.write(log.finished(dict(LINE)))
    assert not out.getvalue()


def test_people_get_lines_for_people() -> None:
    out = io.StringIO()
    log.configure("info", "console", out)
    log.write(log.finished(dict(LINE)))
    assert "request" in out.getvalue()
    assert "route" in out.getvalue()
    assert "{" not in out.getvalue()


def test_a_failure_is_told_without_local_variables() -> None:
    out = io.StringIO()
    log.configure("info", "json", out)
    prompt = "the prompt"
    try:
        dict[int, str]()[len(prompt)]
    except KeyError as failure:
        log.logger().error("bad", exc_info=failure)
    told = json.loads(out.getvalue())
    assert told["exception"][0]["exc_type"] == "KeyError"
    assert "the prompt" not in out.getvalue()
