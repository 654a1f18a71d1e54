"""Wiring of test environments: the judge of a submission, and where it keeps its builds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from coilclaw.environments.catalogue import find
from coilclaw.environments.judging import DEFAULT_TIMEOUT_S, Judge
from coilclaw.workspace.sandbox import probe

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.workspace.sandbox import SandboxSupport

FOLDER: Final = "environments"
"""Below our home: snapshots and builds of what was judged."""


def judge_of(
    name_or_path: str,
    home: Path,
    *,
    jobs: int | None = None,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    support: SandboxSupport | None = None,
) -> Judge:
    """Return the judge of an environment; ``jobs`` are as many as there are processors."""
    return Judge(
        find(name_or_path),
        support=probe() if support is None else support,
        home=home / FOLDER,
        jobs=default_jobs() if jobs is None else jobs,
        timeout_s=timeout_s,
    )


def default_jobs() -> int:
    """How many cases run at once unless somebody says otherwise."""
    return max(1, min(len(os.sched_getaffinity(0)), 16))
