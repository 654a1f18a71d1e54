"""References from a role contract into the policies and the repository: ``FILE#FRAGMENT``.

A fragment is a JSON pointer, or names with dots between them, of which one may choose from a list:
``agents(role=WORKER).capabilities.mcp_tools``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import paths, reading
from coilclaw.contracts.policyset import FOLDER, REGISTRY_FILE
from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.domain.messages import Json

MAX_BYTES: Final = 256 * 2**10
SOURCES: Final[Mapping[str, str]] = {
    "mcp_bundle_ref": f"{FOLDER}/{REGISTRY_FILE}",
    "skills_bundle_ref": f"{FOLDER}/skills_bundle_registry.json",
}
"""The only file into which each kind may point with a fragment."""
_NAME: Final = re.compile(r"([A-Za-z0-9_-]+)(?:\(([A-Za-z0-9_]+)=([A-Za-z0-9_.-]+)\))?")


def flaw(kind: str, text: str, read: Callable[[str], bytes | None]) -> str | None:
    """Say why a reference leads nowhere; ``None``: it leads to a file, and to what it must."""
    name, mark, fragment = text.partition("#")
    wrong = paths.flaw(name)
    if wrong or name.endswith("/"):
        return wrong or f"{shown(name)} is a directory"
    data = read(name)
    if data is None:
        return f"there is no file {shown(name)}"
    if len(data) > MAX_BYTES:
        return f"{shown(name)} has more than {MAX_BYTES} bytes"
    if not mark:
        return None
    if SOURCES.get(kind) != name:
        return f"a fragment may point into {SOURCES.get(kind, 'no file')} only"
    try:
        found = resolve(reading.parse(data), fragment)
    except (UsageError, LookupError):
        return f"{shown(fragment)} leads nowhere in {shown(name)}"
    wanted = found.get("skills") if isinstance(found, dict) else found
    if isinstance(found, dict) == (kind == "mcp_bundle_ref"):
        return f"{shown(fragment)} leads to the wrong thing in {shown(name)}"
    if not isinstance(wanted, list) or not wanted:
        return f"{shown(fragment)} leads to an empty list in {shown(name)}"
    return None


def resolve(document: Json, fragment: str) -> Json:
    """Return what a fragment leads to; ``LookupError`` when it leads nowhere."""
    if fragment.startswith("/"):
        parts = fragment[1:].split("/")
        for part in parts:
            document = _member(document, part.replace("~1", "/").replace("~0", "~"))
        return document
    for part in fragment.split("."):
        match = _NAME.fullmatch(part)
        if match is None:
            raise LookupError(part)
        document = _member(document, match[1])
        if match[2]:
            document = _choice(document, match[2], match[3])
    return document


def _member(value: Json, name: str) -> Json:
    if isinstance(value, dict):
        return value[name]
    if isinstance(value, list) and name.isascii() and name.isdigit():
        return value[int(name)]
    raise LookupError(name)


def _choice(value: Json, key: str, wanted: str) -> Json:
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and item.get(key) == wanted:
            return item
    raise LookupError(wanted)
