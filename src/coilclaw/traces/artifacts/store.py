"""``Store``: what every place for artifacts offers, and the rules its errors carry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.kernel import EnvironmentFault, PathRefused, TreePath, quote_text

if TYPE_CHECKING:
    from pathlib import Path


MAX_KEY_CHARS: Final = 512
MAX_SEGMENTS: Final = 16
MAX_SEGMENT_CHARS: Final = 128

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def check_key(key: str) -> str:
    """Return the key, or refuse it: ASCII names between slashes, none hidden, none special."""
    segments = key.split("/")
    if len(key) > MAX_KEY_CHARS or len(segments) > MAX_SEGMENTS:
        raise _refusal_error(
            key, f"is longer than {MAX_KEY_CHARS} characters or {MAX_SEGMENTS} levels deep"
        )
    for segment in segments:
        if len(segment) > MAX_SEGMENT_CHARS:
            raise _refusal_error(key, f"has a name longer than {MAX_SEGMENT_CHARS} characters")
        if not _SEGMENT.fullmatch(segment):
            raise _refusal_error(key, "has a name that is not letters, digits, '.', '_' and '-'")
    try:
        TreePath.parse(key)  # devices, short names of .git and names that end in a dot
    except PathRefused as problem:
        raise _refusal_error(
            key, "names something that a file system treats in its own way"
        ) from problem
    return key


def check_key_prefix(prefix: str) -> str:
    """Return what keys begin with, whole names only; the empty prefix is everything."""
    return check_key(prefix) if prefix else prefix


def is_safe_key(key: str) -> bool:
    """Return whether ``check_key`` accepts the key."""
    try:
        check_key(key)
    except PathRefused:
        return False
    return True


def _refusal_error(key: str, what: str) -> PathRefused:
    message = f"the artifact key {quote_text(key)} {what}"
    hint = "a key is names of letters, digits, '.', '_' and '-', with slashes between them"
    return PathRefused(message, path=key, rule="artifact.key", hint=hint)


MAX_OBJECT_BYTES: Final = 5 * 2**30
"""Largest artifact: what an S3 server takes in one conditional request."""

MAX_GET_BYTES: Final = 256 * 2**20
"""Largest artifact that ``get`` reads into memory unless the caller names another bound."""

MAX_LISTED: Final = 100_000
"""Most artifacts that ``list`` returns."""

CONFLICT: Final = "artifact.conflict"
MISSING: Final = "artifact.missing"
CHECKSUM: Final = "artifact.checksum"
DENIED: Final = "artifact.denied"
LARGE: Final = "artifact.large"
NO_BUCKET: Final = "artifact.bucket"
NETWORK: Final = "artifact.network"
UNSTEADY: Final = "artifact.unsteady"
UNREADABLE: Final = "artifact.io"
UNTAGGED: Final = "artifact.untagged"


@dataclass(frozen=True, slots=True)
class ArtifactVersion:
    """One state of an artifact; ``token`` is what the next ``put`` is conditional on."""

    token: str
    size: int


@dataclass(frozen=True, slots=True, order=True)
class ArtifactEntry:
    """One artifact of a listing."""

    key: str
    size: int


class ArtifactStore(Protocol):
    """A place that keeps whole artifacts under keys."""

    def put(
        self, key: str, source: bytes | Path, *, previous: ArtifactVersion | None
    ) -> ArtifactVersion:
        """Keep the bytes, or those of the file, if the artifact is still at ``previous``.

        ``None`` says that there is none yet. What another writer did in between is never
        overwritten: that is an ``EnvironmentFault`` with the rule ``artifact.conflict``. An
        artifact that holds the very same bytes already counts as kept, so that a call may be
        repeated.
        """

    def head(self, key: str) -> ArtifactVersion | None:
        """Return the state of an artifact, or ``None`` where there is none."""

    def exists(self, key: str) -> bool:
        """Return whether the artifact exists."""

    def get(self, key: str, *, limit: int = MAX_GET_BYTES) -> bytes:
        """Return the bytes of an artifact, checked as far as the place keeps a checksum."""

    def download(self, key: str, path: Path) -> ArtifactVersion:
        """Write an artifact to a file, which is there whole or not at all."""

    def list(self, prefix: str = "") -> tuple[ArtifactEntry, ...]:
        """Return the artifacts below a prefix of whole names, in order of their keys."""

    def uri(self, key: str) -> str:
        """Return the address of an artifact, as users write it."""


def conflict(where: str) -> EnvironmentFault:
    hint = "two runs must not write one trajectory: give one of them another id"
    return EnvironmentFault(f"{where} was changed by another writer", rule=CONFLICT, hint=hint)


def missing(where: str) -> EnvironmentFault:
    return EnvironmentFault(f"the artifact {where} does not exist", rule=MISSING)


def too_large(where: str, limit: int) -> EnvironmentFault:
    return EnvironmentFault(f"{where} is larger than {limit} bytes", rule=LARGE)


def damaged_error(where: str) -> EnvironmentFault:
    message = f"{where} does not hold the bytes that were written to it"
    return EnvironmentFault(message, rule=CHECKSUM)


def too_many(where: str) -> EnvironmentFault:
    return EnvironmentFault(f"there are more than {MAX_LISTED} artifacts below {where}", rule=LARGE)
