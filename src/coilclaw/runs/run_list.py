"""Find, list and describe the runs of a repository; nothing is written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel import Journal, UsageError
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.evidence import bundle, layout
from coilclaw.runs.evidence.audits import Application, list_applications, list_audits
from coilclaw.runs.evidence.bundle import MAX_PATCH_BYTES, sealed_manifest
from coilclaw.runs.evidence.event_index import get_part, parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.kernel import Json
    from coilclaw.runs.evidence.layout import RunPlaces
    from coilclaw.runs.evidence.rehydration import Rehydrated
    from coilclaw.runs.run_failures import Failures

Standing: TypeAlias = Literal[
    "passed", "failed", "paused", "running", "waiting", "interrupted", "sealing", "empty"
]
LAST: Final = "last"
LEAST_PREFIX: Final = 4
"""The shortest prefix that names a run."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run as a list shows it."""

    run_id: str
    directory: Path
    standing: Standing
    state: str
    created_at: str
    request: str
    merge: str
    reason: str
    waiting: tuple[str, ...] = ()
    root_hash: str = ""
    applied: Application | None = None
    """The merge that followed after the run had ended."""

    def json(self) -> dict[str, Json]:
        return {
            "run_id": self.run_id,
            "status": self.standing,
            "state": self.state,
            "created_at": self.created_at,
            "request": self.request,
            "merge": self.merge,
            "applied": None if self.applied is None else self.applied.json(),
            "reason": self.reason,
            "waiting": list(self.waiting),
            "root_hash": self.root_hash,
            "bundle": str(self.directory),
        }


@dataclass(frozen=True, slots=True)
class RunStore:
    """The run store of one repository."""

    places: RunPlaces

    def ids(self) -> tuple[str, ...]:
        """Return the ids of all runs, oldest first."""
        runs = self.places.runs
        names = filter(layout.is_run_id, layout.list_names(runs))
        return tuple(name for name in names if bundle.bundle_exists(runs / name))

    def find(self, text: str) -> Path:
        """Return the bundle of a run by its id, a prefix of it, or ``last``; raise without one."""
        known = self.ids()
        if text == LAST and known:
            return self.places.runs / known[-1]
        if text in known:
            return self.places.runs / text
        found = [name for name in known if name.startswith(text)]
        found += [name for name in known if name.rpartition("_")[2].startswith(text)]
        if len(text) < LEAST_PREFIX or not found:
            raise UsageError(
                f"{self.places.runs} has no run {text[:200]!r}",
                rule="run.unknown",
                hint="see 'coilclaw runs list'",
            )
        if len(set(found)) > 1:
            raise UsageError(
                f"{text!r} matches {len(set(found))} runs",
                rule="run.ambiguous",
                hint=f"give more of the id; {found[0]} and {found[1]} match",
            )
        return self.places.runs / found[0]

    def all(self) -> Iterator[ListedRun]:
        """Yield every run, oldest first."""
        for run_id in self.ids():
            yield read_run(self.places.runs / run_id)


def read_run(directory: Path) -> ListedRun:
    """Read one run; a sealed one from its manifest alone, which is not verified here."""
    # Asked first: a run that ends in between has written everything by then.
    worked = is_run_worked_on(directory)
    manifest = sealed_manifest(directory)
    if manifest is None:
        return _read_unsealed(directory, worked=worked)
    passed, applied = manifest.get("status") == "SUCCESS", find_application(directory)
    status = str(get_part(manifest, "merge", "status") or "")
    return ListedRun(
        directory.name,
        directory,
        "passed" if passed else "failed",
        "S6_DONE" if passed else "FAILED",
        str(manifest.get("created_at")),
        str(manifest.get("user_request")),
        "merged" if applied is not None and status == "pending" else status,
        str(manifest.get("failure_reason") or ""),
        root_hash=str(get_part(manifest, "integrity", "root_hash") or ""),
        applied=applied,
    )


def is_run_worked_on(directory: Path) -> bool:
    """Return whether a process works on the run of a bundle now."""
    from coilclaw.runs.engine.run_start import is_worked_on as worked_on

    return worked_on(directory.parent.parent, directory.name)


def _read_unsealed(directory: Path, *, worked: bool) -> ListedRun:
    from coilclaw.runs.evidence.progress import fold_events

    found = list(read_events(directory))
    if not found:
        return ListedRun(directory.name, directory, "empty", "", "", "", "", "")
    progress = fold_events(found)
    created = progress.created
    payload = found[-1]["payload"]
    reason = str(payload.get("reason", "")) if isinstance(payload, dict) else ""
    return ListedRun(
        directory.name,
        directory,
        judge_standing(found, worked=worked),
        progress.state.value,
        str(created.get("created_at", "")),
        str(created.get("request", "")),
        progress.merge,
        reason or " ".join(progress.failures),
        tuple(progress.waiting),
    )


