"""HTTPS: what is spoken, and certificates that change while the gate runs."""

import asyncio
import shutil
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ollama_gate.access.tls import Certificate
from ollama_gate.config.loading import load
from ollama_gate.config.problems import InvalidConfig
from ollama_gate.errors import ConfigError
from support.gate import config_for, running_gate

DATA = Path(__file__).parents[1] / "data" / "tls"
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[str], dict[str, str]]:
    """Puts one of the two certificates where the gate looks."""

    def put(name: str, key: str | None = None) -> dict[str, str]:
        for kind, source in (("crt", name), ("key", key or name)):
            fresh = tmp_path / f"new.{kind}"
            shutil.copy(DATA / f"{source}.{kind}", fresh)
            fresh.replace(tmp_path / f"gate.{kind}")
        return {"tls_cert": str(tmp_path / "gate.crt"), "tls_key": str(tmp_path / "gate.key")}

    return put


async def served(address: tuple[str, int], **how: Any) -> tuple[str, str, bytes]:
    """Common name of the certificate that is served, the version of TLS, and the answer to a request."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(DATA / "one.crt")
    context.load_verify_locations(DATA / "two.crt")
    for name, value in how.items():
        setattr(context, name, value)
    reader, writer = await asyncio.open_connection(*address, ssl=context)
    try:
        writer.write(b"GET /gate/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        tls = writer.get_extra_info("ssl_object")
        subject = dict(pair[0] for pair in tls.getpeercert()["subject"])
        return subject["commonName"], tls.version(), answer
    finally:
        writer.close()


async def test_https_is_served_and_nothing_older_than_tls_1_2(pair: Callable[..., dict[str, str]]) -> None:
    async with running_gate(NOWHERE, server=pair("one")) as gate:
        name, version, answer = await served(gate.address)
        assert (name, version) == ("one.test", "TLSv1.3")
        assert answer.startswith(b"HTTP/1.1 200")
        assert (await served(gate.address, maximum_version=ssl.TLSVersion.TLSv1_2))[1] == "TLSv1.2"
        context = gate.entrance._certificate.context  # type: ignore[union-attr]  # there is one
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert all("ECDHE" in row["name"] or row["name"].startswith("TLS_") for row in context.get_ciphers())


async def test_a_new_certificate_is_taken_up_and_a_bad_one_is_not(pair: Callable[..., dict[str, str]]) -> None:
    files = pair("one")
    async with running_gate(NOWHERE, server=files) as gate:
        pair("two")
        gate.entrance.look()
        assert (await served(gate.address))[0] == "two.test"
        pair("one", key="two")
        gate.entrance.look()
        assert (await served(gate.address))[0] == "two.test"
        Path(files["tls_cert"]).unlink()
        gate.entrance.look()
        assert (await served(gate.address))[0] == "two.test"
        pair("one")
        gate.entrance.look()
        assert (await served(gate.address))[0] == "one.test"


async def test_sighup_takes_another_file_up(pair: Callable[..., dict[str, str]]) -> None:
    async with running_gate(NOWHERE, server=pair("one")) as gate:
        other = {"tls_cert": str(DATA / "two.crt"), "tls_key": str(DATA / "two.key")}
        assert await gate.reload(lambda: config_for(NOWHERE, server=other))
        assert (await served(gate.address))[0] == "two.test"
        bad = {"tls_cert": str(DATA / "two.crt"), "tls_key": str(DATA / "one.key")}
        assert not await gate.reload(lambda: config_for(NOWHERE, server=bad))
        assert (await served(gate.address))[0] == "two.test"


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    for chain, key in ((tmp_path / "none", None), (DATA / "one.crt", DATA / "two.key"), (DATA / "one.crt", None)):
        with pytest.raises(ConfigError, match=r"server\.tls_cert"):
            Certificate(chain, key)


def test_a_chain_and_its_key_may_share_a_file(tmp_path: Path) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes((DATA / "one.crt").read_bytes() + (DATA / "one.key").read_bytes())
    assert not Certificate(both, None).refresh()


def test_a_key_alone_is_a_mistake(tmp_path: Path) -> None:
    file = tmp_path / "gate.toml"
    file.write_text("[server]\ntls_key = 'a.key'\n")
    with pytest.raises(InvalidConfig, match=r"tls_key.*without tls_cert"):
        load(file, {})
