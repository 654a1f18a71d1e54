"""A workspace with everything a tool call needs, and a judge that says what a test wants."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from coilclaw.agent.tools.contract import Tool, ToolContext
from coilclaw.kernel.effects import Decision, Effect, Risk, Verdict
from coilclaw.kernel.messages import Json, ToolResult
from coilclaw.policy.judgement import Judgement, Terms
from coilclaw.policy.settings import SecuritySettings
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.tree.path_lookup import PathLookup
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState

NOW = datetime(2026, 5, 12, 14, 0, 7, tzinfo=UTC)
HARMLESS = Terms(writable=False, network=False)
WRITING = Terms(writable=True, network=False)


def judging(terms: Terms, risk: Risk = Risk.LOW) -> Any:
    def judge(effects: tuple[Effect, ...]) -> Judgement:
        assert effects, "silence about effects is no answer"
        return Judgement(Verdict(Decision.ALLOW, risk, "test", "a test says so"), terms=terms)

    return judge


@dataclass
class World:
    """A workspace, a home of ours beside it, and the context of a call in it."""

    workspace: Path
    home: Path
    context: ToolContext

    def call(self, tool: Tool, **args: Json) -> ToolResult:
        return tool.invoke(args, self.context)

    def using(self, **changes: Any) -> World:
        """The same world with another context."""
        security = {
            name: changes.pop(name)
            for name in ("workspace_only", "forbidden_paths", "own_paths", "allowed_domains")
            if name in changes
        }
        settings = replace(self.context.security, **security)
        context = replace(self.context, security=settings, **changes)
        return World(self.workspace, self.home, context)


@contextmanager
def world(base: Path, environ: Mapping[str, str] | None = None) -> Iterator[World]:
    workspace, home = base / "workspace", base / "home"
    workspace.mkdir()
    home.mkdir()
    with Root(workspace) as root:
        context = ToolContext(
            root=root,
            state=TreeState.of(home, root.path),
            home=home,
            security=SecuritySettings(str(root.path), rules=cast(Any, None)),
            locate=PathLookup(root.path, home=os.environ.get("HOME")).locate,
            judge=judging(HARMLESS),
            conversation_id="c-1",
            turn_id="t-1",
            cancel=Cancellation(),
            now=lambda: NOW,
            environ=dict(environ or {"PATH": "/usr/bin:/bin", "HOME": str(base)}),
            recall=lambda *_: (),
            ask=lambda _: None,
        )
        yield World(workspace, home, context)
