"""What is wrong with the settings of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.agent.mcp.settings import McpServer, flaws, identity

URL = "https://example.org/mcp"


@pytest.mark.parametrize(
    ("server", "keys"),
    [
        (McpServer("a"), {"command"}),
        (McpServer("a", command=("x",), url=URL), {"command"}),
        (McpServer("a", command=()), {"command"}),
        (McpServer("a", command=("",)), {"command"}),
        (McpServer("a b", command=("x",)), {""}),
        (McpServer("a" * 25, command=("x",)), {""}),
        (McpServer("a", command=("x",), env=("A=B",)), {"env"}),
        (McpServer("a", command=("x",), token_env="T"), {"token_env"}),
        (McpServer("a", command=("x",), headers={"X-Key": "K"}), {"headers"}),
        (McpServer("a", command=("x",), writable=(Path("cache"),)), {"writable"}),
        (McpServer("a", command=("x",), timeout_s=0), {"timeout_s"}),
        (McpServer("a", command=("x",), start_timeout_s=4000), {"start_timeout_s"}),
        (McpServer("a", url="ftp://example.org"), {"url"}),
        (McpServer("a", url="http://example.org/mcp"), {"url"}),
        (McpServer("a", url="https://u:p@example.org/mcp"), {"url"}),
        (McpServer("a", url="https://[broken"), {"url"}),
        (McpServer("a", url=URL, env=("A",), network=True), {"env", "network"}),
        (McpServer("a", url=URL, headers={"Host": "K", "X": "not a name"}), {"headers"}),
        (McpServer("a", url=URL, token_env="a b"), {"token_env"}),
    ],
)
def test_what_cannot_be_is_named_with_its_key(server: McpServer, keys: set[str]) -> None:
    assert {key for key, _ in flaws(server)} == keys


@pytest.mark.parametrize(
    "server",
    [
        McpServer("a", command=("x", "--flag"), env=("A_B",), network=True),
        McpServer("a-b_c9", command=("x",), writable=(Path("/var/cache"),)),
        McpServer("a", url=URL, token_env="TOKEN", headers={"X-Key": "KEY"}),
        McpServer("a", url="http://127.0.0.1:8000/mcp"),
        McpServer("a", url="http://localhost/mcp"),
        McpServer("a", url="http://[::1]:1/"),
    ],
)
def test_what_can_be_has_no_flaw(server: McpServer) -> None:
    assert flaws(server) == ()


def test_an_approval_is_for_a_command_or_address_and_not_for_a_name() -> None:
    one = McpServer("a", command=("x", "y"))
    assert identity(one) == identity(McpServer("b", command=("x", "y"), timeout_s=5))
    others = [McpServer("a", command=("x y",)), McpServer("a", url=URL), McpServer("a")]
    assert len({identity(server) for server in (one, *others)}) == 4


def test_where_a_server_is_is_told_without_its_query() -> None:
    assert McpServer("a", url=f"{URL}?key=canary").where == f"{URL}?…"
    assert McpServer("a", url=URL).where == URL
    assert McpServer("a", command=("x", "a b")).where == '["x", "a b"]'
