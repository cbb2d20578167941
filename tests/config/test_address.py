import pytest
from hypothesis import given
from hypothesis import strategies as st

from ollama_gate.config.address import Address, parse_listen, parse_upstream, upstream_address


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("127.0.0.1:11434", "http://127.0.0.1:11434"),
        ("1.2.3.4", "http://1.2.3.4:11434"),
        (":1234", "http://127.0.0.1:1234"),
        ("1.2.3.4:1234", "http://1.2.3.4:1234"),
        ("example.com", "http://example.com:11434"),
        ("example.com:1234", "http://example.com:1234"),
        ("example.com:", "http://example.com:11434"),
        ("http://1.2.3.4", "http://1.2.3.4:80"),
        ("https://1.2.3.4", "https://1.2.3.4:443"),
        ("https://1.2.3.4:1234", "https://1.2.3.4:1234"),
        ("https://example.com/ollama", "https://example.com:443/ollama"),
        ("https://example.com/ollama/", "https://example.com:443/ollama"),
        ("example.com/", "http://example.com:11434"),
        ("::1", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:1337", "http://[::1]:1337"),
        (' "1.2.3.4" ', "http://1.2.3.4:11434"),
        ("'1.2.3.4'", "http://1.2.3.4:11434"),
        ("ollama.com", "https://ollama.com:443"),
        ("http://ollama.com", "http://ollama.com:80"),
        ("0.0.0.0", "http://0.0.0.0:11434"),
        ("HTTP://box.local:1/x/y", "http://box.local:1/x/y"),
        ("http://box.local:1/v1/x", "http://box.local:1/v1/x"),
    ],
)
def test_ollamas_address_is_read_as_ollama_host_is(text: str, url: str) -> None:
    assert parse_upstream(text) == url


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("1.2.3.4:99999", "not a port"),
        ("1.2.3.4:-1", "not a port"),
        ("1.2.3.4:http", "not a port"),
        ("1.2.3.4:١", "not a port"),
        ("ftp://x", "not a scheme"),
        ("http://user:pw@host", "credentials"),
        ("host?x=1", "without query"),
        ("host#x", "without query"),
        ("a b", "spaces"),
        ("a\nb", "spaces"),
        ("[::1", "IPv6"),
        ("[::1]x", "IPv6"),
        ("1:2:3", "IPv6"),
        ("-host", "host name"),
        ("hóst", "host name"),
        ("http://127.0.0.1:11434/v1", "leave /v1 out"),
        ("box.local/ollama/api/", "leave /api out"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_upstream(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:11435", Address("127.0.0.1", 11435)),
        (":8080", Address("", 8080)),
        ("localhost", Address("localhost", 11435)),
        ("[::]:0", Address("::", 0)),
        ("0.0.0.0:80", Address("0.0.0.0", 80)),
    ],
)
def test_the_gates_own_address_is_a_host_and_a_port(text: str, address: Address) -> None:
    assert parse_listen(text) == address


@pytest.mark.parametrize("text", ["", "8080", "http://x:1", "x:1/y", "x:y"])
def test_a_listening_address_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|port"):
        parse_listen(text)


@pytest.mark.parametrize(
    ("host", "here", "loopback"),
    [
        ("127.0.0.1", True, True),
        ("127.8.9.1", True, True),
        ("::1", True, True),
        ("localhost", True, True),
        ("0.0.0.0", True, False),
        ("::", True, False),
        ("", True, False),
        ("192.168.1.2", False, False),
        ("box.local", False, False),
    ],
)
def test_an_address_knows_who_can_reach_it(host: str, *, here: bool, loopback: bool) -> None:
    address = Address(host, 1)
    assert (address.here, address.loopback) == (here, loopback)


@given(st.text(max_size=60))
def test_a_url_that_was_taken_reads_back_as_itself(text: str) -> None:
    try:
        url = parse_upstream(text)
    except ValueError:
        return
    assert parse_upstream(url) == url
    assert f"://{upstream_address(url)}" in url
