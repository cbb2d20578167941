"""Whatever happens between gates and their database, each booking counts once everywhere."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from ollama_gate.access.bookings import DAY, SPANS, Bookings, Cell, Entry, Telling, newer
from ollama_gate.access.keys import Key, KeyRing
from ollama_gate.access.quotas import Quotas, Window
from support.keyring import a_key

QUOTA = "tokens_per_day"


class Table:
    """A database as the gates use it: what is written later by its version stays, in whatever order it comes."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, Cell], Entry] = {}
        self.runs: Counter[str] = Counter()

    def write(self, telling: Telling) -> None:
        for entry in telling.entries:
            there = self.rows.get((entry.run, entry.cell))
            if there is None or there.version < entry.version:
                self.rows[entry.run, entry.cell] = entry
        self.runs[telling.run] = max(self.runs[telling.run], telling.version)

    def since(self, asked: Mapping[str, int]) -> list[Entry]:
        return [row for row in self.rows.values() if row.run in asked and row.version > asked[row.run]]


def listens(mine: Bookings, table: Table) -> tuple[Any, ...]:
    versions = dict(table.runs)
    heard = mine.hear(table.since(newer(versions, mine.heard_of)))
    mine.heard(versions)
    return heard


class Gates(RuleBasedStateMachine):
    """Three gates that book, write, read, lose answers and are started again, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Table()
        self.started = 0
        self.gates = [self.fresh() for _ in range(3)]
        self.counted: list[Counter[str]] = [Counter() for _ in range(3)]
        self.lost: Counter[str] = Counter()
        self.booked: Counter[str] = Counter()
        self.under_way: list[Telling] = []

    def fresh(self) -> Bookings:
        self.started += 1
        return Bookings(f"run-{self.started}")

    @rule(gate=st.integers(0, 2), key=st.sampled_from("ab"), slot=st.integers(0, 2), amount=st.integers(1, 9))
    def book(self, gate: int, key: str, slot: int, amount: int) -> None:
        self.gates[gate].add(QUOTA, slot, key, amount)
        self.counted[gate][key] += amount
        self.booked[key] += amount

    @rule(gate=st.integers(0, 2), key=st.sampled_from("ab"), slot=st.integers(0, 2), difference=st.integers(-3, 3))
    def put_right(self, gate: int, key: str, slot: int, difference: int) -> None:
        mine = self.gates[gate]
        if key in mine._own.get((QUOTA, slot), {}):
            mine.amend(QUOTA, slot, key, difference)
            self.counted[gate][key] += difference
            self.booked[key] += difference

    @rule(gate=st.integers(0, 2), ends=st.sampled_from(["well", "badly", "unheard", "late"]))
    def write(self, gate: int, ends: str) -> None:
        telling = self.gates[gate].telling()
        if telling is None or ends == "badly":
            return
        if ends == "late":
            self.under_way.append(telling)
            return
        self.table.write(telling)
        if ends == "well":
            self.gates[gate].told(telling)

    @rule()
    def what_was_late_arrives(self) -> None:
        if self.under_way:
            self.table.write(self.under_way.pop())

    @rule(gate=st.integers(0, 2))
    def read(self, gate: int) -> None:
        for heard in listens(self.gates[gate], self.table):
            self.counted[gate][heard.cell.key] += heard.difference

    @rule(gate=st.integers(0, 2))
    def start_again(self, gate: int) -> None:
        mine = self.gates[gate]
        written = {cell: entry.amount for (run, cell), entry in self.table.rows.items() if run == mine.run}
        for (quota, slot), keys in mine._own.items():
            for key, amount in keys.items():
                self.lost[key] += amount - written.get(Cell(quota, slot, key), 0)
        self.under_way = [telling for telling in self.under_way if telling.run != mine.run]
        self.gates[gate], self.counted[gate] = self.fresh(), Counter()

    def teardown(self) -> None:
        for telling in self.under_way:
            self.table.write(telling)
        for gate in self.gates:
            if (last := gate.telling()) is not None:
                self.table.write(last)
        for number in range(3):
            self.read(number)
        whole = {key: self.booked[key] - self.lost[key] for key in "ab"}
        assert [{key: counted[key] for key in "ab"} for counted in self.counted] == [whole] * 3


Gates.TestCase.settings = settings(stateful_step_count=25)
TestGates = pytest.mark.slow(Gates.TestCase)


def test_what_was_not_known_to_be_written_is_written_again_and_counts_once() -> None:
    one, two, table = Bookings("one"), Bookings("two"), Table()
    one.add(QUOTA, 1, "k", 5)
    first = one.telling()
    assert first is not None
    table.write(first)  # and nobody hears that it was
    one.add(QUOTA, 1, "k", 2)
    again = one.telling()
    assert again is not None
    table.write(again)
    table.write(first)  # comes late
    one.told(again)
    assert one.telling() is None
    assert [heard.difference for heard in listens(two, table)] == [7]
    assert listens(two, table) == ()


def test_what_is_booked_while_it_is_told_is_told_next() -> None:
    one = Bookings("one")
    one.add(QUOTA, 1, "k", 5)
    first = one.telling()
    assert first is not None
    one.add(QUOTA, 1, "k", 1)
    one.told(first)
    second = one.telling()
    assert second is not None
    assert [(entry.amount, entry.version) for entry in second.entries] == [(6, 2)]


def test_what_counts_no_longer_is_forgotten_and_an_outage_does_not_fill_the_memory() -> None:
    one = Bookings("one")
    for second in range(2000):
        for quota, span in SPANS.items():
            one.add(quota, span.number(second), "k", 1)
        one.forget(second)
    telling = one.telling()
    assert telling is not None
    assert len(telling.entries) == 2 * (60 + 120 + 1) + 2 * 4
    one.forget(2000 + DAY * 2)
    assert one.telling() is None
    one.amend(QUOTA, 0, "k", -1)
    assert one.telling() is None


def test_quotas_count_what_others_booked_and_tell_what_was_put_right() -> None:
    _, key = a_key(limits={"tokens_per_minute": 100, "tokens_per_day": 1000, "requests_per_minute": 3})
    table, now = Table(), 1_800_000_000.0
    here, there = Bookings("here"), Bookings("there")
    mine, theirs = Quotas(here), Quotas(there)
    for _ in range(2):
        mine.begin(key, now)
    mine.book(key, 90, now)
    mine.correct(key, -20, now)
    telling = here.telling()
    assert telling is not None
    table.write(telling)
    theirs.hear(listens(there, table), now + 1)
    assert theirs.of(key).requests_minute.used(now + 1) == 2
    assert not theirs.fits(key, 31, now + 1)
    assert theirs.fits(key, 30, now + 1)
    assert theirs.of(key).tokens_day.used(now + 1) == 70
    assert theirs.fits(key, 100, now + 62)


def test_what_has_no_limit_is_not_told() -> None:
    _, key = a_key()
    bookings = Bookings("here")
    quotas = Quotas(bookings)
    quotas.begin(key, 0.0)
    quotas.book(key, 10, 0.0)
    quotas.correct(key, 10, 0.0)
    assert bookings.telling() is None


@given(st.lists(st.tuples(st.integers(-50, 100), st.integers(1, 9)), max_size=30), st.floats(0, 200))
def test_a_window_holds_what_it_hears_in_order_and_nothing_of_it_for_longer_than_its_time(
    heard: list[tuple[int, int]], later: float
) -> None:
    window, now = Window(60.0, 1.0), 20.0
    for number, amount in heard:
        window.hear(amount, number, now)
        numbers = [slot for slot, _ in window._spent]
        assert numbers == sorted(set(numbers))
        assert max(numbers, default=0) <= now
    assert window.used(now) == sum(amount for number, amount in heard if number + 1 > now - 60)
    assert window.used(now + later) == sum(amount for number, amount in heard if min(number, 20) + 1 > now + later - 60)
    assert window.used(now + 62) == 0


def test_a_clock_that_is_put_back_locks_nobody_out() -> None:
    window = Window(60.0, 1.0)
    window.spend(5, 10_000.0)
    assert window.wait(5, 1, 100.0) == 61.0
    assert window.used(162.0) == 0


KEYS = st.lists(st.integers(0, 6), unique=True, max_size=5)


def ring_of(numbers: list[int]) -> KeyRing:
    return KeyRing(tuple(a_key(number=number)[1] for number in numbers))


@given(KEYS, KEYS)
def test_a_key_that_is_gone_is_revoked_and_a_ring_never_becomes_empty(before: list[int], now: list[int]) -> None:
    ring = ring_of(now).after(ring_of(before), 9.0)
    force = {key.id: key.over(10.0) for key in ring.keys}
    assert force == {
        **{key.id: "revoked" for key in ring_of(before).keys},
        **dict.fromkeys((key.id for key in ring_of(now).keys), None),
    }
    assert ring.after(ring, 11.0) == ring
    assert bool(ring) == bool(before or now)


@pytest.mark.parametrize("before", [None, KeyRing()])
def test_the_first_ring_is_taken_as_it_is(before: KeyRing | None) -> None:
    assert ring_of([1, 2]).after(before, 0.0) == ring_of([1, 2])


def test_a_key_that_was_over_stays_as_it_was() -> None:
    old: Key = a_key(revoked=3.0)[1]
    assert KeyRing().after(KeyRing((old,)), 9.0).keys == (old,)
