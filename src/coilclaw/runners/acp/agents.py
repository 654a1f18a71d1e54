"""Agents that speak ACP: how one is started, with what ``agent_program.AGENTS`` knows of it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coilclaw.kernel import DeniedError, EnvironmentFault
from coilclaw.runners import agent_program, test_tool
from coilclaw.runners.acp.session import AcpConversation
from coilclaw.runners.acp.turn import AcpTurn, instruction_of
from coilclaw.runners.agent_program import AGENTS, KnownAgent
from coilclaw.runners.external_agent import start_agent
from coilclaw.runners.model_route import RouteTarget, target_of
from coilclaw.runners.runner import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Part
    from coilclaw.runners.runner import Assignment, Ending, Means
    from coilclaw.workspace import Sandbox


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
    """Return where the model of an agent is; an agent whose model is not known is refused."""
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
        """Start the agent, give it the task, and see it through."""
        deadline = Deadline.of(assignment.budget)
        program = agent_program.named(self.argv[0], self.environ, self.home, self.base)
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
    """Start the agent, give it the task, and see it through; the turn is put into ``turns``."""
    if start.targets and means.support.bubblewrap is None:
        raise EnvironmentFault(
            f"{start.title} needs a network of its own to reach nothing but its model, which only "
            "bubblewrap gives it.",
            rule="acp.sandbox",
            hint="Install bubblewrap, or allow the network.",
        )
    with ExitStack() as stack:
        tests = stack.enter_context(test_tool.offered(means.run_tests, assignment.home))
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
    """Whether of the network only the model is reached."""
    return assignment.network != "allow" and assignment.sandbox.kind != "none"
