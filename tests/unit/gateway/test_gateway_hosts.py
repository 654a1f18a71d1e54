"""The names under which the gateway is reached."""

from __future__ import annotations

import pytest

from coilclaw.gateway.http.listener import Hosts
from coilclaw.gateway.settings import GatewaySettings


def _hosts(address: str, port: int = 8737, *names: str, tls: bool = False) -> Hosts:
    from pathlib import Path

    cert = Path("cert") if tls else None
    return Hosts.of(GatewaySettings(allowed_hosts=names, tls_cert=cert), address, port)


@pytest.mark.parametrize(
    ("hosts", "name", "reached"),
    [
        (_hosts("127.0.0.1"), "", ""),
        (_hosts("127.0.0.1"), "localhost", ""),
        (_hosts("127.0.0.1"), "localhost:80", ""),
        (_hosts("127.0.0.1"), "localhost:", ""),
        (_hosts("127.0.0.1"), "localhost:8737:8737", ""),
        (_hosts("127.0.0.1"), "127.0.0.2:8737", ""),
        (_hosts("127.0.0.1"), "::1:8737", ""),
        (_hosts("127.0.0.1"), "evil.example:8737", "evil.example"),
        (_hosts("127.0.0.1", 80, tls=True), "localhost", ""),
        (_hosts("10.0.0.1"), "localhost:8737", ""),
        (_hosts("10.0.0.1"), "10.0.0.2:8737", "10.0.0.2"),
        (_hosts("0.0.0.0"), "localhost:8737", "127.0.0.1"),
        (_hosts("0.0.0.0"), "10.0.0.9:8737", "10.0.0.1"),
        (_hosts("127.0.0.1", 8737, "agent.example"), "agent.example", ""),
        (_hosts("127.0.0.1", 8737, "agent.example:443"), "agent.example:8737", ""),
        (_hosts("127.0.0.1"), "localhost:8737" + "x" * 400, ""),
    ],
)
def test_a_name_that_is_not_ours(hosts: Hosts, name: str, reached: str) -> None:
    assert not hosts.knows(name, reached)


@pytest.mark.parametrize(
    ("hosts", "name", "reached"),
    [
        (_hosts("127.0.0.1"), "localhost:8737", ""),
        (_hosts("127.0.0.1"), "127.0.0.1:8737", ""),
        (_hosts("127.0.0.2"), "127.0.0.2:8737", ""),
        (_hosts("::1"), "[::1]:8737", ""),
        (_hosts("127.0.0.1", 80), "LocalHost", ""),
        (_hosts("127.0.0.1", 443, tls=True), "localhost", ""),
        (_hosts("10.0.0.1"), "10.0.0.1:8737", ""),
        (_hosts("0.0.0.0"), "10.0.0.1:8737", "10.0.0.1"),
        (_hosts("::"), "[fe80::1]:8737", "fe80::1"),
        (_hosts("127.0.0.1", 8737, "Agent.example"), "agent.example:8737", ""),
        (_hosts("127.0.0.1", 8737, "agent.example:443"), "agent.example:443", ""),
    ],
)
def test_a_name_that_is_ours(hosts: Hosts, name: str, reached: str) -> None:
    assert hosts.knows(name, reached)


def test_an_origin_has_our_scheme_too() -> None:
    hosts = _hosts("127.0.0.1")
    assert hosts.knows_origin("http://localhost:8737")
    for origin in ("https://localhost:8737", "null", "localhost:8737", "http://localhost:8737/"):
        assert not hosts.knows_origin(origin)
