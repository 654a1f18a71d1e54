"""Turns on a bounded number of threads: many conversations at once, each one turn at a time.

A message to a conversation that is busy waits until those before it are answered. Threads are
daemons: a turn that hangs in a request to a model does not keep the process from ending, and loses
nothing but its answer, since everything before it is on the disk.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError, Stopped
from coilclaw.gateway.agent import TurnTerms
from coilclaw.gateway.clients import client_behind
from coilclaw.gateway.faults import internal, refused
from coilclaw.runtime.approvals import ApprovalSuspended

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from coilclaw.gateway.agent import Agent, Finished
    from coilclaw.gateway.clients import Client
    from coilclaw.gateway.metrics import Metrics
    from coilclaw.gateway.parts import Part

_log = logging.getLogger(__name__)

_LOOK_EVERY_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Job:
    """One message on its way, and who is told what becomes of it."""

    conversation_id: str
    message: str | None
    """``None`` to finish a turn that was left open."""
    new: bool
    """Whether the conversation is known to begin with this message."""
    listen: Callable[[Part], None] | None
    done: Callable[[Finished | CoilClawError], None]
    """May be told twice; only the first counts."""
    terms: TurnTerms


def resumption(conversation_id: str, asker: Client) -> Job:
    """Make the job that finishes the turn which was left open in a conversation."""

    def done(ended: Finished | CoilClawError) -> None:
        if isinstance(ended, CoilClawError):
            _log.info(
                "the turn that was left open in %s is not finished: %s",
                conversation_id,
                ended.message,
                extra={"event": "resume_failed"},
            )

    terms = TurnTerms(asker)
    return Job(conversation_id, None, new=False, listen=None, done=done, terms=terms)


class Turns:
    """Runs jobs in the order in which they come, conversation by conversation."""

    def __init__(self, agent: Agent, metrics: Metrics, *, max_turns: int, max_waiting: int) -> None:
        self._agent = agent
        self._metrics = metrics
        self._max_turns, self._max_waiting = max_turns, max_waiting
        self._mutex = threading.Lock()
        self._ready: SimpleQueue[Job] = SimpleQueue()
        self._behind: dict[str, deque[Job]] = {}
        """Busy conversations, each with the messages that wait for it."""
        self._threads = 0
        self._running = 0
        self._pending = 0
        """Jobs that are not finished, whether they run or wait."""
        self._current: dict[str, Job] = {}
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
            raise refused(
                "conversation.owner",
                "this conversation belongs to another client",
                "begin one of your own: leave its id out, or choose another",
            )

    def submit(self, job: Job) -> None:
        """Take a job, or say why not."""
        with self._mutex:
            if self._closed:
                raise _stopping()
            if self._pending - self._running >= self._max_waiting:
                raise refused("turns.waiting", "too many messages wait for their turn")
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

    def drained(self, timeout_s: float) -> bool:
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

    def _run(self, job: Job) -> Finished | CoilClawError:
        try:
            agent = self._agent
            if job.message is None:
                resumed = agent.resume(job.conversation_id, job.terms)
                if resumed is not None:
                    self._metrics.count("turns_total")
                return resumed or _nothing_open(job.conversation_id)
            if not job.new:
                # Here, where no other turn of this conversation runs, nobody can come in between.
                self.check_owner(job.conversation_id, job.terms.client)
            if job.new or not agent.memory.conversation(job.conversation_id, last=1):
                self._metrics.count("conversations_total")
            finished = agent.turn(
                job.message,
                job.conversation_id,
                terms=job.terms,
                new=job.new,
                listen=job.listen,
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

    def _finish(self, job: Job, result: Finished | CoilClawError) -> None:
        following: Job | None = None
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


def _nothing_open(conversation_id: str) -> CoilClawError:
    return refused("turn.closed", f"no turn of {conversation_id} is open any more")


def _stopping() -> CoilClawError:
    return refused(
        "gateway.stopping",
        "the gateway is being stopped",
        "the conversation goes on with the next message, once it serves again",
    )
