"""One run of a SOP, as its journal tells it: ``started`` before a stage, ``finished`` after it.

The journal is the only memory of a run. Whoever continues one replays it first.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, TypeVar, cast

from coilclaw.domain import freeform
from coilclaw.errors import EnvironmentFault, LockTimeout, UsageError
from coilclaw.runtime.identity import alive, new_id, stamp, this_process
from coilclaw.sop.outcome import Outcome
from coilclaw.storage.journal import Journal
from coilclaw.storage.lock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.sop.document import Sop
    from coilclaw.sop.outcome import Status

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

Kept = TypeVar("Kept")


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a stage that was begun, and is not known to have ended."""

    stage: str
    number: int
    process: str


@dataclass(frozen=True, slots=True)
class Settlement:
    """What a person said about an attempt that was interrupted."""

    stage: str
    attempt: int
    how: Decision
    by: str
    note: str
    time: str

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What the attempt came to by that; nothing where it is to be redone."""
        if self.how == "accept":
            return (Outcome(self.stage, "done", self.attempt, output_known=False),)
        return (Outcome(self.stage, "skipped", self.attempt),) if self.how == "skip" else ()


@dataclass(frozen=True, slots=True)
class Run:
    """What is known of a run."""

    id: str
    sop: str
    text: str
    """The SOP as it was when the run began."""
    sop_hash: str
    workspace: str
    receipts: str
    """Where the receipts of the run are: without them nobody knows what it did."""
    begun: str
    process: str
    """Who worked on it last."""
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    """Attempts that failed and are to be repeated, by stage."""
    tried: Mapping[str, int] = field(default_factory=dict)
    """The number of the last attempt that was begun, by stage."""
    attempts: Mapping[str, Attempt] = field(default_factory=dict)
    """The attempts that were begun and are not known to have ended, by stage."""
    waits: Mapping[str, str] = field(default_factory=dict)
    """The approvals that it waits for, by stage."""
    inputs: Mapping[str, Json] = field(default_factory=dict)
    asker: str = ""
    """Which client began it; empty where it was a person at a terminal."""
    settlements: tuple[Settlement, ...] = ()
    ending: Ending | None = None
    reason: str = ""
    ended: str = ""

    @property
    def attempt(self) -> Attempt | None:
        """The first attempt that is under way, or was interrupted."""
        return next(iter(self.attempts.values()), None)

    @property
    def approval(self) -> str:
        """The first approval that it waits for."""
        return next(iter(self.waits.values()), "")

    @property
    def status(self) -> RunStatus:
        if self.ending is not None:
            return self.ending
        if self.waits:
            return "waiting"
        return "running" if alive(self.process) else "interrupted"


class Runs:
    """The runs of one home. Making it touches nothing."""

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
        """Make a run; nobody else can have it."""
        try:
            for folder in (self.folder, self._key.parent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create {self.folder}: {problem.strerror}", rule="sop.create"
            ) from problem
        file = self._file(new_id("sop"))
        file.acquire()
        file.record(
            "begun",
            version=VERSION,
            run=file.id,
            sop=sop.name,
            text=sop.text,
            sop_hash=sop.hash,
            workspace=workspace,
            receipts=receipts,
            **({"inputs": freeform.text(dict(inputs))} if inputs else {}),
            **({"asker": asker} if asker else {}),
        )
        return file

    def open(self, text: str) -> RunFile:
        """Take a run to go on with it; ``LockTimeout`` when somebody else has it."""
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

    def find(self, text: str) -> Run:
        """The run whose id is, or begins with, ``text``."""
        names = [
            name
            for name in self._names()
            if name == text or (text and name.removeprefix("sop-").startswith(_short(text)))
        ]
        exact = [name for name in names if name == text] or names
        if len(exact) == 1:
            return self._file(exact[0]).read()
        what = "there is no run" if not exact else f"{len(exact)} runs begin with"
        raise UsageError(
            f"{what} {text!r}", rule="sop.unknown_run", hint="'coilclaw sop status' lists them"
        )

    def events(self, run_id: str, since: int) -> Iterator[dict[str, object]]:
        """Stream the events of a run behind the first ``since``."""
        return self._file(run_id).events(since)

    def path(self, run_id: str) -> Path:
        """Where the journal of a run stands."""
        return self.folder / f"{run_id}.jsonl"

    def list(self) -> tuple[Run, ...]:
        """All runs, the oldest first."""
        return tuple(sorted((self._file(name).read() for name in self._names()), key=_age))

    def _names(self) -> tuple[str, ...]:
        if not self.folder.is_dir():
            return ()
        return tuple(
            sorted(
                path.stem
                for path in self.folder.iterdir()
                if path.suffix == ".jsonl" and _ID.fullmatch(path.stem) and path.stat().st_size
            )
        )

    def _file(self, name: str) -> RunFile:
        return RunFile(name, self.folder, self._key, self._now)


class RunFile:
    """A run that somebody works on: its journal, and the lock that keeps others away."""

    def __init__(self, name: str, folder: Path, key: Path, now: Callable[[], datetime]) -> None:
        self.id = name
        self._journal = Journal(folder / f"{name}.jsonl", hash_field=HASH_FIELD, key_path=key)
        self._lock = FileLock(folder / f"{name}.lock", timeout_s=BUSY_S)
        self._now = now
        self._run: Run | None = None

    @property
    def run(self) -> Run:
        assert self._run is not None, "a run is read before it is asked for"
        return self._run

    def acquire(self) -> None:
        self._lock.acquire()

    def close(self) -> None:
        self._journal.close()
        self._lock.release()

    def read(self) -> Run:
        """Replay the journal."""
        run: Run | None = None
        for record in self._journal.read():
            run = _after(run, record)
        if run is None:
            raise EnvironmentFault(f"the run {self.id} has no beginning", rule="sop.damaged")
        return run

    def events(self, since: int) -> Iterator[dict[str, object]]:
        """Stream the events behind the first ``since``."""
        return self._journal.read(since)

    def reload(self) -> None:
        self._run = self.read()

    def started(self, stage: str, attempt: int) -> None:
        self.record("started", stage=stage, attempt=attempt)

    def asked(self, stage: str, approval: str) -> None:
        self.record("asked", stage=stage, approval=approval)

    def finished(self, outcome: Outcome, *, again: bool = False) -> None:
        """Keep what a stage came to; ``again`` when another attempt follows."""
        self.record(
            "finished",
            stage=outcome.stage,
            status=outcome.status,
            attempt=outcome.attempt,
            output=outcome.output,
            output_known=outcome.output_known,
            error=outcome.error[:MAX_ERROR_CHARS],
            rule=outcome.rule,
            receipt=outcome.receipt,
            approval=outcome.approval,
            again=again,
        )

    def settle(self, attempt: Attempt, how: Decision, by: str, note: str) -> None:
        """Keep what a person said about an interrupted attempt."""
        self.record(
            "settled",
            stage=attempt.stage,
            attempt=attempt.number,
            how=how,
            by=by,
            note=note[:MAX_NOTE_CHARS],
        )

    def end(self, ending: Ending, reason: str) -> None:
        self.record("ended", status=ending, reason=reason)

    def record(self, event: str, **fields: object) -> None:
        """Put one event on the disk."""
        record = {
            "event": event,
            "time": stamp(self._now()),
            "process": this_process(),
            **{
                name: valid(value) if isinstance(value, str) else value
                for name, value in fields.items()
            },
        }
        self._journal.append(record)
        self._run = _after(self._run, record)


def _short(text: str) -> str:
    return text.removeprefix("sop-")


def _age(run: Run) -> tuple[str, str]:
    return run.begun, run.id


def valid(text: str) -> str:
    """Names that are not Unicode carry surrogates, which no JSON holds."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _after(run: Run | None, record: Mapping[str, object]) -> Run:
    """The run after one more event."""
    if record["event"] == "begun":
        return _begun(record)
    if run is None:
        raise EnvironmentFault("the journal of a run has no beginning", rule="sop.damaged")
    run = replace(run, process=str(record["process"]))
    match record["event"]:
        case "started":
            number = record["attempt"]
            assert isinstance(number, int), "it was written as a number"
            attempt = Attempt(str(record["stage"]), number, str(record["process"]))
            return replace(
                run,
                attempts={**run.attempts, attempt.stage: attempt},
                tried={**run.tried, attempt.stage: number},
                waits=_without(run.waits, attempt.stage),
            )
        case "asked":
            waits = {**run.waits, str(record["stage"]): str(record["approval"])}
            return replace(run, waits=waits)
        case "settled":
            return _settled(run, record)
        case "finished":
            return _finished(run, record)
        case "ended":
            return replace(
                run,
                ending=cast("Ending", record["status"]),
                reason=str(record["reason"]),
                ended=str(record["time"]),
                waits={},
            )
        case other:
            raise EnvironmentFault(
                f"the journal of the run {run.id} holds an unknown event {other!r}",
                rule="sop.damaged",
                hint="a newer version may have written it",
            )


