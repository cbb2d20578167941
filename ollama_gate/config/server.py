"""Where the gate listens, what it takes, and who gets in."""

import os
from collections.abc import Mapping
from pathlib import Path

from ollama_gate.config.address import Address, parse_listen
from ollama_gate.config.archive import default_state_dir
from ollama_gate.config.keys import Duration, FilePath, HostNames, Listen, Origins, Section, Size, key

KIB, MIB = 1024, 1024**2


def default_keys(environ: Mapping[str, str], *, root: bool) -> Path:
    """Where keys are kept: in systemd's state directory, for root in the service's, else in the user's (XDG)."""
    if root and not environ.get("STATE_DIRECTORY"):
        return Path("/var/lib/ollama-gate/keys.json")  # so that `sudo ollama-gate keys` means the service's keys
    return default_state_dir(environ) / "keys.json"


class Server(Section):
    """Where the gate listens, and what it takes."""

    listen: Listen = key(
        "127.0.0.1:11435",
        "Address to listen on; `:11435` is every interface. Where others can reach it, it takes keys "
        "(`ollama-gate keys add`), or `open`.",
        unit="host:port",
    )
    open: bool = key(
        False,
        "Serve whoever can reach the gate, without keys, on an address that others can reach. Without this and without "
        "keys such a gate does not start.",
    )
    hosts: HostNames = key(
        (),
        "Names by which clients call the gate (the Host header), beside IP addresses and this machine's own names; "
        "`.example.org` is every name below it. A request under another name is refused. Empty: without keys only what "
        "a web page could have sent under a name of its own (DNS rebinding) is refused.",
        example=["gate.example.org"],
    )
    origins: Origins = key(
        (),
        "More web origins that browsers may call the gate from (CORS), each `scheme://host[:port]`, or `*` for all. "
        "Pages of this machine, desktop programs and extensions of browsers may anyway, as with Ollama.",
        example=["http://localhost:3000"],
    )
    tls_cert: FilePath | None = key(
        None,
        "Certificate chain (PEM) to serve HTTPS with; read again when the file changes, and on SIGHUP.",
        example="/etc/ollama-gate/tls/fullchain.pem",
    )
    tls_key: FilePath | None = key(
        None,
        "Private key (PEM) of `tls_cert`. Absent: it stands in the same file.",
        example="/etc/ollama-gate/tls/privkey.pem",
    )
    max_body: Size = key(
        64 * MIB,
        "Largest inference request, after decompression; a larger one is answered 413. Other routes have no limit.",
        unit="size",
        ge=KIB,
    )
    max_text: Size = key(
        10 * MIB,
        "Most of an inference request that is not images in base64; more than any window holds is answered 413. "
        "It can only be lowered; where the text is not plain ASCII, 6 MiB are the most. While so much is read, "
        "everybody else waits, for up to 40 ms.",
        unit="size",
        ge=KIB,
        le=10 * MIB,
    )
    max_header: Size = key(
        64 * KIB, "Largest request line or header field. A larger one is answered 400.", unit="size", ge=4 * KIB, le=MIB
    )
    max_headers: int = key(128, "Most header fields of a request.", unit="fields", ge=16, le=4096)
    header_timeout: Duration = key(
        30.0,
        "Longest time that a client may take to send a request's head, and a new connection to send its first; then it "
        "is closed.",
        unit="time",
        ge=1.0,
        le=3600.0,
    )
    body_rate: Size = key(
        1 * KIB,
        "Least bytes a second that a client must send of a body, over any half minute; a slower one is answered 408. "
        "A client that has to wait for the gate or for Ollama is not slow. 0 is no limit.",
        unit="size",
    )
    send_timeout: Duration = key(
        600.0,
        "Longest time that an answer waits for a client that takes nothing of it; then it is cut off.",
        unit="time",
        ge=1.0,
        le=86400.0,
    )
    keep_alive: Duration = key(
        600.0, "How long a connection is kept open between two requests.", unit="time", ge=1.0, le=86400.0
    )
    connections_per_client: int = key(
        512,
        "Most connections from one address (of IPv6: one /64); a further one is closed with 503. This machine's own "
        "addresses have no limit, because a reverse proxy may stand there. 0 is no limit.",
        unit="connections",
        ge=0,
    )
    drain: Duration = key(
        30.0, "On SIGTERM, time that running requests get to finish before they are cut off.", unit="time", le=3600.0
    )

    @property
    def address(self) -> Address:
        """`listen`, taken apart."""
        return parse_listen(self.listen)


class Access(Section):
    """Who gets in."""

    keys: FilePath = key(
        meaning="File of the keys' hashes and rights, written by `ollama-gate keys` and read again as it changes. "
        "As soon as a key was made, nobody gets in without one. Absent: keys.json in $STATE_DIRECTORY (systemd), for "
        "root in /var/lib/ollama-gate, else in $XDG_STATE_HOME/ollama-gate or ~/.local/state/ollama-gate.",
        example="/var/lib/ollama-gate/keys.json",
        default_factory=lambda: default_keys(os.environ, root=os.geteuid() == 0),
    )


class Shared(Section):
    """What several gates have in common, each in front of an Ollama of its own."""

    enabled: bool = key(
        False,
        "Share keys, what they have used of their quotas, and what was learned of models' counts with the other gates "
        "that name the same database in `archive.url`, whether or not they archive. `access.keys` is not read then. "
        "Changed by a restart only.",
    )
