"""Checkpoints in memory are bounded."""

from ollama_gate.compaction.originals import Checkpoint, Checkpoints
from ollama_gate.compaction.remembered import RememberedCheckpoints


def checkpoint(size: int = 0) -> Checkpoint:
    return Checkpoint((), 0, b"x" * size, "")


async def test_the_last_one_of_a_conversation_with_a_model_is_found() -> None:
    held: Checkpoints = RememberedCheckpoints()
    first, second = checkpoint(1), checkpoint(2)
    await held.keep_checkpoint("c", "m", first)
    await held.keep_checkpoint("c", "m", second)
    assert await held.latest_checkpoint("c", "m") is second
    assert await held.latest_checkpoint("c", "other") is None
    assert await held.latest_checkpoint("d", "m") is None


async def test_the_one_that_was_not_used_for_longest_goes_first() -> None:
    held = RememberedCheckpoints(most=2)
    for name in "ab":
        await held.keep_checkpoint(name, "m", checkpoint())
    await held.latest_checkpoint("a", "m")
    await held.keep_checkpoint("c", "m", checkpoint())
    assert [await held.latest_checkpoint(name, "m") is not None for name in "abc"] == [True, False, True]


async def test_bytes_are_bounded_too() -> None:
    held = RememberedCheckpoints(most_bytes=10_000)
    for name in "abcdefgh":
        await held.keep_checkpoint(name, "m", checkpoint(4000))
    assert len(held) == 2
    await held.keep_checkpoint("h", "m", checkpoint(20_000))
    assert await held.latest_checkpoint("h", "m") is None
    assert len(held) == 1
