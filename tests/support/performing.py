"""A worktree, a private home and a sandbox: everything that a runner needs to perform in a test."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from coilclaw.kernel.errors import CoilClawError
from coilclaw.kernel.messages import (
    ApprovalAnswer,
    ApprovalReply,
    Budget,
    ChatRequest,
    ChatResponse,
    Json,
    Part,
    ProviderCapabilities,
    ToolCall,
    Usage,
)
from coilclaw.runners import confinement, script
from coilclaw.runners.agent_requests import Denial
from coilclaw.runners.runner import AgentRequest, Assignment, Ending, Means, Runner
from coilclaw.runners.scripted import ScriptedRunner
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.confinement import Kind, SandboxSupport
from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support.children import PATIENCE_S

TASK = "task-0001"


@cache
def support() -> SandboxSupport:
    """What this machine offers; looked up once."""
    return probe_sandboxes()


@dataclass
class Overseer:
    """Approves as told, and remembers what was asked."""

    answers: list[bool] = field(default_factory=list)
    asked: list[AgentRequest] = field(default_factory=list)

    def approve(self, request: AgentRequest) -> ApprovalAnswer:
        self.asked.append(request)
        yes = self.answers.pop(0) if self.answers else False
        return ApprovalAnswer(ApprovalReply.YES if yes else ApprovalReply.NO, "person ann")


@dataclass
class Performance:
    """A worktree, a home beside it, and who is asked."""

    worktree: Path
    home: Path
    overseer: Overseer
    cancel: Cancellation
    kind: Kind = "auto"
    sessions: list[str] = field(default_factory=list)
    """What agents named their sessions."""
    denied: list[Denial] = field(default_factory=list)
    """What they were told that they do not get."""

    @classmethod
    def make(cls, folder: Path, kind: Kind = "auto") -> Performance:
        worktree, home = folder / "worktree", folder / "agent-home"
        worktree.mkdir()
        confinement.make_home(home, os.environ)
        return cls(worktree.resolve(), home.resolve(), Overseer(), Cancellation(), kind)

    def means(self, run_tests: Callable[[str], str] | None = None) -> Means:
        said = self.sessions.append
        return Means(
            self.overseer.approve,
            self.cancel,
            support(),
            run_tests,
            said,
            on_denied=self.denied.append,
        )

    def assignment(
        self,
        *,
        filesystem: str = "workspace-write",
        network: str = "deny",
        hidden: tuple[Path, ...] = (),
        **changes: Any,
    ) -> Assignment:
        """One assignment; ``changes`` replace its fields."""
        sandbox = confinement.sandbox_of(
            (self.worktree,),
            self.home,
            filesystem=filesystem,  # type: ignore[arg-type]  # a test may say anything
            network=network,  # type: ignore[arg-type]  # the same
            hidden=hidden,
            kind=self.kind,
        )
        made = Assignment(
            task_id=TASK,
            instruction="do it",
            contract={},
            directory=self.worktree,
            home=self.home,
            sandbox=sandbox,
            environ=confinement.environ_of(self.home, os.environ, kept_out=(self.worktree,)),
            budget=Budget(wall_s=10 * PATIENCE_S),
            filesystem=filesystem,  # type: ignore[arg-type]  # the same
            network=network,  # type: ignore[arg-type]  # the same
            shell="on-request",
        )
        return replace(made, **changes)

    def perform(
        self,
        runner: Runner,
        assignment: Assignment | None = None,
        run_tests: Callable[[str], str] | None = None,
    ) -> tuple[list[Part], Ending]:
        """Perform to the end."""
        given = self.assignment() if assignment is None else assignment
        return finish(runner.perform(given, self.means(run_tests)))

    def files(self) -> dict[str, str]:
        """What lies in the worktree."""
        return {
            str(path.relative_to(self.worktree)): path.read_text()
            for path in sorted(self.worktree.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }


def finish(generator: Generator[Part, None, Ending]) -> tuple[list[Part], Ending]:
    """Take all parts and the ending."""
    endings = []

    def relayed() -> Generator[Part, None, None]:
        endings.append((yield from generator))

    return list(relayed()), endings[0]


def scripted(*turns: list[Mapping[str, Any]], **options: Any) -> ScriptedRunner:
    """A runner that plays these turns."""
    return ScriptedRunner(script.read(json.dumps(turns).encode()), **options)


def contract(*allowed: str, **more: Json) -> dict[str, Json]:
    """As much of a contract as an agent looks at."""
    return {"task_id": TASK, "allowed_paths": list(allowed), **more}


@dataclass
class Model:
    """A provider that answers as told, and remembers what it was asked."""

    answers: list[ChatResponse | CoilClawError]
    asked: list[ChatRequest] = field(default_factory=list)
    delay_s: float = 0.0
    name: str = "model"

    @property
    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(tools=True, streaming=False)

    def chat(self, request: ChatRequest) -> ChatResponse:
        self.asked.append(request)
        if self.delay_s:
            time.sleep(self.delay_s)
        answer = self.answers.pop(0)
        if isinstance(answer, CoilClawError):
            raise answer
        return answer


def calls(
    *items: tuple[str, Mapping[str, Json]], text: str = "", usage: Usage | None = None
) -> ChatResponse:
    """An answer that calls tools."""
    made = tuple(ToolCall(f"c{n}", name, args) for n, (name, args) in enumerate(items))
    return ChatResponse(text, made, usage=usage)


def says(text: str, usage: Usage | None = None) -> ChatResponse:
    """An answer in text."""
    return ChatResponse(text, usage=usage)
