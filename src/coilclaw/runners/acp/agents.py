"""Agents that speak ACP: how one is started, with what ``agent_program.AGENTS`` knows of it."""

from __future__ import annotations

import queue
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import DeniedError, EnvironmentFault, Usage, UsageError, canonical_json
from coilclaw.runners import agent_program, test_tool
from coilclaw.runners.acp.session import (
    AcpAnswer,
    AcpConversation,
    AcpOpened,
    AcpQuestion,
    CancelNotice,
    Trouble,
    Updated,
)
from coilclaw.runners.acp.updates import Updates
from coilclaw.runners.agent_answer import object_of
from coilclaw.runners.agent_program import AGENTS, KnownAgent
from coilclaw.runners.agent_requests import AcpRequests
from coilclaw.runners.external_agent import AgentProgress, start_agent
from coilclaw.runners.model_route import RouteTarget, target_of
from coilclaw.runners.runner import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json, Part
    from coilclaw.runners.acp.session import Event
    from coilclaw.runners.runner import Assignment, Ending, Means, Status
    from coilclaw.runners.test_tool import TestTool
    from coilclaw.workspace import Sandbox

START_S: Final = 120.0
"""How long opening a session may take."""
_STOPS: Final[Mapping[str, tuple[Status, str]]] = {
    "end_turn": ("done", ""),
    "refusal": ("failed", "the agent refused to continue"),
    "max_tokens": ("failed", "the answer of the model was too long"),
    "max_turn_requests": ("failed", "the agent made as many requests as it may"),
    "cancelled": ("aborted", "the agent cancelled the turn"),
}


@dataclass(slots=True, kw_only=True)
class AcpTurn(AgentProgress):
    """Takes what happens in a conversation, until its end."""

    title: str
    """The name of the agent in messages."""
    talk: AcpConversation
    tests: TestTool | None = None
    updates: Updates = field(init=False)
    requests: AcpRequests = field(init=False)

    def __post_init__(self) -> None:
        denied = self.assignment.shell == "deny"
        self.updates = Updates(self.assignment.workspace, shell_denied=denied)
        self.requests = AcpRequests(self.assignment, self.means, self.updates, self.tests)
        self.until = min(time.monotonic() + START_S, self.deadline.at)

    def perform(self, on_session: Callable[[], None]) -> Generator[Part, None, Ending]:
        """Take every event to the end; ``on_session`` is called before the agent gets its task."""
        notice = CancelNotice(self.talk.events)
        self.means.cancel.attach(notice)
        try:
            while True:
                event = self._next()
                if event is None:
                    late = f"{self.title} was not ready within {START_S:g} s"
                    return self._end(*(self.stop or ("aborted", late)))
                for part in self._heard(event, on_session):
                    if self.allows(part):
                        yield part
                if isinstance(event, AcpAnswer):
                    return self._end_answered(event)
                if isinstance(event, Trouble):
                    return self._end_failed(event)
                if self.stop is not None and not self.session:
                    return self._end(*self.stop)
        except UsageError as fault:
            return self._end("aborted", f"{self.title} sent what cannot be kept: {fault}")
        finally:
            self.means.cancel.detach(notice)

    def interrupt(self) -> None:
        self.talk.cancel()

    def _next(self) -> Event | None:
        """Return the next event, or ``None`` when the time is up."""
        while True:
            if self.means.cancel.cancelled:
                # Before what came in the meantime, and may be much.
                self.halt("aborted", f"it was cancelled: {self.means.cancel.reason}")
            try:
                return self.talk.events.get(timeout=max(self.until - time.monotonic(), 0.0))
            except queue.Empty:
                if self.stop is not None or not self.deadline.passed:
                    return None
                self.halt("exhausted", self.deadline.reason)
                if not self.session:
                    return None

    def _heard(self, event: Event, on_session: Callable[[], None]) -> list[Part]:
        match event:
            case Updated():
                # Before there is a session, it is the history of one.
                return self.updates.heard(event.update, event.raw) if self.session else []
            case AcpQuestion():
                answered = self.stop is None and self.session
                chosen = self.requests.choose(event.tool_call, event.options) if answered else None
                event.reply(chosen)
            case AcpOpened():
                self.session, self.version = event.session_id, event.version
                self.means.on_session(self.session)
                self.until = self.deadline.at
                on_session()
                if self.stop is None:
                    self.talk.go()
            case AcpAnswer() | Trouble():
                return self.updates.finish()
        return []

    def _end_answered(self, event: AcpAnswer) -> Ending:
        usage = event.usage or {}
        read, written = usage.get("input_tokens"), usage.get("output_tokens")
        if isinstance(read, int) and isinstance(written, int):
            self.usage = Usage(read, written)
            self.means.on_usage(self.usage)
        if self.stop is not None:
            return self._end(*self.stop)
        if excess := self.find_token_excess():
            return self._end("exhausted", excess)
        if _is_system_error(event.meta):
            # One agent reports a failed model as if that were an answer.
            return self._end("failed", f"{self.title} failed: {self.updates.text}")
        unknown: tuple[Status, str] = ("failed", f"it stopped: {event.stop_reason}")
        return self._end(*_STOPS.get(event.stop_reason, unknown))

    def _end_failed(self, event: Trouble) -> Ending:
        self.broken = event.gone
        if self.stop is not None:
            return self._end(*self.stop)
        self.session_lost = bool(self.assignment.thread_id) and not self.session
        if event.gone:
            return self._end("aborted", f"{self.title} did not finish: {event.reason}")
        return self._end("failed", f"{self.title} failed: {event.reason}")

    def _end(self, status: Status, reason: str) -> Ending:
        answer = self.updates.text.strip()
        if answer.startswith("```") and answer.endswith("```"):
            # The fence that models like to put around it.
            answer = answer.partition("\n")[2].rpartition("```")[0]
        return self.end(status, reason, self.updates.text, answer)


