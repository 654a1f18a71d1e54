"""A home with a configuration, a workspace and a scripted model, for tests of the runtime."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from coilclaw.app.agent_runtime import People, Runtime, open_runtime
from coilclaw.kernel.messages import ApprovalAnswer, ApprovalReply, ApprovalRequest


@dataclass
class Person:
    """Approves as told, and remembers what was asked."""

    replies: list[ApprovalReply] = field(default_factory=list)
    asked: list[ApprovalRequest] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)
    answer: str | None = None
    name: str = "person ann"

    def approve(self, request: ApprovalRequest) -> ApprovalAnswer:
        self.asked.append(request)
        return ApprovalAnswer(self.replies.pop(0) if self.replies else ApprovalReply.NO, self.name)

    def ask(self, question: str) -> str | None:
        self.questions.append(question)
        return self.answer


@dataclass(frozen=True)
class AgentHome:
    """Everything that a configured user has."""

    home: Path
    workspace: Path

    @classmethod
    def make(cls, folder: Path, config: str = "", answers: Sequence[object] = ()) -> AgentHome:
        """Write the configuration; ``config`` comes in front of our own tables."""
        made = cls(folder / "home", folder / "workspace")
        made.home.mkdir(mode=0o700, exist_ok=True)
        made.workspace.mkdir(exist_ok=True)
        made.answer(*answers)
        made.configure(config)
        return made

    @property
    def receipts(self) -> Path:
        return self.home / "tool_receipts.log"

    def configure(self, config: str = "") -> None:
        (self.home / "config.toml").write_text(
            f'workspace_dir = "{self.workspace}"\ndefault_provider = "scripted"\n'
            f'[providers.models.scripted]\nkind = "mock"\nmodel = "mock"\n'
            f'fixture = "{self.home / "fixture.json"}"\n{config}'
        )

    def answer(self, *answers: object) -> None:
        """Say what the model will answer, in order."""
        (self.home / "fixture.json").write_text(json.dumps(list(answers)))

    @contextmanager
    def runtime(
        self, person: Person | None = None, environ: Mapping[str, str] = os.environ
    ) -> Iterator[Runtime]:
        """Open the runtime in this process."""
        who = person or Person()
        with open_runtime(self.home, environ, People(who.approve, who.ask)) as runtime:
            yield runtime

    def records(self) -> list[dict[str, object]]:
        """All receipts."""
        if not self.receipts.exists():
            return []
        return [json.loads(line) for line in self.receipts.read_text().splitlines()]


def calls(*items: tuple[str, Mapping[str, object]]) -> dict[str, object]:
    """An answer that calls tools."""
    return {"tool_calls": [{"name": name, "arguments": dict(args)} for name, args in items]}


def says(text: str) -> dict[str, object]:
    """An answer in text."""
    return {"text": text}
