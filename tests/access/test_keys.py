"""What a client shows, what is kept of it, and what it allows."""

import base64
import hashlib
import time
from dataclasses import replace

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.access import keys
from ollama_gate.access.door import Door
from ollama_gate.access.hosts import Hosts
from ollama_gate.access.keys import KeyRing, Right, SharedKeys, credentials
from ollama_gate.access.quotas import Quotas
from ollama_gate.errors import Refused
from support.keyring import a_key

TEXT, KEY = a_key("laptop")
OTHER_TEXT, OTHER = a_key("server")
RING = KeyRing((KEY, OTHER))


def test_a_key_is_found_by_its_text_and_by_nothing_else() -> None:
    assert RING.find(TEXT) is KEY
    assert RING.find(OTHER_TEXT) is OTHER
    head, key_id, secret = TEXT.split("_", 2)
    wrong = "A" * len(secret)
    for text in ("", head, f"{head}_{key_id}", f"{head}_{key_id}_{wrong}", TEXT + "A", TEXT[:-1], TEXT.upper(), KEY.id):
        assert RING.find(text) is None, text
    assert RING.find(f"{head}_{OTHER.id}_{secret}") is None
    assert RING.find(f"{head}_aaaaaaaaaa_{secret}") is None


def test_nothing_that_is_kept_opens_the_gate() -> None:
    assert TEXT not in repr(RING)
    assert TEXT.split("_", 2)[2] not in repr(KEY)
    assert RING.find(f"og_{KEY.id}_{KEY.digest.hex()[:43]}") is None
    assert keys.prefix(KEY) == TEXT[: -keys.SECRET_LENGTH]


def test_a_key_holds_256_random_bits() -> None:
    text, key = keys.minted(KEY, b"an id at random", bytes(range(32)))
    secret = text[-keys.SECRET_LENGTH :]
    assert base64.urlsafe_b64decode(secret + "=") == bytes(range(32))
    assert len(key.digest) == 32
    assert key.digest != hashlib.blake2b(secret.encode(), digest_size=32).digest()  # keyed to its use
    assert key == replace(KEY, id=key.id, digest=key.digest)


@given(st.text(max_size=80))
def test_no_text_makes_it_fail(text: str) -> None:
    assert RING.find(text) is None
    list(credentials({"Authorization": text, "x-api-key": text}))
    KEY.allows(text)
    keys.pattern_fault(text)
    keys.name_fault(text)


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({}, []),
        ({"Authorization": f"Bearer {TEXT}"}, [TEXT]),
        ({"Authorization": f"bearer  {TEXT} "}, [TEXT]),
        ({"Authorization": basic(f"user:{TEXT}")}, [TEXT]),
        ({"Authorization": basic(f":{TEXT}")}, [TEXT]),
        ({"Authorization": basic(TEXT)}, [TEXT]),
        ({"Authorization": basic(f"{TEXT}:")}, [TEXT]),
        ({"Authorization": "Basic %%%"}, [""]),
        ({"Authorization": "Basic é"}, [""]),
        ({"Authorization": "Digest x"}, []),
        ({"Authorization": "Bearer"}, [""]),
        ({"Authorization": "Bearer " + "x" * 2000}, []),
        ({"x-api-key": TEXT}, [TEXT]),
        ({"Authorization": "Bearer ollama", "x-api-key": TEXT}, ["ollama", TEXT]),
    ],
)
def test_a_key_may_come_in_three_ways(headers: dict[str, str], shown: list[str]) -> None:
    assert list(credentials(headers)) == shown


def test_a_key_ends_when_it_is_revoked_or_expired() -> None:
    assert KEY.over(10.0**9) is None
    assert replace(KEY, revoked=5.0).over(6.0) == "revoked"
    assert replace(KEY, expires=5.0).over(4.9) is None
    assert replace(KEY, expires=5.0).over(5.0) == "expired"
    revoked = KeyRing((replace(KEY, revoked=1.0),))
    assert revoked  # a key was made once: the gate stays closed
    assert revoked.named("laptop", 2.0) == []
    assert not KeyRing()


def test_rights() -> None:
    plain, counter, admin = KEY, replace(KEY, counts=True), replace(KEY, admin=True)
    assert [plain.has(right) for right in Right] == [True, True, False, False]
    assert [counter.has(right) for right in Right] == [True, True, True, False]
    assert [admin.has(right) for right in Right] == [True, True, True, True]


@pytest.mark.parametrize(
    ("patterns", "model", "allowed"),
    [
        ((), "anything", True),
        (("qwen3",), "qwen3", True),
        (("qwen3",), "Qwen3:latest", True),
        (("qwen3",), "registry.ollama.ai/library/qwen3", True),
        (("qwen3",), "qwen3:8b", False),
        (("qwen3",), "mylab/qwen3", False),
        (("qwen3*",), "qwen3:8b", True),
        (("qwen3*",), "QWEN3-coder:30b", True),
        (("qwen3*",), "mylab/qwen3:8b", False),
        (("qwen3:?b",), "qwen3:8b", True),
        (("qwen3:?b",), "qwen3:30b", False),
        (("mylab/*",), "mylab/x:1b", True),
        (("mylab/*",), "x:1b", False),
        (("*/mylab/*",), "mylab/x:1b", True),
        (("a", "b*"), "bert", True),
        (("*",), "no name at all", False),
        (("*",), "", False),
        (("qwen3.5",), "qwen3x5", False),
    ],
)
def test_models(patterns: tuple[str, ...], model: str, *, allowed: bool) -> None:
    assert all(keys.pattern_fault(pattern) is None for pattern in patterns)
    assert replace(KEY, models=patterns).allows(model) is allowed


@pytest.mark.parametrize("pattern", ["", "a b", "/x", "a\nb", "é", "[a]", "-x", "x" * 301, "a/b/c/d/e:"])
def test_what_is_no_pattern(pattern: str) -> None:
    assert keys.pattern_fault(pattern)


def test_a_pattern_of_stars_ends() -> None:
    pattern = "*a" * 100
    assert keys.pattern_fault(pattern) is None
    began = time.process_time()
    assert not replace(KEY, models=(pattern,)).allows("a" * 79 + ":b")
    assert time.process_time() - began < 5  # a catastrophe would take years


@pytest.mark.parametrize(
    ("name", "fine"),
    [("a", True), ("CI of mylab", True), ("", False), ("-x", False), ("a\nb", False), ("x" * 65, False)],
)
def test_names(name: str, *, fine: bool) -> None:
    assert (keys.name_fault(name) is None) is fine


@pytest.mark.parametrize(
    ("host", "code"), [("other.example.org", "unknown_host"), ("gate.example.org", "keys_unknown")]
)
def test_while_shared_keys_are_not_known_nobody_gets_in_and_no_foreign_name_does(host: str, code: str) -> None:
    hosts, quotas = Hosts(("gate.example.org",)), Quotas()
    door = Door(
        SharedKeys("x"), hosts, rebindable=True, keyless=True, clock=float, wall=float, quotas=quotas, reread=bool
    )
    asked = make_mocked_request("GET", "/", {"Host": host})
    with pytest.raises(Refused) as no:
        door.admit(asked, Right.USE, "/api/tags", inference=False)
    assert no.value.refusal.code == code
    if code == "unknown_host":
        with pytest.raises(Refused):
            door.admit(asked, Right.NOTHING, "/gate/health", inference=False)
    else:
        assert door.admit(asked, Right.NOTHING, "/gate/health", inference=False) is None
