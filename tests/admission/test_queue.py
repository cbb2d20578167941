from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.admission.demand import Demand
from ollama_gate.admission.queue import Place, QueuePolicy, SlotQueue, Ticket
from support.unhurried import unhurried


def ticket(client: str = "a", arrived: float = 0.0, priority: int = 0) -> Ticket:
    return Ticket("m", client, Demand.guess(0, 4096), priority=priority, arrived=arrived)


def queue(slots: int = 1, depth: int = 100, deadline: float = 240.0) -> SlotQueue:
    return SlotQueue(slots, QueuePolicy(depth, deadline))


def drain(line: SlotQueue, now: float = 0.0) -> list[Ticket]:
    """Serve one after the other until nobody waits."""
    served = []
    while (head := line.head()) is not None:
        line.start(head, now)
        line.finish(head, now)
        served.append(head)
    return served


def test_clients_take_turns_and_each_keeps_its_own_order() -> None:
    line = queue()
    tickets = [ticket("greedy") for _ in range(4)] + [ticket("small"), ticket("other"), ticket("other")]
    for one in tickets:
        line.enqueue(one)
    greedy, small, other = tickets[:4], tickets[4], tickets[5:]
    assert drain(line) == [greedy[0], small, other[0], greedy[1], other[1], greedy[2], greedy[3]]


def test_a_higher_priority_goes_first_whoever_it_is() -> None:
    line = queue()
    low, lower, high = ticket("a", priority=1), ticket("b", priority=-3), ticket("c", priority=7)
    for one in (lower, low, high):
        line.enqueue(one)
    assert drain(line) == [high, low, lower]


def test_a_cancelled_waiter_vanishes_at_once_and_its_client_loses_no_turn() -> None:
    line = queue()
    first, second, third = ticket("a"), ticket("a"), ticket("b")
    for one in (first, second, third):
        line.enqueue(one)
    line.cancel(first)
    assert (first.place, line.waiting) == (Place.GONE, 2)
    assert drain(line) == [second, third]


def test_slots_are_counted() -> None:
    line = queue(slots=2)
    for one in (running := [ticket(), ticket()]):
        line.start(one, 0.0)
    assert (line.running, line.free) == (2, False)
    line.finish(running[0], 1.0)
    assert (line.running, line.free) == (1, True)
    assert repr(line) == "SlotQueue(1/2 running, 0 waiting)"


def test_the_depth_is_a_bound() -> None:
    line = queue(depth=2)
    line.enqueue(ticket())
    assert not line.full("a")
    line.enqueue(ticket())
    assert line.full("a")


def test_one_place_in_eight_is_kept_for_those_of_whom_nobody_waits() -> None:
    line = queue(depth=16)
    for _ in range(14):
        assert not line.full("busy")
        line.enqueue(ticket("busy", priority=1))
    assert line.full("busy")
    second, third = ticket("b"), ticket("c")
    for other in (second, third):
        assert not line.full(other.client)
        line.enqueue(other)
        assert line.full(other.client), "one each"
    assert line.full("d")
    line.cancel(third)
    assert not line.full("d")


def test_those_past_their_deadline_are_named_oldest_first() -> None:
    line = queue(deadline=10.0)
    old, older, young = ticket("a", arrived=1.0), ticket("b", arrived=0.0), ticket("a", arrived=5.0)
    for one in (older, old, young):
        line.enqueue(one)
    assert list(late_of(line, 9.9)) == []
    assert list(late_of(line, 11.0)) == [older, old]
    assert line.oldest() == 5.0
    assert drain(line) == [young]
    assert line.oldest() is None


def late_of(line: SlotQueue, now: float) -> list[Ticket]:
    late = []
    for one in line.overdue(now):
        line.cancel(one)
        late.append(one)
    return late


def served_in(line: SlotQueue, seconds: float, times: int = 1) -> None:
    for _ in range(times):
        one = ticket()
        line.start(one, 0.0)
        line.finish(one, seconds)


def test_retry_after_is_the_time_until_the_next_slot_when_the_backlog_is_short() -> None:
    line = queue(slots=2)
    served_in(line, 20.0)
    line.enqueue(ticket())
    assert line.retry_after(0.0) == 10


def test_retry_after_is_the_time_until_a_newcomer_would_be_served_in_time_when_the_backlog_is_long() -> None:
    line = queue(depth=100, deadline=240.0)
    served_in(line, 20.0)
    for _ in range(63):
        line.enqueue(ticket())
    assert line.retry_after(0.0) == 64 * 20 - 240


def test_retry_after_learns_and_forgets() -> None:
    line = queue()
    served_in(line, 100.0)
    assert line.retry_after(0.0) == 100
    served_in(line, 2.0, times=30)
    assert line.retry_after(0.0) in {2, 3}


def test_retry_after_sees_that_a_model_is_stuck() -> None:
    line = queue()
    served_in(line, 2.0)
    line.start(ticket(), 0.0)
    assert line.retry_after(1.0) == 2
    assert line.retry_after(90.0) == 90


def test_retry_after_before_anything_ended_is_the_age_of_what_runs() -> None:
    line = queue()
    assert line.retry_after(0.0) == 1
    line.start(ticket(), 0.0)
    assert line.retry_after(7.5) == 8


def test_retry_after_has_an_end() -> None:
    line = queue(depth=10_000)
    served_in(line, 1000.0)
    for _ in range(100):
        line.enqueue(ticket())
    assert line.retry_after(0.0) == 3600


@unhurried
@given(st.lists(st.tuples(st.sampled_from("abcde"), st.booleans()), max_size=60), st.integers(1, 3))
def test_nobody_is_overtaken_twice_by_the_same_client(arrivals: list[tuple[str, bool]], slots: int) -> None:
    line = queue(slots)
    overtaken: dict[Ticket, dict[str, int]] = {}
    fronts: dict[str, list[Ticket]] = defaultdict(list)
    running: list[Ticket] = []

    def serve() -> None:
        while line.free and (head := line.head()) is not None:
            line.start(head, 0.0)
            running.append(head)
            assert head is fronts[head.client].pop(0), "first come, first served within a client"
            for client, waiting in fronts.items():
                if client != head.client and waiting:
                    counts = overtaken.setdefault(waiting[0], defaultdict(int))
                    counts[head.client] += 1
                    assert counts[head.client] <= 1

    for client, ends in arrivals:
        one = ticket(client)
        line.enqueue(one)
        fronts[client].append(one)
        serve()
        if ends and running:
            line.finish(running.pop(0), 0.0)
            serve()
        assert line.running <= slots


@pytest.mark.slow
def test_ten_thousand_waiters_come_and_go_and_leave_nothing_behind() -> None:
    line = queue(depth=10_000)
    waiters = [ticket(f"client-{n % 5000}", priority=n % 3) for n in range(10_000)]
    for one in waiters:
        line.enqueue(one)
    for one in waiters[1::2]:
        line.cancel(one)
    assert line.waiting == 5000
    assert len(drain(line)) == 5000
    assert not line._levels
    assert not line._priorities
