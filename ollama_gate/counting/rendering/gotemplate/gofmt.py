"""fmt: how values print, by `{{ x }}`, `print`, `println` and `printf`.

Source: Go's `fmt/print.go` and `fmt/format.go` (Go 1.26). Prints that show memory addresses, and combinations of verb,
flag and operand that no chat template uses, raise RenderError.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ollama_gate.counting.rendering.gotemplate.gojson import shortest
from ollama_gate.counting.rendering.gotemplate.limits import MAX_WIDTH, Budget
from ollama_gate.counting.rendering.gotemplate.values import (
    INVALID,
    NIL,
    GoValue,
    Kind,
    Nothing,
    Typed,
    box,
    element,
    sorted_items,
    to_bytes,
    type_of,
)
from ollama_gate.errors import RenderError


def display(value: GoValue, *, names: bool = False, depth: int = 0) -> str:
    """A value by the verb %v, with field names by %+v."""
    if isinstance(value, str):
        return value
    if isinstance(value, Typed):
        return _display_typed(value, names=names, depth=depth)
    if isinstance(value, Nothing):
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    return shortest(value, -4, 6) if isinstance(value, float) else str(value)


def _display_typed(value: Typed, *, names: bool, depth: int) -> str:
    go_type, data = value.type, value.data
    if go_type.text is not None:
        return go_type.text(data)
    kind = go_type.kind
    if kind is Kind.POINTER:
        if data is None:
            return "<nil>"
        if depth == 0 and go_type.inner.kind is Kind.STRUCT and go_type.inner.fields:
            return "&" + display(box(go_type.inner, data), names=names, depth=1)
        raise RenderError("a memory address in the text")
    if kind is Kind.SLICE:
        inner = [display(element(value, i), names=names, depth=depth + 1) for i in range(len(data or ()))]
        return f"[{' '.join(inner)}]"
    if kind is Kind.MAP:
        pairs = [f"{key}:{display(item, names=names, depth=depth + 1)}" for key, item in sorted_items(value)]
        return f"map[{' '.join(pairs)}]"
    if kind is Kind.STRUCT and go_type.fields:
        parts = [
            (f"{field.name}:" if names else "")
            + display(box(field.type, field.read(data)), names=names, depth=depth + 1)
            for field in go_type.fields.values()
        ]
        return "{" + " ".join(parts) + "}"
    raise RenderError(f"the text of a {go_type}")


def sprint(values: Sequence[GoValue], budget: Budget) -> str:
    """`fmt.Sprint`: a blank only between two operands that are not strings."""
    out: list[str] = []
    for i, value in enumerate(values):
        if i and not isinstance(value, str) and not isinstance(values[i - 1], str):
            out.append(" ")
        out.append(_paid_display(value, budget))
    return "".join(out)


def sprintln(values: Sequence[GoValue], budget: Budget) -> str:
    """`fmt.Sprintln`: a blank between any two operands and a newline after the last."""
    return " ".join([_paid_display(value, budget) for value in values]) + "\n"


def _paid_display(value: GoValue, budget: Budget) -> str:
    text = display(value)
    budget.make(1 + len(text))
    return text


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of a format with its flags."""

    letter: str
    flags: str = ""
    width: int | None = None
    precision: int | None = None

    @property
    def plain(self) -> bool:
        """Neither width nor precision."""
        return not self.width and self.precision is None

    def pad(self, text: str, *, number: bool = False) -> str:
        """Fill text to the width, as `fmt/format.go:pad` does, in runes."""
        missing = (self.width or 0) - len(text)
        if missing <= 0:
            return text
        if "-" in self.flags:
            return text + " " * missing
        if "0" not in self.flags:
            return " " * missing + text
        sign = text[:1] if number and text[:1] in {"+", "-", " "} else ""
        return sign + "0" * missing + text[len(sign) :]


_VERB: Final = re.compile(r"%([#0+\- ]*)(\*|[0-9]+)?(?:\.(?=.)(\*|[0-9]*))?(.?)", re.DOTALL)


def sprintf(form: str, operands: Sequence[GoValue], budget: Budget) -> str:
    """`fmt.Sprintf`, misuse included: `%!d(string=x)`, `%!s(MISSING)`, `%!(EXTRA int=1)`."""
    return _Format(form, operands, budget).run()


class _Format:
    """One run of Sprintf."""

    __slots__ = ("budget", "form", "operands", "out", "used")

    def __init__(self, form: str, operands: Sequence[GoValue], budget: Budget) -> None:
        self.form = form
        self.operands = [NIL if operand is INVALID else operand for operand in operands]
        self.budget = budget
        self.out: list[str] = []
        self.used = 0

    def run(self) -> str:
        position = 0
        for match in _VERB.finditer(self.form):
            if match.start() < position:
                continue
            self.out.append(self.form[position : match.start()])
            position = match.end()
            text = self._directive(match)
            self.budget.make(len(text))
            self.out.append(text)
        self.out.append(self.form[position:])
        if self.used < len(self.operands):
            extra = [
                "<nil>" if isinstance(value, Nothing) else f"{type_of(value)}={_paid_display(value, self.budget)}"
                for value in self.operands[self.used :]
            ]
            self.out.append(f"%!(EXTRA {', '.join(extra)})")
        return "".join(self.out)

    def _directive(self, match: re.Match[str]) -> str:
        flags, width, precision, letter = match[1], self._number(match[2], "BADWIDTH"), match[3], match[4]
        if width is not None and width < 0:
            width, flags = -width, "-" + flags
        if "-" in flags:
            flags = flags.replace("0", "")
        places = self._number(precision or "0", "BADPREC") if precision is not None else None
        if places is not None and places < 0:
            self.out.append("%!(BADPREC)")
            places = None
        if letter == "[" or max(width or 0, places or 0) > MAX_WIDTH:
            raise RenderError("a printf verb that is not known here")
        if not letter:
            return "%!(NOVERB)"
        if letter == "%":
            return "%"
        if self.used >= len(self.operands):
            return f"%!{letter}(MISSING)"
        operand = self.operands[self.used]
        self.used += 1
        return format_operand(Verb(letter, flags, width, places), operand)

    def _number(self, text: str | None, bad: str) -> int | None:
        if text != "*":
            return None if text is None else int(text) if len(text) < 10 else MAX_WIDTH + 1
        value = self.operands[self.used] if self.used < len(self.operands) else None
        self.used += value is not None
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_WIDTH:
            return value
        self.out.append(f"%!({bad})")
        return None


