"""The ``acp`` runner: any agent that speaks the agent client protocol, by its command line.

It is held by the sandbox of the assignment, with everything that it starts, and has a home of its
own. Of the network it reaches its model only, unless the assignment allows more; for that it must
be known where the model is: see ``acpknown``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coilclaw.agents import acpknown, acpprocess, finding
from coilclaw.agents.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from pathlib import Path

    from coilclaw.agents.codexdoor import Target
    from coilclaw.agents.runner import Assignment, Ending, Means
    from coilclaw.domain.parts import Part


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
        program = finding.named(self.argv[0], self.environ, self.home, self.base)
        agent = acpknown.of(program)
        names = (*agent.variables, *self.passed)
        given = {name: self.environ[name] for name in names if name in self.environ}
        env = {**agent.settings(assignment.home), **given, **assignment.environ}
        targets: tuple[Target, ...] = ()
        if acpprocess.is_routed(assignment):
            targets = acpknown.targets(agent, self.addresses, env)
        start = acpprocess.Start(
            title=agent.title,
            argv=[str(program), *self.argv[1:]],
            env=env,
            sandbox=assignment.sandbox.showing(program, *self.argv[1:]),
            targets=targets,
            place=assignment.home,
            model=assignment.model,
        )
        return (yield from acpprocess.perform(start, assignment, means, deadline, []))
