"""The settings of one MCP server: ``[mcp.servers.NAME]``."""

from __future__ import annotations

import ipaddress
import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from coilclaw.kernel import Risk, canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json

DEFAULT_TIMEOUT_S: Final = 30.0
DEFAULT_START_TIMEOUT_S: Final = 30.0
MAX_NAME: Final = 24

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]|_(?!_))*(?<!_)")
_HEADER: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_RESERVED: Final = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "accept"}
    | {"accept-encoding", "mcp-session-id", "mcp-protocol-version"}
)


@dataclass(frozen=True, slots=True)
class McpServer:
    """An external server: a program to start, or an address to connect to."""

    name: str
    command: tuple[str, ...] | None = None
    """The program and its arguments, used over standard input and output, without a shell."""
    url: str | None = None
    """The address of a server that speaks streamable HTTP."""
    env: tuple[str, ...] = ()
    """Names of variables that the program gets in addition to the minimal environment."""
    token_env: str | None = None
    """The variable whose value is sent as ``Authorization: Bearer``."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers, each with the name of the variable that holds its value."""
    risk: Risk = Risk.HIGH
    """The risk of every call; only the user can lower it."""
    network: bool = False
    """Whether the sandbox of the program allows the network."""
    writable: tuple[Path, ...] = ()
    """Absolute paths outside the workspace that the program may write, such as its cache."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """Time limit of a call, bounded by ``limits.tool_timeout_s``."""
    start_timeout_s: float = DEFAULT_START_TIMEOUT_S
    """Time limit until the server is ready."""
    enabled: bool = True

    @property
    def where(self) -> str:
        """The command or the address for display, without the query, which may hold a secret."""
        if self.command:
            return json.dumps(list(self.command))
        address, query, _ = str(self.url).partition("?")
        return f"{address}?…" if query else address


def identity(server: McpServer) -> str:
    """Return the hash of the command and the address that an approval is bound to."""
    words: list[Json] = list(server.command or ())
    return canonical_json.hash_json({"command": words, "url": server.url})


def flaws(server: McpServer) -> tuple[tuple[str, str], ...]:
    """Return all problems of some settings, each with its key."""
    return (*_check_names(server), *_check_way(server), *_check_bounds(server))


def _check_names(server: McpServer) -> Iterator[tuple[str, str]]:
    if not _NAME.fullmatch(server.name) or len(server.name) > MAX_NAME:
        form = "letters, digits, '-' and single '_', and no '_' at either end"
        yield "", f"is named {server.name!r}; a name has at most {MAX_NAME} {form}"
    for key, names in (("env", server.env), ("headers", tuple(server.headers.values()))):
        for name in names:
            if not _VARIABLE.fullmatch(name):
                yield key, f"names {name!r}, which cannot be a variable"
    if server.token_env is not None and not _VARIABLE.fullmatch(server.token_env):
        yield "token_env", f"is {server.token_env!r}, which cannot be a variable"
    for name in server.headers:
        if not _HEADER.fullmatch(name) or name.lower() in _RESERVED:
            yield "headers", f"holds {name!r}, which cannot be set"


def _check_way(server: McpServer) -> Iterator[tuple[str, str]]:
    if (server.command is None) == (server.url is None):
        yield "command", "or url: a server has exactly one of them"
    if server.command is not None and (not server.command or not server.command[0]):
        yield "command", "names no program"
    if server.url is None:
        for key in ("token_env", "headers"):
            if getattr(server, key):
                yield key, "is only valid with a url"
        return
    for key in ("env", "network", "writable"):
        if getattr(server, key):
            yield key, "is only valid with a command"
    yield from _address(server.url)


def _address(url: str) -> Iterator[tuple[str, str]]:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        yield "url", "is not a valid address"
        return
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        yield "url", "is not an http or https address"
    elif parts.username or parts.password or parts.fragment:
        yield "url", "holds credentials or a fragment; put a secret into a variable"
    elif parts.scheme == "http" and not _local(parts.hostname):
        yield "url", "is neither https nor on this machine, so any host could answer"


def _check_bounds(server: McpServer) -> Iterator[tuple[str, str]]:
    for key in ("timeout_s", "start_timeout_s"):
        if not 0 < getattr(server, key) <= 3600:
            yield key, "must be more than 0 and at most 3600 seconds"
    for path in server.writable:
        if not path.is_absolute():
            yield "writable", f"holds {str(path)!r}, which is not absolute"


def _local(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
