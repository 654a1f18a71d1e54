"""Keys: names of artifacts that are a harmless path on every file system and in every bucket."""

from __future__ import annotations

import re
from typing import Final

from coilclaw.domain.treepath import TreePath, shown
from coilclaw.errors import PathRefused

MAX_KEY_CHARS: Final = 512
MAX_SEGMENTS: Final = 16
MAX_SEGMENT_CHARS: Final = 128

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def check(key: str) -> str:
    """Return the key, or refuse it: ASCII names between slashes, none hidden, none special."""
    segments = key.split("/")
    if len(key) > MAX_KEY_CHARS or len(segments) > MAX_SEGMENTS:
        raise _refused(
            key, f"is longer than {MAX_KEY_CHARS} characters or {MAX_SEGMENTS} levels deep"
        )
    for segment in segments:
        if len(segment) > MAX_SEGMENT_CHARS:
            raise _refused(key, f"has a name longer than {MAX_SEGMENT_CHARS} characters")
        if not _SEGMENT.fullmatch(segment):
            raise _refused(key, "has a name that is not letters, digits, '.', '_' and '-'")
    try:
        TreePath.parse(key)  # devices, short names of .git and names that end in a dot
    except PathRefused as problem:
        raise _refused(key, "names something that a file system treats in its own way") from problem
    return key


def check_prefix(prefix: str) -> str:
    """Return what keys begin with, whole names only; the empty prefix is everything."""
    return check(prefix) if prefix else prefix


def safe(key: str) -> bool:
    """Tell whether ``check`` lets the key pass."""
    try:
        check(key)
    except PathRefused:
        return False
    return True


def _refused(key: str, what: str) -> PathRefused:
    return PathRefused(
        f"the artifact key {shown(key)} {what}",
        path=key,
        rule="artifact.key",
        hint="a key is names of letters, digits, '.', '_' and '-', with slashes between them",
    )
