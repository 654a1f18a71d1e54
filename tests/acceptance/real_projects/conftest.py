"""The public projects of a test session, fetched once for all of its processes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from coilclaw.kernel.errors import LockTimeout
from coilclaw.kernel.file_lock import FileLock
from tests.support.children import PATIENCE_S
from tests.support.project_checkouts import ProjectStore
from tests.support.sandboxes import UNCOVERED


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, testrun_uid: str) -> Iterator[ProjectStore]:
    """Share the checkouts with the other processes; the last one to end removes them."""
    base = tmp_path_factory.getbasetemp()
    users = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "projects.lock"
    place = Path(UNCOVERED, f"coilclaw-projects-{testrun_uid}")
    with FileLock(users, shared=True, timeout_s=PATIENCE_S):
        yield ProjectStore(place)
    try:
        with FileLock(users, timeout_s=0):
            shutil.rmtree(place, ignore_errors=True)
    except LockTimeout:
        pass  # another process still works with them
