"""``History``: what the journal of a trajectory says, put together; the head of the document.

Records by ``type``: ``session`` first, then any number of ``turn``, ``agent_session``, ``part``,
``turn_end``, ``resumed`` and ``end``. The same fold serves recording, resuming and verifying.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, Json, UsageError
from coilclaw.traces.trajectory import trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


HASH_FIELD: Final = "part_hash"
COMMITS: Final = ("initial_commit", "git_commit", "final_git_commit")
"""Fields of records that name a commit."""
_NOT_OF_A_PART: Final = frozenset({"type", "previous_hash"})


@dataclass(slots=True)
class History:
    """Where a trajectory stands; ``apply`` every record in order."""

    on_call: Callable[[trace.EnvoiCall], None] | None = None
    """Receives each call of the tests."""
    session: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    limits: trace.TraceLimits | None = None
    turns: list[trace.RecordedTurn] = field(default_factory=list)
    resumptions: list[trace.Resumption] = field(default_factory=list)
    parts: int = 0
    commit: str = ""
    """The last one that was recorded."""
    elapsed_ms: int = 0
    thread_id: str = ""
    end: trace.SessionEnd | None = None
    open: bool = False
    """Whether a turn is going on."""

    @property
    def begun(self) -> bool:
        return bool(self.session)

    @property
    def session_id(self) -> str:
        return self.thread_id or f"pending-{self.session['trajectory_id']}"

    def require_unsolved(self) -> None:
        """Refuse to resume what is over."""
        if self.end is not None and self.end.reason == "solved":
            message = f"trajectory {self.session['trajectory_id']} is solved"
            raise UsageError(message, rule="trajectory.solved")

    def apply(self, record: Mapping[str, Any]) -> None:
        """Take in one record."""
        kind = record.get("type")
        if (kind == "session") == self.begun:
            raise _misplaced_error(kind)
        take = {
            "session": self._session,
            "turn": self._turn,
            "agent_session": self._agent_session,
            "part": self._part,
            "turn_end": self._turn_end,
            "resumed": self._apply_resumption,
            "end": self._end,
        }.get(str(kind))
        if take is None:
            raise _misplaced_error(kind)
        take(record)

    def head(self) -> trace.Head:
        """Return everything of the document but its parts."""
        session = self.session
        assert self.limits is not None, "a session has limits"
        turns = list(self.turns)
        if turns and self.end is not None:
            turns[-1] = replace(turns[-1], session_end=self.end)
        names = ("trajectory_id", "agent", "agent_model", "started_at", "environment")
        return trace.Head(
            **{name: session[name] for name in (*names, "environment_version", "initial_commit")},
            schema_version=trace.VERSION,
            session_id=self.session_id,
            versions=dict(sorted(self.versions.items())),
            limits=self.limits,
            artifacts=trace.TraceArtifacts(**session["artifacts"]),
            resumptions=tuple(self.resumptions),
            turns=tuple(turns),
            session_end=self.end,
        )

    def _session(self, record: Mapping[str, Any]) -> None:
        self.session = dict(record)
        self.versions = dict(record["versions"])
        self.limits = trace.TraceLimits(**record["limits"])
        self.commit = record["initial_commit"]

    def _turn(self, record: Mapping[str, Any]) -> None:
        self._close()
        self.elapsed_ms = record["elapsed_ms"]
        self.end = None
        self.open = True
        self.turns.append(
            trace.RecordedTurn(
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
        """Take the name of the agent's session; an empty one means that it was lost."""
        self.thread_id = record["thread_id"]
        self.elapsed_ms = record["elapsed_ms"]
        if self.open:
            self.turns[-1] = replace(self.turns[-1], session_id=self.session_id)

    def _part(self, record: Mapping[str, Any]) -> None:
        if record["part"] != self.parts + 1:
            message = f"part {record['part']} follows part {self.parts} in the journal"
            raise EnvironmentFault(message, rule="trajectory.record")
        self.parts += 1
        self.elapsed_ms = record["elapsed_ms"]
        self._apply_move(record)

    def _turn_end(self, record: Mapping[str, Any]) -> None:
        self._apply_move(record)
        self.elapsed_ms = record["elapsed_ms"]
        self.thread_id = record["thread_id"] or self.thread_id
        if record["agent_version"]:
            self.versions["agent"] = record["agent_version"]
        checkpoint, usage = record["repo_checkpoint"], record["token_usage"]
        self.turns[-1] = replace(
            self.turns[-1],
            session_id=self.session_id,
            part_end=self.parts,
            git_commit=self.commit,
            repo_checkpoint=None if checkpoint is None else trace.RepoCheckpoint.of(checkpoint),
            envoi_calls=tuple(trace.EnvoiCall.of(call) for call in record["envoi_calls"]),
            status=record["status"],
            reason=record["reason"],
            duration_ms=record["duration_ms"],
            token_usage=None if usage is None else trace.TokenUsage(**usage),
        )
        self.open = False

    def _apply_resumption(self, record: Mapping[str, Any]) -> None:
        self._close()
        self.end = None
        self.limits = trace.TraceLimits(**record["limits"])
        self.elapsed_ms = record["elapsed_ms"]
        self.resumptions.append(
            trace.Resumption(
                timestamp=record["timestamp"],
                after_part=self.parts,
                elapsed_ms=record["elapsed_ms"],
                leftover=record["leftover"],
                leftover_ref=record["leftover_ref"],
            )
        )

    def _end(self, record: Mapping[str, Any]) -> None:
        self._close()
        self.end = trace.SessionEnd(
            **{one.name: record[one.name] for one in fields(trace.SessionEnd)}
        )
        self.elapsed_ms = self.end.elapsed_ms

    def _apply_move(self, record: Mapping[str, Any]) -> None:
        if self.on_call is not None:
            for call in record["envoi_calls"]:
                self.on_call(trace.EnvoiCall.of(call))
        self.commit = record["git_commit"]

    def _close(self) -> None:
        """End a turn that has no end as one that was cut off."""
        if self.open:
            self.turns[-1] = replace(
                self.turns[-1], part_end=self.parts, git_commit=self.commit, status="killed"
            )
            self.open = False


def _misplaced_error(kind: object) -> EnvironmentFault:
    message = f"the journal of a trajectory holds a misplaced record of type {kind!r}"
    return EnvironmentFault(message, rule="trajectory.record")


def part_of(record: Mapping[str, Any]) -> dict[str, Json]:
    """Return a part as the document holds it."""
    return {name: value for name, value in record.items() if name not in _NOT_OF_A_PART}
