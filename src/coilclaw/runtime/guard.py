"""The guard: every tool call that we execute goes through here, and leaves a receipt.

estop → schema → verdict → approval → intent, synced → perform in the sandbox → receipt. There is no
other way to a tool, and without a receipt there is no action.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.domain import freeform
from coilclaw.domain.canonical import digest
from coilclaw.domain.effects import Consults, Runs, Writes
from coilclaw.domain.toolcalls import ApprovalRequest, Reply, ToolResult
from coilclaw.domain.verdict import Decision, Risk, Verdict
from coilclaw.errors import CoilClawError, DeniedError, Stopped, UsageError
from coilclaw.receipts.book import Intent, Receipt
from coilclaw.receipts.records import bounded
from coilclaw.runtime import estop as stop
from coilclaw.runtime.identity import new_id, stamp, this_process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json, ToolCall
    from coilclaw.domain.toolcalls import Approve
    from coilclaw.receipts.book import ReceiptBook, Status
    from coilclaw.runtime.estop import Estop
    from coilclaw.security.judgement import Judgement
    from coilclaw.tools.contract import Prepared, Tool, ToolContext
    from coilclaw.tools.schema import Validators

_log = logging.getLogger(__name__)

NOT_SANDBOXED: Final = "none"
_UNANSWERED: Final = {
    "timeout": "approval.timeout",
    "estop": stop.RULE,
    "shutdown": "approval.shutdown",
    "nobody": "approval.unattended",
}
"""The rule that denies where no person and no client said no."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One call on its way: what is known of it so far."""

    call: ToolCall
    context: ToolContext
    args_text: str
    risk: Risk = Risk.HIGH
    approval: str = ""
    intent_hash: str = ""

    @property
    def args_hash(self) -> str:
        return digest(self.args_text.encode("utf-8"))


