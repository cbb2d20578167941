"""What `ollama-gate doctor` finds beyond `check`: pure rules over Ollama's environment and this machine."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ollama_gate.cli.answers import mapping, mappings
from ollama_gate.cli.findings import Finding, Level, Seen
from ollama_gate.cli.surroundings import Surroundings
from ollama_gate.config import Config
from ollama_gate.config.units import in_gib

_MIB: Final = 1024**2
_FEW_FILES: Final = 4096
_LOOPBACK: Final = ("127.", "::1", "localhost")


def diagnose(config: Config, seen: Seen, around: Surroundings) -> list[Finding]:
    """Everything worth saying of the surroundings."""
    findings: list[Finding] = []
    if around.environment is None:
        what = "its environment cannot be read, so that nobody knows its num_parallel, cache type and flash attention"
        fix = "run this on Ollama's machine, as root or as the user that Ollama runs as, or name upstream.log"
        findings.append(Finding(Level.NOTE, "Ollama", what, fix))
    else:
        findings += _settings(config, around.environment, around)
        findings += _habits(around.environment)
    findings += _ways_past(around)
    findings += _spills(seen)
    findings += _limits(config, around)
    return findings


def heard(status: Mapping[str, Any]) -> Iterator[Finding]:
    """What a running gate says of itself on /gate/status."""
    for alert in mappings(status, "alerts"):
        level = Level.ERROR if alert.get("level") == "error" else Level.WARNING
        yield Finding(level, str(alert.get("about")), str(alert.get("what")), f"see {alert.get('page')}")
    for model in mappings(status, "models"):
        counts = mapping(model, "counts")
        if counts.get("why") and counts.get("checked"):
            what = f"its counts are not exact: {counts['why']}"
            yield Finding(Level.NOTE, str(model.get("name")), what, "docs/counting.md says what is missing")


def _settings(config: Config, environment: Mapping[str, str], around: Surroundings) -> Iterator[Finding]:
    """Where the gate was told other settings than Ollama has; memory is planned with them."""
    upstream, memory = config.upstream, config.memory
    flash = environment.get("OLLAMA_FLASH_ATTENTION", "")
    told: list[tuple[str, str, object, object]] = [
        ("OLLAMA_NUM_PARALLEL", "upstream.num_parallel", _whole(environment, "OLLAMA_NUM_PARALLEL") or 1,
         upstream.num_parallel),
        ("OLLAMA_KV_CACHE_TYPE", "upstream.kv_cache_type", environment.get("OLLAMA_KV_CACHE_TYPE", "").lower() or "f16",
         upstream.kv_cache_type),
        ("LLAMA_ARG_CTX_CHECKPOINTS", "memory.checkpoints", _whole(environment, "LLAMA_ARG_CTX_CHECKPOINTS"),
         memory.checkpoints),
        ("LLAMA_ARG_SWA_FULL", "upstream.swa_full", _yes(environment.get("LLAMA_ARG_SWA_FULL", "")),
         upstream.swa_full),
    ]  # fmt: skip
    if flash:
        told.append(("OLLAMA_FLASH_ATTENTION", "upstream.flash_attention", _yes(flash), upstream.flash_attention))
    for variable, key, there, here in told:
        if there is not None and there != here:
            told_by = f"{variable} in {around.source}"
            if not environment.get(variable):
                if around.program != "ollama":
                    continue
                told_by = f"Ollama's default: {variable} is not set in {around.source}"
            written = f'"{there}"' if isinstance(there, str) else str(there).lower()
            what = f"is {there} there ({told_by}) and {here} here: memory and slots are planned wrong"
            yield Finding(Level.ERROR, key, what, f"{key.partition('.')[2]} = {written}, or change it for Ollama")
    cache = _whole(environment, "LLAMA_ARG_CACHE_RAM")
    if cache is not None and cache >= 0 and cache * _MIB != memory.host_cache_per_model:
        what = f"LLAMA_ARG_CACHE_RAM is {cache} MiB there ({around.source})"
        yield Finding(Level.WARNING, "memory.host_cache_per_model", what, f'host_cache_per_model = "{cache}MiB"')


def _habits(environment: Mapping[str, str]) -> Iterator[Finding]:
    keep = environment.get("OLLAMA_KEEP_ALIVE", "")
    if keep in {"0", "0s", "0m"}:
        what = "OLLAMA_KEEP_ALIVE=0: every model is unloaded after each answer and loaded again for the next"
        yield Finding(Level.WARNING, "Ollama", what, "leave it out (5 minutes), or name a time")
    if _yes(environment.get("OLLAMA_DEBUG_LOG_REQUESTS", "")):
        what = "OLLAMA_DEBUG_LOG_REQUESTS is on: whole requests are written to disk"
        yield Finding(Level.WARNING, "Ollama", what, "unset it")
    # As Ollama reads it (`envconfig/config.go:LogLevel`, v0.33): true, or a level.
    if environment.get("OLLAMA_DEBUG", "").lower() in {"t", "true"} or (_whole(environment, "OLLAMA_DEBUG") or 0) > 0:
        what = "OLLAMA_DEBUG is on: its log holds parts of prompts"
        yield Finding(Level.NOTE, "Ollama", what, "unset it when nothing is looked for any more")


def _ways_past(around: Surroundings) -> Iterator[Finding]:
    """What talks to Ollama, or could, past the gate."""
    bound = (around.environment or {}).get("OLLAMA_HOST", "")
    host = bound.rpartition("://")[2]
    open_to_all = [one for one in around.listens if not one.startswith(_LOOPBACK)]
    if open_to_all or (not around.listens and host and not host.startswith((*_LOOPBACK, ":", "[::1]"))):
        what = (
            f"listens on {', '.join(open_to_all) or bound}: whoever reaches this machine can talk to it past the gate"
        )
        yield Finding(
            Level.WARNING, "Ollama", what, "OLLAMA_HOST=127.0.0.1:11434 in its unit; let only the gate be seen"
        )
    if around.connected:
        what = f"is connected to past the gate by {', '.join(around.connected[:8])}"
        yield Finding(Level.WARNING, "Ollama", what, "point them at the gate; docs/install.md: close that way")


def _spills(seen: Seen) -> Iterator[Finding]:
    for resident in seen.resident:
        on_host = resident.size - resident.size_vram
        if resident.size_vram and on_host > resident.size // 50:
            what = f"{in_gib(on_host)} of its {in_gib(resident.size)} lie in host memory: it is slow"
            fix = "smaller num_ctx, fewer slots, kv_cache_type = q8_0, a smaller model; see `ollama-gate plan`"
            yield Finding(Level.WARNING, resident.name, what, fix)


def _limits(config: Config, around: Surroundings) -> Iterator[Finding]:
    if around.open_files is not None and around.open_files < _FEW_FILES:
        what = f"may open {around.open_files} files: each stream takes two"
        yield Finding(Level.NOTE, "the gate", what, "LimitNOFILE=65536 in its unit, or `ulimit -n 65536` before it")
    limit = config.memory.limit
    if around.memory_max is not None and isinstance(limit, int) and limit > around.memory_max:
        what = f"is more than the {in_gib(around.memory_max)} that systemd lets Ollama have (MemoryMax)"
        yield Finding(Level.ERROR, "memory.limit", what, "lower it, or raise MemoryMax in Ollama's unit")


def _whole(environment: Mapping[str, str], name: str) -> int | None:
    """A whole number; None where there is none, as Ollama too passes over what it cannot read."""
    text = environment.get(name, "")
    return int(text) if text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() else None


def _yes(text: str) -> bool:
    """As Go reads a boolean; what is none counts as yes (`envconfig/config.go:BoolWithDefault`)."""
    return text.lower() not in {"", "0", "f", "false"}
