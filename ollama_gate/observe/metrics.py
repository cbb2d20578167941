"""The Prometheus metrics, in a registry of the gate's own.

Label values come from closed sets, but for `model`: canonical names that Ollama knows, or "other" past a bound, so that
a hostile client cannot make the registry grow.
"""

from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from ollama_gate.observe.instruments import Counter, Gauge, Histogram

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_MOST_MODELS: Final = 200
_TOKENS: Final = (64, 256, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
_SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_COUNT_SECONDS: Final = (0.00005, 0.0002, 0.001, 0.005, 0.02, 0.1, 0.5, 2, 10)
_DRIFT: Final = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.99999, 1.00001, 1.001, 1.01, 1.02, 1.05, 1.1, 1.25, 2, 4)


class Metrics:
    """Every metric of one gate."""

    def __init__(self) -> None:
        """Make an own registry, so that gates in one process do not share counts."""
        registry = self.registry = CollectorRegistry()
        prefix = "ollama_gate_"
        self.requests = Counter(
            prefix + "requests",
            "Inference requests by what became of them.",
            ["route", "model", "verdict"],
            registry=registry,
        )
        self.passed = Counter(
            prefix + "passthrough_requests", "Requests passed through untouched.", ["status"], registry=registry
        )
        self.refusals = Counter(
            prefix + "refusals", "Answers of the gate's own instead of Ollama's.", ["route", "code"], registry=registry
        )
        self.denied = Counter(
            prefix + "denied", "Requests that were not let in, by code: without key, right or quota.", ["code"],
            registry=registry,
        )  # fmt: skip
        self.prompt_tokens = Histogram(
            prefix + "prompt_tokens", "Prompt tokens of finished requests, as Ollama reported them.", ["model"],
            buckets=_TOKENS, registry=registry,
        )  # fmt: skip
        self.count_seconds = Histogram(
            prefix + "count_seconds", "Time to count a prompt.", ["rung"], buckets=_COUNT_SECONDS, registry=registry
        )
        self.first_byte_seconds = Histogram(
            prefix + "first_byte_seconds", "From the request's last byte to the answer's first.", ["route"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.relayed = Counter(
            prefix + "output_tokens", "Tokens of answers that went through.", ["model"], registry=registry
        )
        self.drift_ratio = Histogram(
            prefix + "drift_ratio", "Our prompt count divided by Ollama's.", ["model", "rung"],
            buckets=_DRIFT, registry=registry,
        )  # fmt: skip
        self.drift = Counter(
            prefix + "drift",
            "Finished requests by how our count compares with Ollama's: exact, off, held, broken (a bound), no-sample.",
            ["model", "kind"], registry=registry,
        )  # fmt: skip
        self.endings = Counter(
            prefix + "endings", "Answers by why they ended: stop, limit (asked length), window (full), other.",
            ["model", "ending"], registry=registry,
        )  # fmt: skip
        self.upstream_errors = Counter(
            prefix + "upstream_errors", "Failures between the gate and Ollama.", ["kind"], registry=registry
        )
        self.signals = Counter(
            prefix + "signals", "Requests whose conversation showed a symptom of a full or broken context, by which.",
            ["model", "signal"], registry=registry,
        )  # fmt: skip
        self.ollama_log = Counter(
            prefix + "ollama_log",
            "Lines of Ollama's own log that say something, by what.",
            ["event"],
            registry=registry,
        )
        self.client_gone = Counter(
            prefix + "client_gone",
            "Clients that left before their answer was whole, by phase.",
            ["phase"],
            registry=registry,
        )
        self.reloads_avoided = Counter(
            prefix + "reloads_avoided", "Requests whose own options would have made Ollama load the model again.",
            ["model"], registry=registry,
        )  # fmt: skip
        self.clamped = Counter(
            prefix + "output_clamped", "Requests whose asked output length was clamped to the room left.", ["model"],
            registry=registry,
        )  # fmt: skip
        self.demotions = Counter(
            prefix + "count_demotions", "Models whose count turned out not to be exact.", ["model"], registry=registry
        )
        self.compactions = Counter(
            prefix + "compactions",
            "Attempts to compact a conversation: new, reused (checkpoint), or why not: does_not_fit, deadline, ...",
            ["model", "outcome"], registry=registry,
        )  # fmt: skip
        self.compaction_seconds = Histogram(
            prefix + "compaction_seconds", "Time that attempts to compact took.", ["outcome"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.compaction_saved = Counter(
            prefix + "compaction_saved_tokens", "Prompt tokens that compaction left out.", ["model"], registry=registry
        )
        self.alerts = Counter(
            prefix + "alerts",
            "What the guard found when it compared the ledger with /api/ps.",
            ["kind"],
            registry=registry,
        )
        self.wait_seconds = Histogram(
            prefix + "wait_seconds", "Time that requests waited for a slot or for memory.", ["model"],
            buckets=_SECONDS, registry=registry,
        )  # fmt: skip
        self.slots = Gauge(
            prefix + "slots", "Places of each model that was asked for: requests that may run at once.", ["model"],
            registry=registry,
        )  # fmt: skip
        self.slots_running = Gauge(prefix + "slots_running", "Requests that hold a slot.", ["model"], registry=registry)
        self.slots_waiting = Gauge(
            prefix + "slots_waiting", "Requests that wait for a slot or for memory.", ["model"], registry=registry
        )
        self.oldest_wait_seconds = Gauge(
            prefix + "oldest_wait_seconds", "How long the one has waited that waits longest; 0 when nobody does.",
            ["model"], registry=registry,
        )  # fmt: skip
        self.memory_booked_bytes = Gauge(
            prefix + "memory_booked_bytes", "Memory booked for each model that is loaded, or is being loaded.",
            ["model"], registry=registry,
        )  # fmt: skip
        self.memory_limit_bytes = Gauge(
            prefix + "memory_limit_bytes", "The limit of all models together; +Inf without one.", registry=registry
        )
        self.archive_messages = Counter(
            prefix + "archive_messages", "Messages of compacted conversations that were kept: new, or known already.",
            ["kind"], registry=registry,
        )  # fmt: skip
        self.archive_failures = Counter(
            prefix + "archive_failures", "What the archive could not do: keep, read, checkpoint, purge.", ["what"],
            registry=registry,
        )  # fmt: skip
        self.archive_purged = Counter(prefix + "archive_purged_messages", "Messages purged.", registry=registry)
        self.archive_stored_bytes = Gauge(
            prefix + "archive_stored_bytes", "What the archive holds, compressed, when it was looked at last.",
            registry=registry,
        )  # fmt: skip
        self.in_flight = Gauge(prefix + "in_flight", "Inference requests under way.", registry=registry)
        self.upstream_up = Gauge(prefix + "upstream_up", "1 when Ollama answered last, else 0.", registry=registry)
        self._models: set[str] = set()

    def model(self, key: str | None) -> str:
        """The label of a model; "unknown" for none, "other" when there are too many."""
        if key is None:
            return "unknown"
        if key not in self._models:
            if len(self._models) >= _MOST_MODELS:
                return "other"
            self._models.add(key)
        return key

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
