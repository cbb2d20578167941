"""How vocabularies write spaces and single bytes."""

SPACE = "▁"
"""U+2581, how SentencePiece writes a space."""

BYTE_TEXTS = tuple(f"<0x{byte:02X}>" for byte in range(256))
IMPOSSIBLE_BYTES = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})
"""Bytes that no UTF-8 text holds."""


def _byte_letters() -> tuple[str, ...]:
    """GPT-2's letter for each byte: itself where printable, else the next unused one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(spare)) for byte in range(256))


BYTE_LETTERS = _byte_letters()
LETTER_BYTES = {letter: byte for byte, letter in enumerate(BYTE_LETTERS)}
