"""The desk where approvals wait: asked in one process, answered in another, kept as evidence.

A journal is the truth: what was asked, who answered, and that the answer was used, which can happen
once. The first answer counts. An approval is bound to the digest of what it was asked for, and
runs out.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.domain.toolcalls import Answer, Reply
from coilclaw.errors import UsageError
from coilclaw.runtime import estop
from coilclaw.runtime.identity import alive, new_id, stamp, this_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coilclaw.domain.toolcalls import ApprovalRequest
    from coilclaw.storage.journal import Journal
    from coilclaw.workspace.process import Cancellation

Kind: TypeAlias = Literal["tool", "question", "sop", "run", "override"]
State: TypeAlias = Literal["pending", "approved", "rejected", "expired", "withdrawn", "used"]

NAME: Final = "approvals.jsonl"
HASH_FIELD: Final = "approval_hash"
LOOK_EVERY_S: Final = 0.1
DEFAULT_EXPIRY_S: Final = 24 * 3600.0
MAX_ANSWER_CHARS: Final = 16 * 2**10
"""Longest text that answers a question."""

_BOUND_TO_PROCESS: Final = frozenset({"tool", "question"})
MAX_TEXT_CHARS: Final = 2**20
"""Characters of the arguments, and of the detail, that lie on the desk; the digest binds all."""
MAX_LABEL_CHARS: Final = 4000
LEAST_PREFIX: Final = 4
"""Characters of an id that name an approval: fewer are a slip of the finger."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked; ``digest`` names the exact thing that a yes is given for."""

    kind: Kind
    origin: str
    """The conversation or run that waits."""
    title: str
    digest: str
    tool: str = ""
    arguments: str = ""
    risk: str = ""
    rule: str = ""
    reason: str = ""
    detail: tuple[str, ...] = ()
    conversation_id: str = ""
    turn_id: str = ""
    call_id: str = ""
    """The stored call of a conversation that waits; with it the turn can be resumed."""
    asker: str = ""
    """For whom it is asked, as ``client NAME`` or ``person NAME``; empty where nobody said so."""

    @property
    def resumable(self) -> bool:
        """Whether the turn that asks can be resumed by another process."""
        return self.kind == "tool" and bool(self.conversation_id and self.turn_id and self.call_id)


class ApprovalSuspended(BaseException):
    """The program ends while an approval is pending: the turn stays open, and is resumed later.

    Not an ``Exception``: between the wait and the end of the turn nothing may take it for a
    failure of the call, which has not begun.
    """


@dataclass(frozen=True, slots=True)
class Approval:
    """A question on the desk, and what became of it."""

    id: str
    question: Question
    created: str
    expires: str
    process: str
    """Who waits; what can be resumed waits also when its process is gone."""
    state: State = "pending"
    answered_by: str = ""
    answered: str = ""
    text: str = ""
    """What was answered to a question, which takes more than a yes."""

    @property
    def waiting(self) -> bool:
        """Whether the answer is heard, now or when the run or the turn is resumed."""
        question = self.question
        bound = question.kind in _BOUND_TO_PROCESS and not question.resumable
        return not bound or alive(self.process)


