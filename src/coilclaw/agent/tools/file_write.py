"""``file_write`` and ``apply_changes``: planned first, then written exactly as shown."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import UTC
from typing import TYPE_CHECKING, Final

from coilclaw.agent.tools import output, workspace_path
from coilclaw.agent.tools.contract import (
    ReadyCall,
    Tool,
    object_schema,
    success,
    text_argument,
    text_schema,
)
from coilclaw.agent.tools.workspace_path import WorkspacePath
from coilclaw.kernel import (
    AnswerError,
    DeniedError,
    PathRefused,
    PlanRefused,
    UsageError,
    Writes,
    digest_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coilclaw.agent.tools.contract import Arguments, ToolContext
    from coilclaw.changes import ChangeSet, Plan
    from coilclaw.kernel import Effect, ToolResult

MAX_CONTENT: Final = 4 * 2**20
MAX_ANSWER: Final = 8 * 2**20
ORIGIN: Final = "agent"
_VERBS: Final = {"create": "created", "modify": "changed", "delete": "deleted", "mode": "changed"}
_WORKSPACE: Final = WorkspacePath(".", (), inside=True)


class FileWrite(Tool):
    """Writes a UTF-8 text file, atomically and with undo."""

    name = "file_write"
    description = (
        "Write a UTF-8 text file of the workspace: create it, with its directories, or replace "
        "all of its content. Use apply_changes to change parts of files or several files at once."
    )
    parameters_schema = object_schema(
        {
            "path": workspace_path.FILE_SCHEMA,
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
        return (Writes(text_argument(args, "path")),)

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        where, content, planned = self._plan(args, context)
        if "expected_sha256" in args:
            before = planned.changes[0].before if planned.changes else None
            found = digest_bytes(content) if not planned.changes else before and before.digest
            if found != text_argument(args, "expected_sha256"):
                what = "does not have the expected content" if found else "does not exist"
                raise PlanRefused(
                    f"'{where}' {what}",
                    rule="plan.content",
                    path=str(where),
                    hint="read the file again",
                )
        return _prepare_plan(where, planned, context)

    def is_in_place(self, args: Arguments, context: ToolContext) -> bool:
        """Return whether the file already holds what a call would write."""
        return not self._plan(args, context)[2].changes

    def _plan(self, args: Arguments, context: ToolContext) -> tuple[WorkspacePath, bytes, Plan]:
        from coilclaw.changes import ChangeSet, WriteFile

        where = workspace_path.find_path(text_argument(args, "path"), context)
        try:
            content = text_argument(args, "content").encode("utf-8")
        except UnicodeEncodeError as problem:
            raise UsageError("the content is not valid Unicode", rule="file.encoding") from problem
        change_set = ChangeSet((WriteFile(where.to_write(), content),))
        return where, content, _plan_changes(where, change_set, context)


class ApplyChanges(Tool):
    """Edits any number of files, from any answer format."""

    name = "apply_changes"
    description = (
        "Change, create, move or delete files of the workspace, all or nothing. 'changes' is text "
        "in one of these forms: a unified diff as git writes it; search-and-replace blocks, each "
        "after a line with its path; an envelope that begins with '*** Begin Patch'; or JSON, an "
        'object with "files": [{"path", "content"}] or "patches": [{"path", "replacements": '
        '[{"find", "replace"}]}]. Paths are relative to the workspace.'
    )
    parameters_schema = object_schema(
        {"changes": text_schema(MAX_ANSWER, "the changes, in any of the forms")}, "changes"
    )

    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        from coilclaw.changes import name_lines

        return tuple(Writes(str(path)) for path in name_lines(_parse_changes(args)))

    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        with _explaining():
            planned = _plan_changes(_WORKSPACE, _parse_changes(args), context)
        return _prepare_plan(_WORKSPACE, planned, context)


@contextmanager
def _explaining() -> Iterator[None]:
    """Extend an error with every part that fails and the nearest lines, for the model."""
    try:
        yield
    except (AnswerError, PathRefused, PlanRefused) as problem:
        from coilclaw.changes import explain_failures

        if problem.failures or problem.hint or getattr(problem, "nearest", ()):
            problem.message = explain_failures(problem).removesuffix(f" [{problem.rule}]")
        raise


def _parse_changes(args: Arguments) -> ChangeSet:
    from coilclaw.changes import ChangeSet, Refusal, answer

    with _explaining():
        parsed = answer.parse_answer(text_argument(args, "changes"))
    if isinstance(parsed, ChangeSet):
        return parsed
    if isinstance(parsed, Refusal):
        message = "the text declines the task instead of giving changes"
        raise AnswerError(message, rule="answer.refusal", line=parsed.line)
    raise AnswerError(
        "the text holds no changes",
        rule="answer.no_changes",
        hint="give a unified diff, an envelope, search-and-replace blocks or JSON",
    )


def _plan_changes(where: WorkspacePath, change_set: ChangeSet, context: ToolContext) -> Plan:
    """Return the plan of a change set in the tree of a path; a denied path denies all of it."""
    from coilclaw.workspace import Delivered, DeliveryTerms, Denied, deliver_answer

    with workspace_path.open_tree(where, context) as (root, state):
        try:
            outcome = deliver_answer(root, state, change_set, DeliveryTerms(dry_run=True))
        except FileNotFoundError as problem:
            message = "a path changed during the lookup"
            raise PlanRefused(message, rule="path.changed", hint="try again") from problem
        if isinstance(outcome, Denied):
            reasons = "; ".join(denial.verdict.reason for denial in outcome.denials[:10])
            raise DeniedError(reasons, rule=outcome.denials[0].verdict.rule)
        assert isinstance(outcome, Delivered)  # a change set becomes one or the other
        for change in outcome.plan.changes:
            workspace_path.refuse_off_limits(context, root, change.path.parts)
        return outcome.plan


def _prepare_plan(where: WorkspacePath, planned: Plan, context: ToolContext) -> ReadyCall:
    """Return the call that writes a plan; its detail is the diff."""
    import secrets

    from coilclaw.changes import unified_diff
    from coilclaw.workspace import Purpose, Writer, new_change_id

    if not planned.changes:
        told = "the files already have this content; nothing was changed"
        detail = ("nothing would change",)
        return ReadyCall(detail, lambda: success(told, {"files": 0}), lookup="nothing")
    change_id = new_change_id(context.now().astimezone(UTC), secrets.token_hex(8))
    with workspace_path.open_tree(where, context) as (_, state):
        lookup = f"change {state.directory.name}/{change_id}"

    def write() -> ToolResult:
        purpose = Purpose(ORIGIN, context.turn_id, change_id=change_id)
        with workspace_path.open_tree(where, context) as (root, state):
            change = Writer(root, state).apply(planned, purpose)
        base = "" if where.inside else "/"
        lines = [
            f"{_VERBS[row.action]} {base}{row.path}"
            + (" (binary)" if row.binary else f" (+{row.added} -{row.removed} lines)")
            for row in unified_diff.summarise_plan(planned)
        ]
        lines += [f"warning: {warning}" for warning in planned.warnings]
        told = output.middle_cut("\n".join(lines), context.limits.output_bytes)
        return success(told, {"change": change.id, "files": len(planned.changes)})

    return ReadyCall(tuple(unified_diff.diff_plan(planned)), write, lookup=lookup)
