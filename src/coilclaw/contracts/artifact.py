"""``ArtifactRef``: a file of a run bundle with its hash; the one shape in which files are named."""

from dataclasses import dataclass
from typing import ClassVar

from coilclaw.contracts.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactRef(Record):
    """One file; ``path`` is relative to the bundle."""

    SCHEMA: ClassVar[str] = "run_manifest.v1#ArtifactRef"

    name: str
    path: str
    sha256: str
    media_type: str | None = None
    size_bytes: int | None = None
