"""``apply_changes``: edits of any number of files, in any format the kernel reads."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Writes
from coilclaw.errors import AnswerError, PathRefused, PlanRefused
from coilclaw.tools.basis import Basis, closed, text
from coilclaw.tools.spot import Spot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.changes.operations import ChangeSet
    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext

MAX_ANSWER: Final = 8 * 2**20


class ApplyChanges(Basis):
    """Applies a change set."""

    name: Final = "apply_changes"
    description: Final = (
        "Change, create, move or delete files of the workspace, all or nothing. 'changes' is text "
        "in one of these forms: a unified diff as git writes it; search-and-replace blocks, each "
        "after a line with its path; an envelope that begins with '*** Begin Patch'; or JSON, an "
        'object with "files": [{"path", "content"}] or "patches": [{"path", "replacements": '
        '[{"find", "replace"}]}]. Paths are relative to the workspace.'
    )
    parameters_schema: Final[dict[str, Json]] = closed(
        {
            "changes": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_ANSWER,
                "description": "the changes, in any of the forms",
            }
        },
        "changes",
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        from coilclaw.changes.planner import lines_of

        return tuple(Writes(str(path)) for path in lines_of(_parsed(args)))

    def prepare(self, args: Arguments, context: ToolContext) -> Prepared:
        from coilclaw.tools import delivering

        whole_workspace = Spot(".", (), inside=True)
        with _explaining():
            planned = delivering.plan(whole_workspace, _parsed(args), context)
        return delivering.ready(whole_workspace, planned, context)


@contextmanager
def _explaining() -> Iterator[None]:
    """Let an error tell the model every part that fails, with the nearest lines."""
    from coilclaw.changes.failure_report import explain_failures

    try:
        yield
    except (AnswerError, PathRefused, PlanRefused) as problem:
        if problem.failures or problem.hint or getattr(problem, "nearest", ()):
            problem.message = explain_failures(problem).removesuffix(f" [{problem.rule}]")
        raise


def _parsed(args: Arguments) -> ChangeSet:
    from coilclaw.changes import answer
    from coilclaw.changes.operations import ChangeSet, Refusal

    with _explaining():
        parsed = answer.parse(text(args, "changes"))
    if isinstance(parsed, ChangeSet):
        return parsed
    if isinstance(parsed, Refusal):
        raise AnswerError(
            "the text declines instead of changing something",
            rule="answer.refusal",
            line=parsed.line,
        )
    raise AnswerError(
        "the text holds no changes",
        rule="answer.no_changes",
        hint="give a unified diff, an envelope, search-and-replace blocks or JSON",
    )
