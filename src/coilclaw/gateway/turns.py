"""Turns on a bounded number of threads: many conversations at once, each one turn at a time.

A message to a conversation that is busy waits until those before it are answered. Threads are
daemons: a turn that hangs in a request to a model does not keep the process from ending, and loses
nothing but its answer, since everything before it is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.agent import ApprovalSuspended, visible
from coilclaw.gateway.agent import FinishedTurn, Part, TurnTerms
from coilclaw.gateway.clients import client_behind
from coilclaw.gateway.http.event_stream import Mailbox
from coilclaw.gateway.http.faults import internal, refusal_error
from coilclaw.kernel import CoilClawError, Stopped
from coilclaw.workspace import check_conversation_id, new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from coilclaw.gateway.agent import ApprovalPending
    from coilclaw.gateway.clients import Client
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.served_agent import ServedAgent
    from coilclaw.kernel import Json

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class TurnJob:
    """One message on its way, and who is told what becomes of it."""

    conversation_id: str
    message: str | None
    """``None`` to finish a turn that was left open."""
    new: bool
    """Whether the conversation is known to begin with this message."""
    listen: Callable[[Part], None] | None
    done: Callable[[FinishedTurn | CoilClawError], None]
    """May be told twice; only the first counts."""
    terms: TurnTerms


def resumption(conversation_id: str, asker: Client) -> TurnJob:
    """Make the job that finishes the turn which was left open in a conversation."""

    def done(ended: FinishedTurn | CoilClawError) -> None:
        if isinstance(ended, CoilClawError):
            _log.info(
                "the turn that was left open in %s is not finished: %s",
                conversation_id,
                ended.message,
                extra={"event": "resume_failed"},
            )

    terms = TurnTerms(asker)
    return TurnJob(conversation_id, None, new=False, listen=None, done=done, terms=terms)


class Turns:
    """Runs jobs in the order in which they come, conversation by conversation."""

    def __init__(
        self, agent: ServedAgent, metrics: Metrics, *, max_turns: int, max_waiting: int
    ) -> None:
        self._agent = agent
        self._metrics = metrics
        self._max_turns, self._max_waiting = max_turns, max_waiting
        self._mutex = threading.Lock()
        self._ready: SimpleQueue[TurnJob] = SimpleQueue()
        self._behind: dict[str, deque[TurnJob]] = {}
        """Busy conversations, each with the messages that wait for it."""
        self._threads = 0
        self._running = 0
        self._pending = 0
        """Jobs that are not finished, whether they run or wait."""
        self._current: dict[str, TurnJob] = {}
        """Jobs that run, by conversation."""
        self._closed = False

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting(self) -> int:
        return self._pending - self._running

    def busy(self, conversation_id: str) -> bool:
        """Whether a turn of this conversation runs or waits."""
        return conversation_id in self._behind

    def client_of(self, conversation_id: str) -> Client | None:
        """Return for whom a turn of this conversation runs now."""
        job = self._current.get(conversation_id)
        return None if job is None else job.terms.client

    def asker(self, conversation_id: str) -> Client:
        """Return the client whose turn is the last one of a conversation."""
        return client_behind(self._agent.memory.last_asker(conversation_id))

    def check_owner(self, conversation_id: str, client: Client) -> None:
        """Refuse a conversation that is there and belongs to another client."""
        if client.role == "admin":
            return
        owner = self._agent.memory.owner(conversation_id)
        if owner is not None and not client.owns(owner):
            raise refusal_error(
                "conversation.owner",
                "this conversation belongs to another client",
                "begin one of your own: leave its id out, or choose another",
            )

    def submit(self, job: TurnJob) -> None:
        """Take a job, or say why not."""
        with self._mutex:
            if self._closed:
                raise _stopping()
            if self._pending - self._running >= self._max_waiting:
                raise refusal_error("turns.waiting", "too many messages wait for their turn")
            self._pending += 1
            line = self._behind.get(job.conversation_id)
            if line is not None:
                line.append(job)
                return
            self._behind[job.conversation_id] = deque()
            spawn = self._threads < min(self._max_turns, len(self._behind))
            self._threads += spawn
        self._ready.put(job)
        if spawn:
            threading.Thread(target=self._work, name="turn", daemon=True).start()

    def close(self) -> None:
        """Take no more jobs; those that have not begun are told so."""
        with self._mutex:
            self._closed = True

    def abandon(self, conversation_ids: Collection[str] | None = None) -> None:
        """Tell the clients of some running turns, or of all, that the gateway stops.

        Their threads are waited for no longer, and what waits for one of them does not begin.
        """
        with self._mutex:
            names = list(self._current) if conversation_ids is None else conversation_ids
            left = [self._current.pop(name) for name in names if name in self._current]
            self._running -= len(left)
            with suppress(Empty):
                while True:
                    left.append(self._ready.get_nowait())
            for job in tuple(left):
                line = self._behind[job.conversation_id]
                left += line
                line.clear()
            self._pending -= len(left)
        for job in left:
            job.done(_stopping())

    def wait_drained(self, timeout_s: float) -> bool:
        """Wait until nothing runs, and say whether that is so."""
        deadline = time.monotonic() + timeout_s
        while self._pending and time.monotonic() < deadline:
            time.sleep(_LOOK_EVERY_S)
        return not self._pending

    def _work(self) -> None:
        while True:
            job = self._ready.get()
            with self._mutex:
                self._running += 1
                self._current[job.conversation_id] = job
                stopping = self._closed
            self._finish(job, _stopping() if stopping else self._run(job))

    def _run(self, job: TurnJob) -> FinishedTurn | CoilClawError:
        agent, name = self._agent, job.conversation_id
        try:
            if job.message is None:
                resumed = agent.resume(name, job.terms)
                if resumed is None:
                    return refusal_error("turn.closed", f"no turn of {name} is open any more")
                self._metrics.count("turns_total")
                return resumed
            if not job.new:
                # Here, where no other turn of this conversation runs, none can come in between.
                self.check_owner(name, job.terms.client)
            if job.new or not agent.memory.conversation(name, last=1):
                self._metrics.count("conversations_total")
            finished = agent.turn(
                job.message, name, terms=job.terms, new=job.new, listen=job.listen
            )
        except CoilClawError as problem:
            return problem
        except ApprovalSuspended as suspended:
            return Stopped(
                f"the turn waits for {suspended} and was stopped",
                rule="gateway.stopping",
                hint="it resumes when the gateway starts again",
            )
        except KeyboardInterrupt:
            # How the guard says that a change was stopped and taken back.
            return Stopped("the turn was stopped, and what it had begun was taken back")
        except Exception:  # noqa: BLE001 - whatever nobody thought of is still an answer
            _log.exception("a turn failed", extra={"event": "turn_fault"})
            return internal()
        self._metrics.count("turns_total")
        return finished

    def _finish(self, job: TurnJob, result: FinishedTurn | CoilClawError) -> None:
        following: TurnJob | None = None
        with self._mutex:
            line = self._behind[job.conversation_id]
            if line:
                following = line.popleft()
            else:
                del self._behind[job.conversation_id]
            if self._current.pop(job.conversation_id, None) is not None:
                self._running -= 1
                self._pending -= 1
        if following is not None:
            self._ready.put(following)
        job.done(result)


def _stopping() -> CoilClawError:
    return refusal_error(
        "gateway.stopping",
        "the gateway is being stopped",
        "the next message continues the conversation, once it serves again",
    )


Told: TypeAlias = Part | FinishedTurn | CoilClawError
"""What comes out of a turn: its parts, and as the last thing how it ended."""


@dataclass(frozen=True, slots=True)
class Conversing:
    """Hands messages to the threads that run turns.

    A turn does not depend on its client: who goes away finds the answer in the conversation.
    """

    turns: Turns
    queue_parts: int

    async def answer(
        self,
        message: str,
        conversation_id: str | None,
        terms: TurnTerms,
        *,
        waits: bool = True,
    ) -> FinishedTurn:
        """Run one turn and return how it ended; an error is raised.

        Without ``waits`` the first approval is such an error, and the turn goes on by itself.
        """
        loop = asyncio.get_running_loop()
        result: asyncio.Future[FinishedTurn | CoilClawError] = loop.create_future()

        def resolve(ended: FinishedTurn | CoilClawError) -> None:
            if not result.done():
                result.set_result(ended)

        def done(ended: FinishedTurn | CoilClawError) -> None:
            with suppress(RuntimeError):  # the loop is closed: there is no waiter any more
                loop.call_soon_threadsafe(resolve, ended)

        name = new_id("conv") if conversation_id is None else check_conversation_id(conversation_id)
        if not waits:
            terms = replace(terms, pending=lambda part: done(_waiting(part, name)))
        self.turns.submit(TurnJob(name, message, conversation_id is None, None, done, terms))
        ended = await result
        if isinstance(ended, CoilClawError):
            raise ended
        return ended

    async def stream(
        self, message: str, conversation_id: str | None, terms: TurnTerms
    ) -> tuple[str, Mailbox[Told]]:
        """Begin one turn; return its conversation, and where its parts come."""
        mailbox: Mailbox[Told] = Mailbox(self.queue_parts)
        if conversation_id is None:
            name = new_id("conv")
        else:
            name = check_conversation_id(conversation_id)
            # Asked here, where a refusal still has a status of its own.
            await asyncio.to_thread(self.turns.check_owner, name, terms.client)
        self.turns.submit(
            TurnJob(name, message, conversation_id is None, mailbox.put, mailbox.put_last, terms)
        )
        return name, mailbox


def _waiting(part: ApprovalPending, conversation_id: str) -> CoilClawError:
    return refusal_error(
        "approval.waiting",
        f"the turn waits for approval {part.id}: {visible(part.title)}",
        f"answer it with 'coilclaw approve {part.id}' or POST /approvals; the turn then goes on, "
        f"and its answer is at GET /conversations/{conversation_id}",
    )


def outcome_fields(finished: FinishedTurn) -> dict[str, Json]:
    """Return how a turn ended, as JSON."""
    return asdict(finished.outcome)
