"""``History``: what the journal of a trajectory says, put together; the head of the document.

Records by ``type``: ``session`` first, then any number of ``turn``, ``agent_session``, ``part``,
``turn_end``, ``resumed`` and ``end``. The same fold serves recording, resuming and verifying.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.trajectory.trace import (
    VERSION,
    Artifacts,
    EnvoiCall,
    Head,
    Limits,
    RepoCheckpoint,
    Resumption,
    SessionEnd,
    TokenUsage,
    TurnRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from coilclaw.domain.messages import Json

HASH_FIELD: Final = "part_hash"
_NOT_OF_A_PART: Final = frozenset({"type", "previous_hash"})


@dataclass(slots=True)
class History:
    """Where a trajectory stands; ``apply`` every record in order."""

    on_call: Callable[[EnvoiCall], None] | None = None
    """Told of each call of the tests."""
    session: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    limits: Limits | None = None
    turns: list[TurnRecord] = field(default_factory=list)
    resumptions: list[Resumption] = field(default_factory=list)
    parts: int = 0
    commit: str = ""
    """The last one that was recorded."""
    elapsed_ms: int = 0
    thread_id: str = ""
    end: SessionEnd | None = None
    open: bool = False
    """Whether a turn is going on."""

    @property
    def begun(self) -> bool:
        return bool(self.session)

    @property
    def session_id(self) -> str:
        return self.thread_id or f"pending-{self.session['trajectory_id']}"

    def apply(self, record: Mapping[str, Any]) -> None:
        """Take in one record."""
        kind = record.get("type")
        if (kind == "session") == self.begun:
            raise _misplaced(kind)
        match kind:
            case "session":
                self._session(record)
            case "turn":
                self._turn(record)
            case "agent_session":
                self._agent_session(record)
            case "part":
                self._part(record)
            case "turn_end":
                self._turn_end(record)
            case "resumed":
                self._resumed(record)
            case "end":
                self._end(record)
            case _:
                raise _misplaced(kind)

    def head(self) -> Head:
        """Everything of the document but its parts."""
        session = self.session
        assert self.limits is not None, "a session has limits"
        turns = list(self.turns)
        if turns and self.end is not None:
            turns[-1] = replace(turns[-1], session_end=self.end)
        return Head(
            schema_version=VERSION,
            trajectory_id=session["trajectory_id"],
            session_id=self.session_id,
            agent=session["agent"],
            agent_model=session["agent_model"],
            started_at=session["started_at"],
            environment=session["environment"],
            environment_version=session["environment_version"],
            versions=dict(sorted(self.versions.items())),
            limits=self.limits,
            artifacts=Artifacts(**session["artifacts"]),
            initial_commit=session["initial_commit"],
            resumptions=tuple(self.resumptions),
            turns=tuple(turns),
            session_end=self.end,
        )

    def _session(self, record: Mapping[str, Any]) -> None:
        self.session = dict(record)
        self.versions = dict(record["versions"])
        self.limits = Limits(**record["limits"])
        self.commit = record["initial_commit"]

    def _turn(self, record: Mapping[str, Any]) -> None:
        self._close("killed")
        self.elapsed_ms = record["elapsed_ms"]
        self.end = None
        self.open = True
        self.turns.append(
            TurnRecord(
                trajectory_id=self.session["trajectory_id"],
                session_id=self.session_id,
                agent=self.session["agent"],
                agent_model=self.session["agent_model"],
                turn=record["turn"],
                part_start=self.parts + 1,
                part_end=None,
                timestamp=record["timestamp"],
                prompt=record["prompt"],
                git_commit=self.commit,
                repo_checkpoint=None,
                envoi_calls=(),
                session_end=None,
            )
        )

    def _agent_session(self, record: Mapping[str, Any]) -> None:
        """The agent named its session in the middle of a turn; empty: it knows none any more."""
        self.thread_id = record["thread_id"]
        self.elapsed_ms = record["elapsed_ms"]
        if self.open:
            self.turns[-1] = replace(self.turns[-1], session_id=self.session_id)

    def _part(self, record: Mapping[str, Any]) -> None:
        if record["part"] != self.parts + 1:
            raise EnvironmentFault(
                f"part {record['part']} follows part {self.parts} in the journal",
                rule="trajectory.record",
            )
        self.parts += 1
        self.elapsed_ms = record["elapsed_ms"]
        self._moved(record)

    def _turn_end(self, record: Mapping[str, Any]) -> None:
        self._moved(record)
        self.elapsed_ms = record["elapsed_ms"]
        self.thread_id = record["thread_id"] or self.thread_id
        if record["agent_version"]:
            self.versions["agent"] = record["agent_version"]
        checkpoint, usage = record["repo_checkpoint"], record["token_usage"]
        turn = replace(
            self.turns[-1],
            session_id=self.session_id,
            part_end=self.parts,
            git_commit=self.commit,
            repo_checkpoint=None if checkpoint is None else RepoCheckpoint.of(checkpoint),
            envoi_calls=tuple(EnvoiCall.of(call) for call in record["envoi_calls"]),
            status=record["status"],
            reason=record["reason"],
            duration_ms=record["duration_ms"],
        )
        if usage is not None:
            turn = replace(turn, token_usage=TokenUsage(**usage))
        self.turns[-1] = turn
        self.open = False

    def _resumed(self, record: Mapping[str, Any]) -> None:
        self._close("killed")
        self.end = None
        self.limits = Limits(**record["limits"])
        self.elapsed_ms = record["elapsed_ms"]
        self.resumptions.append(
            Resumption(
                timestamp=record["timestamp"],
                after_part=self.parts,
                elapsed_ms=record["elapsed_ms"],
                leftover=record["leftover"],
                leftover_ref=record["leftover_ref"],
            )
        )

    def _end(self, record: Mapping[str, Any]) -> None:
        self._close("killed")
        told = {one.name: record[one.name] for one in fields(SessionEnd)}
        self.end = SessionEnd(**told)
        self.elapsed_ms = self.end.elapsed_ms

    def _moved(self, record: Mapping[str, Any]) -> None:
        if self.on_call is not None:
            for call in record["envoi_calls"]:
                self.on_call(EnvoiCall.of(call))
        self.commit = record["git_commit"]

    def _close(self, status: str) -> None:
        """A turn that has no end was cut off."""
        if self.open:
            last = self.turns[-1]
            self.turns[-1] = replace(
                last, part_end=self.parts, git_commit=self.commit, status=status
            )
            self.open = False


def _misplaced(kind: object) -> EnvironmentFault:
    return EnvironmentFault(
        f"the journal of a trajectory holds a record of type {kind!r} where none may be",
        rule="trajectory.record",
    )


def part_of(record: Mapping[str, Any]) -> dict[str, Json]:
    """A part as the document holds it."""
    return {name: value for name, value in record.items() if name not in _NOT_OF_A_PART}
