"""The ``codex`` runner: a real Codex, spoken with through its app-server.

What a contract says goes to it as fields of the protocol, never in the prompt. It is held twice:
each of its commands by its own sandbox, whose terms are those of the contract, and Codex itself,
with everything that it starts, by the sandbox of the assignment. The outer one also lets it reach
its model; see ``codexroute`` for what else.
"""

from __future__ import annotations

import os
import re
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agents import codexhome, codexroute, finding, testtool
from coilclaw.agents.codextalk import INTERRUPT_GRACE_S, Talk
from coilclaw.agents.codexwire import Wire
from coilclaw.agents.deadline import Deadline
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path

    from coilclaw.agents.codexroute import Route
    from coilclaw.agents.runner import Assignment, Ending, Means
    from coilclaw.domain.parts import Part
    from coilclaw.workspace.sandbox import Sandbox

BASE_HOME_VARIABLE: Final = "CORTEXPILOT_CODEX_BASE_HOME"
_STDERR_BYTES: Final = 64 * 2**10
_MAX_LAST_WORDS: Final = 300
_MOUNTED: Final = (".agents", ".aws", ".codex", ".git")
_COLOUR: Final = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, slots=True)
class CodexRunner:
    """Performs assignments with Codex, whose own sandbox needs a /tmp that can be written."""

    executable: Path | None = None
    """The program, or where it was installed; without one it is looked for."""
    base_home: Path | None = None
    """The template of the home that each task gets."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Where PATH and ``$COILCLAW_CODEX`` are looked up. Of the rest only the variables are passed
    on that the template names as holding the key of its model provider."""
    home: Path | None = None
    """Our own home, below which agents may be installed."""

    @property
    def name(self) -> str:
        return "codex"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Start Codex, give it the task, and see it through."""
        deadline = Deadline.of(assignment.budget)
        program = finding.codex(self.environ, self.home, self.executable)
        with ExitStack() as stack:
            stack.enter_context(tidied(assignment.directory))
            home = stack.enter_context(codexhome.prepared(assignment, self.base_home))
            tests = stack.enter_context(testtool.offered(means.run_tests, home.temporary))
            argv = [str(program), "app-server"]
            argv += tests.codex_options() if tests is not None else []
            env = home.environment(assignment.environ, self.environ)
            route = None
            if assignment.network == "deny" and assignment.sandbox.kind != "none":
                route = stack.enter_context(codexroute.opened(home.settings, home.temporary))
                argv, env = route.argv(argv), route.environment(env, assignment.workspace)
            child = stack.enter_context(
                process.open(
                    argv,
                    cwd=assignment.directory,
                    timeout_s=deadline.remaining_s + 2 * INTERRUPT_GRACE_S,
                    env=env,
                    limit_bytes=_STDERR_BYTES,
                    sandbox=outer(assignment.sandbox, program, network=route is None),
                    support=means.support,
                )
            )
            wire = stack.enter_context(Wire(child, means.cancel))
            talk = Talk(wire, assignment, means, deadline)
            ending = yield from talk.perform(home.forget_key)
        return finished(ending, child, route, broken=talk.broken)


@contextmanager
def tidied(directory: Path) -> Iterator[None]:
    """Remove what Codex's own sandbox leaves in the directory when it is killed.

    It mounts something over places that commands shall not make, and for that makes them itself.
    """
    missing = [name for name in _MOUNTED if not os.path.lexists(directory / name)]
    try:
        yield
    finally:
        for name in missing:
            path = directory / name
            with suppress(OSError):  # Not empty, or not there: then it is somebody's.
                if path.is_dir() and not path.is_symlink():
                    path.rmdir()
                elif path.lstat().st_size == 0:
                    path.unlink()


def outer(sandbox: Sandbox, program: Path, *, network: bool) -> Sandbox:
    """The sandbox around Codex: that of the assignment, with room for one of Codex's own."""
    return replace(sandbox.showing(program), network=network, nested=True)


def finished(
    ending: Ending, child: process.LiveProcess, route: Route | None, *, broken: bool
) -> Ending:
    result = child.result
    assert result is not None, "a process that was left has ended"
    reason = ending.reason
    words = _COLOUR.sub("", result.stderr.text()).strip().rpartition("\n")[2]
    if broken and words:
        reason = f"{reason} Its last words: {words[:_MAX_LAST_WORDS]}"
    held = result.enforced
    if route is not None:
        held = replace(held, notes=(*held.notes, route.note))
    return replace(ending, reason=reason, enforced=(held,))
