"""What is said between the judge and the process that runs an environment's code."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from coilclaw.workspace.sandbox import SandboxSupport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json

Task: TypeAlias = Literal["schema", "select", "test"]

MAX_MESSAGE_BYTES: Final = 16 * 2**20
MAX_REQUEST_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Request:
    """What the worker is to do; it comes as one JSON object on its input."""

    task: Task
    file: Path
    session: Path
    scratch: Path
    path: str
    params: Mapping[str, Json]
    jobs: int
    built: bool
    """Whether the session holds what a setup made of this very tree."""
    support: SandboxSupport
    hidden: tuple[Path, ...] = ()

    def encode(self) -> bytes:
        value = {
            "task": self.task,
            "file": str(self.file),
            "session": str(self.session),
            "scratch": str(self.scratch),
            "path": self.path,
            "params": dict(self.params),
            "jobs": self.jobs,
            "built": self.built,
            "support": asdict(self.support),
            "hidden": [str(path) for path in self.hidden],
        }
        return json.dumps(value).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> Self:
        value = json.loads(data)
        support = {**value["support"], "notes": tuple(value["support"]["notes"])}
        return cls(
            task=value["task"],
            file=Path(value["file"]),
            session=Path(value["session"]),
            scratch=Path(value["scratch"]),
            path=value["path"],
            params=value["params"],
            jobs=value["jobs"],
            built=value["built"],
            support=SandboxSupport(**support),
            hidden=tuple(map(Path, value["hidden"])),
        )
