"""What a plugin answers: one JSON object on its output, and nothing else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json

_KEYS: Final = ("success", "output", "error", "metadata")
MAX_ERROR: Final = 2000


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the right form."""

    success: bool
    output: str
    error: str | None
    metadata: Mapping[str, Json]


def parse(data: bytes) -> Answer | str:
    """Read an answer; a text says what is wrong with it."""
    if not data.strip():
        return "it wrote nothing"
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_pairs, parse_constant=_constant)
    except UnicodeDecodeError:
        return "it wrote what is not UTF-8"
    except (ValueError, RecursionError) as problem:
        return f"it wrote what is not JSON: {str(problem)[:200]}"
    if not isinstance(value, dict):
        return "it wrote JSON that is no object"
    unknown = [shown(name) for name in value if name not in _KEYS]
    if unknown:
        return f"its answer has unknown keys: {', '.join(unknown[:5])}"
    return _formed(value)


def _formed(value: dict[str, Json]) -> Answer | str:
    success, output = value.get("success"), value.get("output", "")
    error, metadata = value.get("error"), value.get("metadata")
    if not isinstance(success, bool):
        return "its answer has no 'success' that is true or false"
    if not isinstance(output, str):
        return "the 'output' of its answer is no text"
    if not isinstance(error, str | None):
        return "the 'error' of its answer is no text"
    if not isinstance(metadata, dict | None):
        return "the 'metadata' of its answer is no object"
    if success and error:
        return "its answer says success and names an error"
    said = None if success else _valid(error or "it says that it failed")[:MAX_ERROR]
    return Answer(success, _valid(output), said, metadata or {})


def _valid(text: str) -> str:
    """JSON can name halves of characters, which no text holds."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _pairs(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


def _constant(text: str) -> Json:
    raise ValueError(f"{text} is no number")