def format_operand(verb: Verb, operand: GoValue) -> str:
    """One operand by one verb."""
    if verb.letter == "T":
        return verb.pad("<nil>") if isinstance(operand, Nothing) else _string(verb, repr(type_of(operand)))
    if isinstance(operand, Nothing):
        return verb.pad("<nil>") if verb.letter == "v" else _bad(verb, "<nil>")
    if isinstance(operand, Typed):
        return _typed(verb, operand)
    return _FORMATS[type(operand)](verb, operand)


def _bad(verb: Verb, what: str) -> str:
    if verb.flags or not verb.plain:
        raise RenderError("a printf width on a verb that does not fit")
    return f"%!{verb.letter}({what})"


def _typed(verb: Verb, operand: Typed) -> str:
    if verb.letter in "vsq" and operand.type.text is not None and "#" not in verb.flags:
        return _string(verb, operand.type.text(operand.data))
    if verb.letter in "vs" and verb.plain and "#" not in verb.flags and " " not in verb.flags:
        if verb.letter == "s" and not _all_text(operand):
            raise RenderError("%s of a value that is not text")
        return display(operand, names="+" in verb.flags and verb.letter == "v")
    raise RenderError(f"%{verb.letter} of a {operand.type}")


def _all_text(value: GoValue) -> bool:
    """Whether %s prints a value like %v: everything in it is a string."""
    if not isinstance(value, Typed):
        return isinstance(value, str)
    if value.type.text is not None:
        return True
    if value.type.kind is Kind.SLICE:
        return all(_all_text(element(value, i)) for i in range(len(value.data or ())))
    if value.type.kind is Kind.MAP:
        return all(_all_text(item) for _, item in sorted_items(value))
    if value.type.kind is Kind.STRUCT:
        return all(_all_text(box(field.type, field.read(value.data))) for field in value.type.fields.values())
    return False


def _bool(verb: Verb, value: bool) -> str:  # noqa: FBT001  # the operand
    text = "true" if value else "false"
    return verb.pad(text) if verb.letter in "vt" else _bad(verb, f"bool={text}")


def _int(verb: Verb, value: int) -> str:
    if verb.letter not in "vdxXobcqU":
        return _bad(verb, f"int={value}")
    if verb.letter in "qU" or "#" in verb.flags or verb.precision is not None:
        raise RenderError(f"%{verb.letter} of an int with these flags")
    if verb.letter == "c":
        valid = 0 <= value < 0xD800 or 0xE000 <= value < 0x110000
        return verb.pad(chr(value) if valid else "\ufffd")
    sign = "-" if value < 0 else "+" if "+" in verb.flags and verb.letter != "v" else ""
    sign = sign or (" " if " " in verb.flags else "")
    return verb.pad(sign + format(abs(value), "d" if verb.letter == "v" else verb.letter), number=True)


def _float(verb: Verb, value: float) -> str:
    if verb.letter not in "vbgGxXfFeE":
        return _bad(verb, f"float64={display(value)}")
    if verb.letter in "vg" and verb.precision is None and "#" not in verb.flags:
        text = shortest(value, -4, 6)
    elif verb.letter in "fe" and "#" not in verb.flags:
        text = format(value, f".{6 if verb.precision is None else verb.precision}{verb.letter}")
    else:
        raise RenderError(f"%{verb.letter} of a float with these flags")
    if text[0] != "-" and "+" in verb.flags and verb.letter != "v":
        text = "+" + text
    elif text[0] != "-" and " " in verb.flags:
        text = " " + text
    return verb.pad(text, number=True)


def _string(verb: Verb, text: str) -> str:
    if verb.letter in "svqT" and verb.precision is not None:
        text = text[: verb.precision]
    if verb.letter == "q" or (verb.letter == "v" and "#" in verb.flags):
        if "#" in verb.flags and verb.letter == "q":
            raise RenderError("%#q")
        return verb.pad(go_quote(text, ascii_only="+" in verb.flags and verb.letter == "q"))
    if verb.letter in "svT":
        return verb.pad(text)
    if verb.letter in "xX":
        if verb.precision is not None or " " in verb.flags or "#" in verb.flags:
            raise RenderError("%x of a string with these flags")
        shown = to_bytes(text).hex()
        return verb.pad(shown.upper() if verb.letter == "X" else shown)
    return _bad(verb, f"string={text}")


_FORMATS: Final[dict[type, Callable[..., str]]] = {bool: _bool, int: _int, float: _float, str: _string}

_QUOTED: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


def go_quote(text: str, *, ascii_only: bool = False) -> str:
    """`strconv.Quote`, or `QuoteToASCII`."""
    return '"' + "".join([_QUOTED.get(rune) or _quoted_rune(rune, ascii_only=ascii_only) for rune in text]) + '"'


def _quoted_rune(rune: str, *, ascii_only: bool) -> str:
    code = ord(rune)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if rune.isprintable() and not (ascii_only and code > 0x7E):
        return rune
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