class Desk:
    """Puts questions down and picks answers up. Making it touches nothing."""

    def __init__(self, home: Path, now: Callable[[], datetime], *, asker: str = "") -> None:
        self._home = home
        self._now = now
        self.asker = asker
        """For whom questions are asked that do not say so themselves."""

    def ask(self, question: Question, *, expires_s: float = DEFAULT_EXPIRY_S) -> str:
        """Put a question on the desk and return its id."""
        moment = self._now()
        approval_id = new_id("approval")
        self._append(
            approval_id,
            "asked",
            created=stamp(moment),
            expires=stamp(moment + timedelta(seconds=expires_s)),
            process=this_process(),
            **_writable(replace(question, asker=question.asker or self.asker)),
        )
        return approval_id

    def list(self, *, pending_only: bool = True) -> tuple[Approval, ...]:
        """What lies on the desk, oldest first; a tool call whose process died waits for nothing."""
        found = self._replayed().values()
        return tuple(
            one for one in found if not pending_only or (one.state == "pending" and one.waiting)
        )

    def find(self, text: str) -> Approval:
        """Return the one whose id is, or begins with, ``text``."""
        found = self._replayed()
        if text in found:
            return found[text]
        short = text.removeprefix("approval-")
        fitting = [
            one
            for name, one in found.items()
            if name.removeprefix("approval-").startswith(short) and len(short) >= LEAST_PREFIX
        ]
        if len(fitting) == 1:
            return fitting[0]
        what = "there is no approval" if not fitting else f"{len(fitting)} approvals begin with"
        raise UsageError(
            f"{what} {text!r}", rule="approval.unknown", hint="see 'coilclaw approvals list'"
        )

    def find_for_call(self, conversation_id: str, turn_id: str, call_id: str) -> Approval | None:
        """Return the newest approval that was asked for a stored call, whatever its state."""
        wanted = (conversation_id, turn_id, _kept(call_id))
        found = None
        for one in self._replayed().values():
            question = one.question
            if (question.conversation_id, question.turn_id, question.call_id) == wanted:
                found = one
        return found

    def answer_of(self, request: ApprovalRequest) -> Answer | None:
        """Use the answer that was given to exactly this request before; ``None`` without one."""
        if not request.call_id or not self._path.exists():
            return None
        kept = self.find_for_call(request.conversation_id, request.turn_id, request.call_id)
        if kept is None or kept.question.digest != request.digest:
            return None
        if kept.state == "approved" and self.use(kept.id, request.digest):
            return Answer(Reply.YES, kept.answered_by)
        if kept.state == "rejected":
            return Answer(Reply.NO, kept.answered_by)
        if kept.state == "expired":
            return self._timed_out(kept)
        return None

    def ask_or_adopt(self, question: Question, *, expires_s: float = DEFAULT_EXPIRY_S) -> str:
        """Ask, unless the same was asked for the same call before; return the id of either.

        What was asked for the call under another digest is withdrawn: another thing needs
        another approval.
        """
        if question.resumable:
            kept = self.find_for_call(question.conversation_id, question.turn_id, question.call_id)
            if kept is not None and kept.state not in {"used", "withdrawn"}:
                if kept.question.digest == question.digest:
                    return kept.id
                self.withdraw(kept.id)
        return self.ask(question, expires_s=expires_s)

    def answer(self, text: str, *, approved: bool, by: str, words: str | None = None) -> Approval:
        """Answer one that is pending; whoever waits for it goes on.

        A question takes ``words``, and nothing else does.
        """
        approval = self.find(text)
        _check_words(approval, words, approved=approved)
        if approval.state != "pending" or not approval.waiting:
            raise _closed(approval)
        said = {} if words is None else {"text": _kept(words, MAX_ANSWER_CHARS)}
        ours = self._append(
            approval.id,
            "answered",
            approved=approved,
            by=_kept(by),
            time=stamp(self._now()),
            **said,
        )
        after = self.find(approval.id)
        # Another may have answered at the same time: the journal says whose answer counts.
        if after.state not in {"approved", "rejected", "used"} or not self._is_first(
            approval.id, "answered", ours
        ):
            raise _closed(after)
        return after

    def use(self, approval_id: str, digest: str) -> bool:
        """Take a yes for exactly this thing; it can be taken once."""
        approval = self.find(approval_id)
        if approval.state != "approved" or approval.question.digest != digest:
            return False
        ours = self._append(approval_id, "used", by=this_process(), time=stamp(self._now()))
        # Two may try at once: the journal puts them in an order, and the first has it.
        return self._is_first(approval_id, "used", ours)

    def take_over(self, approval_id: str) -> bool:
        """Wait for an approval in place of a process that is gone; say whether it is ours."""
        before, ours = self.find(approval_id).process, this_process()
        if before != ours and not alive(before):
            self._append(approval_id, "taken_over", by=ours, instead_of=before)
        return self.find(approval_id).process == ours

    def withdraw(self, approval_id: str) -> None:
        """Take back a question that nobody waits for any more."""
        if self.find(approval_id).state == "pending":
            self._append(approval_id, "withdrawn", time=stamp(self._now()))

    def wait(
        self,
        approval_id: str,
        digest: str,
        *,
        cancel: Cancellation,
        timeout_s: float | None = None,
        suspends: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Wait for the answer and use it; anything but a yes in time is a no.

        ``suspends`` says of a cancelled wait whether the approval stays pending, which raises
        ``ApprovalSuspended``.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        expires = self.find(approval_id).expires
        seen = -1
        while not cancel.cancelled and (deadline is None or time.monotonic() < deadline):
            size = self._size()
            if size != seen or stamp(self._now()) > expires:
                seen = size
                state = self.find(approval_id).state
                if state == "approved":
                    return self.use(approval_id, digest)
                if state != "pending":
                    return False
            time.sleep(LOOK_EVERY_S)
        if cancel.cancelled and suspends():
            raise ApprovalSuspended(approval_id)
        self.withdraw(approval_id)
        return False

    def wait_for_answer(
        self,
        approval_id: str,
        digest: str,
        *,
        cancel: Cancellation,
        timeout_s: float | None = None,
        stopping: Callable[[], str | None] = lambda: None,
    ) -> Answer:
        """Wait like ``wait``, and say who or what gave the answer.

        ``stopping`` says why, if the program is being stopped; a turn that can be resumed is
        suspended then, and its approval stays pending.
        """

        def suspends() -> bool:
            resumable = self.find(approval_id).question.resumable
            return resumable and cancel.reason != estop.REASON and bool(stopping())

        agreed = self.wait(
            approval_id, digest, cancel=cancel, timeout_s=timeout_s, suspends=suspends
        )
        found = self.find(approval_id)
        if agreed:
            return Answer(Reply.YES, found.answered_by)
        if found.state == "rejected":
            return Answer(Reply.NO, found.answered_by)
        if cancel.reason == estop.REASON:
            return Answer(Reply.NO, "estop", estop.REASON)
        if cancel.cancelled and (why := stopping()):
            return Answer(Reply.NO, "shutdown", why)
        if cancel.cancelled or found.state not in {"expired", "withdrawn"}:
            why = cancel.reason or "the approval is not for this call"
            return Answer(Reply.NO, "nobody", f"nobody answered: {why}")
        return self._timed_out(found, timeout_s)

    def _timed_out(self, approval: Approval, timeout_s: float | None = None) -> Answer:
        asked, until = (datetime.fromisoformat(at) for at in (approval.created, approval.expires))
        waited = (until - asked).total_seconds()
        if timeout_s is not None:
            waited = min(waited, timeout_s)
        return Answer(Reply.NO, "timeout", f"nobody answered within {waited:g} s")

    def _is_first(self, approval_id: str, event: str, record_hash: str) -> bool:
        """Whether this record is the first of its kind; only that one counts."""
        return record_hash == next(
            record[HASH_FIELD]
            for record in self._journal().read()
            if record["id"] == approval_id and record["event"] == event
        )

    def _replayed(self) -> dict[str, Approval]:
        found: dict[str, Approval] = {}
        if not self._path.exists():
            return found
        now = stamp(self._now())
        for record in self._journal().read():
            name = str(record["id"])
            if record["event"] == "asked":
                found[name] = _approval(record)
            elif name in found:
                found[name] = _after(found[name], record)
        return {name: _aged(approval, now) for name, approval in found.items()}

    def _append(self, approval_id: str, event: str, **fields: object) -> str:
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._home / "keys").mkdir(exist_ok=True, mode=0o700)
        with self._journal() as journal:
            return journal.append({"id": approval_id, "event": event, **fields})

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    @property
    def _path(self) -> Path:
        return self._home / NAME

    def _journal(self) -> Journal:
        from coilclaw.storage.journal import Journal

        return Journal(
            self._path,
            hash_field=HASH_FIELD,
            key_path=self._home / "keys" / "journal.key",
        )


