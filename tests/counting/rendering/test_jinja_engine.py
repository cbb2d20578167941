import copy
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.counting.normalise import Conversation
from ollama_gate.counting.rendering import jinja
from ollama_gate.counting.rendering.jinja import JinjaTemplate
from ollama_gate.counting.rendering.jinja_engine import Engine
from ollama_gate.counting.rendering.jinja_filters import BUDGET
from ollama_gate.counting.rendering.jinja_values import Budget, TooMuchWork
from ollama_gate.counting.structs import Message
from ollama_gate.errors import RenderError, TemplateRefused

RECORDED = json.loads((Path(__file__).parents[2] / "data" / "jinja" / "engine.json").read_text())
NOW = datetime(2026, 11, 30)  # noqa: DTZ001 (local time of the server)
ENGINE = Engine()


def run(source: str, variables: dict[str, Any] | None = None) -> str:
    template = ENGINE.from_string(source)
    context = template.new_context({**copy.deepcopy(variables or {}), BUDGET: Budget(NOW)})
    return "".join(template.root_render_func(context))


def render(source: str) -> str:
    conversation = Conversation((Message("user", "hello " * 100),))
    return JinjaTemplate.compile(source, "<s>", "</s>").render(conversation, now=NOW)


@pytest.mark.parametrize(
    "row", [row for row in RECORDED["rows"] if row["out"] is not None], ids=lambda row: row["template"][:60]
)
def test_a_template_prints_what_llamacpp_printed(row: dict[str, Any]) -> None:
    assert run(row["template"], RECORDED["variables"]) == row["out"]


@pytest.mark.parametrize(
    "source", [row["template"] for row in RECORDED["rows"] if row["out"] is None], ids=lambda source: source[:60]
)
def test_what_llamacpp_refused_is_not_rendered(source: str) -> None:
    with pytest.raises((RenderError, TemplateRefused, *jinja._COMPILE_FAILURES)):
        run(source, RECORDED["variables"])


# --- work has an end

DOUBLING = "{% set ns = namespace(x=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}PRINT"


def doubling(start: str, step: str, end: str = "") -> str:
    return DOUBLING.replace("START", start).replace("STEP", step).replace("PRINT", end)


TWO = (
    "{% set ns = namespace(a=[1], b=[1]) %}"
    "{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
    "{% set a, b = ns.a, ns.b %}"
)
"""Two lists of few items and 2^60 places, equal and not the same."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(30000) %}{% for b in range(30000) %}{% endfor %}{% endfor %}",
        "{% for a in range(100000000000) %}{% endfor %}",
        "{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}",
        "{% macro m(n) %}{% if n < 60 %}{{ m(n + 1) }}{{ m(n + 1) }}{% endif %}{% endmacro %}{{ m(0) }}",
        "{{ 'a' * 10000000000 }}",
        doubling("'aaaaaaaaaa'", "ns.x ~ ns.x"),
        doubling("'aaaaaaaaaa'", "ns.x + ns.x"),
        doubling("'a'", "ns.x.replace('a', 'aaaaaaaaaa')"),
        doubling("'a'", "ns.x|replace('a', 'aaaaaaaaaa')"),
        doubling("'a'", "[ns.x, ns.x]|join"),
        doubling("'a'", "'{}{}'.format(ns.x, ns.x)"),
        doubling("[1]", "ns.x + ns.x"),
        doubling("[1]", "[ns.x, ns.x]", "{{ ns.x|tojson }}"),
        doubling("[1]", "[ns.x, ns.x]", "{{ ns.x|string }}"),
        doubling("[1]", "[ns.x, ns.x]", "{{ ns.x }}"),
        "{% for i in range(40000) %}" + "x" * 1000 + "{% endfor %}",
        "{% for i in range(40000) %}{% set x %}" + "{{ messages[0].content }}" * 9 + "{% endset %}{% endfor %}",
        "{% macro m() %}" + "x" * 1000 + "{% endmacro %}{% for i in range(20000) %}{% set _ = m() %}{% endfor %}",
        "{% set l = range(20000) %}{% for i in l %}{% if 'zz' in l %}{% endif %}{% endfor %}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}",
        *(
            TWO + end
            for end in (
                "{{ a == b }}",
                "{{ 1 != a < b }}",
                "{{ a is eq b }}",
                "{{ a is in [b] }}",
                "{{ {'k': a} in [{'k': b}] }}",
                "{{ [a, b]|sort }}",
                "{{ [a, b]|max }}",
                "{{ {'k': a, 'l': b}|dictsort(by='value') }}",
                "{{ [{'k': a}]|selectattr('k', 'eq', b)|list }}",
            )
        ),
        *(
            "{% set l = 'a' * 5000000 %}{% for i in range(40000) %}{% set x = " + work + " %}{% endfor %}"
            for work in ("l|list", "l is lower", "l == messages[0].content + l")
        ),
    ],
)
def test_a_template_that_never_ends_is_stopped(source: str) -> None:
    with pytest.raises(TooMuchWork):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}",
        "{% set l = [] %}{% set _ = l.append(l) %}{{ l }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        doubling("3", "ns.x * ns.x"),
        "{{ [1] * 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ strftime_now('%1000000000d') }}",
        "{{ 1 % 0 }}",
        "{{ messages|tojson(indent=1000000) }}",
    ],
)
def test_what_would_take_too_much_at_once_is_refused(source: str) -> None:
    with pytest.raises(RenderError):
        render(source)


# --- nothing of Python is within reach


@pytest.mark.parametrize(
    "expression",
    [
        "''.__class__",
        "''['__class__']",
        "messages.__class__.__mro__",
        "messages[0].__class__",
        "messages[0].update",
        "messages.extend",
        "namespace.__init__.__globals__",
        "raise_exception.__globals__",
        "[].append.__self__",
        "''.join",
        "''.encode",
        "''.format_map",
        "self._TemplateReference__context",
        "self.__class__",
        "cycler.__init__",
        "lipsum.__globals__",
        "joiner",
        "dict",
        "config",
        "budget",
        "(messages|map(attribute='__class__')|first)",
        "namespace(a=1).__class__",
        "namespace(a=1)._Namespace__attrs",
    ],
)
def test_what_a_template_may_not_see_is_undefined(expression: str) -> None:
    assert render(f"{{{{ {expression} is defined }}}}") == "False"


def test_the_inside_of_a_loop_and_a_macro_is_hidden() -> None:
    assert render("{% for x in [1] %}{{ loop._iterator is defined }}{{ loop.__class__ is defined }}{% endfor %}") == (
        "FalseFalse"
    )
    assert render("{% macro m() %}{% endmacro %}{{ m.__class__ is defined }}{{ m._func is defined }}") == "FalseFalse"


@pytest.mark.parametrize("source", ["{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}"])
def test_no_template_reads_another(source: str) -> None:
    with pytest.raises(RenderError):
        render(source)


def test_a_number_in_text_is_never_taken_for_a_number() -> None:
    assert run("{{ [t, 2.5]|tojson }}", {"t": "\ue0002.5"}) == '["\ue0002.5", 2.5]'


def test_a_number_beyond_all_is_a_failure_of_the_template() -> None:
    with pytest.raises(RenderError):
        render("{{ 1e400 }}")
