"""``[receipts]``: where receipts are kept, and where their checkpoints go."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from coilclaw.config.section import is_variable
from coilclaw.config.values import ReceiptSettings
from coilclaw.runtime.checkpoint_place import DEFAULT_EVERY, CheckpointPlace, is_ref, kind_of

if TYPE_CHECKING:
    from coilclaw.config.section import Reading, Section
    from coilclaw.config.values import Config

RECEIPTS_NAME: Final = "tool_receipts.log"
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def read_receipts(section: Section, home: Path) -> ReceiptSettings:
    """Read the table."""
    return ReceiptSettings(
        path=section.path("path", home / RECEIPTS_NAME),
        enabled=section.flag("enabled", True),
        checkpoint=_checkpoint(section),
        checkpoint_every=section.count("checkpoint_every", DEFAULT_EVERY),
    )


def refuse_reachable(reading: Reading, config: Config) -> None:
    """Note a place of checkpoints that the agent, or something it starts, could write."""
    place = config.receipts.checkpoint
    if place is None or place.kind == "url":
        return
    path = place.directory if place.kind == "git-ref" else Path(place.target)
    if path is None:
        return
    writable = (
        ("the workspace", config.workspace_dir),
        *(("sandbox.write", path) for path in config.sandbox.write),
        *(
            (f"what the server {server.name} may write", path)
            for server in config.mcp_servers.values()
            for path in server.writable
        ),
    )
    for what, folder in writable:
        if path.resolve().is_relative_to(folder.resolve()):
            reading.note(
                ("receipts", "checkpoint"), f"is inside {what}, where the agent can change it"
            )
    if place.kind == "file" and path in {config.memory.path, config.receipts.path}:
        reading.note(("receipts", "checkpoint"), "is the same file as the memory or the receipts")


def _checkpoint(section: Section) -> CheckpointPlace | None:
    token = _token(section)
    text = None if section.is_empty("checkpoint") else section.text("checkpoint", None)
    if text is None:
        return None
    match kind_of(text):
        case "url":
            return _address(section, text, token)
        case "git-ref":
            return _ref(section, text)
        case _:
            path = _path(section, text)
            return None if path is None else CheckpointPlace("file", str(path))


def _token(section: Section) -> str | None:
    if section.is_empty("checkpoint_token_env"):
        return None
    name = section.text("checkpoint_token_env", None)
    if name is not None and not is_variable(name):
        section.note("checkpoint_token_env", "is not the name of a variable")
    return name


def _address(section: Section, text: str, token: str | None) -> CheckpointPlace | None:
    """Take an address; no message repeats it, because of what may be in it."""
    try:
        parts = urlsplit(text)
        whole = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        parts, whole = urlsplit(""), False
    if not whole or " " in text:
        section.note("checkpoint", "is no http or https address")
    elif parts.username or parts.password or parts.fragment:
        section.note("checkpoint", "holds credentials or a fragment; see checkpoint_token_env")
    elif token is not None and parts.scheme == "http" and parts.hostname not in _LOCAL:
        section.note("checkpoint", "would send the token in clear text; use https")
    else:
        return CheckpointPlace("url", text, token_env=token)
    return None


def _ref(section: Section, text: str) -> CheckpointPlace | None:
    _, name, *rest = text.split(" ", 2) if " " in text else (text, "")
    if not is_ref(name):
        section.note("checkpoint", "must name a ref after git-ref, such as refs/coilclaw/receipts")
        return None
    directory = _path(section, rest[0]) if rest else None
    return None if rest and directory is None else CheckpointPlace("git-ref", name, directory)


def _path(section: Section, text: str) -> Path | None:
    path = section.as_path(text, (*section.place, "checkpoint"))
    if path is not None and not path.is_absolute():
        section.note("checkpoint", "is a relative path; it must be absolute, or begin with ~/")
        return None
    return path