def _closed(approval: Approval) -> UsageError:
    state = {"used": "was approved and used already", "pending": "is no longer waited for"}
    return UsageError(
        f"{approval.id} {state.get(approval.state, f'is {approval.state} already')}",
        rule="approval.closed",
        hint="see 'coilclaw approvals list'",
    )


def _writable(question: Question) -> dict[str, object]:
    """The question as the journal takes it: valid text, and no more than it can hold."""
    fields = {
        name: _kept(value, MAX_TEXT_CHARS if name == "arguments" else MAX_LABEL_CHARS)
        for name, value in asdict(question).items()
        if name != "detail"
    }
    detail = "\n".join(question.detail)
    return {**fields, "detail": _kept(detail, MAX_TEXT_CHARS).split("\n") if detail else []}


def _kept(text: str, limit: int = MAX_LABEL_CHARS) -> str:
    """Text that can be written: names that are not Unicode carry surrogates."""
    valid = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(valid) <= limit:
        return valid
    return f"{valid[:limit]}… {len(valid) - limit} more characters"


def _check_words(approval: Approval, words: str | None, *, approved: bool) -> None:
    if approval.question.kind == "question":
        if approved and not words:
            raise UsageError(
                f"{approval.id} is a question, which takes an answer in words",
                rule="approval.words",
                hint=f"'coilclaw approve {approval.id} --text ANSWER', or 'answer' over HTTP",
            )
        if words is not None and len(words) > MAX_ANSWER_CHARS:
            raise UsageError(
                f"the answer is longer than {MAX_ANSWER_CHARS} characters", rule="approval.long"
            )
    elif words is not None:
        raise UsageError(f"{approval.id} takes a yes or a no, and no words", rule="approval.words")


