"""The parser never raises anything but our errors, and reads literals and trim markers as Go does."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ollama_gate.counting.rendering.gotemplate import nodes
from ollama_gate.counting.rendering.gotemplate.lexer import END, tokens
from ollama_gate.counting.rendering.gotemplate.limits import MAX_NESTING
from ollama_gate.counting.rendering.gotemplate.literals import number, unquote
from ollama_gate.counting.rendering.gotemplate.ollama import FUNCTIONS
from ollama_gate.counting.rendering.gotemplate.parser import parse
from ollama_gate.errors import RenderError, TemplateRefused
from support.gotemplates import one_user, render, template_names, template_text

NAMES = frozenset(FUNCTIONS) | {"and", "or"}
PIECES = (
    *("{{", "}}", "{{-", "-}}", " ", "\n", "text", "(", ")", "|", ":=", "=", ",", "$", "$x", ".", ".A", "$x.B", "1"),
    *("-", "+", "1.5", ".5", "1e3", "0x1", "1_0", "'a'", '"s"', "`r`", '"', "'", "`", "/*", "*/", "nil", "true"),
    *("if", "else", "end", "range", "with", "define", "block", "template", "break", "continue", "len", "eq", "é", "²"),
    *("{{ if .A }}", "{{ else }}", "{{ end }}", "{{ range $i, $x := .A }}", "{{ $x := 1 }}", "\\", "\x00", "{{/*", "#"),
)
sources = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@given(sources | st.text() | st.text("{}-/* \n.$|()\"'`1a"))
@example("{{1.5end }}")
@example("{{ 1.")
@example("{{ -}}")
def test_any_source_is_parsed_or_refused(source: str) -> None:
    try:
        definitions = parse(source, NAMES)
    except RenderError:
        return
    assert "" in definitions


@given(st.sampled_from(template_names()), st.randoms(use_true_random=False))
def test_a_damaged_template_is_parsed_or_refused(name: str, random: "st.random.Random") -> None:  # type: ignore[name-defined]
    source = template_text(name)
    start = random.randrange(len(source))
    damaged = source[:start] + random.choice(PIECES) + source[start + random.randrange(4) :]
    try:
        parse(damaged, NAMES)
    except RenderError:
        return


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_without_actions_is_one_token(source: str) -> None:
    if "{{" not in source:
        assert "".join(token.text for token in tokens(source) if token is not END) == source


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("a {{- 1 -}} b", "a1b"),
        ("a {{-1}} b", "a -1 b"),
        ("a\t\r\n {{- 1}}\v", "a1\v"),
        ("a\v{{- 1 }}", "a\v1"),
        ("a {{- /* c */ -}} b", "ab"),
        ("{{/* c */}}x", "x"),
        ("{{ 3 -}}\n\n{{- 4 }}", "34"),
        ("{{`a\r\nb`}}", "a\nb"),
        ('{{ "\\u00e9\\x41\\101\\n" }}', "éAA\n"),
        ("{{ 'a' }}{{ '\\n' }}", "9710"),
        ("{{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 017 }} {{ 1_000 }} {{ -7 }} {{ +7 }}", "31 3 15 15 1000 -7 7"),
        ("{{ 1.0 }} {{ 1e3 }} {{ .5 }}", "1 1000 0.5"),
        ("{{ (((1))) }}", "1"),
        ("{{ $x := 1 }}{{ $x = 2 }}{{ $x }}", "2"),
    ],
)
def test_what_is_written_is_what_is_read(source: str, text: str) -> None:
    assert render(source + "{{ if .Messages }}{{ end }}", one_user()) == text


@pytest.mark.parametrize(
    "source",
    [
        *("{{", "{{ }}", "{{ . }", "}}{{ end }}", "{{ else }}", "{{ if }}{{ end }}", "{{ if 1 }}", "{{ nosuch }}"),
        *("{{ $x }}", "{{ break }}", "{{ range 1 }}{{ else if 1 }}{{ end }}", "{{ /* c }}", "{{/* c */ x}}", "{{ 1 2"),
        *('{{ "a }}', '{{ "\\q" }}', "{{ '' }}", "{{ 'ab' }}", "{{ 08 }}", "{{ 99999999999999999999 }}", "{{ 1 | 2 }}"),
        *(
            "{{ .A.1 }}",
            "{{ 1.A }}",
            "{{ nil.A }}",
            "{{ (1 }}",
            "{{ 1) }}",
            "{{ a:b }}",
            "{{ $x, $y := . }}",
            "{{ ² }}",
        ),
        *(
            "{{ define }}{{ end }}",
            "{{ if 1 }}{{ define `a` }}{{ end }}{{ end }}",
            "{{ template . }}",
            "{{ template `a` }}",
        ),
        '{{ define "a" }}x{{ end }}{{ define "a" }}y{{ end }}',
    ],
)
def test_what_go_refuses_is_refused(source: str) -> None:
    with pytest.raises(TemplateRefused):
        render(source, one_user())


@pytest.mark.parametrize("source", ["{{ 1+2i }}", "{{ 0x1p-2 }}", "{{ 1i }}", "{{ $ := 1 }}", "{{ print ($x := 1) }}"])
def test_what_nobody_writes_is_given_up(source: str) -> None:
    with pytest.raises(RenderError) as caught:
        render(source, one_user())
    assert not isinstance(caught.value, TemplateRefused)


def test_nesting_ends_at_its_limit() -> None:
    deep = MAX_NESTING - 1
    parse("{{ if 1 }}" * deep + "{{ end }}" * deep, NAMES)
    for source in (
        "{{ if 1 }}" * 200 + "{{ end }}" * 200,
        "{{ " + "(" * 200 + "1" + ")" * 200 + " }}",
        "{{ if 0 }}" + "{{ else if 0 }}" * 200 + "{{ end }}",
    ):
        with pytest.raises(RenderError, match="too deeply"):
            parse(source, NAMES)


def test_an_empty_definition_may_be_filled_later() -> None:
    definitions = parse('{{ define "a" }} {{ end }}{{ define "a" }}x{{ end }}{{ define "a" }}{{ end }}', NAMES)
    assert definitions["a"] == (nodes.Text("x"),)


@pytest.mark.slow
@given(st.integers(-(2**63), 2**63 - 1))
def test_an_int_literal_is_its_value(value: int) -> None:
    assert number(str(value)) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_quoted_text_is_that_text(text: str) -> None:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert unquote(f'"{escaped}"') == text
