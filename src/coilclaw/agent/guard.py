"""The guard: every tool call that CoilClaw executes passes it and leaves a receipt.

estop → schema → verdict → approval → intent, synced → perform in the sandbox → receipt. No other
code runs a tool, and no tool runs without a receipt.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.agent import estop as stop
from coilclaw.agent.approvals import NO_ANSWERER, ApprovalSuspended
from coilclaw.agent.open_turns import read_boot_id
from coilclaw.agent.receipts.book import Intent, Receipt, name_call, shorten_name
from coilclaw.kernel import (
    ApprovalReply,
    ApprovalRequest,
    CoilClawError,
    Consults,
    Decision,
    DeniedError,
    Fetches,
    Reads,
    Risk,
    Runs,
    Stopped,
    ToolResult,
    Verdict,
    Writes,
    canonical_json,
    digest_bytes,
    valid_text,
)
from coilclaw.workspace import format_time, new_id, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.agent.estop import Estop
    from coilclaw.agent.receipts.book import ReceiptBook, Status
    from coilclaw.agent.tools.contract import ReadyCall, Tool, ToolContext, Validators
    from coilclaw.kernel import Approve, Effect, Json, ToolCall

_log = logging.getLogger(__name__)

NOT_SANDBOXED: Final = "none"
_UNANSWERED: Final = {
    "timeout": "approval.timeout",
    "estop": stop.ESTOP_RULE,
    "shutdown": "approval.shutdown",
    NO_ANSWERER: "approval.unattended",
}
"""The rule of a denial that neither a person nor a client decided."""
Phase: TypeAlias = Literal["declaring", "judging", "preparing", "asking", "performing"]
_UNDECIDED: Final = frozenset({"declaring", "judging", "asking"})
"""Phases before the approval: a call that ends in one of them is denied."""
_FAULTS: Final = {"judging": "gate.fault", "asking": "approval.fault"}
"""The rule of an unexpected exception, if it is not ``tool.fault``."""
_DISABLED: Final = "receipts are switched off, and no tool runs without a receipt"
MAX_REASON_CHARS: Final = 4000
"""Characters of a reason that the model is given."""


@dataclass(slots=True)
class CallAttempt:
    """One call on its way through the guard, and its state so far."""

    call: ToolCall
    context: ToolContext
    args_text: str
    args_hash: str
    phase: Phase = "judging"
    risk: Risk = Risk.HIGH
    policy_hash: str = ""
    approval: str = ""
    intent_hash: str = ""
    intent_id: str = field(default_factory=lambda: new_id("intent"))
    lookup: str = ""
    """Where to find out after a crash whether the call had its effect."""

    @classmethod
    def of(cls, call: ToolCall, context: ToolContext, args_text: str | None) -> CallAttempt:
        """Return the attempt at a call; arguments without a canonical form count as empty."""
        text = args_text or ""
        return cls(call, context, text, digest_bytes(text.encode("utf-8")))


@dataclass(slots=True)
class Guard:
    """Executes or denies tool calls for one workspace and one policy."""

    tools: Mapping[str, Tool]
    allowed: frozenset[str]
    """The tools that the channel allows."""
    book: ReceiptBook | None
    """``None`` if receipts are switched off; then no tool runs."""
    estop: Estop
    approve: Approve
    policy_hash: Callable[[], str]
    """Returns the hash of the policy in force, for every call."""
    validators: Validators
    redact: Callable[[str], str]
    before_change: Callable[[ToolContext], None] = field(default=lambda _: None)
    """Called before a call that may change the workspace, so that it can be undone."""
    _always: dict[str, str] = field(default_factory=dict)
    """Digests of exact calls that are approved for the life of this process, and by whom."""

    def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Take one call through all gates and return its result.

        Every failure is a result with a receipt, with three exceptions: raise
        ``KeyboardInterrupt`` for a stop, after its receipt is written; ``EnvironmentFault`` if a
        receipt cannot be written; and ``ApprovalSuspended`` if the program ends while an approval
        is pending.
        """
        _log_event("tool_requested", shorten_name(call.name), tool=shorten_name(call.name))
        if self.book is None:
            return _deny_unrecorded("receipts.disabled", _DISABLED)
        text = _text(call.arguments)
        attempt = CallAttempt.of(call, context, text)
        try:
            self._admit(attempt, malformed=text is None)
            perform = self._agree(attempt)
        except ApprovalSuspended:
            # Nothing is decided: the turn is resumed later, and the call gets its receipt then.
            raise
        except BaseException as problem:  # noqa: BLE001 - a stop is raised again from there
            return self._settle(attempt, problem)
        # Not caught: if the intent cannot be written, the call does not run and the turn ends.
        intent = Intent(
            id=attempt.intent_id,
            timestamp=format_time(context.now()),
            conversation_id=context.conversation_id,
            tool=call.name,
            args_hash=attempt.args_hash,
            risk=str(attempt.risk),
            policy_hash=attempt.policy_hash,
            approval=attempt.approval,
            process=this_process(),
            turn_id=context.turn_id,
            call_id=name_call(call.id),
            lookup=attempt.lookup,
        )
        attempt.intent_hash = self.book.intend(intent)
        attempt.phase = "performing"
        try:
            result = self._clean_result(perform())
        except BaseException as problem:  # noqa: BLE001 - a stop is raised again from there
            return self._settle(attempt, problem)
        status: Status = "allowed" if result.success else "failed"
        return self._close(attempt, status, result)

    def refuse(self, call: ToolCall, context: ToolContext, rule: str, reason: str) -> ToolResult:
        """Deny a call for a reason outside of policy, with a receipt like any other call."""
        if self.book is None:
            return _deny_unrecorded(rule, reason)
        attempt = CallAttempt.of(call, context, _text(call.arguments))
        try:
            attempt.policy_hash = self.policy_hash()
            raise DeniedError(reason, rule=rule)
        except Exception as problem:  # noqa: BLE001 - it becomes the receipt
            return self._settle(attempt, problem)

    def _admit(self, attempt: CallAttempt, *, malformed: bool) -> None:
        """Raise ``DeniedError`` for every reason that does not need the verdict of the policy."""
        call = attempt.call
        attempt.policy_hash = self.policy_hash()
        if self.estop.set:
            raise _stop_is_set()
        if call.name not in self.tools:
            known = ", ".join(sorted(self.allowed & set(self.tools)))
            raise DeniedError(
                f"the tool {shorten_name(call.name)!r} does not exist; use {known}",
                rule="tool.unknown",
            )
        if call.name not in self.allowed:
            raise DeniedError(
                f"{call.name} is not in channels.cli.tools_allow", rule="tool.not_allowed"
            )
        if call.problem is not None or malformed:
            why = call.problem or "they hold text that is not valid Unicode, or are too deep"
            raise DeniedError(f"the arguments cannot be used: {why}", rule="arguments.malformed")
        attempt.phase = "declaring"
        problems = self.validators.check(self.tools[call.name].parameters_schema, call.arguments)
        if problems:
            raise DeniedError("; ".join(problems), rule="arguments.schema")

    def _agree(self, attempt: CallAttempt) -> Callable[[], ToolResult]:
        """Let the policy judge, the tool prepare and the user approve; return the prepared call."""
        call, context = attempt.call, attempt.context
        tool = self.tools[call.name]
        effects = tool.effects(call.arguments)
        attempt.phase = "judging"
        judged = context.judge(effects)
        verdict = judged.verdict
        attempt.risk = verdict.risk
        if verdict.denied:
            raise DeniedError(verdict.reason, rule=verdict.rule)
        attempt.phase = "preparing"
        assert self.book is not None, "a call without receipts is denied at the start"
        judge = context.judge
        context = replace(
            context,
            # The tool gets the same judgement when it asks for its terms.
            judge=lambda asked: judged if asked == effects else judge(asked),
            starting=partial(self.book.mark_start, attempt.intent_id),
        )
        prepared = tool.prepare(call.arguments, context)
        attempt.lookup = _describe_lookup(effects, prepared)
        attempt.phase = "asking"
        attempt.approval = self._approval(attempt, verdict, prepared)
        attempt.phase = "preparing"
        writable = judged.terms.writable
        if any(isinstance(one, Writes) or (isinstance(one, Runs) and writable) for one in effects):
            self.before_change(context)
        if all(isinstance(effect, Consults) for effect in effects):
            return prepared.perform

        def perform() -> ToolResult:
            timeout_s = max(context.limits.tool_timeout_s, prepared.timeout_s)
            with self.estop.watch_call(context.cancel, timeout_s):
                return prepared.perform()

        return perform

    def _approval(self, attempt: CallAttempt, verdict: Verdict, prepared: ReadyCall) -> str:
        """Return who approved the call, as the receipt names it; ask the user if needed."""
        if verdict.decision is Decision.ALLOW:
            return f"policy {verdict.rule}"
        key = _approved_subject(attempt, prepared.detail)
        given = f"{self._always.get(key)} always {verdict.rule}"
        if key not in self._always:
            request = ApprovalRequest(
                attempt.call.name,
                self.redact(attempt.args_text),
                verdict,
                tuple(self.redact(line) for line in prepared.detail),
                key,
                attempt.context.conversation_id,
                attempt.context.turn_id,
                attempt.call.id,
            )
            attempt.context.asking()
            attempt.approval = f"{NO_ANSWERER} no {verdict.rule}"
            answer = self.approve(request)
            attempt.approval = given = f"{answer.by} {answer.reply.value} {verdict.rule}"
            if not answer.granted:
                rule = _UNANSWERED.get(answer.by, "approval.denied")
                raise DeniedError(answer.reason or "the request was not approved", rule=rule)
            if answer.reply is ApprovalReply.ALWAYS:
                self._always[key] = answer.by
            if self.estop.set:
                attempt.approval = ""
                raise _stop_is_set()
        _log_event("tool_approved", attempt.call.name, tool=attempt.call.name)
        return given

    def _clean_result(self, result: ToolResult) -> ToolResult:
        """Return a result without secrets, and without metadata that JSON cannot express."""
        return replace(
            result,
            output=self.redact(result.output),
            error=None if result.error is None else self.redact(result.error),
            metadata={
                name: value
                for name, value in result.metadata.items()
                if _text({name: value}) is not None
            },
        )

    def _settle(self, attempt: CallAttempt, problem: BaseException) -> ToolResult:
        """Turn an exception into a receipt and a result for the model; raise a stop again."""
        if isinstance(problem, CoilClawError):
            rule, reason = problem.rule, problem.message
        else:
            stopped = _is_stop(problem)
            rule = _FAULTS.get(attempt.phase, "tool.fault")
            if stopped:
                rule = "approval.interrupted" if attempt.phase == "asking" else "tool.interrupted"
            what = "was interrupted" if stopped else "failed unexpectedly"
            reason = f"the call {what} ({shorten_name(type(problem).__name__)})"
            if not stopped:
                _log.error(
                    "a tool call failed unexpectedly: %s",
                    shorten_name(attempt.call.name),
                    exc_info=problem,
                    extra={"event": rule.replace(".", "_"), "fields": {"rule": rule}},
                )
        # A refusal at the last moment, before any effect, is a denial as well: a path moved.
        refused = isinstance(problem, DeniedError) and not isinstance(problem, Stopped)
        denied = refused or attempt.phase in _UNDECIDED
        reason = self._clean_reason(reason)
        error = f"denied by {rule}: {reason}" if denied else f"{reason} [{rule}]"
        attempt.approval = attempt.approval or f"policy {rule}"
        status: Status = "denied" if denied else "failed"
        result = ToolResult(False, "", error, {"rule": rule})
        result = self._close(attempt, status, result)
        if isinstance(problem, Stopped):
            # The writer has undone its unfinished change.
            raise KeyboardInterrupt from problem
        if _is_stop(problem):
            raise problem
        return result

    def _clean_reason(self, text: str) -> str:
        """Return a reason for the model, redacted and bounded."""
        try:
            clean = self.redact(text)
        except Exception:  # noqa: BLE001 - the receipt has to be written in any case
            _log.exception("a reason could not be redacted", extra={"event": "redaction_fault"})
            return "the reason is withheld, because redaction failed"
        return clean if len(clean) <= MAX_REASON_CHARS else f"{clean[:MAX_REASON_CHARS]}…"

    def _close(self, attempt: CallAttempt, status: Status, result: ToolResult) -> ToolResult:
        """Write the receipt, and return the result with its id and status."""
        assert self.book is not None, "a call without receipts is denied at the start"
        tool = shorten_name(attempt.call.name)
        receipt_id = new_id("receipt")
        self.book.add(
            Receipt(
                id=receipt_id,
                timestamp=format_time(attempt.context.now()),
                conversation_id=attempt.context.conversation_id,
                tool=tool,
                args_hash=attempt.args_hash,
                result_hash=result_hash(result),
                status=status,
                risk=str(attempt.risk),
                intent_hash=attempt.intent_hash,
                policy_hash=attempt.policy_hash,
                sandbox=shorten_name(str(result.metadata.get("sandbox", NOT_SANDBOXED))),
                approval=attempt.approval,
            )
        )
        if attempt.intent_hash and attempt.lookup.startswith("start "):
            self.book.clear_start_mark(attempt.intent_id)
        fields = {"tool": tool, "status": status, "receipt": receipt_id}
        event = "completed" if status == "allowed" else status
        _log_event(f"tool_{event}", result.error or tool, **fields)
        _log_event("receipt_written", receipt_id, **fields)
        return replace(
            result, receipt_id=receipt_id, metadata={**result.metadata, "status": status}
        )


