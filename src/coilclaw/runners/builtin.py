"""``BuiltinRunner``: our own agent runtime as a runner.

The loop asks the model, and every tool call goes through the guard with a policy made from the
contract; its questions to the user go through the means of the assignment. Receipts, the
conversation and the records of changes are kept in a state directory that no tool can reach.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from coilclaw.agent import AgentLimits, Guard, text_size
from coilclaw.kernel import (
    AnswerError,
    Part,
    ProviderCapabilities,
    ToolSpec,
    Usage,
    UsageError,
    Writes,
    canonical_json,
)
from coilclaw.runners import agent_answer, contract_policy
from coilclaw.runners.contract_policy import REFUSED_EXIT_CODE, ContractPolicy
from coilclaw.runners.runner import Deadline, Ending
from coilclaw.runners.runner_thread import perform_in_thread
from coilclaw.workspace import SandboxView

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from coilclaw.agent import AgentLoop, Estop, Tool, ToolContext, TurnOutcome
    from coilclaw.kernel import (
        ApprovalAnswer,
        ApprovalRequest,
        ChatRequest,
        ChatResponse,
        Json,
        Provider,
        Redactor,
        Runs,
        ToolCall,
        ToolResult,
    )
    from coilclaw.policy import CommandRules
    from coilclaw.runners.runner import Assignment, Means
    from coilclaw.runners.runner_thread import RunnerThread
    from coilclaw.workspace import Root, TreeState


BYTES_RULE: Final = "budget.bytes"


@dataclass(slots=True)
class ObservedProvider:
    """Asks another provider for answers of a schema, and reports them as parts."""

    inner: Provider
    stage: RunnerThread
    redactor: Redactor
    output_schema: Mapping[str, Json] | None = None
    max_tokens: int | None = None
    """What all answers together may use."""
    usage: Usage | None = None
    """What they used, as far as the provider reports it."""
    on_usage: Callable[[Usage], None] = lambda _: None

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return replace(self.inner.capabilities, streaming=False)

    def chat(self, request: ChatRequest) -> ChatResponse:
        self.stage.check()
        response = self.inner.chat(replace(request, output_schema=self.output_schema))
        self.stage.check()
        self.usage = add_usage(self.usage, response.usage)
        if self.usage is not None:
            self.on_usage(self.usage)
        text = self.redactor.redact(response.final_text)
        if text:
            self.stage.say(Part("text", text=text, usage=response.usage))
        used = tokens(self.usage)
        if self.max_tokens is not None and used > self.max_tokens:
            why = f"the budget of {self.max_tokens:,} tokens is used up"
            self.stage.halt("exhausted", why)
            self.stage.check()
        return response


@dataclass(slots=True)
class ObservedGuard(Guard):
    """The guard, which reports each call as a part."""

    stage: RunnerThread = field(kw_only=True)
    max_bytes: int | None = None
    """What all results together may hold; afterwards every call is refused."""
    used_bytes: int = 0

    def call(self, call: ToolCall, context: ToolContext) -> ToolResult:
        if self.max_bytes is not None and self.used_bytes >= self.max_bytes:
            why = f"the budget of {self.max_bytes:,} bytes of results is used up"
            return self.refuse(call, context, BYTES_RULE, why)
        with self.stage.calling() as cancel:
            # Named, because a dataclass with slots is another class than the one being written.
            result = Guard.call(self, call, replace(context, cancel=cancel))
        self.used_bytes += text_size(result.output) + text_size(result.error or "")
        self.stage.say(self._part(call, result))
        return result

    def refuse(self, call: ToolCall, context: ToolContext, rule: str, reason: str) -> ToolResult:
        result = Guard.refuse(self, call, context, rule, reason)
        self.stage.say(self._part(call, result))
        return result

    def _part(self, call: ToolCall, result: ToolResult) -> Part:
        code = result.metadata.get("exit_code")
        if result.metadata.get("status") == "denied":
            code = REFUSED_EXIT_CODE
        elif not isinstance(code, int):
            code = 0 if result.success else 1
        gap = "" if not result.output or result.output.endswith("\n") else "\n"
        tool = self.tools.get(call.name) if result.success else None
        effects = () if tool is None else tool.effects(call.arguments)
        try:
            arguments = canonical_json.render_json(dict(call.arguments))
        except (UsageError, RecursionError):
            arguments = ""
        return Part(
            "tool",
            tool=self.redact(call.name),
            call_id=call.id,
            input=self.redact(arguments),
            output=f"{result.output}{gap}{result.error}" if result.error else result.output,
            exit_code=code,
            files=tuple(effect.path for effect in effects if isinstance(effect, Writes)),
            raw=canonical_json.render_json({"receipt_id": result.receipt_id, **result.metadata}),
        )


def add_usage(one: Usage | None, other: Usage | None) -> Usage | None:
    """Add two counts; an unknown number counts as zero."""
    if one is None or other is None:
        return one or other
    return Usage(
        _sum(one.input_tokens, other.input_tokens), _sum(one.output_tokens, other.output_tokens)
    )


def tokens(usage: Usage | None) -> int:
    """Return all tokens of a count."""
    return 0 if usage is None else (usage.input_tokens or 0) + (usage.output_tokens or 0)


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None and other is None else (one or 0) + (other or 0)


DEFAULT_ROUNDS: Final = 50
"""For a budget that names no number of tool rounds."""
RECEIPTS: Final = "receipts.jsonl"
REMINDER: Final = (
    "Your last message was not the JSON object that the task asks for. Do not call tools and do "
    "not change anything. Answer with that JSON object alone, without a code fence."
)
"""Sent once to a model that ends with something else than its answer."""
_LOOKING: Final = ("time", "file_list", "file_read")
_CHANGING: Final = ("file_write", "apply_changes")
_KINDS: Final[dict[str, contract_policy.RequestKind]] = {
    "shell": "command",
    "file_write": "change",
    "apply_changes": "change",
}


def default_state(assignment: Assignment) -> Path:
    """Return a directory of the agent's private home that its commands do not see."""
    return assignment.home / "coilclaw"