def _begun(record: Mapping[str, object]) -> Run:
    if record["version"] != VERSION:
        raise EnvironmentFault(
            f"the run {record['run']} is of version {record['version']}, and {VERSION} is known",
            rule="sop.version",
        )
    return Run(
        id=str(record["run"]),
        sop=str(record["sop"]),
        text=str(record["text"]),
        sop_hash=str(record["sop_hash"]),
        workspace=str(record["workspace"]),
        receipts=str(record["receipts"]),
        begun=str(record["time"]),
        process=str(record["process"]),
        inputs=stored_inputs(record),
        asker=str(record.get("asker", "")),
    )


def stored_inputs(record: Mapping[str, object]) -> dict[str, Json]:
    """Return the inputs that a run began with; a record holds no fractions, and so their text."""
    return cast("dict[str, Json]", json.loads(str(record.get("inputs", "{}"))))


def _without(found: Mapping[str, Kept], stage: str) -> dict[str, Kept]:
    return {name: one for name, one in found.items() if name != stage}


def _settled(run: Run, record: Mapping[str, object]) -> Run:
    """An attempt that was settled is no longer under way.

    What it came to counts from here: the process may be killed before it says that it is finished.
    """
    number = record["attempt"]
    assert isinstance(number, int), "it was written as a number"
    said = Settlement(
        str(record["stage"]),
        number,
        cast("Decision", record["how"]),
        str(record["by"]),
        str(record["note"]),
        str(record["time"]),
    )
    return replace(
        run,
        settlements=(*run.settlements, said),
        outcomes={**run.outcomes, **{one.stage: one for one in said.outcomes}},
        attempts=_without(run.attempts, said.stage),
        waits=_without(run.waits, said.stage),
    )


def _finished(run: Run, record: Mapping[str, object]) -> Run:
    stage = str(record["stage"])
    number = record["attempt"]
    assert isinstance(number, int), "it was written as a number"
    run = replace(run, attempts=_without(run.attempts, stage), waits=_without(run.waits, stage))
    if record["again"]:
        failures = {**run.failures, stage: run.failures.get(stage, 0) + 1}
        return replace(run, failures=failures)
    outcome = Outcome(
        stage,
        cast("Status", record["status"]),
        number,
        str(record["output"]),
        bool(record["output_known"]),
        str(record["error"]),
        str(record["rule"]),
        str(record["receipt"]),
        str(record["approval"]),
    )
    return replace(run, outcomes={**run.outcomes, stage: outcome})
