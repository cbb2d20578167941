"""Tables of expressions, formats, variables and legacy templates that Ollama's `template` package has evaluated.

A row is a template and its text, or None where Go fails. `unknown` rows are those that are given up here, because Go's
text is an address or because nobody writes such a thing: they must raise RenderError and never give another text.
"""

from typing import Any

import pytest

from ollama_gate.errors import RenderError, TemplateRefused
from support.gotemplates import recorded, render

TABLES = recorded("tables")
CONVERSATIONS = recorded("conversations")


def check(source: str, body: dict[str, Any], truth: str | None) -> None:
    if truth is None:
        with pytest.raises(TemplateRefused):
            render(source, body)
    else:
        assert render(source, body) == truth, source


def check_unknown(source: str, body: dict[str, Any]) -> None:
    with pytest.raises(RenderError) as caught:
        render(source, body)
    assert not isinstance(caught.value, TemplateRefused), source


@pytest.mark.slow
@pytest.mark.parametrize("table", ["expressions", "formats"])
def test_expressions_evaluate_as_in_go(table: str) -> None:
    for source, truth in TABLES[table]["known"]:
        check(TABLES["prefix"] + source, TABLES["body"], truth)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["variables", "legacy"])
def test_whole_templates_run_as_in_go(table: str) -> None:
    for source, name, truth in TABLES[table]["known"]:
        check(source, CONVERSATIONS[name], truth)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["expressions", "formats"])
def test_what_cannot_be_known_is_given_up(table: str) -> None:
    for (source,) in TABLES[table]["unknown"]:
        check_unknown(TABLES["prefix"] + source, TABLES["body"])


def test_the_tables_hold_texts_and_refusals() -> None:
    for table in ("expressions", "variables", "legacy"):
        truths = [row[-1] for row in TABLES[table]["known"]]
        assert truths.count(None) > 100
        assert len(truths) - truths.count(None) > 300