def default_rules() -> CommandRules:
    """Return the rules of the shipped policy."""
    from coilclaw.policy import policy_rules

    return policy_rules.load_rules(policy_rules.read_shipped_policy())


@dataclass(frozen=True, slots=True)
class BuiltinRunner:
    """Performs with one model; everything else comes with the assignment."""

    provider: Provider
    model: str
    redactor: Redactor
    estop: Estop
    key_path: Path
    """The key of the anchors of the receipts, outside of everything that an agent can see."""
    limits: AgentLimits = field(default_factory=AgentLimits)
    temperature: float | None = None
    state: Callable[[Assignment], Path] = default_state
    rules: Callable[[], CommandRules] = default_rules
    refuse_command: Callable[[Runs], str] = lambda _: ""
    now: Callable[[], datetime] = lambda: datetime.now().astimezone()
    reminds: bool = True
    """Whether a model that ends without its answer is asked for it once more."""
    name: str = "builtin"
    view: SandboxView = field(default_factory=SandboxView)
    """What the user lets every child see."""
    extra_tools: tuple[Tool, ...] = ()
    """Tools beside those of every assignment; the guard judges their calls like all others."""

    def receipts(self, assignment: Assignment) -> Path:
        """Return where the receipts of an assignment are written, beside the intents."""
        return self.state(assignment) / RECEIPTS

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Run one turn of the loop with the instruction as its message."""
        deadline = Deadline.of(assignment.budget)
        session = _Session(self, assignment, means)
        return (yield from perform_in_thread(session.work, means, deadline, assignment.budget))


@dataclass(slots=True)
class _Session:
    """One performance."""

    runner: BuiltinRunner
    assignment: Assignment
    means: Means

    def work(self, stage: RunnerThread) -> Ending:
        """Run the agent in its thread; close everything that it opened."""
        assignment = self.assignment
        state = self.runner.state(assignment)
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        provider = ObservedProvider(
            self.runner.provider,
            stage,
            self.runner.redactor,
            assignment.output_schema,
            assignment.budget.tokens,
            on_usage=self.means.on_usage,
        )
        with ExitStack() as stack:
            loop = self._loop(stage, state, provider, stack)
            thread = assignment.thread_id or None
            outcome = loop.turn(assignment.instruction, conversation_id=thread)
            ending = self._ending(outcome, provider)
            if ending.status == "failed" and ending.result is None and self.runner.reminds:
                # Many models end good work with a few words instead of the answer.
                outcome = loop.turn(REMINDER, conversation_id=outcome.conversation_id)
                ending = self._ending(outcome, provider)
        return ending

    def _ending(self, outcome: TurnOutcome, provider: ObservedProvider) -> Ending:
        done = Ending(
            "done", text=outcome.text, thread_id=outcome.conversation_id, usage=provider.usage
        )
        if outcome.exhausted:
            why = f"{outcome.tool_rounds} rounds of tool calls are used up"
            return replace(done, status="exhausted", reason=why)
        if self.assignment.output_schema is None:
            return done
        try:
            data = outcome.text.encode("utf-8", "replace")
            result = agent_answer.read_object(data, what="the final answer")
        except AnswerError as problem:
            return replace(done, status="failed", reason=f"{problem.message} [{problem.rule}]")
        status, reason = agent_answer.verdict(result)
        return replace(done, status=status, reason=reason, result=result)

    def _loop(
        self, stage: RunnerThread, state: Path, provider: ObservedProvider, stack: ExitStack
    ) -> AgentLoop:
        from coilclaw.agent import AgentLoop, Memory, TurnUndo, builtin_tools
        from coilclaw.workspace import Root, TreeState

        runner, assignment = self.runner, self.assignment
        root = stack.enter_context(Root(assignment.directory))
        tree = TreeState.of(state, root.path)
        memory = Memory(state / "memory.db")
        stack.callback(memory.close)
        policy = ContractPolicy(assignment, self.means, state, runner.rules, runner.refuse_command)
        # Every tool that an assignment can permit; policy denies what this one does not.
        wanted = {*_LOOKING, *_CHANGING, "shell", "http"}
        chosen = [tool for tool in builtin_tools() if tool.name in wanted]
        tools = {tool.name: tool for tool in (*chosen, *runner.extra_tools)}
        guard = self._guard(stage, policy, tools, stack)
        offered = self._list_offered()
        rounds = assignment.budget.tool_rounds
        rounds = DEFAULT_ROUNDS if rounds is None else rounds
        return AgentLoop(
            provider=provider,
            model=assignment.model or runner.model,
            tools=tuple(
                ToolSpec(tool.name, tool.description, tool.parameters_schema)
                for tool in tools.values()
                if tool.name in offered
            ),
            guard=lambda: guard,
            estop=runner.estop,
            memory=memory,
            security=policy.settings,
            limits=replace(runner.limits, max_tool_rounds=rounds),
            redactor=runner.redactor,
            # The caller that gave the assignment takes the snapshots.
            undoing=TurnUndo(lambda: (root, tree)),
            context=lambda conversation, turn: self._context(
                policy, root, tree, conversation, turn
            ),
            now=runner.now,
            temperature=runner.temperature,
        )

    def _list_offered(self) -> frozenset[str]:
        """Return the names of the tools that the model may call."""
        assignment = self.assignment
        names = [*_LOOKING, *(tool.name for tool in self.runner.extra_tools)]
        if assignment.filesystem == "workspace-write":
            names += _CHANGING
        if assignment.shell != "deny":
            names.append("shell")
        if assignment.network != "deny":
            names.append("http")
        return frozenset(names)

    def _guard(
        self, stage: RunnerThread, policy: ContractPolicy, tools: dict[str, Tool], stack: ExitStack
    ) -> ObservedGuard:
        from coilclaw.agent import ReceiptBook, Validators

        runner = self.runner
        book = ReceiptBook(runner.receipts(self.assignment), key_path=runner.key_path)
        book.create()
        stack.callback(book.close)
        return ObservedGuard(
            tools=tools,
            allowed=frozenset(tools),
            book=book,
            estop=runner.estop,
            approve=self._approve,
            policy_hash=lambda: policy.hash,
            validators=Validators(),
            redact=runner.redactor.redact,
            stage=stage,
            max_bytes=self.assignment.budget.bytes,
        )

    def _approve(self, asked: ApprovalRequest) -> ApprovalAnswer:
        """Turn a question of the guard into a request of the agent."""
        kind = _KINDS.get(asked.tool, "permission")
        request = contract_policy.request(
            self.assignment.task_id,
            kind,
            f"{asked.tool} {asked.arguments}"[:200],
            (f"{asked.tool} {asked.arguments}", *asked.detail),
            f"{asked.verdict.reason} [{asked.verdict.rule}]",
        )
        return self.means.approve(request)

    def _context(
        self, policy: ContractPolicy, root: Root, tree: TreeState, conversation: str, turn: str
    ) -> ToolContext:
        from coilclaw.agent import ToolContext
        from coilclaw.workspace import Cancellation

        return ToolContext(
            root=root,
            state=tree,
            home=policy.state,
            security=policy.settings,
            locate=policy.places.locate,
            judge=policy.judge,
            conversation_id=conversation,
            turn_id=turn,
            cancel=Cancellation(),
            now=self.runner.now,
            environ=self.assignment.environ,
            recall=lambda *_: (),
            ask=lambda _: None,
            sandbox=self.assignment.sandbox.kind,
            # What its commands find elsewhere: not its home, where our own state is.
            mounts=tuple(
                mount
                for mount in self.assignment.sandbox.mounts
                if not mount.target.is_relative_to(self.assignment.home)
            ),
            support=lambda: self.means.support,
            limits=self.runner.limits.tools,
            view=replace(
                self.runner.view, read=(*self.runner.view.read, *self.assignment.sandbox.shown)
            ),
            # What the set-up installed at home is there.
            shared_home=self.assignment.home,
        )