def _log_event(event: str, what: str, **fields: str) -> None:
    extra = {"event": event, "fields": fields}
    _log.info("%s: %s", event.replace("_", " "), what, extra=extra)


def _is_stop(problem: BaseException) -> bool:
    """Return whether an exception is a stop; the panic of a Rust library is not."""
    return not (isinstance(problem, Exception) or type(problem).__name__ == "PanicException")


def _stop_is_set() -> DeniedError:
    return DeniedError(f"{stop.ESTOP_REASON}; {stop.ESTOP_HINT}", rule=stop.ESTOP_RULE)


def _deny_unrecorded(rule: str, reason: str) -> ToolResult:
    """Return a denial without a receipt, because receipts are switched off."""
    _log_event("tool_denied", reason, rule=rule)
    metadata: dict[str, Json] = {"rule": rule, "status": "denied"}
    return ToolResult(False, "", f"denied by {rule}: {reason}", metadata)


def result_hash(result: ToolResult) -> str:
    """Return the SHA-256 of the result that the caller gets, in canonical form."""
    return canonical_json.hash_json(
        {
            "success": result.success,
            "output": valid_text(result.output),
            "error": None if result.error is None else valid_text(result.error),
        }
    )


def _text(value: Mapping[str, Json]) -> str | None:
    try:
        return canonical_json.render_json(dict(value))
    except Exception:  # noqa: BLE001 - values without a canonical form are not used
        return None


def _approved_subject(attempt: CallAttempt, detail: tuple[str, ...]) -> str:
    """Return the digest that an approval is bound to; any other call needs another approval."""
    context = attempt.context
    return canonical_json.hash_json(
        {
            "tool": attempt.call.name,
            "arguments": attempt.args_text,
            "detail": [valid_text(line) for line in detail],
            "policy": attempt.policy_hash,
            "workspace": valid_text(str(context.root.path)),
            "conversation": context.conversation_id,
        }
    )


def _describe_lookup(effects: tuple[Effect, ...], prepared: ReadyCall) -> str:
    """Return where to find out after a crash whether a call had its effect, for its intent."""
    if prepared.lookup == "start":
        return f"start {read_boot_id()}"
    if prepared.lookup:
        return prepared.lookup
    if effects and all(isinstance(effect, Reads | Consults) for effect in effects):
        return "nothing"
    if effects and all(isinstance(effect, Reads | Consults | Fetches) for effect in effects):
        return "request"
    return ""
