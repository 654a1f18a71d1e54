"""``Examination``: one look at one bundle, and everything that was found wrong with it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.schemas import problems
from coilclaw.errors import CoilClawError
from coilclaw.orchestrator import bundletree
from coilclaw.orchestrator.chronicle import Chronicle
from coilclaw.orchestrator.codes import LENIENT, WARNINGS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.codes import Code

MAX_FINDINGS: Final = 1000
MAX_PER_CODE: Final = 100
MAX_MESSAGE_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, and where."""

    code: Code
    message: str
    path: str = ""

    def json(self) -> dict[str, Json]:
        return {"code": self.code.value, "message": self.message, "path": self.path}


@dataclass(slots=True)
class Examination:
    """Reads a bundle and gathers findings."""

    directory: Path
    strict: bool
    errors: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)
    manifest: Mapping[str, Json] = field(default_factory=dict)
    """Empty where there is none that can be read."""
    chronicle: Chronicle = field(default_factory=Chronicle)
    contracts: dict[str, Mapping[str, Json]] = field(default_factory=dict)
    """Every contract that can be read, by its task."""
    _counts: dict[Code, int] = field(default_factory=dict)

    def say(self, code: Code, message: str, path: str = "", *, softly: bool = False) -> None:
        """Note something that is wrong; ``softly`` makes it a warning."""
        count = self._counts[code] = self._counts.get(code, 0) + 1
        warning = softly or code in WARNINGS or (code in LENIENT and not self.strict)
        found = self.warnings if warning else self.errors
        # The first of a kind is always noted, so that a flood of one hides no other.
        if count == 1 or (count <= MAX_PER_CODE and len(found) < MAX_FINDINGS):
            found.append(Finding(code, _printable(message)[:MAX_MESSAGE_CHARS], _printable(path)))

    def find(self, path: str, limit: int = bundletree.MAX_JSON_BYTES) -> bytes | None:
        """A file's bytes; ``None`` where there is none that can be read, which is noted elsewhere.

        Missing files, links and unreadable ones are found when all files are hashed.
        """
        try:
            return bundletree.find(self.directory, path, limit=limit)
        except CoilClawError:
            return None

    def load(
        self, path: str, schema: str, *, missing: Code | None, invalid: Code
    ) -> Mapping[str, Json] | None:
        """A JSON file that must fit a schema; ``None`` where it does not, which is noted."""
        data = self.find(path)
        if data is None:
            if missing is not None:
                self.say(missing, f"there is no {path}", path)
            return None
        value = parsed(data)
        found = problems(schema, value)
        for problem in found:
            self.say(invalid, f"{path}{problem.path}: {problem.message}", path)
        return value if isinstance(value, dict) and not found else None

    @property
    def succeeded(self) -> bool:
        """Whether the manifest claims a success."""
        return self.manifest.get("status") == "SUCCESS"


def parsed(data: bytes | None) -> Json:
    """The JSON in some bytes; ``None``, which no schema accepts, where there is none."""
    try:
        value: Json = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return value


def part(value: object, *keys: str) -> Json:
    """What stands under some keys of nested objects; ``None`` where anything is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value  # type: ignore[return-value]  # JSON all the way down


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
