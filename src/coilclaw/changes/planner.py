"""The planner: a change set and what stands at its paths → the exact bytes before and after.

Rules, each refusing the whole set:

- ``plan.overlap``: two operations touch one file, by whatever spelling or format, or one needs a
  directory where another leaves a file; a file that goes makes room for a directory of its name,
  and a directory whose files all go makes room for a file;
- ``plan.exists`` / ``plan.missing``: a new file that is there already, an old one that is not;
- ``plan.obstacle``: a directory or a special file stands where a file is needed;
- ``plan.link``: a symbolic link stands where a file is needed, or a link would leave the tree;
- ``plan.content``: a file to be deleted does not hold what the answer says it holds;
- ``plan.bounds``: a file or the whole plan is larger than its bound;
- and those of the edits themselves (``patch.*``, ``lines.*``, ``git.*``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import dropwhile
from typing import TYPE_CHECKING, Final

from coilclaw.changes import line_edits, text_edits
from coilclaw.changes.failure_report import nearest_lines
from coilclaw.changes.formats import git_binary
from coilclaw.changes.operations import (
    AnswerLimits,
    AnswerOptions,
    ChangeSet,
    DeleteFile,
    EditText,
    Operation,
    PatchBinary,
    PatchFile,
    PathChange,
    Plan,
    Work,
    WriteFile,
    WriteLink,
    named_paths,
)
from coilclaw.kernel import (
    FileState,
    Obstacle,
    PathRefused,
    PlanRefused,
    RegularFile,
    Symlink,
    TreePath,
    combine,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.changes.operations import PathState

_THERE: Final = "is to be created, but it is there already"


def name_lines(change_set: ChangeSet) -> dict[TreePath, int | None]:
    """Return every path an answer names, with the line that names it first."""
    named: dict[TreePath, int | None] = {}
    for operation in change_set.operations:
        for path in named_paths(operation):
            named.setdefault(path, operation.source.line if operation.source else None)
    return named


def plan_changes(
    change_set: ChangeSet,
    seen: Mapping[TreePath, PathState],
    *,
    options: AnswerOptions = AnswerOptions(),
    limits: AnswerLimits = AnswerLimits(),
) -> Plan:
    """Return the whole effect of an answer; raise ``PlanRefused`` with every part that fails."""
    vacated = frozenset(
        seen[path].own.parts[:depth]
        for path in removed_paths(change_set)
        for depth in range(1, len(seen[path].own.parts))
    )
    planner = _Planner(seen, options, limits, vacated)
    failed: list[PlanRefused] = []
    for operation in change_set.operations:
        try:
            planner.add(operation, seen[operation.path])
        except PlanRefused as problem:
            failed.append(problem)
            if problem.rule == "plan.bounds":
                raise combine(failed) from problem
    failed += planner.find_nesting()
    if failed:
        raise combine(failed)
    changes = [change for change in planner.outcomes if change.before != change.after]
    changes.sort(key=lambda change: change.path)
    return Plan(tuple(changes), tuple(planner.warnings))


def removed_paths(change_set: ChangeSet) -> frozenset[TreePath]:
    """Return the paths that an answer removes, by deletion or by a move."""
    return frozenset(
        operation.path
        for operation in change_set.operations
        if isinstance(operation, DeleteFile)
        or (isinstance(operation, PatchBinary) and operation.delete)
        or (
            isinstance(operation, PatchFile | PatchBinary)
            and operation.target is not None
            and not operation.keep
        )
    )


@dataclass(slots=True)
class _Planner:
    seen: Mapping[TreePath, PathState]
    options: AnswerOptions
    limits: AnswerLimits
    vacated: frozenset[tuple[str, ...]]
    """Directories that files are taken out of, which may make room for a file."""
    outcomes: list[PathChange] = field(default_factory=list)
    touched: dict[TreePath, Operation] = field(default_factory=dict)
    written: dict[tuple[str, ...], TreePath] = field(default_factory=dict)
    identities: dict[tuple[int, int], TreePath] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    total: int = 0
    work: Work = field(default_factory=Work)

    # One method per operation.

    def add(self, operation: Operation, sighting: PathState) -> None:
        match operation:
            case WriteFile():
                self._write_file(operation, sighting)
            case WriteLink():
                self._write_link(operation, sighting)
            case DeleteFile():
                self._delete(operation, sighting)
            case EditText():
                before = self._regular(operation, sighting)
                content, warnings = text_edits.apply_replacements(
                    before.content,
                    operation.replacements,
                    path=str(operation.path),
                    options=self.options,
                    work=self.work,
                )
                self.warnings.extend(warnings)
                self._put(operation, sighting, before, RegularFile(content, before.executable))
            case PatchFile():
                self._patch_file(operation, sighting)
            case PatchBinary():
                self._patch_binary(operation, sighting)

    def _write_file(self, operation: WriteFile, sighting: PathState) -> None:
        found = sighting.real_found
        if operation.new and isinstance(found, RegularFile) and found.content == operation.content:
            message = "is to be created, but it is there with exactly that content: already applied"
            raise _refusal_error("plan.applied", operation, message, sighting.own)
        before = self._target(operation, sighting, new=operation.new)
        executable = operation.executable
        if executable is None:
            executable = isinstance(before, RegularFile) and before.executable
        self._put(operation, sighting, before, RegularFile(operation.content, executable))

    def _write_link(self, operation: WriteLink, sighting: PathState) -> None:
        if not self.options.links:
            raise _refusal_error("plan.link", operation, "would create a symbolic link")
        if sighting.own_found is not None:
            raise _refusal_error("plan.exists", operation, _THERE)
        if not _stays_inside(sighting.own, operation.target):
            raise _refusal_error("plan.link", operation, "would link to a place outside the tree")
        self._record(operation, sighting.own, None, None, Symlink(operation.target))

    def _delete(self, operation: DeleteFile, sighting: PathState) -> None:
        before = self._own(operation, sighting)
        held = before.content if isinstance(before, RegularFile) else before.target
        if operation.expected is not None and held != operation.expected:
            message = "does not hold what the answer says it deletes"
            refused = _refusal_error("plan.content", operation, message)
            refused.nearest = nearest_lines(held, operation.expected.split(b"\n"), 1)
            raise refused
        self._record(operation, sighting.own, sighting.identity, before, None)

    def _patch_file(self, operation: PatchFile, sighting: PathState) -> None:
        goal = self.seen[operation.target] if operation.target is not None else None
        if sighting.real_found is None and goal and isinstance(goal.real_found, RegularFile):
            raise _refusal_error(
                "plan.missing",
                operation,
                f"is not there, but '{operation.target}' is: the move seems to be already applied",
            )
        before = self._regular(operation, sighting)
        path = str(operation.path)
        content = line_edits.apply_hunks(before.content, operation.hunks, path=path, work=self.work)
        if operation.old_executable not in {None, before.executable}:
            self.warnings.append(f"'{operation.path}' has another mode than the patch says")
        self._deliver(operation, sighting, before, content)

    def _patch_binary(self, operation: PatchBinary, sighting: PathState) -> None:
        if operation.new:
            before = self._target(operation, sighting, new=True)
            after = RegularFile(git_binary.result(None, operation), bool(operation.executable))
            self._put(operation, sighting, before, after)
            return
        found = self._regular(operation, sighting)
        content = git_binary.result(found.content, operation)
        if operation.delete:
            self._record(operation, sighting.own, sighting.identity, found, None)
        else:
            self._deliver(operation, sighting, found, content)

    def _deliver(
        self,
        operation: PatchFile | PatchBinary,
        sighting: PathState,
        before: RegularFile,
        content: bytes,
    ) -> None:
        executable = before.executable if operation.executable is None else operation.executable
        after = RegularFile(content, executable)
        if operation.target is None:
            self._put(operation, sighting, before, after)
            return
        if not operation.keep:
            self._own(operation, sighting)
            if isinstance(sighting.own_found, Symlink):
                raise _refusal_error(
                    "plan.link", operation, "is a symbolic link and cannot be moved"
                )
            self._record(operation, sighting.own, sighting.identity, before, None)
        goal = self.seen[operation.target]
        there = self._target(operation, goal, new=True)
        self._put(operation, goal, there, after, like=sighting.real)

    # What may stand at a path.

    def _target(self, operation: Operation, sighting: PathState, *, new: bool) -> FileState:
        found = sighting.real_found
        if found == Obstacle("directory") and sighting.real.parts in self.vacated:
            return None
        if isinstance(found, Obstacle):
            raise _refusal_error("plan.obstacle", operation, f"is a {found.kind}", sighting.own)
        if isinstance(found, Symlink):
            raise _refusal_error("plan.link", operation, "is a symbolic link", sighting.own)
        if new and found is not None:
            raise _refusal_error("plan.exists", operation, _THERE, sighting.own)
        return found

    def _own(self, operation: Operation, sighting: PathState) -> RegularFile | Symlink:
        found = sighting.own_found
        if isinstance(found, Obstacle):
            raise _refusal_error("plan.obstacle", operation, f"is a {found.kind}")
        if found is None:
            raise _refusal_error("plan.missing", operation, "is not there")
        return found

    def _regular(self, operation: Operation, sighting: PathState) -> RegularFile:
        found = self._target(operation, sighting, new=False)
        if found is None:
            raise _refusal_error("plan.missing", operation, "is not there")
        assert isinstance(found, RegularFile)
        return found

    # Keeping account.

    def _put(
        self,
        operation: Operation,
        sighting: PathState,
        before: FileState,
        after: RegularFile,
        *,
        like: TreePath | None = None,
    ) -> None:
        path = sighting.real
        size = len(after.content)
        if size > self.limits.file_bytes:
            message = f"would be {size:,} bytes, more than the bound of {self.limits.file_bytes:,}"
            raise _refusal_error("plan.bounds", operation, message, path)
        self.total += size
        if self.total > self.limits.total_bytes:
            message = f"the answer would write more than {self.limits.total_bytes:,} bytes in all"
            raise PlanRefused(message, rule="plan.bounds")
        self._record(operation, path, sighting.identity, before, after, like)

    def _record(
        self,
        operation: Operation,
        path: TreePath,
        identity: tuple[int, int] | None,
        before: FileState,
        after: FileState,
        like: TreePath | None = None,
    ) -> None:
        """Keep what happens to a path, which no other operation may touch."""
        if (other := self.touched.get(path)) is not None:
            first, second = (
                f"line {source.line}" if source else "an earlier operation"
                for source in (other.source, operation.source)
            )
            message = f"'{path}' is changed twice in one answer ({first} and {second})"
            hint = "put all changes of one file into one operation"
            raise _overlap(operation, path, message, hint)
        if identity is not None:
            known = self.identities.setdefault(identity, path)
            if known != path:
                raise _overlap(operation, path, f"'{known}' and '{path}' are the same file")
        self.touched[path] = operation
        if isinstance(after, RegularFile):
            twin = self.written.setdefault(path.folded, path)
            if twin != path:
                message = f"'{twin}' and '{path}' would be one file on some file systems"
                raise _overlap(operation, path, message)
        self.outcomes.append(PathChange(path, before, after, like))

    def find_nesting(self) -> list[PlanRefused]:
        """Return a refusal for each path that lies below a file of another operation."""
        failed: list[PlanRefused] = []
        files = {path.folded: path for path in self.touched}
        outcomes = {change.path: change for change in self.outcomes}
        for path, operation in self.touched.items():
            for depth in range(1, len(path.folded)):
                parent = files.get(path.folded[:depth])
                if parent is None or _makes_room(outcomes.get(parent), outcomes.get(path)):
                    continue
                message = f"'{parent}' is a file for one operation and a directory for '{path}'"
                hint = f"delete '{parent}' in the same answer if a directory replaces it"
                failed.append(_overlap(operation, path, message, hint))
        return failed


def _makes_room(parent: PathChange | None, child: PathChange | None) -> bool:
    """Say whether a file goes and a directory comes in its place, or the other way round."""
    if parent is None or child is None:
        return False
    if child.path.parts[: len(parent.path.parts)] != parent.path.parts:
        return False
    goes, comes = (parent, child) if parent.after is None else (child, parent)
    return goes.after is None and comes.before is None and comes.after is not None


def _stays_inside(link: TreePath, target: bytes) -> bool:
    """Judge a link's text alone: it may climb first, but never after it went into a directory."""
    names = [name for name in target.split(b"/") if name not in {b"", b"."}]
    rest = list(dropwhile(lambda name: name == b"..", names))
    climbs = len(names) - len(rest)
    if target.startswith(b"/") or b"\0" in target or b".." in rest or not rest:
        return False
    try:
        TreePath.parse(b"/".join(rest).decode("utf-8"))
    except (PathRefused, UnicodeDecodeError):
        return False
    return climbs <= len(link.parents)


def _line(operation: Operation) -> int | None:
    return operation.source.line if operation.source else None


def _overlap(
    operation: Operation, path: TreePath, message: str, hint: str | None = None
) -> PlanRefused:
    return PlanRefused(
        message, rule="plan.overlap", path=str(path), line=_line(operation), hint=hint
    )


def _refusal_error(
    rule: str, operation: Operation, what: str, path: TreePath | None = None
) -> PlanRefused:
    named = path or operation.path
    return PlanRefused(f"'{named}' {what}", rule=rule, path=str(named), line=_line(operation))
