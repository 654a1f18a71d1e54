"""``Recorder``: writes down each part when it is complete: commit, bundle, journal, document.

In this order: whatever the journal names is in the bundle, and whatever the document shows is in
the journal. A kill at any point loses nothing that was recorded.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from coilclaw.kernel import EnvironmentFault, Journal, Part, Usage, anchor_path
from coilclaw.traces.trajectory import agent_workspace, bundles, trace
from coilclaw.traces.trajectory.checkpoints import Checkpoints, readable
from coilclaw.traces.trajectory.history import History, part_of
from coilclaw.workspace import format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from pathlib import Path
    from typing import Any

    from coilclaw.runners import Ending
    from coilclaw.traces.trajectory.plan import TracePlaces
    from coilclaw.traces.trajectory.test_harness import SuiteHarness
    from coilclaw.traces.trajectory.trace_document import TraceDocument


_log = logging.getLogger(__name__)

TRACE: Final = "agent_trace.json"
BUNDLE: Final = "repo.bundle"
SESSION: Final = "session.json"


class Uploads(Protocol):
    """Takes files over and returns at once; ``artifacts.uploader.Uploader`` is one."""

    def document(self, key: str, source: Path | bytes, /) -> None: ...

    def piece(self, key: str, source: Path, /) -> None: ...


class Publisher:
    """What is where in the store, and when it goes there; without uploads it does nothing.

    A store that takes nothing does not stop the recording: what could not be handed over is told,
    and handed over again at the end.
    """

    def __init__(self, places: TracePlaces, uploads: Uploads | None = None) -> None:
        self._places = places
        self._uploads = uploads
        self._missed: dict[str, Path] = {}

    def session(self, data: bytes) -> None:
        """Upload the plan, so that the trajectory can be resumed from the store."""
        if self._uploads is not None:
            self._uploads.document(self._places.key_of(SESSION), data)

    def parts(self) -> None:
        """Upload the newest state of trace and journal."""
        journal = self._places.journal
        if self._uploads is not None:
            for path in (self._places.document, journal, anchor_path(journal)):
                self._uploads.document(self._places.key_of(path.name), path)

    def piece(self, path: Path) -> None:
        """Upload the piece of a checkpoint."""
        self._hand_over(f"bundles/{path.name}", path)

    def result(self, call_id: str) -> None:
        """Upload the result of a call of the tests."""
        name = f"{call_id}.json"
        self._hand_over(f"results/{name}", self._places.results / name)

    def end(self) -> None:
        """Upload the whole bundle, and what could not be handed over before."""
        missed, self._missed = self._missed, {}
        for name, path in missed.items():
            self._hand_over(name, path)
        self.parts()
        if self._uploads is not None:
            self._uploads.document(self._places.key_of(BUNDLE), self._places.bundle)

    def _hand_over(self, name: str, path: Path) -> None:
        if self._uploads is None:
            return
        try:
            self._uploads.piece(self._places.key_of(name), path)
        except EnvironmentFault as problem:
            self._missed[name] = path
            extra = {"event": "artifact_waits", "fields": {"name": name, "rule": problem.rule}}
            _log.warning("artifact waits: %s", problem.message, extra=extra)


MAX_TEXT_BYTES: Final = 3 * 2**20
"""The most that each of a part's texts takes in the journal, whose lines are bounded."""
MAX_PROMPT_BYTES: Final = 2 * 2**20
MAX_NAME_BYTES: Final = 500
MAX_FILES: Final = 2000
MAX_FILES_BYTES: Final = 2**18
MAX_CALLS_BYTES: Final = 3 * 2**19
"""What the calls of one record take, beyond which only their figures are listed."""
MAX_COUNT: Final = 2**53 - 1
"""Beyond it a number is not the same everywhere, and none that an agent counts with."""


@dataclass(slots=True)
class Clock:
    """The time of day, and how long the trajectory has been at work, over all its resumptions."""

    now: Callable[[], datetime]
    monotonic: Callable[[], float]
    base_ms: int = 0
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.monotonic()

    @property
    def elapsed_ms(self) -> int:
        return self.base_ms + round((self.monotonic() - self.began) * 1000)

    def stamp(self) -> str:
        return format_time(self.now())


