"""Open the store that the user names: a directory, or ``s3://bucket/prefix``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.traces.artifacts.store import ArtifactStore

BUCKET_VARIABLE: Final = "AWS_S3_BUCKET"

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def open_store(text: str, environ: Mapping[str, str]) -> ArtifactStore:
    """Return the store at a directory or an S3 address; nothing is made or asked yet."""
    if text.startswith("s3:"):
        from coilclaw.traces.artifacts.s3_store import S3Place, S3Store

        return S3Store(S3Place.parse(text), environ)
    from coilclaw.traces.artifacts.local_store import LocalStore

    return LocalStore(_directory(text))


def default_place(environ: Mapping[str, str], home: Path) -> str:
    """Return where artifacts go by default: the bucket of the environment, or our home."""
    bucket = environ.get(BUCKET_VARIABLE, "").strip()
    if not bucket:
        return str(home / "artifacts")
    return bucket if bucket.startswith("s3:") else f"s3://{bucket}"


def fetch_artifact(text: str, environ: Mapping[str, str], path: Path) -> None:
    """Bring one artifact, named by a file or by its S3 address, to a file."""
    from coilclaw.traces.artifacts.store import missing

    if text.startswith("s3:"):
        folder, _, name = text.rpartition("/")
        open_store(folder, environ).download(name, path)
        return
    source = _directory(text)
    if not source.is_file():
        raise missing(str(source))
    from coilclaw.traces.artifacts.local_store import copy

    copy(source, path)


def _directory(text: str) -> Path:
    if not text or "\0" in text or _SCHEME.match(text):
        message = "an artifact store is a directory or an address that begins with s3://"
        hint = "a directory with a colon in its name is written ./name"
        raise UsageError(message, rule="artifact.address", hint=hint)
    return Path(text).expanduser().absolute()
