"""The plots of the documentation are what the code draws, and the pages show them."""

import xml.etree.ElementTree as ET

import pytest

from bench import plots
from bench.svg import Chart, Line
from support.pages import PAGES


@pytest.mark.parametrize("name", plots.CHARTS)
def test_a_plot_is_up_to_date_and_shown(name: str) -> None:
    drawn = plots.CHARTS[name]().svg()
    assert (plots.PLOTS / f"{name}.svg").read_text("utf-8") == drawn, "run python -m bench.plots to draw it anew"
    assert any(f"(plots/{name}.svg)" in page.read_text("utf-8") for page in PAGES)
    assert len(drawn) < 20_000


def test_there_are_no_others() -> None:
    assert {file.stem for file in plots.PLOTS.iterdir()} == set(plots.CHARTS)


@pytest.mark.parametrize("name", plots.CHARTS)
def test_everything_lies_inside_the_picture(name: str) -> None:
    chart = plots.CHARTS[name]()
    for line in chart.lines:
        for x, y in (*line.points, *line.marked):
            assert 0 <= x <= max(chart.x_ticks)
            assert 0 <= y <= max(chart.y_ticks)
    root = ET.fromstring(chart.svg())
    assert root.tag.endswith("svg")
    assert {float(one.get("x", 0)) < 720 for one in root.iter() if one.tag.endswith("text")} == {True}


def test_what_was_seen_on_a_real_ollama_lies_on_the_line() -> None:
    [line] = plots.cut().lines
    known = dict(line.points)
    for sent, reached in plots.SEEN:
        nearest = min(known, key=lambda at: abs(at - sent))
        assert known[nearest] == reached


def test_the_conversation_was_never_over_its_budget_through_the_gate() -> None:
    chart = plots.fill()
    whole, straight, compacted = (dict(line.points) for line in chart.lines)
    window, budget = (value for _, value in chart.limits)
    assert max(compacted.values()) <= budget < window < max(whole.values())
    assert all(straight[turn] == whole[turn] for turn in whole if whole[turn] < window)
    assert all(straight[turn] < window for turn in whole)


def test_names_do_not_cover_each_other_and_are_escaped() -> None:
    lines = [Line(f"<{at}>", [(0, 1), (10, 5)]) for at in range(4)]
    root = ET.fromstring(Chart("a & b", "x", "y", lines, [0, 10], [0, 10]).svg())
    places = [float(one.get("y", 0)) for one in root.iter() if (one.text or "").startswith("<")]
    assert len(places) == 4
    assert min(b - a for a, b in zip(sorted(places), sorted(places)[1:], strict=False)) >= 13
