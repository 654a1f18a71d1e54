"""The structured answer of an agent, parsed strictly, and the ending that it reports."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import AnswerError, UsageError, canonical_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.kernel import Json
    from coilclaw.runners.runner import Status


MAX_ANSWER_BYTES: Final = 8 * 2**20
_FAILED: Final = frozenset({"FAILED", "BLOCKED"})


def read(data: bytes, *, what: str, bound: int = MAX_ANSWER_BYTES) -> Json:
    """Read one JSON value and nothing else; ``what`` names it in the error."""
    if len(data) > bound:
        raise AnswerError(f"{what} is longer than {bound:,} bytes", rule="answer.bounds")
    try:
        value: Json = json.loads(
            data.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant
        )
        canonical_json.render_json(value)
    except UnicodeDecodeError as problem:
        raise AnswerError(f"{what} is not UTF-8", rule="answer.encoding") from problem
    except RecursionError as problem:
        raise AnswerError(f"{what} is nested too deeply", rule="answer.depth") from problem
    except (ValueError, UsageError) as problem:
        raise AnswerError(f"{what} is not valid JSON: {problem}", rule="answer.json") from problem
    return value


def read_object(data: bytes, *, what: str, bound: int = MAX_ANSWER_BYTES) -> dict[str, Json]:
    """Read one JSON object and nothing else."""
    value = read(data, what=what, bound=bound)
    if not isinstance(value, dict):
        raise AnswerError(f"{what} is not a JSON object", rule="answer.json")
    return value


def verdict(result: Mapping[str, Json]) -> tuple[Status, str]:
    """Return the status that a result reports: ``done``, or ``failed`` and why."""
    if result.get("status") not in _FAILED:
        return "done", ""
    failure = result.get("failure")
    message = failure.get("message") if isinstance(failure, dict) else None
    said = message or result.get("summary") or ""
    return "failed", f"the agent says {result['status']}: {said}"


def task_result(task_id: str, summary: str, *, failure: str = "") -> dict[str, Json]:
    """Make the agent task result of an agent that does not write one itself."""
    return {
        "task_id": task_id,
        "status": "FAILED" if failure else "SUCCESS",
        "summary": summary,
        "evidence_refs": {},
        "failure": {"message": failure} if failure else None,
    }


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("an object has one of its keys twice")
    return made


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not a number in JSON")


SHELL_TOOL: Final = "shell"
DECLINED: Final = "declined"
FORBIDDEN: Final = "policy_violation: the contract allows no shell"
"""The text of a part that shows a shell request where the contract has ``deny``."""


def text_of(value: Json) -> str:
    """Return a value that should be a text; anything else becomes an empty one."""
    return value if isinstance(value, str) else ""


def object_of(value: Json) -> dict[str, Json]:
    """Return a value that should be an object; anything else becomes an empty one."""
    return value if isinstance(value, dict) else {}


def items_of(value: Json) -> list[dict[str, Json]]:
    """Return the objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count_of(value: Json) -> int | None:
    """Return an integer, or ``None`` for anything else, ``True`` included."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def inside(path: str, directory: Path) -> bool:
    """Return whether a path lies below the directory; links are not followed."""
    whole = os.path.normpath(os.path.join(directory, path))
    return whole.startswith(f"{str(directory).rstrip('/')}/")


def relative(path: str, directory: Path) -> str:
    """Return a path relative to the directory if it lies in it."""
    whole = os.path.normpath(os.path.join(directory, path))
    return os.path.relpath(whole, directory) if inside(whole, directory) else whole


def show_path(path: str) -> str:
    """Return a path on one line."""
    return path if path.isprintable() else canonical_json.render_json(path)