def instruction_of(assignment: Assignment) -> str:
    """Return the prompt, with the schema of the answer: the protocol has no field for it."""
    if assignment.output_schema is None:
        return assignment.instruction
    return (
        f"{assignment.instruction}\n\nWhen you are done, answer with one JSON object and nothing "
        "else. It fits this JSON "
        f"Schema:\n{canonical_json.render_json(dict(assignment.output_schema))}\n"
    )


def _is_system_error(meta: Mapping[str, Json] | None) -> bool:
    codex = object_of(dict(meta or {}).get("codex"))
    return object_of(codex.get("threadStatus")).get("type") == "systemError"


def make_environment(
    agent: KnownAgent, assignment: Assignment, ours: Mapping[str, str], passed: tuple[str, ...]
) -> dict[str, str]:
    """Return the whole environment of an agent; ``passed`` are more variables of ours for it."""
    own = {agent.folder[0]: str(assignment.home / agent.folder[1])} if agent.folder else {}
    names = (*agent.keys, agent.address, *passed)
    given = {name: ours[name] for name in names if name in ours}
    return {**agent.fixed, **own, **given, **assignment.environ}


def find_targets(
    agent: KnownAgent, addresses: tuple[str, ...], environ: Mapping[str, str]
) -> tuple[RouteTarget, ...]:
    """Return the addresses of an agent's model; raise ``DeniedError`` if they are unknown."""
    named = environ.get(agent.address, "") if agent.address else ""
    found = [target_of(address) for address in (*addresses, named) if address]
    found = found or [RouteTarget(host, 443) for host in agent.hosts]
    if not found:
        raise DeniedError(
            f"The network is denied, and it is not known where the model of {agent.title} is.",
            rule="acp.route",
            hint="Allow the network for this agent.",
        )
    return tuple(dict.fromkeys(found))


def find_agent(program: Path) -> KnownAgent:
    """Return what is known of a program."""
    unknown = KnownAgent(program.name, program.name, program.name)
    return next((each for each in AGENTS if each.program == program.name), unknown)


@dataclass(frozen=True, slots=True)
class AcpRunner:
    """Starts one agent for each assignment."""

    argv: tuple[str, ...]
    """Its command line; the program is a path, or looked for like those of ``finding``."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Where PATH is looked up. Of the rest only the variables are passed on that hold the key and
    the address of the model of an agent that is known."""
    home: Path | None = None
    """Our own home, below which agents may be installed."""
    base: Path | None = None
    """What a program that is named by a relative path is relative to."""
    passed: tuple[str, ...] = ()
    """More variables to pass on, by their names."""
    addresses: tuple[str, ...] = ()
    """Where its model is; without any, it is what is known of the agent."""

    @property
    def name(self) -> str:
        return "acp"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Start the agent, give it the task, and return how the turn ended."""
        deadline = Deadline.of(assignment.budget)
        program = agent_program.find_named_program(self.argv[0], self.environ, self.home, self.base)
        agent = find_agent(program)
        env = make_environment(agent, assignment, self.environ, self.passed)
        routed = is_routed(assignment)
        start = AcpStart(
            title=agent.title,
            argv=[str(program), *self.argv[1:]],
            env=env,
            sandbox=assignment.sandbox.showing(program, *self.argv[1:]),
            targets=find_targets(agent, self.addresses, env) if routed else (),
            model=assignment.model,
        )
        return (yield from perform_turn(start, assignment, means, deadline, []))


@dataclass(frozen=True, slots=True)
class AcpStart:
    """How one agent is started and spoken with."""

    title: str
    argv: list[str]
    env: Mapping[str, str]
    sandbox: Sandbox
    targets: tuple[RouteTarget, ...]
    """Where its model is, for when the network is denied."""
    on_session: Callable[[], None] = field(default=lambda: None)
    model: str = ""
    """The model to ask for; not if it is in the settings of the agent already."""
    tools_in_settings: bool = False
    """Whether the agent finds the tool server in its settings, and need not be told of it."""


def perform_turn(
    start: AcpStart, assignment: Assignment, means: Means, deadline: Deadline, turns: list[AcpTurn]
) -> Generator[Part, None, Ending]:
    """Start the agent, perform the task, and return the ending; append the turn to ``turns``."""
    if start.targets and means.support.bubblewrap is None:
        raise EnvironmentFault(
            f"{start.title} needs a network of its own to reach nothing but its model, which only "
            "bubblewrap gives it.",
            rule="acp.sandbox",
            hint="Install bubblewrap, or allow the network.",
        )
    with ExitStack() as stack:
        tests = stack.enter_context(test_tool.offer_tool(means.run_tests, assignment.home))
        agent = start_agent(
            stack,
            start.argv,
            start.env,
            start.sandbox,
            targets=start.targets,
            place=assignment.home,
            assignment=assignment,
            means=means,
            deadline=deadline,
        )
        told = None if start.tools_in_settings else tests
        talk = stack.enter_context(
            AcpConversation(
                agent.child,
                str(assignment.workspace),
                assignment.thread_id,
                start.model,
                told,
                instruction_of(assignment),
            )
        )
        turn = AcpTurn(
            assignment=assignment,
            means=means,
            deadline=deadline,
            title=start.title,
            talk=talk,
            tests=tests,
        )
        turns.append(turn)
        ending = yield from turn.perform(start.on_session)
    return agent.finish(ending, broken=turn.broken)


def is_routed(assignment: Assignment) -> bool:
    """Whether the agent reaches only its model, and no other address."""
    return assignment.network != "allow" and assignment.sandbox.kind != "none"
