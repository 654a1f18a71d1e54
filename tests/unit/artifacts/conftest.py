"""Stores to try: a directory, and a bucket of a real server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coilclaw.traces.artifacts.place import open_store
from coilclaw.traces.artifacts.store import ArtifactStore
from tests.support import s3server
from tests.support.s3server import S3Server


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    reason = s3server.why_not()
    if reason is not None:
        pytest.skip(reason)
    with s3server.serving(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["directory", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """A store without anything in it."""
    if request.param == "directory":
        return open_store(str(tmp_path / "store"), {})
    server: S3Server = request.getfixturevalue("s3")
    # A prefix of its own for each test.
    return open_store(f"s3://{server.bucket}/tests/{tmp_path.name}", server.environ())
