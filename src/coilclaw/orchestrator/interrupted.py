"""What a killed orchestrator left half recorded is set aside, so that the work can be done anew."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.errors import EnvironmentFault
from coilclaw.orchestrator.places import segment
from coilclaw.storage.atomic import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.orchestrator.run import Run

FOLDER: Final = "artifacts/interrupted"
MAX: Final = 10_000


def set_aside(run: Run) -> None:
    """Move what no event speaks of yet into ``artifacts/interrupted/<n>/``; nothing is deleted."""
    root = run.bundle.directory
    run.bundle.sweep()
    found = [path for path in _unrecorded(run) if os.path.lexists(root / path)]
    if not found:
        return
    place = _free(run)
    try:
        for path in found:
            target = root / place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            os.rename(root / path, target)
            sync_directory((root / path).parent)
            sync_directory(target.parent)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot set {problem.filename} aside: {problem.strerror}", rule="bundle.io"
        ) from problem


_TELLING: Final = frozenset(
    {EventType.SETUP_RESULT, EventType.BASELINE_RESULT, EventType.TEST_RESULT}
)
"""What tells the result of commands, with the report in their folder."""


def _unrecorded(run: Run) -> Iterator[str]:
    for task in run.progress.tasks.values():
        name = segment(task.task_id)
        if task.state in {"pending", "started"}:
            yield f"codex/{name}"
            yield f"results/{name}"
            yield f"patches/{name}.diff"
            yield f"artifacts/rejected/{name}.diff"
            yield f"artifacts/receipts/{name}"
        if not task.reviewed:
            yield f"reviews/{name}.json"
    yield from _untold_tests(run)


def _untold_tests(run: Run) -> Iterator[str]:
    """The folders of tests that no event tells the result of."""
    told = set()
    for event in run.log.read():
        payload = event["payload"]
        if event["event_type"] in _TELLING and isinstance(payload, dict):
            told.add(str(payload["path"]).rpartition("/")[0])
    for entry in sorted((run.bundle.directory / "ci").iterdir()):
        if f"ci/{entry.name}" not in told:
            yield f"ci/{entry.name}"


def _free(run: Run) -> str:
    for number in range(1, MAX):
        place = f"{FOLDER}/{number}"
        if not os.path.lexists(run.bundle.directory / place):
            return place
    raise EnvironmentFault(f"run {run.id} was interrupted too often", rule="bundle.io")
