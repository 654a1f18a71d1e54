"""``EvaluationCache``: what tests found, kept by tree, environment and path.

The same files judged by the same tests need no second judging, whichever commit, part or trajectory
they belong to.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coilclaw.contracts import schemas
from coilclaw.domain.canonical import digest, encode
from coilclaw.environments.results import Result
from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.storage.atomic import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.domain.messages import Json

VERSION: Final = "evaluation.v1"
MAX_BYTES: Final = 256 * 2**20

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """What was judged: these files, by this version of an environment, at this path of tests."""

    tree: str
    environment_version: str
    path: str

    def digest(self) -> str:
        return digest(
            encode(
                {
                    "schema_version": VERSION,
                    "tree": self.tree,
                    "environment_version": self.environment_version,
                    "path": self.path,
                }
            )
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What the tests found, and how long that took."""

    result: Result
    duration_ms: int


class EvaluationCache:
    """One file an answer, each whole or absent; any number of processes may share them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def get(self, question: Question) -> Answer | None:
        """Return what is known; what cannot be read, or answers something else, is not known."""
        path = self._path(question)
        try:
            if path.stat().st_size > MAX_BYTES:
                return None
            value = json.loads(path.read_bytes())
            if _asked(value) != question:
                raise UsageError("it answers another question", rule="evaluation.cache")
            return Answer(Result.of(value["result"]), int(value["duration_ms"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError, UsageError) as problem:
            _log.warning(
                "an evaluation that was kept cannot be used and is made again: %s: %s",
                path,
                problem,
                extra={"event": "evaluation_unusable", "fields": {"path": str(path)}},
            )
            return None

    def put(self, question: Question, answer: Answer) -> None:
        """Keep an answer; one that is there already is replaced."""
        value: dict[str, Json] = {
            "schema_version": VERSION,
            "tree": question.tree,
            "environment_version": question.environment_version,
            "path": question.path,
            "duration_ms": answer.duration_ms,
            "result": answer.result.json(),
        }
        path = self._path(question)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot create {path.parent}: {problem.strerror}", rule="evaluation.cache"
            ) from problem
        write_atomic(path, json.dumps(value, ensure_ascii=True).encode("ascii"), mode=0o600)

    def _path(self, question: Question) -> Path:
        digest = question.digest()
        return self.directory / digest[:2] / f"{digest[2:]}.json"


def _asked(value: Any) -> Question:
    if problems := schemas.problems(VERSION, value):
        raise UsageError(f"it is not {VERSION}: {problems[0]}", rule="evaluation.cache")
    return Question(str(value["tree"]), str(value["environment_version"]), str(value["path"]))