@dataclass(slots=True)
class Guard:
    """Executes tool calls, or says why not. One object serves one workspace and one policy."""

    tools: Mapping[str, Tool]
    allowed: frozenset[str]
    """The tools that the channel allows."""
    book: ReceiptBook | None
    """``None`` when receipts are switched off; then nothing runs."""
    estop: Estop
    approve: Approve
    policy_hash: Callable[[], str]
    """Names the policy in force; asked for when the first call comes."""
    validators: Validators
    redact: Callable[[str], str]
    before_change: Callable[[ToolContext], None] = field(default=lambda _: None)
    """Told before the first thing that may change the workspace, so that it can be taken back."""
    _always: dict[str, str] = field(default_factory=dict)
    """Digests of exact calls that are approved for as long as this process runs, and by whom."""

    def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        """Take one call through all gates; expected outcomes are results, never exceptions."""
        _log.info(
            "tool requested: %s",
            bounded(call.name),
            extra={"event": "tool_requested", "fields": {"tool": bounded(call.name)}},
        )
        attempt = self._begin(call, context)
        if isinstance(attempt, ToolResult):
            return attempt
        tool = self.tools[call.name]
        try:
            effects = tool.effects(call.arguments)
            judged = self._judge(effects, context)
        except UsageError as problem:
            return self._deny(attempt, problem.rule, problem.message)
        verdict = judged.verdict
        attempt = replace(attempt, risk=verdict.risk)
        if verdict.denied:
            return self._deny(attempt, verdict.rule, verdict.reason)
        # What was judged is what the tool is told when it asks for its terms.
        known = replace(context, judge=_remembered(effects, judged, context.judge))
        attempt = replace(attempt, context=known)
        try:
            prepared = tool.prepare(call.arguments, known)
        except DeniedError as problem:
            return self._deny(attempt, problem.rule, problem.message)
        except CoilClawError as problem:
            return self._fail(attempt, problem.rule, problem.message)
        agreed = self._agreed(attempt, verdict, prepared)
        if isinstance(agreed, ToolResult):
            return agreed
        return self._perform(agreed, effects, judged, prepared)

    def refuse(self, call: ToolCall, context: ToolContext, rule: str, reason: str) -> ToolResult:
        """Deny a call for a reason outside of policy; it leaves its receipt like any other."""
        if self.book is None:
            return _unrecorded(rule, reason)
        attempt = Attempt(call, context, _arguments(call) or "")
        return self._deny(attempt, rule, reason)

    def _begin(self, call: ToolCall, context: ToolContext) -> Attempt | ToolResult:
        """Everything that can be said before policy is asked."""
        if self.book is None:
            reason = "receipts are switched off, and without a receipt there is no action"
            _log.info(
                "tool denied: %s",
                reason,
                extra={"event": "tool_denied", "fields": {"rule": "receipts.disabled"}},
            )
            return _unrecorded("receipts.disabled", reason)
        text = _arguments(call)
        attempt = Attempt(call, context, text or "")
        if self.estop.set:
            return self._deny(attempt, stop.RULE, f"{stop.REASON}; {stop.HINT}")
        if call.name not in self.tools:
            known = ", ".join(sorted(self.allowed & set(self.tools)))
            return self._deny(
                attempt, "tool.unknown", f"there is no tool {bounded(call.name)!r}; use {known}"
            )
        if call.name not in self.allowed:
            return self._deny(
                attempt, "tool.not_allowed", f"{call.name} is not in channels.cli.tools_allow"
            )
        if call.problem is not None or text is None:
            why = call.problem or "they hold text that is not valid Unicode, or are too deep"
            return self._deny(
                attempt, "arguments.malformed", f"the arguments cannot be used: {why}"
            )
        problems = self.validators.check(self.tools[call.name].parameters_schema, call.arguments)
        if problems:
            return self._deny(attempt, "arguments.schema", "; ".join(problems))
        return attempt

    def _judge(self, effects: tuple[Effect, ...], context: ToolContext) -> Judgement:
        try:
            return context.judge(effects)
        except CoilClawError:
            raise
        except Exception as problem:
            # Whatever went wrong inside policy, the answer is no; and it must not go unnoticed.
            _log.exception("the gate failed", extra={"event": "gate_fault"})
            raise UsageError(
                f"the gate could not judge the call ({type(problem).__name__})", rule="gate.fault"
            ) from problem

    def _agreed(
        self, attempt: Attempt, verdict: Verdict, prepared: Prepared
    ) -> Attempt | ToolResult:
        """Ask whoever has to be asked."""
        if verdict.decision is Decision.ALLOW:
            return replace(attempt, approval=f"policy {verdict.rule}")
        detail = tuple(self.redact(line) for line in prepared.detail)
        key = _bound(attempt, prepared.detail, self.policy_hash())
        if key in self._always:
            return self._approved(attempt, f"{self._always[key]} always {verdict.rule}")
        request = ApprovalRequest(
            attempt.call.name,
            self.redact(attempt.args_text),
            verdict,
            detail,
            key,
            attempt.context.conversation_id,
        )
        try:
            answer = self.approve(request)
        except KeyboardInterrupt:
            left = replace(attempt, approval=f"nobody no {verdict.rule}")
            self._deny(left, "approval.interrupted", "nobody answered the request")
            raise
        given = f"{answer.by} {answer.reply.value} {verdict.rule}"
        if not answer.granted:
            rule = _UNANSWERED.get(answer.by, "approval.denied")
            reason = answer.reason or "the request was not approved"
            return self._deny(replace(attempt, approval=given), rule, reason)
        if answer.reply is Reply.ALWAYS:
            self._always[key] = answer.by
        if self.estop.set:
            return self._deny(attempt, stop.RULE, f"{stop.REASON}; {stop.HINT}")
        return self._approved(attempt, given)

    def _approved(self, attempt: Attempt, approval: str) -> Attempt:
        _log.info(
            "tool approved: %s",
            attempt.call.name,
            extra={"event": "tool_approved", "fields": {"tool": attempt.call.name}},
        )
        return replace(attempt, approval=approval)

    def _perform(
        self,
        attempt: Attempt,
        effects: tuple[Effect, ...],
        judged: Judgement,
        prepared: Prepared,
    ) -> ToolResult:
        if changes(effects, judged):
            self.before_change(attempt.context)
        attempt = replace(attempt, intent_hash=self._intend(attempt))
        try:
            result = self._watched(attempt, effects, prepared)
        except Stopped as problem:
            # The writer took back what it had begun, because somebody wants to stop.
            self._fail(attempt, problem.rule, problem.message)
            raise KeyboardInterrupt from problem
        except DeniedError as problem:
            # Refused at the last moment, before any effect: the tree changed, a path moved.
            return self._deny(attempt, problem.rule, problem.message)
        except CoilClawError as problem:
            return self._fail(attempt, problem.rule, problem.message)
        except BaseException as problem:
            what = type(problem).__name__
            self._fail(attempt, "tool.interrupted", f"the call was interrupted ({what})")
            raise
        result = replace(
            result,
            output=self.redact(result.output),
            error=None if result.error is None else self.redact(result.error),
        )
        if result.success:
            return self._close(attempt, "allowed", result, "tool_completed")
        return self._close(attempt, "failed", result, "tool_failed")

    def _watched(
        self, attempt: Attempt, effects: tuple[Effect, ...], prepared: Prepared
    ) -> ToolResult:
        if all(isinstance(effect, Consults) for effect in effects):
            return prepared.perform()
        context = attempt.context
        with self.estop.watched(context.cancel, context.limits.tool_timeout_s):
            return prepared.perform()

    def _intend(self, attempt: Attempt) -> str:
        assert self.book is not None, "a call without receipts was denied long before"
        context = attempt.context
        return self.book.intend(
            Intent(
                id=new_id("intent"),
                timestamp=stamp(context.now()),
                conversation_id=context.conversation_id,
                tool=attempt.call.name,
                args_hash=attempt.args_hash,
                risk=str(attempt.risk),
                policy_hash=self.policy_hash(),
                approval=attempt.approval,
                process=this_process(),
            )
        )

    def _deny(self, attempt: Attempt, rule: str, reason: str) -> ToolResult:
        reason = self.redact(reason)
        result = ToolResult(False, "", f"denied by {rule}: {reason}", {"rule": rule})
        denied = replace(attempt, approval=attempt.approval or f"policy {rule}")
        return self._close(denied, "denied", result, "tool_denied")

    def _fail(self, attempt: Attempt, rule: str, reason: str) -> ToolResult:
        result = ToolResult(False, "", f"{self.redact(reason)} [{rule}]", {"rule": rule})
        return self._close(attempt, "failed", result, "tool_failed")

    def _close(
        self, attempt: Attempt, status: Status, result: ToolResult, event: str
    ) -> ToolResult:
        """Write the receipt; only then does anybody hear of the result."""
        assert self.book is not None, "a call without receipts was denied long before"
        tool = bounded(attempt.call.name)
        receipt_id = new_id("receipt")
        self.book.add(
            Receipt(
                id=receipt_id,
                timestamp=stamp(attempt.context.now()),
                conversation_id=attempt.context.conversation_id,
                tool=tool,
                args_hash=attempt.args_hash,
                result_hash=result_hash(result),
                status=status,
                risk=str(attempt.risk),
                intent_hash=attempt.intent_hash,
                policy_hash=self.policy_hash(),
                sandbox=str(result.metadata.get("sandbox", NOT_SANDBOXED)),
                approval=attempt.approval,
            )
        )
        fields = {"tool": tool, "status": status, "receipt": receipt_id}
        words = event.replace("_", " ")
        _log.info("%s: %s", words, result.error or tool, extra={"event": event, "fields": fields})
        _log.info(
            "receipt written: %s",
            receipt_id,
            extra={"event": "receipt_written", "fields": fields},
        )
        return replace(
            result, receipt_id=receipt_id, metadata={**result.metadata, "status": status}
        )


