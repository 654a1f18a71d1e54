"""``file_write``: puts a whole file, atomically, and so that it can be taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Writes
from coilclaw.errors import PlanRefused, UsageError
from coilclaw.tools import spot
from coilclaw.tools.basis import Basis, closed, text

if TYPE_CHECKING:
    from coilclaw.changes.plan import Plan
    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext
    from coilclaw.tools.spot import Spot

MAX_CONTENT: Final = 4 * 2**20


class FileWrite(Basis):
    """Writes a UTF-8 text file."""

    name: Final = "file_write"
    description: Final = (
        "Write a UTF-8 text file of the workspace: create it, with its directories, or replace "
        "all of its content. Use apply_changes to change parts of files or several files at once."
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "path": {
                "type": "string",
                "minLength": 1,
                "maxLength": spot.MAX_PATH,
                "description": "path of the file, relative to the workspace",
            },
            "content": {
                "type": "string",
                "maxLength": MAX_CONTENT,
                "description": "the whole new content",
            },
            "expected_sha256": {
                "type": "string",
                "pattern": "^[0-9a-f]{64}$",
                "description": "write only if the file holds this now (see file_read)",
            },
        },
        "path",
        "content",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        return (Writes(text(args, "path")),)

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        from coilclaw.tools import delivering

        where, content, planned = self._planned(args, context)
        if "expected_sha256" in args:
            _compare(where, planned, content, text(args, "expected_sha256"))
        return delivering.ready(where, planned, context)

    def is_in_place(self, args: Arguments, context: ToolContext) -> bool:
        """Whether the file holds now what a call would write."""
        return self._planned(args, context)[2].empty

    def _planned(self, args: Arguments, context: ToolContext) -> tuple[Spot, bytes, Plan]:
        from coilclaw.changes.operations import ChangeSet, WriteFile
        from coilclaw.tools import delivering

        where = spot.find(text(args, "path"), context)
        content = _encoded(text(args, "content"))
        change_set = ChangeSet((WriteFile(where.to_write(), content),))
        return where, content, delivering.plan(where, change_set, context)


def _encoded(content: str) -> bytes:
    try:
        return content.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise UsageError("the content is not valid Unicode", rule="file.encoding") from problem


def _compare(where: Spot, planned: Plan, content: bytes, expected: str) -> None:
    """Refuse when the file does not hold what the writer believes it replaces."""
    from coilclaw.domain.canonical import digest

    if planned.empty:
        found: str | None = digest(content)
    else:
        before = planned.changes[0].before
        found = before.digest if before is not None else None
    if found != expected:
        raise PlanRefused(
            f"'{where}' does not hold what is expected"
            if found
            else f"'{where}' is expected to be there, and it is not",
            rule="plan.content",
            path=str(where),
            hint="read the file again",
        )
