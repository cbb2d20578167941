"""The Prometheus metrics, in a registry of the gate's own.

Label values come from closed sets, but for `model`: canonical names that Ollama knows, or "other" past a bound, so that
a hostile client cannot make the registry grow.
"""

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from ollama_gate.observe.instruments import Counter, Gauge, Histogram

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
_PREFIX: Final = "ollama_gate_"
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

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(_PREFIX + name, meaning, labels, registry=registry)

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(_PREFIX + name, meaning, labels, registry=registry)

        def histogram(name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
            return Histogram(_PREFIX + name, meaning, labels, buckets=buckets, registry=registry)

        self.requests = counter("requests", "Inference requests by what became of them.", "route", "model", "verdict")
        self.passed = counter("passthrough_requests", "Requests passed through untouched.", "status")
        self.refusals = counter("refusals", "Answers of the gate's own instead of Ollama's.", "route", "code")
        self.denied = counter("denied", "Requests that were not let in, by code: without key, right or quota.", "code")
        self.prompt_tokens = histogram(
            "prompt_tokens", "Prompt tokens of finished requests, as Ollama reported them.", _TOKENS, "model"
        )
        self.count_seconds = histogram("count_seconds", "Time to count a prompt.", _COUNT_SECONDS, "rung")
        self.first_byte_seconds = histogram(
            "first_byte_seconds", "From the request's last byte to the answer's first.", _SECONDS, "route"
        )
        self.relayed = counter("output_tokens", "Tokens of answers that went through.", "model")
        self.drift_ratio = histogram("drift_ratio", "Our prompt count divided by Ollama's.", _DRIFT, "model", "rung")
        self.drift = counter(
            "drift",
            "Finished requests by how our count compares with Ollama's: exact, off, held, broken (a bound), no-sample.",
            "model",
            "kind",
        )
        self.endings = counter(
            "endings", "Answers by why they ended: stop, limit (asked length), window (full), other.", "model", "ending"
        )
        self.upstream_errors = counter("upstream_errors", "Failures between the gate and Ollama.", "kind")
        self.signals = counter(
            "signals",
            "Requests whose conversation showed a symptom of a full or broken context, by which.",
            "model",
            "signal",
        )
        self.ollama_log = counter("ollama_log", "Lines of Ollama's own log that say something, by what.", "event")
        self.client_gone = counter("client_gone", "Clients that left before their answer was whole, by phase.", "phase")
        self.reloads_avoided = counter(
            "reloads_avoided", "Requests whose own options would have made Ollama load the model again.", "model"
        )
        self.clamped = counter(
            "output_clamped", "Requests whose asked output length was clamped to the room left.", "model"
        )
        self.demotions = counter("count_demotions", "Models whose count turned out not to be exact.", "model")
        self.compactions = counter(
            "compactions",
            "Attempts to compact a conversation: new, reused (checkpoint), or why not: does_not_fit, deadline, ...",
            "model",
            "outcome",
        )
        self.compaction_seconds = histogram(
            "compaction_seconds", "Time that attempts to compact took.", _SECONDS, "outcome"
        )
        self.compaction_saved = counter("compaction_saved_tokens", "Prompt tokens that compaction left out.", "model")
        self.alerts = counter("alerts", "What the guard found when it compared the ledger with /api/ps.", "kind")
        self.wait_seconds = histogram(
            "wait_seconds", "Time that requests waited for a slot or for memory.", _SECONDS, "model"
        )
        self.slots = gauge("slots", "Places of each model that was asked for: requests that may run at once.", "model")
        self.slots_running = gauge("slots_running", "Requests that hold a slot.", "model")
        self.slots_waiting = gauge("slots_waiting", "Requests that wait for a slot or for memory.", "model")
        self.oldest_wait_seconds = gauge(
            "oldest_wait_seconds", "How long the one has waited that waits longest; 0 when nobody does.", "model"
        )
        self.memory_booked_bytes = gauge(
            "memory_booked_bytes", "Memory booked for each model that is loaded, or is being loaded.", "model"
        )
        self.memory_booked_part_bytes = gauge(
            "memory_booked_part_bytes",
            "What each booking is made of, by part; `found` is what only /api/ps told.",
            "model",
            "part",
        )
        self.largest_num_ctx = gauge(
            "largest_num_ctx",
            "Largest window with which each model would fit now beside what else is loaded; nothing without a limit.",
            "model",
        )
        self.memory_limit_bytes = gauge("memory_limit_bytes", "The limit of all models together; +Inf without one.")
        self.archive_messages = counter(
            "archive_messages", "Messages of compacted conversations that were kept: new, or known already.", "kind"
        )
        self.archive_failures = counter(
            "archive_failures", "What the archive could not do: keep, read, checkpoint, purge.", "what"
        )
        self.archive_purged = counter("archive_purged_messages", "Messages purged.")
        self.archive_stored_bytes = gauge(
            "archive_stored_bytes", "What the archive holds, compressed, when it was looked at last."
        )
        self.shared_failures = counter("shared_failures", "Times that keys and usage could not be shared.")
        self.shared_behind_seconds = gauge(
            "shared_behind_seconds", "How long nothing was shared with other gates; 0 while it works, or is off."
        )
        self.in_flight = gauge("in_flight", "Inference requests under way.")
        self.upstream_up = gauge("upstream_up", "1 when Ollama answered last, else 0.")
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