def _unrecorded(rule: str, reason: str) -> ToolResult:
    """A denial where there are no receipts, and therefore none for this either."""
    metadata: dict[str, Json] = {"rule": rule, "status": "denied"}
    return ToolResult(False, "", f"denied by {rule}: {reason}", metadata)


def changes(effects: tuple[Effect, ...], judged: Judgement) -> bool:
    """Whether a call may change the workspace."""
    return any(
        isinstance(effect, Writes) or (isinstance(effect, Runs) and judged.terms.writable)
        for effect in effects
    )


def result_hash(result: ToolResult) -> str:
    """SHA-256 of what the caller was told, in canonical form."""
    return freeform.hashed(
        {
            "success": result.success,
            "output": _valid(result.output),
            "error": None if result.error is None else _valid(result.error),
        }
    )


def _valid(text: str) -> str:
    """Names that are not Unicode carry surrogates, which no JSON holds."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _arguments(call: ToolCall) -> str | None:
    try:
        return freeform.text(dict(call.arguments))
    except (UsageError, RecursionError):
        return None


def _bound(attempt: Attempt, detail: tuple[str, ...], policy_hash: str) -> str:
    """What an approval is given for; anything else needs another one."""
    context = attempt.context
    return freeform.hashed(
        {
            "tool": attempt.call.name,
            "arguments": attempt.args_text,
            "detail": [_valid(line) for line in detail],
            "policy": policy_hash,
            "workspace": _valid(str(context.root.path)),
            "conversation": context.conversation_id,
        }
    )


def _remembered(
    effects: tuple[Effect, ...],
    judged: Judgement,
    judge: Callable[[tuple[Effect, ...]], Judgement],
) -> Callable[[tuple[Effect, ...]], Judgement]:
    return lambda asked: judged if asked == effects else judge(asked)
