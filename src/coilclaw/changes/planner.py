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

from typing import TYPE_CHECKING

from coilclaw.changes import gitbinary, lines, textedit
from coilclaw.changes.nearest_lines import nearest_lines
from coilclaw.changes.operations import (
    ChangeSet,
    DeleteFile,
    EditText,
    Limits,
    Operation,
    Options,
    PatchBinary,
    PatchFile,
    Source,
    WriteFile,
    WriteLink,
)
from coilclaw.changes.plan import FileChange, Plan
from coilclaw.changes.work import Work
from coilclaw.domain.files import FileState, Obstacle, RegularFile, Symlink
from coilclaw.domain.treepath import TreePath
from coilclaw.errors import PathRefused, PlanRefused, combine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.changes.sighting import Sighting


def lines_of(change_set: ChangeSet) -> dict[TreePath, int | None]:
    """Return every path an answer names, with the line that names it first."""
    named: dict[TreePath, int | None] = {}
    for operation in change_set.operations:
        named.setdefault(operation.path, _line(operation))
        if isinstance(operation, PatchFile | PatchBinary) and operation.target is not None:
            named.setdefault(operation.target, _line(operation))
    return named


def plan(
    change_set: ChangeSet,
    seen: Mapping[TreePath, Sighting],
    *,
    options: Options = Options(),
    limits: Limits = Limits(),
) -> Plan:
    """Work out the whole effect of an answer, or refuse it whole, with every part that fails."""
    planner = _Planner(seen, options, limits, change_set)
    for operation in change_set.operations:
        planner.try_to_add(operation)
    return planner.finish()


def removed_paths(change_set: ChangeSet) -> frozenset[TreePath]:
    """Return the paths that an answer names to take away, by deletion or by a move."""
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


