"""What commands write: JSON for programs, and text that a terminal shows and does not obey."""

import json

import click


def write_json(value: object) -> None:
    """Write a value for programs, on standard output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False))


def visible(text: str) -> str:
    """A text that a terminal shows and does not obey: control characters as their pictures."""
    if text.isprintable():
        return text
    return "".join(char if char in "\n\t" or char.isprintable() else _control(char) for char in text)


def _control(char: str) -> str:
    code = ord(char)
    return chr(0x2400 + code) if code < 0x20 else "␡" if code == 0x7F else f"\\u{code:04x}"
