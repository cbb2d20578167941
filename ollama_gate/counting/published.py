"""Tokenizers as they are published: a `tokenizer.json`, or a directory of Hugging Face's.

They are not what the engine does (they normalise, and do not know the control tokens that llama.cpp forces), so their
counts are estimates until Ollama's own numbers have agreed with them. They are used where there is nothing better:
where the operator names one, and for safetensors models, whose vocabulary Ollama does not tell.
"""

import importlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import tokenizers

from ollama_gate.counting.facts import PUBLISHED, TokenizerFacts
from ollama_gate.counting.specials import Specials
from ollama_gate.counting.tokenizer import Tokenizer
from ollama_gate.errors import UnknownVocabulary

_LONGEST: Final = 256 << 20
"""Bytes of a file that is read."""
_PROBE: Final = "a"


class _Fast:
    """The `tokenizers` library on a `tokenizer.json`."""

    cuts_specials = True

    def __init__(self, engine: tokenizers.Tokenizer) -> None:
        self._engine = engine

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(one) for one in self._engine.encode_batch_fast(list(texts), add_special_tokens=False)]

    def ids(self, text: str, *, specials: bool = False) -> list[int]:
        found: list[int] = self._engine.encode_batch_fast([text], add_special_tokens=specials)[0].ids
        return found

    def token(self, number: int) -> str:
        return self._engine.id_to_token(number) or ""


class _Slow:
    """`transformers` on a directory without a `tokenizer.json`."""

    cuts_specials = True

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def counts(self, texts: Sequence[str]) -> list[int]:
        return [len(self.ids(text)) for text in texts]

    def ids(self, text: str, *, specials: bool = False) -> list[int]:
        return list(self._engine.encode(text, add_special_tokens=specials))

    def token(self, number: int) -> str:
        return str(self._engine.convert_ids_to_tokens(number))


def load(path: Path) -> Tokenizer:
    """Load a `tokenizer.json`, or the tokenizer of a directory.

    Raises:
        UnknownVocabulary: there is none that can be loaded; the message says what to do.
    """
    if not path.is_dir():
        return _tokenizer(_fast(path), _settings(path.parent))
    if (path / "tokenizer.json").is_file():
        return _tokenizer(_fast(path / "tokenizer.json"), _settings(path))
    return _tokenizer(_slow(path), _settings(path))


def _fast(path: Path) -> tuple[_Fast, int]:
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST)
    except OSError as error:
        raise UnknownVocabulary(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        engine = tokenizers.Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises plain Exceptions
        raise UnknownVocabulary(f"{path} is no tokenizer.json: {error}") from error
    engine.no_truncation()
    engine.no_padding()
    return _Fast(engine), engine.get_vocab_size(with_added_tokens=True)


def _slow(path: Path) -> tuple[_Slow, int]:
    try:
        transformers = importlib.import_module("transformers")  # an optional extra, and slow to import
    except ImportError as error:
        raise UnknownVocabulary(
            f"{path} holds no tokenizer.json; what it holds takes transformers: pip install 'ollama-gate[transformers]'"
        ) from error
    make: Callable[..., Any] = transformers.AutoTokenizer.from_pretrained
    try:
        engine = make(str(path), local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever a third party's files make it raise
        raise UnknownVocabulary(f"transformers cannot load a tokenizer from {path}: {error}") from error
    return _Slow(engine), len(engine)


def _tokenizer(found: tuple[_Fast | _Slow, int], settings: dict[str, Any]) -> Tokenizer:
    engine, size = found
    bare, dressed = engine.ids(_PROBE), engine.ids(_PROBE, specials=True)
    adds_bos = len(dressed) > len(bare) and dressed[: len(bare)] != bare
    adds_eos = len(dressed) > len(bare) + adds_bos
    facts = TokenizerFacts(
        model=PUBLISHED,
        size=size,
        adds_bos=adds_bos,
        adds_eos=adds_eos,
        bos_text=_text(settings.get("bos_token")) or (engine.token(dressed[0]) if adds_bos else ""),
        eos_text=_text(settings.get("eos_token")) or (engine.token(dressed[-1]) if adds_eos else ""),
        specials=Specials(()),
        tokens_per_byte=0,
        tokens_more=0,
        bytes_per_token=0,
    )
    return Tokenizer(facts, engine)


def _settings(directory: Path) -> dict[str, Any]:
    """`tokenizer_config.json` beside it, where there is one."""
    try:
        found = json.loads((directory / "tokenizer_config.json").read_bytes()[: 4 << 20])
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _text(token: Any) -> str:
    """A special token is a text, or an object that holds one."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else ""
