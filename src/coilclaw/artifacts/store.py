"""``Store``: what every place for artifacts offers, and the rules its errors carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.errors import EnvironmentFault

if TYPE_CHECKING:
    from pathlib import Path

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
class Version:
    """One state of an artifact; ``token`` is what the next ``put`` is conditional on."""

    token: str
    size: int


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One artifact of a listing."""

    key: str
    size: int


class Store(Protocol):
    """A place that keeps whole artifacts under keys."""

    def put(self, key: str, source: bytes | Path, *, previous: Version | None) -> Version:
        """Keep the bytes, or those of the file, if the artifact is still at ``previous``.

        ``None`` says that there is none yet. What another writer did in between is never
        overwritten: that is an ``EnvironmentFault`` with the rule ``artifact.conflict``. An
        artifact that holds the very same bytes already counts as kept, so that a call may be
        repeated.
        """

    def head(self, key: str) -> Version | None:
        """Return the state of an artifact, or ``None`` where there is none."""

    def exists(self, key: str) -> bool:
        """Tell whether there is an artifact."""

    def get(self, key: str, *, limit: int = MAX_GET_BYTES) -> bytes:
        """Return the bytes of an artifact, checked as far as the place keeps a checksum."""

    def download(self, key: str, path: Path) -> Version:
        """Write an artifact to a file, which is there whole or not at all."""

    def list(self, prefix: str = "") -> tuple[Entry, ...]:
        """Return the artifacts below a prefix of whole names, in order of their keys."""

    def uri(self, key: str) -> str:
        """Return where an artifact is, as people write it."""


def conflict(where: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{where} was changed by another writer",
        rule=CONFLICT,
        hint="two runs must not write one trajectory: give one of them another id",
    )


def missing(where: str) -> EnvironmentFault:
    return EnvironmentFault(f"there is no artifact {where}", rule=MISSING)


def too_large(where: str, limit: int) -> EnvironmentFault:
    return EnvironmentFault(f"{where} is larger than {limit} bytes", rule=LARGE)


def damaged(where: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{where} does not hold the bytes that were written to it", rule=CHECKSUM
    )


def too_many(where: str) -> EnvironmentFault:
    return EnvironmentFault(f"there are more than {MAX_LISTED} artifacts below {where}", rule=LARGE)
