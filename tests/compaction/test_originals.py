"""Originals and what tells them apart; checkpoints as they are stored."""

import orjson
import pytest

from ollama_gate.compaction.originals import Checkpoint, likeness, message_hash, original_of

CALL = {"id": "call_1", "function": {"index": 0, "name": "read", "arguments": {"path": "a"}}}


def test_the_order_of_keys_changes_nothing() -> None:
    assert message_hash({"role": "user", "content": "x"}) == message_hash({"content": "x", "role": "user"})
    assert message_hash({"role": "user", "content": "x"}) != message_hash({"role": "user", "content": "y"})


def test_an_original_is_found_under_the_hash_of_its_body() -> None:
    message = {"role": "tool", "content": "é", "tool_name": "read"}
    original = original_of(message)
    assert (original.hash, original.role, orjson.loads(original.body)) == (message_hash(message), "tool", message)
    assert len(original.hash) == 64


def test_pictures_are_known_by_their_hash_and_never_kept() -> None:
    one, other = ({"role": "user", "content": "look", "images": [image]} for image in ("aGVsbG8=", "d29ybGQ="))
    assert message_hash(one) != message_hash(other)
    assert b"aGVsbG8=" not in original_of(one).body
    assert original_of({"role": "user", "images": [[1, 2]]}).body.count(b"blake2b:") == 1


def test_ids_and_the_billing_line_do_not_make_a_message_another() -> None:
    assert likeness({"role": "assistant", "tool_calls": [CALL]}) == likeness(
        {"role": "assistant", "tool_calls": [{**CALL, "id": "call_2"}]}
    )
    assert likeness({"role": "tool", "content": "x", "tool_call_id": "1"}) == likeness({"role": "tool", "content": "x"})
    line = "x-anthropic-billing-header: cc_version=2.1.197.{}; cc_entrypoint=cli;\n"
    system = [{"role": "system", "content": line.format(suffix) + "Be careful."} for suffix in ("a1b", "c2d")]
    assert likeness(system[0]) == likeness(system[1])
    assert likeness({"role": "user", "content": "x"}) != likeness({"role": "user", "content": "y"})
    assert message_hash(system[0]) != message_hash(system[1])


@pytest.mark.parametrize("odd", ["\ud800", 2**70])
def test_what_is_no_json_is_refused(odd: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        original_of({"role": "user", "content": odd})


def test_a_checkpoint_comes_back_from_a_store() -> None:
    checkpoint = Checkpoint(("a" * 32, "b" * 32), 1, b'{"keep":[]}', "c" * 32, ("d" * 12, "e" * 12))
    assert Checkpoint.unpack(checkpoint.pack()) == checkpoint


def test_a_checkpoint_of_before_names_were_kept_can_be_used() -> None:
    packed = b'[["%s"],1,"{}","%s"]' % (b"a" * 32, b"c" * 32)
    assert Checkpoint.unpack(packed) == Checkpoint(("a" * 32,), 1, b"{}", "c" * 32)


@pytest.mark.parametrize("packed", [b"", b"{}", b"[1]", b'[[],"x","",""]', b"null", b"[[],1,2]", b'[[],1,"","",5]'])
def test_what_is_no_checkpoint_is_said_to_be_none(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Checkpoint.unpack(packed)