class _Planner:
    def __init__(
        self,
        seen: Mapping[TreePath, Sighting],
        options: Options,
        limits: Limits,
        change_set: ChangeSet,
    ) -> None:
        self._seen = seen
        self._failed: list[PlanRefused] = []
        self._vacated = frozenset(
            seen[path].own.parts[:depth]
            for path in removed_paths(change_set)
            for depth in range(1, len(seen[path].own.parts))
        )
        """Directories that files are taken out of, which may make room for a file."""
        self._options = options
        self._limits = limits
        self._outcomes: list[FileChange] = []
        self._touched: dict[TreePath, Operation] = {}
        self._written: dict[tuple[str, ...], TreePath] = {}
        self._identities: dict[tuple[int, int], TreePath] = {}
        self._warnings: list[str] = []
        self._total = 0
        self._work = Work()

    def try_to_add(self, operation: Operation) -> None:
        """Add an operation, or keep in mind why it does not fit."""
        try:
            self._add(operation)
        except PlanRefused as problem:
            self._failed.append(problem)
            if problem.rule == "plan.bounds":
                raise combine(self._failed) from problem

    def _add(self, operation: Operation) -> None:
        match operation:
            case WriteFile():
                self._write_file(operation)
            case WriteLink():
                self._write_link(operation)
            case DeleteFile():
                self._delete(operation)
            case EditText():
                self._edit_text(operation)
            case PatchFile():
                self._patch_file(operation)
            case PatchBinary():
                self._patch_binary(operation)

    def finish(self) -> Plan:
        self._note_nesting()
        if self._failed:
            raise combine(self._failed)
        changes = [change for change in self._outcomes if change.before != change.after]
        changes.sort(key=lambda change: change.path)
        return Plan(tuple(changes), tuple(self._warnings))

    # One method per operation.

    def _write_file(self, operation: WriteFile) -> None:
        sighting = self._seen[operation.path]
        found = sighting.real_found
        if operation.new and isinstance(found, RegularFile) and found.content == operation.content:
            raise _refused(
                "plan.applied",
                operation,
                "is to be created, but it is there with exactly that content: already applied",
                sighting.own,
            )
        before = self._target(operation, sighting, new=operation.new)
        executable = operation.executable
        if executable is None:
            executable = isinstance(before, RegularFile) and before.executable
        after = RegularFile(operation.content, executable)
        self._put(operation, sighting, before, after)

    def _write_link(self, operation: WriteLink) -> None:
        sighting = self._seen[operation.path]
        if not self._options.links:
            raise _refused("plan.link", operation, "would create a symbolic link")
        if sighting.own_found is not None:
            raise _refused("plan.exists", operation, "is to be created, but it is there already")
        if not _stays_inside(sighting.own, operation.target):
            raise _refused("plan.link", operation, "would link to a place outside the tree")
        self._claim(operation, sighting.own, None)
        self._record(sighting.own, None, Symlink(operation.target))

    def _delete(self, operation: DeleteFile) -> None:
        sighting = self._seen[operation.path]
        before = self._own(operation, sighting)
        if operation.expected is not None:
            held = before.content if isinstance(before, RegularFile) else before.target
            if held != operation.expected:
                refused = _refused(
                    "plan.content", operation, "does not hold what the answer says it deletes"
                )
                refused.nearest = nearest_lines(held, operation.expected.split(b"\n"), 1)
                raise refused
        self._claim(operation, sighting.own, sighting.identity)
        self._record(sighting.own, before, None)

    def _edit_text(self, operation: EditText) -> None:
        sighting = self._seen[operation.path]
        before = self._regular(operation, sighting)
        content, warnings = textedit.apply(
            before.content,
            operation.replacements,
            path=str(operation.path),
            options=self._options,
            work=self._work,
        )
        self._warnings.extend(warnings)
        self._put(operation, sighting, before, RegularFile(content, before.executable))

    def _patch_file(self, operation: PatchFile) -> None:
        sighting = self._seen[operation.path]
        goal = self._seen[operation.target] if operation.target is not None else None
        if sighting.real_found is None and goal and isinstance(goal.real_found, RegularFile):
            raise _refused(
                "plan.missing",
                operation,
                f"is not there, but '{operation.target}' is: the move seems to be already applied",
            )
        before = self._regular(operation, sighting)
        content = lines.apply(
            before.content,
            operation.hunks,
            path=str(operation.path),
            options=self._options,
            work=self._work,
        )
        if operation.old_executable not in {None, before.executable}:
            self._warnings.append(f"'{operation.path}' has another mode than the patch says")
        executable = before.executable if operation.executable is None else operation.executable
        self._deliver(operation, sighting, before, RegularFile(content, executable))

    def _patch_binary(self, operation: PatchBinary) -> None:
        sighting = self._seen[operation.path]
        if operation.new:
            before = self._target(operation, sighting, new=True)
            content = gitbinary.result(None, operation)
            self._put(operation, sighting, before, RegularFile(content, bool(operation.executable)))
            return
        found = self._regular(operation, sighting)
        content = gitbinary.result(found.content, operation)
        if operation.delete:
            self._claim(operation, sighting.own, sighting.identity)
            self._record(sighting.own, found, None)
            return
        executable = found.executable if operation.executable is None else operation.executable
        self._deliver(operation, sighting, found, RegularFile(content, executable))

    def _deliver(
        self,
        operation: PatchFile | PatchBinary,
        sighting: Sighting,
        before: RegularFile,
        after: RegularFile,
    ) -> None:
        if operation.target is None:
            self._put(operation, sighting, before, after)
            return
        if not operation.keep:
            self._own(operation, sighting)
            if isinstance(sighting.own_found, Symlink):
                raise _refused("plan.link", operation, "is a symbolic link and cannot be moved")
            self._claim(operation, sighting.own, sighting.identity)
            self._record(sighting.own, before, None)
        goal = self._seen[operation.target]
        there = self._target(operation, goal, new=True)
        self._put(operation, goal, there, after, like=sighting.real)

    # What may stand at a path.

    def _target(self, operation: Operation, sighting: Sighting, *, new: bool) -> FileState:
        found = sighting.real_found
        if found == Obstacle("directory") and sighting.real.parts in self._vacated:
            return None
        if isinstance(found, Obstacle):
            raise _refused("plan.obstacle", operation, f"is a {found.kind}", sighting.own)
        if isinstance(found, Symlink):
            raise _refused("plan.link", operation, "is a symbolic link", sighting.own)
        if new and found is not None:
            raise _refused(
                "plan.exists", operation, "is to be created, but it is there already", sighting.own
            )
        return found

    def _own(self, operation: Operation, sighting: Sighting) -> RegularFile | Symlink:
        found = sighting.own_found
        if isinstance(found, Obstacle):
            raise _refused("plan.obstacle", operation, f"is a {found.kind}")
        if found is None:
            raise _refused("plan.missing", operation, "is not there")
        return found

    def _regular(self, operation: Operation, sighting: Sighting) -> RegularFile:
        found = self._target(operation, sighting, new=False)
        if found is None:
            raise _refused("plan.missing", operation, "is not there")
        assert isinstance(found, RegularFile)
        return found

    # Keeping account.

    def _put(
        self,
        operation: Operation,
        sighting: Sighting,
        before: FileState,
        after: RegularFile,
        *,
        like: TreePath | None = None,
    ) -> None:
        path = sighting.real
        size = len(after.content)
        if size > self._limits.file_bytes:
            raise _refused(
                "plan.bounds",
                operation,
                f"would be {size:,} bytes, more than the bound of {self._limits.file_bytes:,}",
                path,
            )
        self._total += size
        if self._total > self._limits.total_bytes:
            raise PlanRefused(
                f"the answer would write more than {self._limits.total_bytes:,} bytes in all",
                rule="plan.bounds",
            )
        self._claim(operation, path, sighting.identity)
        twin = self._written.setdefault(path.folded, path)
        if twin != path:
            raise PlanRefused(
                f"'{twin}' and '{path}' would be one file on some file systems",
                rule="plan.overlap",
                path=str(path),
                line=_line(operation),
            )
        self._record(path, before, after, like)

    def _claim(
        self, operation: Operation, path: TreePath, identity: tuple[int, int] | None
    ) -> None:
        other = self._touched.get(path)
        if other is not None:
            raise PlanRefused(
                f"'{path}' is changed twice in one answer ({_at(other.source)} and "
                f"{_at(operation.source)})",
                rule="plan.overlap",
                path=str(path),
                line=_line(operation),
                hint="put all changes of one file into one operation",
            )
        if identity is not None:
            known = self._identities.setdefault(identity, path)
            if known != path:
                raise PlanRefused(
                    f"'{known}' and '{path}' are the same file",
                    rule="plan.overlap",
                    path=str(path),
                    line=_line(operation),
                )
        self._touched[path] = operation

    def _record(
        self,
        path: TreePath,
        before: FileState,
        after: FileState,
        like: TreePath | None = None,
    ) -> None:
        self._outcomes.append(FileChange(path, before, after, like))

    def _note_nesting(self) -> None:
        """A path that one operation leaves as a file may not be a directory of another."""
        files = {path.folded: path for path in self._touched}
        outcomes = {change.path: change for change in self._outcomes}
        for path, operation in self._touched.items():
            folded = path.folded
            for depth in range(1, len(folded)):
                parent = files.get(folded[:depth])
                if parent is None or _makes_room(outcomes.get(parent), outcomes.get(path)):
                    continue
                self._failed.append(
                    PlanRefused(
                        f"'{parent}' is a file for one operation and a directory for '{path}'",
                        rule="plan.overlap",
                        path=str(path),
                        line=_line(operation),
                        hint=f"delete '{parent}' in the same answer if a directory replaces it",
                    )
                )


