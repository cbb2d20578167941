"""Template source to tokens, as Go's `text/template/parse/lex.go` (Go 1.26) cuts it."""

import re
from typing import Final, NamedTuple

from ollama_gate.counting.rendering.gotemplate.limits import MAX_TOKENS
from ollama_gate.counting.rendering.gotemplate.values import refuse
from ollama_gate.errors import RenderError

SPACES: Final = " \t\r\n"
"""What a trim marker eats; nothing else is space inside an action."""

KEYWORDS: Final = frozenset(
    {"block", "break", "continue", "define", "else", "end", "if", "range", "nil", "template", "with"}
)


class Token(NamedTuple):
    """One token: its kind and what of its text matters.

    Kinds: text, open, close, space, string, char, variable, dot, field, number, bool, name, other, end of input; the
    punctuation `= := | ( )` and each keyword are kinds of their own.
    """

    kind: str
    text: str = ""


_OPEN: Final = Token("open")
_CLOSE: Final = Token("close")
_SPACE: Final = Token("space")
END: Final = Token("end of input")

_TRIMMED_OPEN: Final = re.compile(r"-(?=[ \t\r\n])")
_CLOSING: Final = re.compile(r"(?:[ \t\r\n]-\}\}[ \t\r\n]*|\}\})")
_STOP: Final = r"(?=[ \t\r\n.,|:)(]|\}\}|\Z)"
_DIGITS: Final = r"[0-9_]*"
_TOKEN: Final = re.compile(
    rf"""
    (?P<close>[ \t\r\n]-\}}\}}[ \t\r\n]*|\}}\}})
    |(?P<space>[ \t\r\n]+?(?=[ \t\r\n]-\}}\}})|[ \t\r\n]+)
    |(?P<field>\.(?![0-9])\w+){_STOP}
    |(?P<dot>\.){_STOP}
    |(?P<number>(?=[+\-0-9]|\.[0-9])(?>[+-]?(?:
        0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?{_DIGITS})?
        |0[oO][0-7_]*(?:\.[0-7_]*)?
        |0[bB][01_]*(?:\.[01_]*)?
        |{_DIGITS}(?:\.{_DIGITS})?(?:[eE][+-]?{_DIGITS})?
    )i?))(?!\w)
    |(?P<word>\w+){_STOP}
    |(?P<variable>\$\w*){_STOP}
    |(?P<string>"(?:[^"\\\n]|\\[^\n])*"|`[^`]*`)
    |(?P<char>'(?:[^'\\\n]|\\[^\n])*')
    |(?P<mark>:=|[=|()])
    |(?P<other>[!-~])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokens(source: str) -> list[Token]:
    """Cut a template into tokens; the last one is END.

    Raises:
        TemplateRefused: Go's lexer finds an error in it.
        RenderError: it has too many tokens, or holds a complex number.
    """
    out: list[Token] = []
    position, end = 0, len(source)
    while (start := source.find("{{", position)) >= 0:
        text = source[position:start]
        position = start + 2
        if _TRIMMED_OPEN.match(source, position):
            text = text.rstrip(SPACES)
            position += 2
        if text:
            out.append(Token("text", text))
        if source.startswith("/*", position):
            position = _comment(source, position)
            continue
        out.append(_OPEN)
        position = _action(source, position, out)
        if len(out) > MAX_TOKENS:
            raise RenderError("the template is too big")
    if position < end:
        out.append(Token("text", source[position:]))
    out.append(END)
    return out


def _comment(source: str, position: int) -> int:
    finish = source.find("*/", position + 2)
    if finish < 0:
        raise refuse("unclosed comment")
    closing = _CLOSING.match(source, finish + 2)
    if closing is None:
        raise refuse("comment ends before closing delimiter")
    return closing.end()


def _action(source: str, position: int, out: list[Token]) -> int:
    """Append the tokens up to and with the closing delimiter; gives where the text goes on."""
    depth = 0
    while len(out) <= MAX_TOKENS:
        match = _TOKEN.match(source, position)
        if match is None:
            raise refuse("unclosed action" if position >= len(source) else f"bad character {source[position]!r}")
        kind, text = match.lastgroup, match[0]
        position = match.end()
        if kind == "space":
            out.append(_SPACE)
        elif kind == "field":
            out.append(Token("field", _identifier(text[1:])))
        elif kind == "word":
            out.append(_word(text))
        elif kind == "close":
            if depth:
                raise refuse("unclosed left paren")
            out.append(_CLOSE)
            break
        elif kind == "mark":
            depth += (text == "(") - (text == ")")
            if depth < 0:
                raise refuse("unexpected right paren")
            out.append(Token(text))
        elif kind == "variable":
            out.append(Token("variable", "$" + _identifier(text[1:])))
        elif kind == "number":
            if source[position : position + 1] in {"+", "-"}:
                raise RenderError("a complex number in the template")
            out.append(Token("number", text))
        else:
            out.append(Token(kind or "", text))
    return position


def _word(text: str) -> Token:
    if text in KEYWORDS:
        return Token(text)
    return Token("bool" if text in {"true", "false"} else "name", _identifier(text))


def _identifier(text: str) -> str:
    """Letters, decimal digits and underscores only: Python's word characters include more."""
    if text.isascii() or all(rune == "_" or rune.isalpha() or rune.isdecimal() for rune in text):
        return text
    raise refuse(f"bad character in {text!r}")
