"""``BuiltinRunner``: our own agent runtime as a runner.

The loop asks the model, and every tool call goes through the guard with a policy made from the
contract; what it would ask a person is asked through the means of the assignment. Receipts, the
conversation and the records of changes are kept in a state directory that no tool can reach.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from coilclaw.agents import answers, shellpolicy
from coilclaw.agents.contractpolicy import ContractPolicy
from coilclaw.agents.deadline import Deadline
from coilclaw.agents.observing import ObservedGuard, ObservedProvider
from coilclaw.agents.runner import Ending
from coilclaw.agents.stage import staged
from coilclaw.domain.messages import ToolSpec
from coilclaw.errors import AnswerError
from coilclaw.runtime.settings import Limits
from coilclaw.workspace.sandbox_view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from coilclaw.agents.runner import Assignment, Means
    from coilclaw.agents.stage import Stage
    from coilclaw.domain.effects import Runs
    from coilclaw.domain.messages import Provider
    from coilclaw.domain.parts import Part
    from coilclaw.domain.redacting import Redacting
    from coilclaw.domain.toolcalls import Answer, ApprovalRequest
    from coilclaw.runtime.estop import Estop
    from coilclaw.runtime.handle import TurnOutcome
    from coilclaw.runtime.loop import Loop
    from coilclaw.security.commandrules import CommandRules
    from coilclaw.tools.contract import Tool, ToolContext
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.sandbox import Mount
    from coilclaw.workspace.state import TreeState

DEFAULT_ROUNDS: Final = 50
"""For a budget that names no number of tool rounds."""
RECEIPTS: Final = "receipts.jsonl"
REMINDER: Final = (
    "Your last message was not the JSON object that the task asks for. Do not call tools and do "
    "not change anything. Answer with that JSON object alone, without a code fence."
)
"""What a model is told once if it ends with something else than its answer."""
_LOOKING: Final = ("time", "file_list", "file_read")
_CHANGING: Final = ("file_write", "apply_changes")
_KINDS: Final[dict[str, shellpolicy.RequestKind]] = {
    "shell": "command",
    "file_write": "change",
    "apply_changes": "change",
}


def default_state(assignment: Assignment) -> Path:
    """A directory of the agent's private home, which commands of the agent do not see."""
    return assignment.home / "coilclaw"


def default_rules() -> CommandRules:
    """The rules that ship."""
    from coilclaw.security import commandrules

    return commandrules.load(commandrules.default_text())


def _now() -> datetime:
    return datetime.now().astimezone()


@dataclass(frozen=True, slots=True)
class BuiltinRunner:
    """Performs with one model; everything else comes with the assignment."""

    provider: Provider
    model: str
    redactor: Redacting
    estop: Estop
    key_path: Path
    """The key of the anchors of the receipts, outside of everything that an agent can see."""
    limits: Limits = field(default_factory=Limits)
    temperature: float | None = None
    state: Callable[[Assignment], Path] = default_state
    rules: Callable[[], CommandRules] = default_rules
    refuse_command: Callable[[Runs], str] = lambda _: ""
    now: Callable[[], datetime] = _now
    reminds: bool = True
    """Whether a model that ends without its answer is asked for it once more."""
    name: str = "builtin"
    view: View = field(default_factory=View)
    """What the user lets every child see."""
    extra_tools: tuple[Tool, ...] = ()
    """Tools beside those of every assignment; the guard judges their calls like all others."""

    def receipts(self, assignment: Assignment) -> Path:
        """Where the receipts of an assignment are written, with the intents beside them."""
        return self.state(assignment) / RECEIPTS

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Run one turn of the loop with the instruction as its message."""
        deadline = Deadline.of(assignment.budget)
        session = _Session(self, assignment, means)
        return (yield from staged(session.work, means, deadline, assignment.budget))


@dataclass(slots=True)
class _Session:
    """One performance."""

    runner: BuiltinRunner
    assignment: Assignment
    means: Means

    def work(self, stage: Stage) -> Ending:
        """Be the agent, in its thread: everything that is opened here is closed here."""
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
                # Many models end good work with a few words; the work is not lost for that.
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
            result = answers.read_object(data, what="the final answer")
        except AnswerError as problem:
            return replace(done, status="failed", reason=f"{problem.message} [{problem.rule}]")
        status, reason = answers.verdict(result)
        return replace(done, status=status, reason=reason, result=result)

    def _loop(
        self, stage: Stage, state: Path, provider: ObservedProvider, stack: ExitStack
    ) -> Loop:
        from coilclaw.memory.store import Memory
        from coilclaw.runtime.loop import Loop
        from coilclaw.runtime.undoing import Undoing
        from coilclaw.workspace.resolve import Root
        from coilclaw.workspace.state import TreeState

        runner, assignment = self.runner, self.assignment
        root = stack.enter_context(Root(assignment.directory))
        tree = TreeState.of(state, root.path)
        memory = Memory(state / "memory.db")
        stack.callback(memory.close)
        policy = ContractPolicy(assignment, self.means, state, runner.rules, runner.refuse_command)
        tools = self._tools()
        guard = self._guard(stage, policy, tools, stack)
        offered = self._offered()
        rounds = assignment.budget.tool_rounds
        rounds = DEFAULT_ROUNDS if rounds is None else rounds
        return Loop(
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
            # Whoever gave the assignment takes the pictures.
            undoing=Undoing(lambda: (root, tree)),
            context=lambda conversation, turn: self._context(
                policy, root, tree, conversation, turn
            ),
            now=runner.now,
            temperature=runner.temperature,
        )

    def _tools(self) -> dict[str, Tool]:
        """Every tool that an assignment can permit; policy denies what this one does not."""
        from coilclaw.tools.builtin import builtin

        wanted = {*_LOOKING, *_CHANGING, "shell", "http"}
        chosen = [tool for tool in builtin() if tool.name in wanted]
        return {tool.name: tool for tool in (*chosen, *self.runner.extra_tools)}

    def _offered(self) -> frozenset[str]:
        """What the model is told of."""
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
        self, stage: Stage, policy: ContractPolicy, tools: dict[str, Tool], stack: ExitStack
    ) -> ObservedGuard:
        from coilclaw.receipts.book import ReceiptBook
        from coilclaw.tools.schema import Validators

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

    def _approve(self, asked: ApprovalRequest) -> Answer:
        """What our own guard would ask a person becomes a request of the agent."""
        kind = _KINDS.get(asked.tool, "permission")
        request = shellpolicy.request(
            self.assignment.task_id,
            kind,
            f"{asked.tool} {asked.arguments}"[:200],
            (f"{asked.tool} {asked.arguments}", *asked.detail),
            f"{asked.verdict.reason} [{asked.verdict.rule}]",
        )
        return self.means.approve(request)

    def _mounts(self) -> tuple[Mount, ...]:
        """What its commands find elsewhere: not its home, where our own state is."""
        home = self.assignment.home
        mounts = self.assignment.sandbox.mounts
        return tuple(mount for mount in mounts if not mount.target.is_relative_to(home))

    def _context(
        self, policy: ContractPolicy, root: Root, tree: TreeState, conversation: str, turn: str
    ) -> ToolContext:
        from coilclaw.tools.contract import ToolContext
        from coilclaw.workspace.cancel import Cancellation

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
            mounts=self._mounts(),
            support=lambda: self.means.support,
            limits=self.runner.limits.tools,
            view=replace(
                self.runner.view, read=(*self.runner.view.read, *self.assignment.sandbox.shown)
            ),
            # What the set-up installed at home is there.
            shared_home=self.assignment.home,
        )