@dataclass(slots=True)
class Recorder:
    """Everything that is written while an agent works; one thread uses it."""

    places: TracePlaces
    history: History
    journal: Journal
    document: TraceDocument
    checkpoints: Checkpoints
    bench: SuiteHarness
    publisher: Publisher
    clock: Clock
    redact: Callable[[str], str]
    keep_raw: bool = False
    watch: Callable[[trace.PartRecord], None] = lambda _: None
    calls: list[trace.EnvoiCall] = field(default_factory=list)
    """Those of the open turn."""
    _turn_began_ms: int = 0
    _part_began_ms: int = 0
    _agent_head: str | None = None

    def begin_turn(self, prompt: str) -> None:
        """Record the prompt of a turn."""
        self._turn_began_ms = self._part_began_ms = self.clock.elapsed_ms
        self._agent_head = agent_workspace.agent_head(self.places.workspace)
        self.calls = []
        self._append(
            {
                "type": "turn",
                "turn": len(self.history.turns) + 1,
                "timestamp": self.clock.stamp(),
                "prompt": self._text(prompt, MAX_PROMPT_BYTES),
                "elapsed_ms": self._turn_began_ms,
            }
        )
        self._show_head()

    def publish_all(self, session: bytes) -> None:
        """Hand over every piece that is there: what a run before this one did not get to."""
        self.publisher.session(session)
        for piece in bundles.pieces(self.places.bundles):
            self.publisher.piece(piece)
        self.publisher.parts()

    def agent_session(self, thread_id: str) -> None:
        """Record the agent's own session at once: a turn that is killed can resume it."""
        named = self._text(thread_id, MAX_NAME_BYTES)
        if named == self.history.thread_id:
            return
        self._append(
            {
                "type": "agent_session",
                "timestamp": self.clock.stamp(),
                "elapsed_ms": self.clock.elapsed_ms,
                "thread_id": named,
            }
        )
        self._show_head()

    def part(self, part: Part) -> trace.PartRecord:
        """Record a part that is complete."""
        number = self.history.parts + 1
        # A part that only changed files names all of them; anything else may have changed any.
        named = part.files if part.kind == "patch" and part.files else None
        checkpoint = self._checkpoint(f"part {number} checkpoint", number, None, named)
        calls = self.bench.shown_by(part.tool, part.input)
        self._tell(calls)
        record = self._record(part, number, checkpoint, calls)
        written = {"type": "part", **record.json()}
        written["part_hash"] = self._append(written)
        self.document.append(part_of(written))
        self.publisher.parts()
        self._part_began_ms = record.elapsed_ms
        self.watch(record)
        return record

    def settle(self) -> trace.RepoCheckpoint | None:
        """Commit what changed after the last part of the turn."""
        turn, parts = len(self.history.turns), self.history.parts
        return self._checkpoint(f"end of turn {turn}", parts, turn, None)

    def end_turn(
        self,
        ending: Ending,
        settled: trace.RepoCheckpoint | None,
        evaluated: Sequence[trace.EnvoiCall] = (),
    ) -> None:
        """Record how a turn ended, with what changed and was tested after its last part."""
        self._tell(evaluated)
        drained = self.bench.drain()
        self._tell(drained)
        self._append(
            {
                "type": "turn_end",
                "turn": len(self.history.turns),
                "timestamp": self.clock.stamp(),
                "git_commit": self.checkpoints.state.commit,
                "repo_checkpoint": None if settled is None else settled.json(),
                "envoi_calls": [call.json() for call in _bound_calls((*drained, *evaluated))],
                "status": ending.status,
                "reason": self._text(ending.reason, MAX_TEXT_BYTES),
                "duration_ms": max(0, self.clock.elapsed_ms - self._turn_began_ms),
                "elapsed_ms": self.clock.elapsed_ms,
                "token_usage": _encode_usage(ending.usage),
                "thread_id": self._text(ending.thread_id, MAX_NAME_BYTES),
                "agent_version": self._text(ending.version, MAX_NAME_BYTES),
            }
        )
        self._show_head()

    def end(self, reason: trace.StopReason, detail: str = "") -> trace.SessionEnd:
        """Record the end of the session, and make one bundle of all."""
        made = trace.SessionEnd(
            reason=reason,
            total_parts=self.history.parts,
            total_turns=len(self.history.turns),
            final_git_commit=self.history.commit,
            timestamp=self.clock.stamp(),
            elapsed_ms=self.clock.elapsed_ms,
            detail=self._text(detail, MAX_TEXT_BYTES),
        )
        bundles.write_whole(self.checkpoints.git, self.places.bundle)
        self._append({"type": "end", **made.json()})
        self._show_head()
        self.publisher.end()
        return made

    def _record(
        self,
        part: Part,
        number: int,
        checkpoint: trace.RepoCheckpoint | None,
        calls: tuple[trace.EnvoiCall, ...],
    ) -> trace.PartRecord:
        session = self.history.session
        now_ms = self.clock.elapsed_ms
        head = agent_workspace.agent_head(self.places.workspace)
        moved, self._agent_head = head if head != self._agent_head else None, head
        text = self._text(part.text, MAX_TEXT_BYTES)
        output = self._text(part.output, MAX_TEXT_BYTES)
        tool = self._text(part.tool, MAX_NAME_BYTES)
        given = self._text(part.input, MAX_TEXT_BYTES)
        usage = _encode_usage(part.usage)
        return trace.PartRecord(
            trajectory_id=session["trajectory_id"],
            session_id=self.history.session_id,
            agent=session["agent"],
            agent_model=session["agent_model"],
            part=number,
            turn=len(self.history.turns),
            timestamp=self.clock.stamp(),
            duration_ms=max(0, now_ms - self._part_began_ms),
            elapsed_ms=now_ms,
            role="assistant",
            part_type=part.kind,
            item_type=self._text(part.item_type or part.kind, MAX_NAME_BYTES),
            summary=trace.summarize(text or " ".join(filter(None, (tool, given))) or output),
            git_commit=self.checkpoints.state.commit,
            repo_checkpoint=checkpoint,
            envoi_calls=_bound_calls(calls),
            testing_state=self.bench.state(),
            content=text,
            files=tuple(
                trace.take_within_bytes(map(self._name, part.files[:MAX_FILES]), MAX_FILES_BYTES)
            ),
            tool_name=tool or None,
            tool_call_id=self._text(part.call_id, MAX_NAME_BYTES) or None,
            tool_input=given or None,
            tool_output=output or None,
            tool_exit_code=_bound_count(part.exit_code),
            token_usage=None if usage is None else trace.TokenUsage(**usage),
            agent_commit=moved,
            raw=self._text(part.raw, MAX_TEXT_BYTES) or None if self.keep_raw else None,
        )

    def _checkpoint(
        self, message: str, part: int, turn: int | None, paths: Sequence[str] | None
    ) -> trace.RepoCheckpoint | None:
        before = self.checkpoints.state.commit
        made = self.checkpoints.take(message, paths)
        if made is None:
            return None
        piece = self.places.bundles / bundles.piece_name(part, turn)
        bundles.write_piece(self.checkpoints.git, piece, before)
        self.publisher.piece(piece)
        # A name can hold a key as well as a text can.
        numstat = tuple(replace(one, path=self.redact(one.path)) for one in made.numstat)
        return replace(made, numstat=numstat, changed_files=tuple(one.path for one in numstat))

    def _tell(self, calls: Sequence[trace.EnvoiCall]) -> None:
        self.calls += calls
        for call in calls:
            if call.result_sha256 is not None:
                self.publisher.result(call.call_id)

    def _append(self, record: dict[str, Any]) -> str:
        digest = self.journal.append(record)
        self.history.apply(record)
        return digest

    def _show_head(self) -> None:
        self.document.set_head(self.history.head().json())
        self.publisher.parts()

    def _text(self, text: str, limit: int) -> str:
        return trace.bound_text(self.redact(trace.replace_surrogates(text)), limit)

    def _name(self, path: str) -> str:
        return self._text(readable(path), MAX_NAME_BYTES * 16)


def _encode_usage(usage: Usage | None) -> dict[str, int | None] | None:
    if usage is None:
        return None
    return {
        "input_tokens": _bound_tokens(usage.input_tokens),
        "output_tokens": _bound_tokens(usage.output_tokens),
    }


def _bound_count(number: int | None) -> int | None:
    """Return a number that an agent reported, or ``None`` if no record can hold it."""
    return number if number is not None and abs(number) <= MAX_COUNT else None


def _bound_tokens(number: int | None) -> int | None:
    counted = _bound_count(number)
    return None if counted is None or counted < 0 else counted


def _bound_calls(calls: Sequence[trace.EnvoiCall]) -> tuple[trace.EnvoiCall, ...]:
    """Return calls as one record can hold them; their whole results are on disk."""
    found, left = [], MAX_CALLS_BYTES
    for call in calls:
        size = len(json.dumps(call.json(), ensure_ascii=False).encode("utf-8", "replace"))
        if size > left and call.result is not None:
            bare = replace(call.result, tests=())
            call = replace(call, result=bare, newly_broken=(), newly_fixed=())
            size = 0
        left -= size
        found.append(call)
    return tuple(found)