def _makes_room(parent: FileChange | None, child: FileChange | None) -> bool:
    """Say whether a file goes and a directory comes in its place, or the other way round."""
    if (
        parent is None
        or child is None
        or child.path.parts[: len(parent.path.parts)] != (parent.path.parts)
    ):
        return False
    goes, comes = (parent, child) if parent.after is None else (child, parent)
    return goes.after is None and comes.before is None and comes.after is not None


def _stays_inside(link: TreePath, target: bytes) -> bool:
    """Judge a link's text alone: it may climb first, but never after it went into a directory."""
    names = [name for name in target.split(b"/") if name not in {b"", b"."}]
    if target.startswith(b"/") or b"\0" in target or not names:
        return False
    climbs = 0
    while climbs < len(names) and names[climbs] == b"..":
        climbs += 1
    rest = names[climbs:]
    if climbs > len(link.parents) or not rest or b".." in rest:
        return False
    try:
        TreePath.parse(b"/".join(rest).decode("utf-8"))
    except (PathRefused, UnicodeDecodeError):
        return False
    return True


def _line(operation: Operation) -> int | None:
    return operation.source.line if operation.source else None


def _at(source: Source | None) -> str:
    return f"line {source.line}" if source else "an earlier operation"


def _refused(
    rule: str, operation: Operation, what: str, path: TreePath | None = None
) -> PlanRefused:
    named = path or operation.path
    return PlanRefused(f"'{named}' {what}", rule=rule, path=str(named), line=_line(operation))
