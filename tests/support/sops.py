"""A home with SOPs, run in this process by the real runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from coilclaw.agent.approvals import ApprovalStore
from coilclaw.agent.sop.interruption import Resolution
from coilclaw.agent.sop.run_journal import Decision, SopRun
from coilclaw.agent.sop.sop_runner import Attended, Sops
from coilclaw.app.agent_runtime import People
from coilclaw.app.drivers import open_sop_runs, open_sops
from coilclaw.app.home import open_desk
from coilclaw.kernel.messages import Json
from tests.support.agents import AgentHome, Person

Inputs: TypeAlias = "Mapping[str, Json] | Sequence[str]"
FULL = '[security]\nautonomy = "full"\n'


@dataclass(frozen=True)
class SopHome:
    """An agent's home, and what its SOPs are called by."""

    agent: AgentHome
    person: Person = field(default_factory=Person)

    @classmethod
    def make(cls, folder: Path, config: str = FULL, answers: tuple[object, ...] = ()) -> SopHome:
        return cls(AgentHome.make(folder, config, answers))

    @property
    def workspace(self) -> Path:
        return self.agent.workspace

    @property
    def desk(self) -> ApprovalStore:
        return open_desk(self.agent.home)

    def write(self, name: str, text: str, *, in_workspace: bool = False) -> Path:
        """Put a SOP where it belongs; the name is put in front."""
        base = self.workspace if in_workspace else self.agent.home / "workspace"
        path = base / "sops" / name / "SOP.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'name = "{name}"\n{text}')
        return path

    @contextmanager
    def sops(self, attended: Attended | None = None) -> Iterator[Sops]:
        people = People(self.person.approve, self.person.ask)
        with open_sops(self.agent.home, os.environ, people, attended=attended) as sops:
            yield sops

    def run(self, name: str, attended: Attended | None = None, inputs: Inputs = ()) -> SopRun:
        with self.sops(attended) as sops:
            return sops.run(name, inputs=inputs)

    def resume(
        self, run: str, attended: Attended | None = None, *, how: Decision | None = None
    ) -> SopRun:
        with self.sops(attended) as sops:
            said = None if how is None else Resolution(how, "person me", "I looked")
            return sops.resume(run, said)

    def last(self) -> SopRun:
        """The newest run, as its journal tells it."""
        return open_sop_runs(self.agent.home).list()[-1]


def statuses(run: SopRun) -> dict[str, str]:
    """Stage → what became of it."""
    return {stage: outcome.status for stage, outcome in run.outcomes.items()}
