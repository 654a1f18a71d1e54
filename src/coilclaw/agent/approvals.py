"""``ApprovalStore``: approvals, requested in one process, answered in another, kept as evidence.

A journal records each request, its answer, and its use, which can happen once. The first answer
counts. An approval is bound to the digest of its request, and it expires.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.agent import estop
from coilclaw.kernel import ApprovalAnswer, ApprovalReply, UsageError, valid_text
from coilclaw.workspace import format_time, is_alive, new_id, this_process

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coilclaw.kernel import ApprovalRequest, Journal
    from coilclaw.workspace import Cancellation

QuestionKind: TypeAlias = Literal["tool", "question", "sop", "run", "override"]
ApprovalState: TypeAlias = Literal[
    "pending", "approved", "rejected", "expired", "withdrawn", "used"
]

APPROVALS_FILE: Final = "approvals.jsonl"
APPROVAL_HASH_FIELD: Final = "approval_hash"
LOOK_EVERY_S: Final = 0.1
DEFAULT_EXPIRY_S: Final = 24 * 3600.0
MAX_ANSWER_CHARS: Final = 16 * 2**10
"""Characters of the longest answer to a question."""
NO_ANSWERER: Final = "nobody"
"""The name in receipts of the one who answered, if no person, client or rule did."""

_BOUND_TO_PROCESS: Final = frozenset({"tool", "question"})
MAX_TEXT_CHARS: Final = 2**20
"""Characters of the arguments, and of the detail, that are stored; the digest covers all."""
MAX_LABEL_CHARS: Final = 4000
LEAST_PREFIX: Final = 4
"""Characters of an id that are enough to name an approval; fewer may be a typing error."""


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """A request for approval; ``digest`` identifies exactly what a yes approves."""

    kind: QuestionKind
    origin: str
    """The conversation or run that waits for the answer."""
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
    """The stored call that waits; with it the turn can be resumed."""
    asker: str = ""
    """On whose behalf, as ``client NAME`` or ``person NAME``; empty if unknown."""

    @property
    def resumable(self) -> bool:
        """Whether another process can resume the turn that asks."""
        return self.kind == "tool" and bool(self.conversation_id and self.turn_id and self.call_id)


class ApprovalSuspended(BaseException):
    """The program ends while an approval is pending: the turn stays open and is resumed later.

    Not an ``Exception``: no handler between the wait and the end of the turn may treat it as a
    failure of the call, which has not begun.
    """


@dataclass(frozen=True, slots=True)
class Approval:
    """A stored request and its current state."""

    id: str
    question: ApprovalQuestion
    created: str
    expires: str
    process: str
    """The process that waits; a resumable request waits also after its process ended."""
    state: ApprovalState = "pending"
    answered_by: str = ""
    answered: str = ""
    text: str = ""
    """The answer to a question, which takes more than a yes or no."""

    @property
    def waiting(self) -> bool:
        """Whether an answer has a receiver, now or when the run or the turn is resumed."""
        question = self.question
        bound = question.kind in _BOUND_TO_PROCESS and not question.resumable
        return not bound or is_alive(self.process)


class ApprovalStore:
    """Stores requests and their answers. Creating the object touches no file."""

    def __init__(self, home: Path, now: Callable[[], datetime], *, asker: str = "") -> None:
        self._home = home
        self._now = now
        self.asker = asker
        """The default for ``ApprovalQuestion.asker``."""

    def ask(self, question: ApprovalQuestion, *, expires_s: float = DEFAULT_EXPIRY_S) -> str:
        """Store a request and return its id."""
        moment = self._now()
        approval_id = new_id("approval")
        question = replace(question, asker=question.asker or self.asker)
        # Valid text that fits into a record of the journal.
        kept = {
            name: _cut_text(value, MAX_TEXT_CHARS if name == "arguments" else MAX_LABEL_CHARS)
            for name, value in asdict(question).items()
            if name != "detail"
        }
        detail = "\n".join(question.detail)
        self._append(
            approval_id,
            "asked",
            created=format_time(moment),
            expires=format_time(moment + timedelta(seconds=expires_s)),
            process=this_process(),
            **kept,
            detail=_cut_text(detail, MAX_TEXT_CHARS).split("\n") if detail else [],
        )
        return approval_id

    def list(self, *, pending_only: bool = True) -> tuple[Approval, ...]:
        """Return the approvals, oldest first; by default those that wait for an answer."""
        found = self._replay().values()
        return tuple(
            one for one in found if not pending_only or (one.state == "pending" and one.waiting)
        )

    def find(self, text: str) -> Approval:
        """Return the approval whose id is, or begins with, ``text``; else raise ``UsageError``."""
        found = self._replay()
        if text in found:
            return found[text]
        short = text.removeprefix("approval-")
        fitting = [one for name, one in found.items() if name.startswith(f"approval-{short}")]
        if len(short) < LEAST_PREFIX:
            fitting = []
        if len(fitting) == 1:
            return fitting[0]
        count = f"{len(fitting)} approvals begin" if fitting else "no approval begins"
        raise UsageError(
            f"{count} with {text!r}", rule="approval.unknown", hint="see 'coilclaw approvals list'"
        )

    def find_for_call(self, conversation_id: str, turn_id: str, call_id: str) -> Approval | None:
        """Return the newest approval of a stored call, in any state, or ``None``."""
        wanted = (conversation_id, turn_id, _cut_text(call_id))
        for one in reversed(self._replay().values()):
            question = one.question
            if (question.conversation_id, question.turn_id, question.call_id) == wanted:
                return one
        return None

    def answer_of(self, request: ApprovalRequest) -> ApprovalAnswer | None:
        """Use and return an earlier answer to exactly this request, or return ``None``."""
        if not request.call_id or not self._path.exists():
            return None
        kept = self.find_for_call(request.conversation_id, request.turn_id, request.call_id)
        if kept is None or kept.question.digest != request.digest:
            return None
        if kept.state == "approved" and self.use(kept.id, request.digest):
            return ApprovalAnswer(ApprovalReply.YES, kept.answered_by)
        if kept.state == "rejected":
            return ApprovalAnswer(ApprovalReply.NO, kept.answered_by)
        if kept.state == "expired":
            return self._timed_out(kept)
        return None

    def ask_or_adopt(
        self, question: ApprovalQuestion, *, expires_s: float = DEFAULT_EXPIRY_S
    ) -> str:
        """Return the id of an earlier request with this digest for the same call, or ask.

        A request of the call with another digest is withdrawn.
        """
        if question.resumable:
            kept = self.find_for_call(question.conversation_id, question.turn_id, question.call_id)
            if kept is not None and kept.state not in {"used", "withdrawn"}:
                if kept.question.digest == question.digest:
                    return kept.id
                self.withdraw(kept.id)
        return self.ask(question, expires_s=expires_s)

    def answer(self, text: str, *, approved: bool, by: str, words: str | None = None) -> Approval:
        """Answer a pending request and return its new state; only a question takes ``words``.

        Raise ``UsageError`` if it is not pending or another answer was first.
        """
        approval = self.find(text)
        _check_words(approval, words, approved=approved)
        if approval.state != "pending" or not approval.waiting:
            raise _closed_error(approval)
        said = {} if words is None else {"text": _cut_text(words, MAX_ANSWER_CHARS)}
        about = {"approved": approved, "by": _cut_text(by), "time": format_time(self._now())}
        ours = self._append(approval.id, "answered", **about, **said)
        after = self.find(approval.id)
        # Another process may have answered at the same time: the first record counts.
        if after.state not in {"approved", "rejected", "used"} or not self._is_first(
            approval.id, "answered", ours
        ):
            raise _closed_error(after)
        return after

    def use(self, approval_id: str, digest: str) -> bool:
        """Use an approval of exactly this digest, which is possible once; return success."""
        approval = self.find(approval_id)
        if approval.state != "approved" or approval.question.digest != digest:
            return False
        ours = self._append(approval_id, "used", by=this_process(), time=format_time(self._now()))
        # Two processes may try at once: the first record in the journal counts.
        return self._is_first(approval_id, "used", ours)

    def take_over(self, approval_id: str) -> bool:
        """Wait in place of a process that ended; return whether this process now waits."""
        before, ours = self.find(approval_id).process, this_process()
        if before != ours and not is_alive(before):
            self._append(approval_id, "taken_over", by=ours, instead_of=before)
        return self.find(approval_id).process == ours

    def withdraw(self, approval_id: str) -> None:
        """Withdraw a pending request that has no receiver any more."""
        if self.find(approval_id).state == "pending":
            self._append(approval_id, "withdrawn", time=format_time(self._now()))

    def wait(
        self,
        approval_id: str,
        digest: str,
        *,
        cancel: Cancellation,
        timeout_s: float | None = None,
        suspends: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Wait for the answer and use it; return False for anything but a yes in time.

        If ``suspends`` returns True for a cancelled wait, leave the request pending and raise
        ``ApprovalSuspended``.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        expires = self.find(approval_id).expires
        seen = -1
        while not cancel.cancelled and (deadline is None or time.monotonic() < deadline):
            size = self._path.stat().st_size if self._path.exists() else 0
            if size != seen or format_time(self._now()) > expires:
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
    ) -> ApprovalAnswer:
        """Wait like ``wait``, and return the answer with its author.

        ``stopping`` returns the reason while the program is being stopped; a resumable turn is
        then suspended, and its approval stays pending.
        """

        def suspends() -> bool:
            resumable = self.find(approval_id).question.resumable
            return resumable and cancel.reason != estop.ESTOP_REASON and bool(stopping())

        agreed = self.wait(
            approval_id, digest, cancel=cancel, timeout_s=timeout_s, suspends=suspends
        )
        found = self.find(approval_id)
        if agreed:
            return ApprovalAnswer(ApprovalReply.YES, found.answered_by)
        if found.state == "rejected":
            return ApprovalAnswer(ApprovalReply.NO, found.answered_by)
        if cancel.reason == estop.ESTOP_REASON:
            return ApprovalAnswer(ApprovalReply.NO, "estop", estop.ESTOP_REASON)
        if cancel.cancelled and (why := stopping()):
            return ApprovalAnswer(ApprovalReply.NO, "shutdown", why)
        if cancel.cancelled or found.state not in {"expired", "withdrawn"}:
            why = cancel.reason or "the approval is not for this call"
            return ApprovalAnswer(ApprovalReply.NO, NO_ANSWERER, f"no answer: {why}")
        return self._timed_out(found, timeout_s)

    def _timed_out(self, approval: Approval, timeout_s: float | None = None) -> ApprovalAnswer:
        asked, until = (datetime.fromisoformat(at) for at in (approval.created, approval.expires))
        waited = (until - asked).total_seconds()
        if timeout_s is not None:
            waited = min(waited, timeout_s)
        return ApprovalAnswer(ApprovalReply.NO, "timeout", f"no answer within {waited:g} s")

    def _is_first(self, approval_id: str, event: str, record_hash: str) -> bool:
        """Return whether this record is the first of its kind; only the first counts."""
        return record_hash == next(
            record[APPROVAL_HASH_FIELD]
            for record in self._journal().read()
            if record["id"] == approval_id and record["event"] == event
        )

    def _replay(self) -> dict[str, Approval]:
        found: dict[str, Approval] = {}
        for record in self._journal().read() if self._path.exists() else ():
            name = str(record["id"])
            if record["event"] == "asked":
                found[name] = _read_approval(record)
            elif name in found:
                found[name] = _apply_event(found[name], record)
        now = format_time(self._now())
        for name, approval in found.items():
            if approval.state in {"pending", "approved"} and now > approval.expires:
                found[name] = replace(approval, state="expired")
        return found

    def _append(self, approval_id: str, event: str, **fields: object) -> str:
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._home / "keys").mkdir(exist_ok=True, mode=0o700)
        with self._journal() as journal:
            return journal.append({"id": approval_id, "event": event, **fields})

    @property
    def _path(self) -> Path:
        return self._home / APPROVALS_FILE

    def _journal(self) -> Journal:
        from coilclaw.kernel import Journal

        key = self._home / "keys" / "journal.key"
        return Journal(self._path, hash_field=APPROVAL_HASH_FIELD, key_path=key)


def _closed_error(approval: Approval) -> UsageError:
    state = {"used": "was already approved and used", "pending": "has no receiver any more"}
    return UsageError(
        f"{approval.id} {state.get(approval.state, f'is already {approval.state}')}",
        rule="approval.closed",
        hint="see 'coilclaw approvals list'",
    )


def _cut_text(text: str, limit: int = MAX_LABEL_CHARS) -> str:
    """Return valid Unicode text of bounded length; names of files may hold surrogates."""
    valid = valid_text(text)
    if len(valid) <= limit:
        return valid
    return f"{valid[:limit]}… {len(valid) - limit} more characters"


def _check_words(approval: Approval, words: str | None, *, approved: bool) -> None:
    if approval.question.kind == "question":
        if approved and not words:
            raise UsageError(
                f"{approval.id} is a question and needs a text as the answer",
                rule="approval.words",
                hint=f"'coilclaw approve {approval.id} --text ANSWER', or 'answer' over HTTP",
            )
        if words is not None and len(words) > MAX_ANSWER_CHARS:
            raise UsageError(
                f"the answer is longer than {MAX_ANSWER_CHARS} characters", rule="approval.long"
            )
    elif words is not None:
        raise UsageError(f"{approval.id} takes a yes or no, not a text", rule="approval.words")


def _read_approval(record: dict[str, object]) -> Approval:
    """Return an approval from its first record; older records lack newer fields."""
    detail = record["detail"]
    texts = {
        field.name: str(record[field.name])
        for field in fields(ApprovalQuestion)
        if field.name in record and field.name != "detail"
    }
    question = ApprovalQuestion(
        **texts,  # type: ignore[arg-type]  # the kind is one that this class wrote
        detail=tuple(str(line) for line in detail) if isinstance(detail, list) else (),
    )
    created, expires, process = (str(record[name]) for name in ("created", "expires", "process"))
    return Approval(str(record["id"]), question, created, expires, process)


def _apply_event(approval: Approval, record: dict[str, object]) -> Approval:
    """Return the next state; a second or late answer changes nothing."""
    event = record["event"]
    if event == "answered" and approval.state == "pending":
        if str(record["time"]) > approval.expires:
            return replace(approval, state="expired")
        return replace(
            approval,
            state="approved" if record["approved"] is True else "rejected",
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