def _approval(record: dict[str, object]) -> Approval:
    detail = record["detail"]
    question = Question(
        kind=str(record["kind"]),  # type: ignore[arg-type]  # as it was written
        origin=str(record["origin"]),
        title=str(record["title"]),
        digest=str(record["digest"]),
        tool=str(record["tool"]),
        arguments=str(record["arguments"]),
        risk=str(record["risk"]),
        rule=str(record["rule"]),
        reason=str(record["reason"]),
        detail=tuple(str(line) for line in detail) if isinstance(detail, list) else (),
        conversation_id=str(record.get("conversation_id", "")),
        turn_id=str(record.get("turn_id", "")),
        call_id=str(record.get("call_id", "")),
        asker=str(record.get("asker", "")),
    )
    return Approval(
        str(record["id"]),
        question,
        str(record["created"]),
        str(record["expires"]),
        str(record["process"]),
    )


def _after(approval: Approval, record: dict[str, object]) -> Approval:
    """The next state; an answer after the first, or after the end, changes nothing."""
    event = record["event"]
    if event == "answered" and approval.state == "pending":
        if str(record["time"]) > approval.expires:
            return replace(approval, state="expired")
        state: State = "approved" if record["approved"] is True else "rejected"
        return replace(
            approval,
            state=state,
            answered_by=str(record["by"]),
            answered=str(record["time"]),
            text=str(record.get("text", "")),
        )
    if event == "used" and approval.state == "approved":
        return replace(approval, state="used")
    if event == "taken_over" and record["instead_of"] == approval.process:
        return replace(approval, process=str(record["by"]))
    if event == "withdrawn" and approval.state == "pending":
        return replace(approval, state="withdrawn")
    return approval


def _aged(approval: Approval, now: str) -> Approval:
    if approval.state in {"pending", "approved"} and now > approval.expires:
        return replace(approval, state="expired")
    return approval
