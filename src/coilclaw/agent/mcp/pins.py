"""``Pins``: the approved definitions of MCP tools, stored with their hashes in one file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coilclaw.agent.mcp.definitions import Definition, parse_definition
from coilclaw.kernel import EnvironmentFault, FileLock, UsageError, digest_bytes, write_atomic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

NAME: Final = "mcp-pins.json"
LOCK_NAME: Final = "mcp-pins.lock"
VERSION: Final = 1
MAX_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class ServerPins:
    """The approved definitions of one server."""

    identity: str
    """The identity of the approved command or address; another one needs another approval."""
    approved: str
    """The time of the approval, in UTC."""
    tools: Mapping[str, Definition]


class Pins:
    """The file of a home. Creating the object touches no file."""

    def __init__(self, home: Path) -> None:
        self.path = home / NAME
        self._lock_path = home / LOCK_NAME

    def read(self) -> dict[str, ServerPins]:
        """Return the approvals by server; raise ``EnvironmentFault`` if the file is damaged."""
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as problem:
            raise self._damaged_error(problem.strerror or str(problem)) from problem
        if len(data) > MAX_BYTES:
            raise self._damaged_error(f"it is larger than {MAX_BYTES} bytes")
        try:
            return _servers(json.loads(data))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
            raise self._damaged_error(f"it cannot be read ({type(problem).__name__})") from problem
        except UsageError as problem:
            raise self._damaged_error(problem.message) from problem

    def approve(
        self, server: str, identity: str, definitions: Iterable[Definition], when: str
    ) -> None:
        """Store exactly these definitions, and replace earlier ones."""
        pinned = ServerPins(identity, when, {each.name: each for each in definitions})
        self._change(server, pinned)

    def forget(self, server: str) -> bool:
        """Withdraw an approval; return whether one existed."""
        return self._change(server, None)

    def _change(self, server: str, pinned: ServerPins | None) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(self._lock_path):
            servers = self.read()
            known = servers.pop(server, None) is not None
            if pinned is not None:
                servers[server] = pinned
            data = json.dumps(_record(servers), indent=1, ensure_ascii=True).encode("ascii") + b"\n"
            if len(data) > MAX_BYTES:
                raise UsageError(f"{self.path} would be too large", rule="mcp.pins")
            write_atomic(self.path, data, mode=0o600)
        return known

    def _damaged_error(self, why: str) -> EnvironmentFault:
        return EnvironmentFault(
            f"the approved definitions in {self.path} cannot be used: {why}",
            rule="mcp.pins",
            hint="move the file away and approve the servers again",
        )


def _servers(value: Any) -> dict[str, ServerPins]:
    if value["version"] != VERSION:
        raise UsageError(f"its version is not {VERSION}", rule="mcp.pins")
    return {
        str(name): ServerPins(
            str(entry["identity"]),
            str(entry["approved"]),
            {str(tool): _definition(str(tool), pin) for tool, pin in entry["tools"].items()},
        )
        for name, entry in value["servers"].items()
    }


def _definition(name: str, pin: dict[str, str]) -> Definition:
    text = pin["definition"]
    if digest_bytes(text.encode("utf-8")) != pin["sha256"]:
        raise UsageError(f"the definition of {name!r} does not match its hash", rule="mcp.pins")
    definition = parse_definition(text)
    if definition.name != name:
        raise UsageError(f"the definition of {name!r} belongs to another tool", rule="mcp.pins")
    return definition


def _record(servers: Mapping[str, ServerPins]) -> dict[str, object]:
    return {
        "version": VERSION,
        "servers": {
            name: {
                "identity": pinned.identity,
                "approved": pinned.approved,
                "tools": {
                    tool: {"sha256": each.sha256, "definition": each.text}
                    for tool, each in sorted(pinned.tools.items())
                },
            }
            for name, pinned in sorted(servers.items())
        },
    }
