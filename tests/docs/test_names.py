"""Names in the pages and in what is deployed are names of the code: metrics, labels, headers, codes, fields."""

import ast
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import get_args

import pytest

from ollama_gate.admission.alerts import Alert
from ollama_gate.observe.instruments import Counter, Gauge, Histogram
from ollama_gate.observe.metrics import Metrics
from ollama_gate.rehearsal.server import Rehearsal
from ollama_gate.rehearsal.service import Settings
from support.gate import running_gate
from support.http import ask
from support.pages import PAGES, ROOT, column, name_of

OPERATE = ROOT / "docs" / "operate.md"
REFUSALS = ROOT / "docs" / "refusals.md"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "ollama-gate.json"
METRIC = re.compile(r"\bollama_gate_[a-z_]+[a-z]")
HEADER = re.compile(r"x-ollama-gate-[a-z-]+[a-z]")
_SERIES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def _metrics() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Name as the page has it, type, and labels of each metric."""
    for metric in vars(Metrics()).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            kind = type(metric).__name__.lower()
            yield metric.name + ("_total" if kind == "counter" else ""), kind, frozenset(metric.label_names)


def _series() -> Mapping[str, frozenset[str]]:
    """Labels of each time series that can be asked for in a query."""
    return {
        name.removesuffix("_total") + suffix: labels | ({"le"} if suffix == "_bucket" else set())
        for name, kind, labels in _metrics()
        for suffix in _SERIES[kind]
    }


def test_the_page_lists_every_metric_with_its_labels() -> None:
    section = OPERATE.read_text("utf-8").split("\n## Metrics\n")[1]
    rows = re.findall(r"^\| `(ollama_gate_\w+)` \|([^|]*)\|([^|]*)\|$", section, re.MULTILINE)
    told = {name: (set(re.findall(r"`(\w+)`", labels)), "histogram" in text) for name, labels, text in rows}
    assert told == {name: (set(labels), kind == "histogram") for name, kind, labels in _metrics()}


def _queries() -> Iterator[str]:
    for block, line in re.findall(r"expr: (?:\|\n((?: {10}.*\n)+)|(.+)\n)", ALERTS.read_text("utf-8")):
        yield block or line
    for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def test_alerts_and_dashboard_have_queries() -> None:
    assert len(list(_queries())) == ALERTS.read_text("utf-8").count("- alert:") + DASHBOARD.read_text("utf-8").count(
        '"expr"'
    )


@pytest.mark.parametrize("query", list(_queries()), ids=str)
def test_alerts_and_dashboard_ask_for_what_there_is(query: str) -> None:
    series = _series()
    asked = METRIC.findall(query)
    assert asked or "up{" in query
    assert set(asked) <= set(series)
    known = {"job", "instance"}.union(*(series[name] for name in asked))
    matched = {label for braces in re.findall(r"\{([^}]*)\}", query) for label in re.findall(r"(\w+)\s*[=!]", braces)}
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", query) for label in group.split(",")}
    assert matched | grouped <= known


def test_the_dashboard_shows_every_metric() -> None:
    shown = set(METRIC.findall(DASHBOARD.read_text("utf-8")))
    missing = {name for name, kind, _ in _metrics() if not any(f"{name}{end}" in shown for end in ("", "_bucket"))}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_metrics_and_headers_in_the_pages_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    assert set(METRIC.findall(text)) <= {name for name, _, _ in _metrics()} | set(_series())
    assert set(HEADER.findall(text)) <= _headers()


def _headers() -> set[str]:
    sources = (ROOT / "ollama_gate").rglob("*.py")
    return {header for source in sources for header in HEADER.findall(source.read_text("utf-8"))}


def test_the_page_lists_every_header() -> None:
    section = OPERATE.read_text("utf-8").split("\n## What an answer says\n")[1].split("\n## ")[0]
    assert set(HEADER.findall(section)) == _headers()


@pytest.mark.slow
def test_the_page_lists_every_code_of_a_refusal() -> None:
    assert sorted(column(REFUSALS, "All codes", 1)) == sorted(_codes())


def _codes() -> set[str]:
    """The codes that the package's source gives to a Refusal or an error's dict, and those of its UpstreamErrors."""
    found: set[str] = set()
    for source in (ROOT / "ollama_gate").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text("utf-8"))):
            value: ast.expr | None = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Refusal":
                named = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
                value = named[0] if named else node.args[1] if len(node.args) > 1 else None
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                value = node.value if isinstance(target, ast.Name) and target.id in ("CODE", "code") else None
            elif isinstance(node, ast.Dict) and source.parent.name == "access":
                value = next((v for k, v in zip(node.keys, node.values, strict=True) if _is(k, "code")), None)
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                found.add(value.value)
    return found - {"upstream_failed"}  # the base class, of which there is no instance


def _is(node: ast.expr | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def test_the_page_lists_every_kind_of_the_guards_alerts() -> None:
    assert set(column(OPERATE, "Queue and memory")) == {kind.__name__ for kind in get_args(Alert)}


async def test_the_page_lists_every_field_of_the_log(written_log: io.StringIO) -> None:
    chat = {"model": "rehearsal-go", "messages": [{"role": "user", "content": "hi"}]}
    async with Rehearsal(Settings()) as ollama, running_gate(ollama.url) as gate:
        for body in (
            {**chat, "options": {"num_ctx": 7, "num_predict": 5}},
            {**chat, "messages": [{"role": "user", "content": "long " * 9000}]},
            {**chat, "model": "not-there"},
            {**chat, "options": {"num_predict": 9000}, "messages": [{"role": "user", "content": "a " * 3000}]},
        ):
            await ask(gate.address, "POST", "/api/chat", body)
        await ask(gate.address, "POST", "/api/embed", {"model": "rehearsal-embed", "input": "a"})
    lines = [json.loads(line) for line in written_log.getvalue().splitlines()]
    written = {field for line in lines if line["event"] == "request" for field in line}
    assert {"prompt_eval_count", "rung", "code", "notes", "ended"} <= written
    assert written - {"event", "level", "timestamp"} <= set(column(OPERATE, "The log"))
