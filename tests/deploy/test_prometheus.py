"""What Prometheus and Grafana are given can be loaded by them, and each alert leads to a page that says what to do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from support.pages import ROOT, anchors
from support.promql import DURATION, NoQuery, Query

ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]
]
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "ollama-gate.json").read_text("utf-8"))
PANELS = [
    (f"{panel['title']}: {target['expr']}", target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
_RULE = {"alert", "expr", "for", "keep_firing_for", "labels", "annotations"}  # `model/rulefmt/rulefmt.go:Rule`


def test_the_file_is_one_of_groups_of_rules() -> None:
    told = yaml.safe_load(ALERTS.read_text("utf-8"))
    assert set(told) == {"groups"}
    for group in told["groups"]:
        assert set(group) <= {"name", "interval", "limit", "rules"}
        assert group["name"]
    names = [rule["alert"] for rule in RULES]
    assert len(names) == len(set(names)) > 5


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_each_rule_is_one_that_prometheus_loads(rule: dict[str, Any]) -> None:
    assert {"alert", "expr", "labels", "annotations"} <= set(rule) <= _RULE
    Query(rule["expr"]).read()
    assert "for" not in rule or DURATION.fullmatch(rule["for"])
    for texts in (rule["labels"], rule["annotations"]):
        assert all(re.fullmatch(r"[A-Za-z_]\w*", name) and isinstance(text, str) for name, text in texts.items())
    assert rule["labels"]["severity"] in {"page", "ticket"}
    assert rule["annotations"].keys() == {"summary", "description", "page"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_a_summary_names_only_labels_that_the_query_leaves(rule: dict[str, Any]) -> None:
    texts = " ".join(rule["annotations"].values())
    assert texts.count("{{") == len(re.findall(r"\{\{ \$labels\.\w+ \}\}", texts))
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", rule["expr"]) for label in group.split(",")}
    if grouped:
        assert set(re.findall(r"\$labels\.(\w+)", texts)) <= grouped - {"le"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule["alert"]))
def test_each_alert_leads_to_a_heading_of_a_page(rule: dict[str, Any]) -> None:
    path, _, anchor = rule["annotations"]["page"].partition("#")
    assert path.startswith("docs/")
    assert anchor in anchors(ROOT / Path(path))


@pytest.mark.parametrize("query", [query for _, query in PANELS], ids=[name for name, _ in PANELS])
def test_each_panel_asks_what_prometheus_understands(query: str) -> None:
    Query(re.sub(r"\$__(rate_interval|range|interval)\b", "5m", query)).read()


@pytest.mark.parametrize(
    "query",
    [
        "sum(rate(a[5m])",
        "rate(a)",
        "sum(a[5m])",
        "increase(a[5 minutes])",
        "a[5m] > 0",
        "a{b=c}",
        'a{b=~"("}',
        "sum by model (a)",
        "histogram_quantile(0.5)",
        "nothing(a)",
        "a > > 0",
        "a 0",
        "",
        "a $ b",
    ],
)
def test_what_prometheus_would_refuse_is_found(query: str) -> None:
    with pytest.raises(NoQuery):
        Query(query).read()
