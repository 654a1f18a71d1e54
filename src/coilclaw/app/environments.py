"""Wiring of test environments: the judge of a submission, and where it keeps its builds."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.environments import fixtures
from coilclaw.environments.catalogue import find
from coilclaw.environments.judging import DEFAULT_TIMEOUT_S, Judge
from coilclaw.workspace.sandbox import probe

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.environments.catalogue import EnvironmentPlace
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
        # Tokens, keys, other people's work: wherever the home is, a submission sees none of it.
        hidden=(home,),
    )


@dataclass(frozen=True, slots=True)
class Ground:
    """What a result belongs to beside the tree: the environment, and the fixtures that it finds."""

    version: str
    skipped: tuple[str, ...] = ()
    """The suites whose fixtures are not there: none of their cases can be judged."""


def ground_of(place: EnvironmentPlace, home: Path) -> Ground:
    """Return what judging by an environment rests on; other fixtures make another version."""
    sets = fixtures.declared(place.directory)
    if not sets:
        return Ground(place.version)
    root = fixtures.default_root(home)
    found = [fixtures.find(one, root) for one in sets]
    whole = hashlib.sha256(f"coilclaw environment with fixtures 1\0{place.version}".encode())
    for one in found:
        whole.update(f"\0{one.wanted.name}\0{one.sha256 or one.state}".encode())
    skipped = tuple(one.wanted.suite for one in found if one.place is None)
    return Ground(whole.hexdigest(), skipped)


def default_jobs() -> int:
    """How many cases run at once unless somebody says otherwise."""
    return max(1, min(len(os.sched_getaffinity(0)), 16))
