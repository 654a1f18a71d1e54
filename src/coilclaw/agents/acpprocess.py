"""Starting an ACP agent: in the sandbox of the assignment, with a way to its model only."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agents import codexroute, testtool
from coilclaw.agents.acptalk import Opening, Talk
from coilclaw.agents.acpturn import CANCEL_GRACE_S, Turn, instruction_of
from coilclaw.agents.codex import finished
from coilclaw.agents.codexdoor import Door
from coilclaw.agents.codexroute import Route
from coilclaw.errors import EnvironmentFault
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from coilclaw.agents.codexdoor import Target
    from coilclaw.agents.deadline import Deadline
    from coilclaw.agents.runner import Assignment, Ending, Means
    from coilclaw.domain.parts import Part
    from coilclaw.workspace.sandbox import Sandbox

_STDERR_BYTES: Final = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Start:
    """How one agent is started and spoken with."""

    title: str
    argv: list[str]
    env: Mapping[str, str]
    sandbox: Sandbox
    targets: tuple[Target, ...]
    """Where its model is, for when the network is denied."""
    place: Path
    """A directory of the sandbox that the agent can write."""
    on_session: Callable[[], None] = field(default=lambda: None)
    model: str = ""
    """The model to ask for; not if it is in the settings of the agent already."""
    tools_in_settings: bool = False
    """Whether the agent finds the tool server in its settings, and need not be told of it."""


def perform(
    start: Start, assignment: Assignment, means: Means, deadline: Deadline, turns: list[Turn]
) -> Generator[Part, None, Ending]:
    """Start the agent, give it the task, and see it through; the turn is put into ``turns``."""
    with ExitStack() as stack:
        argv, env, box, route = start.argv, dict(start.env), start.sandbox, None
        if is_routed(assignment):
            route = _routed(start, means, stack)
            argv, env = route.argv(argv), route.environment(env, assignment.workspace)
            box = replace(box, network=False)
        tests = stack.enter_context(testtool.offered(means.run_tests, start.place))
        child = stack.enter_context(
            process.open(
                argv,
                cwd=assignment.directory,
                timeout_s=deadline.remaining_s + 2 * CANCEL_GRACE_S,
                env=env,
                limit_bytes=_STDERR_BYTES,
                sandbox=box,
                support=means.support,
            )
        )
        server = None
        if tests is not None and not start.tools_in_settings:
            server = (tests.name, tuple(tests.argv))
        opening = Opening(str(assignment.workspace), assignment.thread_id, start.model, server)
        talk = stack.enter_context(Talk(child, opening, instruction_of(assignment)))
        turn = Turn(start.title, talk, assignment, means, deadline, tests)
        turns.append(turn)
        ending = yield from turn.perform(start.on_session)
    return finished(ending, child, route, broken=turn.broken)


def is_routed(assignment: Assignment) -> bool:
    """Whether of the network only the model is reached."""
    return assignment.network != "allow" and assignment.sandbox.kind != "none"


def target_of(address: str) -> Target:
    """Return where the model of an address is; one that cannot be reached is refused."""
    provider = {"base_url": address}
    return codexroute.targets_of({"model_provider": "p", "model_providers": {"p": provider}})[0]


def _routed(start: Start, means: Means, stack: ExitStack) -> Route:
    if means.support.bubblewrap is None:
        raise EnvironmentFault(
            f"{start.title} needs a network of its own to reach nothing but its model, which only "
            "bubblewrap gives it.",
            rule="acp.sandbox",
            hint="Install bubblewrap, or allow the network.",
        )
    stack.enter_context(Door(start.place, codexroute.SOCKET, start.targets))
    return Route(start.targets, start.place)
