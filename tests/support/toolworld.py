"""A workspace with everything a tool call needs, and a judge that says what a test wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from coilclaw.domain.effects import Effect
from coilclaw.domain.messages import Json
from coilclaw.domain.toolcalls import ToolResult
from coilclaw.domain.verdict import Decision, Risk, Verdict
from coilclaw.security.judgement import Judgement, Terms
from coilclaw.security.settings import SecuritySettings
from coilclaw.tools.contract import Tool, ToolContext
from coilclaw.workspace.places import Places
from coilclaw.workspace.process import Cancellation
from coilclaw.workspace.resolve import Root
from coilclaw.workspace.state import TreeState

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
            locate=Places(root.path).locate,
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
