"""Model names: one key for every spelling of one model.

The rules are Ollama's own (v0.33): `internal/modelref/modelref.go:ParseRef` takes off a `:cloud`, `-cloud` or `:local`
suffix, `types/model/name.go:ParseNameBare` cuts the rest into parts, and `isValidPart` says which parts are allowed. A
valid part holds letters, digits, `_`, `-` and `.` only (a host may hold `:`) and starts with a letter, a digit or `_`,
so a canonical name has no `..` and no empty part. Still, files are named after digests, never after models.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from ollama_gate.errors import Refusal, Refused

DEFAULT_HOST = "registry.ollama.ai"
DEFAULT_NAMESPACE = "library"
DEFAULT_TAG = "latest"

_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,349}", re.ASCII)
_NAMESPACE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}", re.ASCII)
_MODEL = _TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}", re.ASCII)

_LONGEST = 2048
"""Characters. A valid name has at most 350 + 3 x 80 and a few separators; longer input is not worth looking at."""

_GO_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""What Go's `strings.TrimSpace` removes; Python's `str.strip()` would also remove U+001C to U+001F."""


class InvalidName(Refused):
    """The text is not a model name that Ollama accepts (it answers 400 `invalid model name`)."""

    def __init__(self, why: str) -> None:
        """Say why, to people."""
        super().__init__(Refusal(400, "invalid_model_name", why, param="model"))


class Source(StrEnum):
    """Where a name says that its model runs."""

    UNSPECIFIED = "unspecified"
    LOCAL = "local"
    CLOUD = "cloud"


@dataclass(frozen=True, slots=True)
class ModelName:
    """A model name with every part present and valid, in the letter case it was spelled in."""

    host: str
    namespace: str
    model: str
    tag: str
    source: Source = Source.UNSPECIFIED

    @property
    def canonical(self) -> str:
        """The key for everything that is kept by model, e.g. `registry.ollama.ai/library/llama3.2:latest`.

        Lower case, because Ollama matches names against installed ones without regard to it
        (`server/routes.go:getExistingName`).
        """
        return f"{self.host}/{self.namespace}/{self.model}:{self.tag}".lower()

    @property
    def display(self) -> str:
        """The shortest name with its tag, as `/api/tags` and `/api/ps` show it (`name.go:DisplayShortest`)."""
        if self.host.lower() != DEFAULT_HOST:
            return f"{self.host}/{self.namespace}/{self.model}:{self.tag}"
        if self.namespace.lower() != DEFAULT_NAMESPACE:
            return f"{self.namespace}/{self.model}:{self.tag}"
        return f"{self.model}:{self.tag}"


def parse(name: str) -> ModelName:
    """Cut a model name into its parts and fill in Ollama's defaults.

    A cloud name keeps its suffix in the tag, in the one spelling under which Ollama installs it
    (`modelref.go:NormalizePullName`): `gpt-oss:20b:cloud` and `gpt-oss:20b-cloud` are both tag `20b-cloud`, and
    `qwen3:cloud` is tag `cloud`. So a cloud model never shares a key with the local one of the same name.

    Raises:
        InvalidName: a part is missing, too long or holds a character that is not allowed, or there are two suffixes.
    """
    if len(name) > _LONGEST:
        raise InvalidName(f"invalid model name: {len(name)} characters long")
    text = name.strip(_GO_SPACE)
    if not text:
        raise InvalidName("invalid model name: it is empty")
    base, source = _cut_source(text)
    if source is not Source.UNSPECIFIED and _cut_source(base)[1] is not Source.UNSPECIFIED:
        raise InvalidName(f"use either :local or :cloud, not both: {name!r}")
    parsed = _cut_parts(base, source)
    valid = (
        _HOST.fullmatch(parsed.host)
        and _NAMESPACE.fullmatch(parsed.namespace)
        and _MODEL.fullmatch(parsed.model)
        and _TAG.fullmatch(parsed.tag)
    )
    if not valid:
        raise InvalidName(f"invalid model name: {name!r}")
    return parsed


def canonical(name: str) -> str:
    """The one key of a model, e.g. `registry.ollama.ai/library/llama3.2:latest` for `Llama3.2`.

    Raises:
        InvalidName: see `parse`.
    """
    return parse(name).canonical


def display(name: str) -> str:
    """The shortest name with its tag, e.g. `llama3.2:latest` for `registry.ollama.ai/library/llama3.2`.

    Raises:
        InvalidName: see `parse`.
    """
    return parse(name).display


def is_valid(name: object) -> bool:
    """Whether Ollama would accept this as a model name; anything but text is not one."""
    if not isinstance(name, str):
        return False
    try:
        parse(name)
    except InvalidName:
        return False
    return True


def is_cloud(name: str) -> bool:
    """Whether the name itself asks for a cloud model (`modelref.go:HasExplicitCloudSource`).

    A local stub with a plain name may point to a remote model too; that is only known from `/api/show`.
    """
    try:
        return parse(name).source is Source.CLOUD
    except InvalidName:
        return False


def _cut_source(text: str) -> tuple[str, Source]:
    """Take a `:cloud`, `-cloud` or `:local` suffix off (`modelref.go:parseSourceSuffix`)."""
    base, colon, raw = text.rpartition(":")
    if not colon:
        return text, Source.UNSPECIFIED
    suffix = raw.strip(_GO_SPACE)
    match suffix.lower():
        case "cloud":
            return base, Source.CLOUD
        case "local":
            return base, Source.LOCAL
        case lowered if lowered.endswith("-cloud") and "/" not in suffix:
            return f"{base}:{suffix[: -len('-cloud')]}", Source.CLOUD
    return text, Source.UNSPECIFIED


def _cut_parts(base: str, source: Source) -> ModelName:
    """Split at the last separators (`name.go:ParseNameBare`); a part that is promised but missing stays empty."""
    rest, tag = base, None
    if base.rfind(":") > base.rfind("/"):
        rest, _, tag = base.rpartition(":")
    if source is Source.CLOUD:
        tag = "cloud" if tag is None else f"{tag}-cloud" if tag else tag
    rest, slash, model = rest.rpartition("/")
    host, namespace = DEFAULT_HOST, DEFAULT_NAMESPACE
    if slash:
        rest, slash, namespace = rest.rpartition("/")
        if slash:
            scheme, found, after = rest.partition("://")
            # Ollama fills in the default host for "https:///x/y", as for no host at all.
            host = (after if found else scheme) or (DEFAULT_HOST if found else "")
    return ModelName(host, namespace, model, DEFAULT_TAG if tag is None else tag, source)
