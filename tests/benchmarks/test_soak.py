"""The soak: its arithmetic, and a short one of a real gate."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import Turns
from bench.soak import streams
from bench.soak.judging import Finding, Sample, at_most, episodes, fine, lateness, own, slope, turns
from bench.soak.steps import CHATS, EMBEDDER, LONG, MODELS, SLOW, Leave, next_step
from bench.soak.stops import Stop, watch
from bench.soak.streams import Lateness

ROOT = Path(__file__).parents[2]


def test_growth_is_the_slope_of_the_line_that_fits_best() -> None:
    assert slope([]) == slope([Sample(1.0, 5, 0)]) == slope([Sample(1.0, 5, 0), Sample(1.0, 9, 0)]) == 0.0
    assert slope([Sample(float(at), 1000 + 7 * at, 0) for at in range(50)]) == pytest.approx(7)
    saw = [Sample(float(at), 1000 + (at % 2) * 400, 0) for at in range(101)]
    assert abs(slope(saw)) < 0.1


def test_a_bound_that_is_passed_is_no_success() -> None:
    assert at_most("x", 3, 2).holds is False
    assert at_most("x", 2, 2).holds is True
    assert at_most("x", 3, None).holds is None
    assert fine([at_most("x", 1, 2), Finding("y", "z")])
    assert not fine([at_most("x", 1, 2), at_most("x", 3, 2)])


def test_how_quiet_the_machine_was_is_told() -> None:
    spent = Turns(9.0, 3.5) - Turns(3.0, 0.5)
    [row] = turns({"gate": spent}, 12.0)
    assert (row.title, row.value, row.holds) == (
        "gate: its loop ran, and waited for its core",
        "50, 25 % of the time",
        None,
    )
    assert Turns.of(os.getpid()).ran > 0
    assert Turns.of(2**30) == Turns(0.0, 0.0)


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this Linux does not group by session")
def test_what_is_started_is_as_nice_as_who_starts_it() -> None:
    code = (
        "import os, sys; print(os.nice(2), flush=True); from bench import processes; from pathlib import Path\n"
        "with processes.running(['sleep', '30'], core=None, output=sys.stdout) as child:\n"
        "    print(Path(f'/proc/{child.pid}/autogroup').read_text())"
    )
    told = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    own, *_, group = told.stdout.split()
    assert group == own


def test_lateness_is_read_from_the_time_that_ollama_wrote() -> None:
    seen = Lateness()
    line = b'{"model":"m","created_at":"2026-11-30T08:20:39.9123456Z","message":{}}\n'
    written = 1796026839.9123456
    seen.see(line, written + 0.25)
    seen.see(line.replace(b".9123456Z", b"Z"), written)
    seen.see(b'{"error":"x"}\n', written)
    seen.see(line, written + 0.05)
    assert seen.tokens == 3
    assert seen.latest == pytest.approx(0.05, abs=1e-5)
    assert [took for took, _ in sorted(seen.late)] == pytest.approx([0.25, 0.9123456], abs=1e-5)
    assert min(seen.late)[1] == pytest.approx(written, abs=1e-5)


def test_the_latest_tokens_are_kept_and_the_others_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_MOST", 3)
    seen = Lateness()
    line = b'{"created_at":"2026-11-30T08:20:39Z"}\n'
    for took in (0.5, 9.0, 0.2, 3.0, 0.3, 7.0):
        seen.see(line, 1796026839.0 + took)
    assert sorted(took for took, _ in seen.late) == [3.0, 7.0, 9.0]
    assert (seen.tokens, seen.more) == (6, 3)
    rows = lateness(seen, [(1796026838.0, 1796026850.0, 12.0)], 0.1, 0.0)
    assert (rows[0].holds, rows[1].value) == (False, "3, 6"), "nobody knows what the machine has in the others"


def test_a_machine_that_stands_still_and_a_clock_that_is_set_are_seen() -> None:
    wall = [0.0, 0.005, 0.055, 0.11, 0.115, 31.0, 31.005, 91.01, 31.2, 31.205]
    boot = [7.0, 7.005, 7.055, 7.11, 7.115, 38.0, 38.005, 38.01, 38.015, 38.5]
    looks = iter(zip(wall, boot, strict=True))
    slept: list[float] = []
    seen = watch(lambda: len(slept) < len(wall) - 1, lambda: next(looks), slept.append)
    assert [stop[:2] for stop in seen] == [
        (0.055, 0.11),
        (0.115, 31.0),
        (31.005, 91.01),
        (91.01, 31.2),
        (31.2, 31.205),
    ]
    assert [stop[2] for stop in seen] == pytest.approx([0.055, 30.885, 0.005, 0.005, 0.485])
    rows = lateness(Lateness(), seen, None, 0.0)
    assert [row.value for row in rows[2:]] == ["3, 30885 ms", "3"]
    other = [(begin + 0.004, end + 0.003, took) for begin, end, took in seen]
    rows = lateness(Lateness(), [*seen, *other], None, 0.0)
    assert [row.value for row in rows[2:]] == ["3, 30885 ms", "3"], "what both cores see happened once"


@pytest.mark.parametrize(
    ("stops", "left"),
    [
        ([], 10.0),
        ([(90.0, 120.0), (105.0, 112.0)], 0.0),
        ([(105.0, 108.0)], 7.0),
        ([(108.0, 105.0)], 10.0),
        ([(105.0, 108.0), (106.0, 109.0), (90.0, 101.0), (109.5, 200.0), (50.0, 60.0), (300.0, 301.0)], 4.5),
    ],
)
def test_what_the_machine_stood_still_is_not_the_gates(stops: list[tuple[float, float]], left: float) -> None:
    assert own((10.0, 100.0), [(begin, end, end - begin) for begin, end in stops]) == pytest.approx(left)


def test_late_tokens_are_told_by_when_they_came() -> None:
    late = [(0.2, 150.0), (32.0, 101.0), (0.5, 132.9), (0.3, 134.3), (0.15, 150.9)]
    stops: list[Stop] = [(101.02, 132.98, 31.96), (150.85, 151.0, 0.15)]
    first, second = episodes(late, stops)
    assert (first.at, first.tokens, first.worst, first.above) == (101.0, 3, 32.0, 2)
    assert first.own == pytest.approx(0.42)
    assert (second.at, second.tokens, second.worst, second.above) == (150.0, 2, 0.2, 1)
    assert episodes([], stops) == []


def test_only_what_is_the_gates_is_judged() -> None:
    seen = Lateness(2000, 0.04, [(0.2, 150.0), (32.0, 101.0)])
    stops: list[Stop] = [(101.02, 132.95, 31.93)]
    judged, counted, stood, sets, *told = lateness(seen, stops, 0.1, 100.0)
    assert (judged.value, judged.bound, judged.holds) == ("200 ms", "≤ 100 ms", False)
    assert (counted.value, stood.value, sets.value) == ("1, 2", "1, 31930 ms", "0")
    assert [row.value for row in told] == [
        "tokens late at 1.0 s: 1, the worst 32000 ms; without the machine's stops 0, the worst 70 ms",
        "tokens late at 50.0 s: 1, the worst 200 ms; without the machine's stops 1, the worst 200 ms",
    ]
    assert {row.title for row in told} == {"told"}
    assert lateness(Lateness(2000, 0.04, seen.late[1:]), stops, 0.1, 100.0)[0].holds is True
    assert lateness(Lateness(2000, 0.04), [], 0.1, 100.0)[0].value.startswith("40")
    assert lateness(seen, stops, None, 100.0)[0].holds is None


def test_clients_do_everything_that_is_to_be_tried() -> None:
    rng = random.Random(1)
    seen = [next_step(rng) for _ in range(4000)]
    assert {step.leave for step in seen} == set(Leave)
    assert {step.path for step in seen} >= {
        "/api/chat", "/api/generate", "/api/embed", "/v1/chat/completions", "/v1/completions", "/v1/responses",
        "/v1/messages", "/v1/embeddings", "/api/tags", "/api/show", "/api/ps", "/gate/count", "/gate/status",
    }  # fmt: skip
    assert any(step.name == "compacted" for step in seen)
    assert any(200 not in step.statuses for step in seen)
    assert {str(model["name"]) for model in MODELS} == {*CHATS, SLOW, LONG, EMBEDDER}


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_short_soak_leaves_nothing_behind() -> None:
    """An hour of it is `scripts/soak`; how late tokens are says nothing on a machine that runs tests."""
    # Without PYTHONPATH the gate that is installed is the one that is loaded.
    load = ("--seconds", "40", "--clients", "100", "--streams", "40", "--late", "0")
    command = [sys.executable, "-m", "bench.soak", *load]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