def judge_standing(found: list[dict[str, object]], *, worked: bool) -> Standing:
    """Return the standing of a run that is not sealed, by its last event and by ``worked``.

    A process that runs is not enough: that of a gateway outlives the runs that it stops.
    """
    last = str(found[-1]["event_type"])
    if last == EventType.RUN_PAUSED:
        return "paused"
    if worked:
        return "waiting" if last == EventType.LOCKS_AWAITED else "running"
    return "sealing" if last == EventType.RUN_SEALED else "interrupted"


def read_events(directory: Path, start: int = 0) -> Iterator[dict[str, object]]:
    """Yield the complete events of a run from number ``start`` (from 0)."""
    path = directory / layout.EVENTS
    # Nothing is appended, so that no key is needed.
    yield from Journal(path, hash_field="event_hash", key_path=Path(os.devnull)).read(start)


def describe_run(directory: Path, one: ListedRun, failures: Failures) -> dict[str, Json]:
    """Return what ``runs show`` prints, from the events and the reports that they name."""
    from coilclaw.runs.evidence.rehydration import rehydrate_run

    told = rehydrate_run(directory)
    found = list_audits(directory)
    return {
        **one.json(),
        "events": told.events,
        "sealed": told.sealed,
        "timeline": [moment.json() for moment in told.timeline],
        "tasks": {task: _describe_task(facts, told, task) for task, facts in told.tasks.items()},
        "gates": [_choose_fields(row, _GATE) for row in told.gates],
        "tests": [
            {
                **_choose_fields(row, ("event", "status", "where")),
                "commands": _list_commands(directory, str(row.get("path"))),
            }
            for row in told.tests
        ],
        "reviews": [_choose_fields(row, _REVIEW) for row in told.reviews],
        "fixes": [_choose_fields(row, _FIX) for row in told.fixes],
        "approvals": [dict(row) for row in told.approvals],
        "audits": [audit.name for audit in found if not audit.is_foreign(directory.name)],
        "foreign_audits": [audit.name for audit in found if audit.is_foreign(directory.name)],
        **failures.json(),
    }


_REVIEW: Final = ("event", "task_id", "verdict", "reviewer", "path")
_GATE: Final = ("event", "task_id", "gate", "passed", "violations")
_FIX: Final = ("event", "task_id", "child_task_id", "reason", "retries_left")


def find_application(directory: Path) -> Application | None:
    """Return the last merge of a sealed run that an audit of its own reports, if there is one."""
    return max(list_applications(directory, directory.name), key=lambda done: done.at, default=None)


def _choose_fields(row: Mapping[str, Json], names: tuple[str, ...]) -> dict[str, Json]:
    return {name: row.get(name) for name in names}


def _describe_task(facts: Mapping[str, Json], told: Rehydrated, task_id: str) -> dict[str, Json]:
    verdicts = [row.get("verdict") for row in told.reviews if row.get("task_id") == task_id]
    shown = _choose_fields(facts, ("parent", "contract", "status"))
    return {**shown, "verdict": verdicts[-1] if verdicts else None}


def _list_commands(directory: Path, path: str) -> list[Json]:
    rows = get_part(parse_json(bundle.find_file(directory, path)), "commands")
    names = ("name", "cmd_argv", "must_pass", "exit_code", "duration_sec")
    found = rows if isinstance(rows, list) else ()
    return [_choose_fields(row, names) for row in found if isinstance(row, dict)]


def read_patch(directory: Path, *, task: str | None = None, rejected: bool = False) -> bytes:
    """Return what a run or one of its tasks changed, or what was rolled back, as a git patch."""
    folder = "artifacts/rejected" if rejected else "patches"
    if task is None and not rejected:
        return bundle.find_file(directory, layout.PATCH, limit=MAX_PATCH_BYTES) or b""
    known = [
        str(event["task_id"])
        for event in read_events(directory)
        if event["event_type"] == EventType.CONTRACT_WRITTEN
    ]
    if task is not None and task not in known:
        raise UsageError(
            f"run {directory.name} has no task {task[:200]!r}",
            rule="run.task",
            hint=f"its tasks are {', '.join(known)}" if known else None,
        )
    names = known if task is None else [task]
    found = (
        bundle.find_file(
            directory, f"{folder}/{layout.make_segment(name)}.diff", limit=MAX_PATCH_BYTES
        )
        for name in names
    )
    return b"".join(data for data in found if data)
