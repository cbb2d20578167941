"""The gate's own instruments show what prometheus_client's would show."""

from collections.abc import Iterable

import prometheus_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from ollama_gate.observe.instruments import Counter, Gauge, Histogram

BOUNDS = (0.5, 1, 2.5, 10)


def shown(registry: CollectorRegistry) -> set[str]:
    """The text format, without the times of creation that only prometheus_client tells."""
    return {line for line in generate_latest(registry).decode().splitlines() if "_created" not in line}


def fed(values: Iterable[float], labels: Iterable[str]) -> tuple[set[str], set[str]]:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counters = (
        Counter("g_requests", "How many.", ["route"], registry=ours),
        prometheus_client.Counter("g_requests", "How many.", ["route"], registry=theirs),
    )
    histograms = (
        Histogram("g_seconds", "How long.", ["route"], buckets=BOUNDS, registry=ours),
        prometheus_client.Histogram("g_seconds", "How long.", ["route"], buckets=BOUNDS, registry=theirs),
    )
    gauges = (
        Gauge("g_running", "Now.", registry=ours),
        prometheus_client.Gauge("g_running", "Now.", registry=theirs),
    )
    for value, label in zip(values, labels, strict=False):
        for counter in counters:
            counter.labels(label).inc(value)
        for histogram in histograms:
            histogram.labels(label).observe(value)
        for gauge in gauges:
            gauge.inc()
    for gauge in gauges:
        gauge.dec()
    return shown(ours), shown(theirs)


@given(
    st.lists(st.one_of(st.sampled_from([0.0, *BOUNDS]), st.floats(0, 1e6)), max_size=20),
    st.lists(st.sampled_from(["/api/chat", 'odd "label"\n\\', "ü"]), max_size=20),
)
def test_the_text_is_prometheus_clients(values: list[float], labels: list[str]) -> None:
    ours, theirs = fed(values, labels)
    assert ours == theirs


def test_a_gauge_can_be_set() -> None:
    registry = CollectorRegistry()
    Gauge("g_up", "Up.", registry=registry).set(True)
    assert registry.get_sample_value("g_up") == 1.0


def test_a_gauge_shows_what_it_follows_at_the_moment_of_looking() -> None:
    registry = CollectorRegistry()
    lengths = {"a": 1.0}
    gauge = Gauge("g_queue", "Waiting.", ["model"], registry=registry)
    assert registry.get_sample_value("g_queue", {"model": "a"}) is None
    gauge.follow(lambda: [((model,), length) for model, length in lengths.items()])
    assert registry.get_sample_value("g_queue", {"model": "a"}) == 1.0
    lengths |= {"a": 2.0, "b": 5.0}
    assert [registry.get_sample_value("g_queue", {"model": model}) for model in "ab"] == [2.0, 5.0]


def test_a_counter_without_labels_is_there_from_the_start() -> None:
    registry = CollectorRegistry()
    counter = Counter("g_things", "Things.", registry=registry)
    assert registry.get_sample_value("g_things_total") == 0.0
    counter.labels().inc()
    assert registry.get_sample_value("g_things_total") == 1.0


def test_the_number_of_labels_is_fixed() -> None:
    counter = Counter("g_things", "Things.", ["kind"], registry=CollectorRegistry())
    with pytest.raises(ValueError, match="labels"):
        counter.labels("a", "b")
