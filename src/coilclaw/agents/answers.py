"""The structured answer of an agent: read without guessing, and what it says about the ending."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from coilclaw.domain import freeform
from coilclaw.errors import AnswerError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.agents.runner import Status
    from coilclaw.domain.messages import Json

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
        freeform.text(value)
    except UnicodeDecodeError as problem:
        raise AnswerError(f"{what} is not UTF-8", rule="answer.encoding") from problem
    except RecursionError as problem:
        raise AnswerError(f"{what} is nested too deeply", rule="answer.depth") from problem
    except (ValueError, UsageError) as problem:
        raise AnswerError(f"{what} is not JSON: {problem}", rule="answer.json") from problem
    return value


def read_object(data: bytes, *, what: str, bound: int = MAX_ANSWER_BYTES) -> dict[str, Json]:
    """Read one JSON object and nothing else."""
    value = read(data, what=what, bound=bound)
    if not isinstance(value, dict):
        raise AnswerError(f"{what} is no JSON object", rule="answer.json")
    return value


def verdict(result: Mapping[str, Json]) -> tuple[Status, str]:
    """Return what a result says of itself: ``done``, or ``failed`` and why."""
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
    raise ValueError(f"{name} is no number of JSON")
