"""``SopRun``: one run of a SOP, from its journal of ``started`` and ``finished`` stages.

The journal is the only state of a run, and a process that resumes the run replays it first.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast

from coilclaw.agent.sop.document import StageOutcome
from coilclaw.kernel import (
    EnvironmentFault,
    FileLock,
    Journal,
    LockTimeout,
    UsageError,
    canonical_json,
    explain_os_errors,
    valid_text,
)
from coilclaw.workspace import format_time, is_alive, new_id, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from coilclaw.agent.sop.document import Sop
    from coilclaw.kernel import Json

RunStatus: TypeAlias = Literal[
    "running", "interrupted", "waiting", "done", "failed", "denied", "rejected"
]
Ending: TypeAlias = Literal["done", "failed", "denied", "rejected"]

Decision: TypeAlias = Literal["redo", "accept", "skip"]

HASH_FIELD: Final = "event_hash"
VERSION: Final = 1
BUSY_S: Final = 0.2
MAX_ERROR_CHARS: Final = 4000
MAX_NOTE_CHARS: Final = 4000
_ID: Final = re.compile(r"sop-[0-9a-f]{16}")
_BEGUN: Final = ("sop", "text", "sop_hash", "workspace", "receipts", "process")
_OUTCOME: Final = tuple(one.name for one in fields(StageOutcome))

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class StageAttempt:
    """A started attempt at a stage without a recorded end."""

    stage: str
    number: int
    process: str


@dataclass(frozen=True, slots=True)
class StageSettlement:
    """The decision of a person about an interrupted attempt."""

    stage: str
    attempt: int
    how: Decision
    by: str
    note: str
    time: str

    @property
    def outcomes(self) -> tuple[StageOutcome, ...]:
        """The outcome of the attempt by this decision; none if it is to be redone."""
        if self.how == "accept":
            return (StageOutcome(self.stage, "done", self.attempt, output_known=False),)
        return (StageOutcome(self.stage, "skipped", self.attempt),) if self.how == "skip" else ()


@dataclass(frozen=True, slots=True)
class SopRun:
    """The state of a run."""

    id: str
    sop: str
    text: str
    """The text of the SOP at the start of the run."""
    sop_hash: str
    workspace: str
    receipts: str
    """The path of the receipts, which record what the run did."""
    begun: str
    process: str
    """The process that worked on it last."""
    outcomes: Mapping[str, StageOutcome] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    """The number of failed attempts that are retried, by stage."""
    tried: Mapping[str, int] = field(default_factory=dict)
    """The number of the last started attempt, by stage."""
    attempts: Mapping[str, StageAttempt] = field(default_factory=dict)
    """The started attempts without a recorded end, by stage."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """The pending approvals, by stage."""
    inputs: Mapping[str, Json] = field(default_factory=dict)
    asker: str = ""
    """The client that started it; empty for the user at a terminal."""
    settlements: tuple[StageSettlement, ...] = ()
    ending: Ending | None = None
    reason: str = ""
    ended: str = ""

    @property
    def attempt(self) -> StageAttempt | None:
        """The first running or interrupted attempt, or ``None``."""
        return next(iter(self.attempts.values()), None)

    @property
    def approval(self) -> str:
        """The first pending approval, or an empty text."""
        return next(iter(self.waits.values()), "")

    @property
    def status(self) -> RunStatus:
        if self.ending is not None:
            return self.ending
        if self.waits:
            return "waiting"
        return "running" if is_alive(self.process) else "interrupted"


class SopRuns:
    """The runs of one home. Creating the object touches no file."""

    def __init__(self, home: Path, now: Callable[[], datetime]) -> None:
        self.folder = home / "sops" / "runs"
        self._key = home / "keys" / "journal.key"
        self._now = now

    def begin(
        self,
        sop: Sop,
        workspace: str,
        receipts: str,
        inputs: Mapping[str, Json] | None = None,
        *,
        asker: str = "",
    ) -> RunFile:
        """Create a run and lock it for this process."""
        with explain_os_errors(f"create {self.folder}", rule="sop.create"):
            for folder in (self.folder, self._key.parent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = self._file(new_id("sop"))
        file.acquire()
        more = {"inputs": canonical_json.render_json(dict(inputs))} if inputs else {}
        more |= {"asker": asker} if asker else {}
        file.record(
            "begun",
            version=VERSION,
            run=file.id,
            sop=sop.name,
            text=sop.text,
            sop_hash=sop.hash,
            workspace=workspace,
            receipts=receipts,
            **more,
        )
        return file

    def open(self, text: str) -> RunFile:
        """Lock a run to resume it; raise ``LockTimeout`` if another process works on it."""
        run = self.find(text)
        file = self._file(run.id)
        try:
            file.acquire()
        except LockTimeout as problem:
            raise LockTimeout(
                f"another process works on {run.id}",
                rule="sop.busy",
                hint=f"'coilclaw sop status {run.id}' says how far it is",
            ) from problem
        file.reload()
        return file

    def find(self, text: str) -> SopRun:
        """Return the run whose id is, or begins with, ``text``; else raise ``UsageError``."""
        start = f"sop-{text.removeprefix('sop-')}"
        names = [name for name in self._names() if text and name.startswith(start)]
        found = [text] if text in names else names
        if len(found) == 1:
            return self._file(found[0]).read()
        count = f"{len(found)} runs begin" if found else "no run begins"
        hint = "'coilclaw sop status' lists them"
        raise UsageError(f"{count} with {text!r}", rule="sop.unknown_run", hint=hint)

    def events(self, run_id: str, since: int) -> Iterator[dict[str, object]]:
        """Stream the events of a run after the first ``since``."""
        return self._file(run_id).events(since)

    def path(self, run_id: str) -> Path:
        """Return the path of the journal of a run."""
        return self.folder / f"{run_id}.jsonl"

    def list(self) -> tuple[SopRun, ...]:
        """Return all runs, oldest first."""
        runs = [self._file(name).read() for name in self._names()]
        return tuple(sorted(runs, key=lambda run: (run.begun, run.id)))

    def _names(self) -> tuple[str, ...]:
        found = self.folder.glob("*.jsonl")
        return tuple(sorted(p.stem for p in found if _ID.fullmatch(p.stem) and p.stat().st_size))

    def _file(self, name: str) -> RunFile:
        return RunFile(name, self.folder, self._key, self._now)


class RunFile:
    """The journal of a run, and the lock for the process that works on it."""

    def __init__(self, name: str, folder: Path, key: Path, now: Callable[[], datetime]) -> None:
        self.id = name
        self._journal = Journal(folder / f"{name}.jsonl", hash_field=HASH_FIELD, key_path=key)
        self._lock = FileLock(folder / f"{name}.lock", timeout_s=BUSY_S)
        self._now = now
        self._run: SopRun | None = None

    @property
    def run(self) -> SopRun:
        assert self._run is not None, "the run is loaded before it is used"
        return self._run

    def acquire(self) -> None:
        self._lock.acquire()

    def close(self) -> None:
        self._journal.close()
        self._lock.release()

    def read(self) -> SopRun:
        """Return the state of the run after replaying its journal."""
        run: SopRun | None = None
        for record in self._journal.read():
            run = _after(run, record)
        if run is None:
            raise EnvironmentFault(
                f"the journal of the SOP run {self.id} is empty", rule="sop.damaged"
            )
        return run

    def events(self, since: int) -> Iterator[dict[str, object]]:
        """Stream the events after the first ``since``."""
        return self._journal.read(since)

    def reload(self) -> None:
        self._run = self.read()

    def record_start(self, stage: str, attempt: int) -> None:
        self.record("started", stage=stage, attempt=attempt)

    def record_question(self, stage: str, approval: str) -> None:
        self.record("asked", stage=stage, approval=approval)

    def record_outcome(self, outcome: StageOutcome, *, again: bool = False) -> None:
        """Record the outcome of a stage; ``again`` means that another attempt follows."""
        shortened = replace(outcome, error=outcome.error[:MAX_ERROR_CHARS])
        self.record("finished", **asdict(shortened), again=again)

    def settle(self, attempt: StageAttempt, how: Decision, by: str, note: str) -> None:
        """Record the decision of a person about an interrupted attempt."""
        about = {"stage": attempt.stage, "attempt": attempt.number}
        self.record("settled", **about, how=how, by=by, note=note[:MAX_NOTE_CHARS])

    def end(self, ending: Ending, reason: str) -> None:
        self.record("ended", status=ending, reason=reason)

    def record(self, event: str, **values: object) -> None:
        """Write one event to the disk and apply it to the state."""
        record: dict[str, object] = {
            name: valid_text(value) if isinstance(value, str) else value
            for name, value in values.items()
        }
        record |= {"event": event, "time": format_time(self._now()), "process": this_process()}
        self._journal.append(record)
        self._run = _after(self._run, record)


def stored_inputs(record: Mapping[str, object]) -> dict[str, Json]:
    """Return the inputs of a run, stored as JSON text because records hold no fractions."""
    return cast("dict[str, Json]", json.loads(str(record.get("inputs", "{}"))))


def _begin(record: Mapping[str, object]) -> SopRun:
    if record["version"] != VERSION:
        raise EnvironmentFault(
            f"the run {record['run']} has journal format {record['version']}, not {VERSION}",
            rule="sop.version",
        )
    texts: dict[str, Any] = {name: str(record[name]) for name in _BEGUN}
    return SopRun(
        id=str(record["run"]),
        begun=str(record["time"]),
        inputs=stored_inputs(record),
        asker=str(record.get("asker", "")),
        **texts,
    )


def _after(run: SopRun | None, record: Mapping[str, object]) -> SopRun:
    """Return the state of the run after one more event."""
    event, time = record["event"], str(record["time"])
    if event == "begun":
        return _begin(record)
    if run is None:
        raise EnvironmentFault("the journal of a run has no beginning", rule="sop.damaged")
    stage, number = str(record.get("stage", "")), cast("int", record.get("attempt", 0))
    run = replace(run, process=str(record["process"]))
    if event in {"started", "settled", "finished"}:
        run = replace(run, waits=_without(run.waits, stage))
    if event in {"settled", "finished"}:
        # A settled attempt does not run any more, whatever its outcome.
        run = replace(run, attempts=_without(run.attempts, stage))
    match event:
        case "started":
            attempts = {**run.attempts, stage: StageAttempt(stage, number, run.process)}
            return replace(run, attempts=attempts, tried={**run.tried, stage: number})
        case "asked":
            return replace(run, waits={**run.waits, stage: str(record["approval"])})
        case "settled":
            how = cast("Decision", record["how"])
            by, note = str(record["by"]), str(record["note"])
            said = StageSettlement(stage, number, how, by, note, time)
            # It counts at once: the process may be killed before it records the end.
            outcomes = {**run.outcomes, **{one.stage: one for one in said.outcomes}}
            return replace(run, settlements=(*run.settlements, said), outcomes=outcomes)
        case "finished" if record["again"]:
            failures = {**run.failures, stage: run.failures.get(stage, 0) + 1}
            return replace(run, failures=failures)
        case "finished":
            outcome = StageOutcome(
                **cast("dict[str, Any]", {name: record[name] for name in _OUTCOME})
            )
            return replace(run, outcomes={**run.outcomes, stage: outcome})
        case "ended":
            ending, reason = cast("Ending", record["status"]), str(record["reason"])
            return replace(run, ending=ending, reason=reason, ended=time, waits={})
        case other:
            raise EnvironmentFault(
                f"the journal of the run {run.id} holds an unknown event {other!r}",
                rule="sop.damaged",
                hint="a newer version may have written it",
            )


def _without(found: Mapping[str, Kept], stage: str) -> dict[str, Kept]:
    return {name: one for name, one in found.items() if name != stage}
