"""``Inspection``: what a task did to its tree, judged from snapshots and kept as evidence."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EntryType, RegularFile, Symlink, TreeDiff, valid_text
from coilclaw.runs.gates import diff as diff_gate
from coilclaw.runs.gates import scope as leavings
from coilclaw.runs.gates import weakened_tests
from coilclaw.runs.gates.command_line import forbidden_paths
from coilclaw.runs.gates.diff import binary_among
from coilclaw.runs.gates.result import GateResult, Violation
from coilclaw.runs.gates.scope import RUNTIME_ROOT, Scope
from coilclaw.workspace import Git, untracked_paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.task_contract import TaskContract
    from coilclaw.runs.engine.ready_worktree import DependencyChanges
    from coilclaw.runs.engine.run import Run, RunDependencies
    from coilclaw.workspace import Snapshot

MAX_RULES: Final = 2000
MAX_RULES_BYTES: Final = 2**20
"""Of an ignore file of the baseline."""
_ANYTHING: Final = "anything"
"""Stands for whatever a directory holds, where it is asked whether the directory is ignored."""
MAX_READ_PATHS: Final = 20_000
"""Changed files whose contents are looked at; more than that is refused by number."""
MAX_DROPPED_LISTED: Final = 200
"""Changes of dependencies that are listed one by one; how many there are is a fact of its own."""
_TEXTS: Final = frozenset({EntryType.FILE, EntryType.EXECUTABLE})


@dataclass(frozen=True, slots=True)
class Inspected:
    """One tree against another: the judgement, and the patch from the same two trees."""

    result: GateResult
    after: Snapshot
    patch: bytes
    names: tuple[str, ...]
    old: Mapping[str, bytes | None]
    new: Mapping[str, bytes | None]
    """Contents of the changed files, where they are files."""


@dataclass(frozen=True, slots=True)
class Inspection:
    """Looks at trees for one repository and baseline."""

    equipment: RunDependencies
    baseline: str
    """The commit."""
    policies: Callable[[], PolicySet] | None = None
    """Those of the run, if they were read already."""
    _known: dict[tuple[str, str], tuple[Violation, ...]] = field(
        default_factory=dict, compare=False, repr=False
    )
    """What was found out about two snapshots, which never change."""
    _trees: dict[str, AbstractSet[str]] = field(default_factory=dict, compare=False, repr=False)
    """What commits hold, which never changes."""

    def scope(self, contract: TaskContract) -> Scope:
        """What a contract lets its agent change, under the policies of the run."""
        policies = self.current_policies()
        pack = policies.under(policies.pack_for(contract)).pack
        places, runtime_root = self.equipment.places, ""
        if places.runtime.is_relative_to(places.repository):
            runtime_root = places.runtime.relative_to(places.repository).as_posix()
        return Scope(
            allowed_paths=contract.allowed_paths,
            binary_paths=contract.binary_paths or (),
            runtime_root=runtime_root,
            control=self.equipment.control_paths,
            protected=(
                *policies.forbidden.protected_paths,
                *forbidden_paths(contract.forbidden_actions),
            ),
            max_changes=pack.limits.max_changed_files,
            max_patch_bytes=pack.limits.max_patch_bytes,
            read_only=contract.tool_permissions.filesystem == "read-only",
        )

    def current_policies(self) -> PolicySet:
        """Return the policies of the run."""
        return self.equipment.policies(self.baseline) if self.policies is None else self.policies()

    def look(
        self,
        directory: Path,
        origin: str,
        start: str,
        scope: Scope,
        *,
        changes: DependencyChanges | None = None,
    ) -> Inspected:
        """Judge what stands in a directory now.

        ``origin`` is the snapshot that the work is measured against, ``start`` the one taken in
        this very directory before the work in it began. ``changes`` are those of dependencies.
        """
        store = self.equipment.snapshots
        left_out = () if changes is None else changes.left_out
        dropped = self._find_dropped_directories(directory, scope)
        after = store.take(directory, exclude=(*left_out, *dropped), reread=True)
        diff = self._diff(origin, start, after.id)
        left = diff_gate.find_leavings(diff, scope, self._find_dropped_paths(diff, scope))
        if left:
            dropped = (*dropped, *left)
            after = store.take(directory, exclude=(*left_out, *dropped))
            diff = self._diff(origin, start, after.id)
        old, new = self.contents(origin, after.id, diff)
        judged = self._judge(diff, scope, after, old, new)
        facts = dict(judged.facts)
        if dropped:
            listed = sorted(dropped)[: diff_gate.MAX_LISTED]
            facts["leavings"] = [valid_text(path) for path in listed]
            facts["leavings_count"] = len(dropped)
        if changes is not None and changes.dropped:
            facts["dropped"] = [
                {"path": valid_text(one.path), "reason": one.reason}
                for one in changes.dropped[:MAX_DROPPED_LISTED]
            ]
            facts["dropped_count"] = len(changes.dropped)
        judged = replace(judged, facts=facts)
        return Inspected(
            self._add_unseen(judged, directory),
            after,
            store.patch(origin, after.id),
            tuple(sorted({path for change in diff for path in change.paths})),
            old,
            new,
        )

    def _diff(self, origin: str, start: str, after: str) -> TreeDiff:
        store = self.equipment.snapshots
        diff = store.diff(origin, after, copies=True)
        git = diff.git_changes if start == origin else store.diff(start, after).git_changes
        return TreeDiff(diff.changes, git)

    def _judge(
        self,
        diff: TreeDiff,
        scope: Scope,
        after: Snapshot,
        old: Mapping[str, bytes | None],
        new: Mapping[str, bytes | None],
    ) -> GateResult:
        store, secrets = self.equipment.snapshots, self.equipment.secrets
        observed = diff_gate.Observed(
            binary=binary_among({*old, *new}, old, new),
            secrets=frozenset(
                path
                for path, data in new.items()
                if data and _holds_secret(secrets.redact, data, old.get(path))
            ),
            ignored=frozenset(),
            modes=store.modes(after.id),
            tree=[path for path, _, _ in store.files(after.id)],
            submodules=self.equipment.repository.gitlinks(self.baseline),
        )
        return diff_gate.judge_diff(diff, scope=scope, observed=observed)

    def _add_unseen(self, judged: GateResult, directory: Path) -> GateResult:
        """No snapshot holds the runtime root, so that something put there would go unnoticed."""
        if not os.path.lexists(directory / RUNTIME_ROOT):
            return judged
        listed = self.equipment.repository.git.run("ls-tree", self.baseline, "--", RUNTIME_ROOT)
        if listed:
            return judged
        message = f"{RUNTIME_ROOT} may not change: it is kept by the runtime"
        unseen = Violation("diff.protected", message, RUNTIME_ROOT)
        return replace(judged, violations=(*judged.violations, unseen))

    def _find_dropped_directories(self, directory: Path, scope: Scope) -> tuple[str, ...]:
        """The directories that are left out whole: they may be large, and none of it counts."""
        new = untracked_paths(directory, self.kept_of(self.baseline))
        found = [path for path, is_directory in new if is_directory and _is_askable(path)]
        asked = [f"{path}/{_ANYTHING}" for path in found][:MAX_READ_PATHS]
        ignored = self._apply_ignore_rules(asked)
        return tuple(
            path
            for path in found
            if diff_gate.is_droppable(path, scope)
            and (f"{path}/{_ANYTHING}" in ignored or self._in_cache(path, scope, directory=True))
        )

    def _find_dropped_paths(self, diff: TreeDiff, scope: Scope) -> frozenset[str]:
        """The new paths that the baseline ignores, or that are caches."""
        added = {change.path: change for change in diff if change.kind in diff_gate.NEW}
        asked = [path for path in added if _is_askable(path)][:MAX_READ_PATHS]
        caches = [
            path
            for path, change in added.items()
            if self._in_cache(path, scope, directory=change.new_type is EntryType.DIRECTORY)
        ]
        return self._apply_ignore_rules(asked) | frozenset(caches)

    def _in_cache(self, path: str, scope: Scope, *, directory: bool) -> bool:
        """Whether a path lies in a well-known cache that neither git nor the contract knows of."""
        cache = leavings.cache_above(path, directory=directory)
        if not cache or leavings.is_named(cache, scope.allowed_paths):
            return False
        return cache not in self.kept_of(self.baseline)

    def find_ignored(self, paths: Mapping[str, bool]) -> frozenset[str]:
        """Return which paths the baseline ignores; each comes with whether it is a directory."""
        asked = {
            f"{path}/{_ANYTHING}" if directory else path: path
            for path, directory in paths.items()
            if _is_askable(path)
        }
        return frozenset(asked[path] for path in self._apply_ignore_rules([*asked]))

    def _apply_ignore_rules(self, paths: Sequence[str]) -> frozenset[str]:
        """Which paths the rules of the baseline ignore; the work's own rules do not count."""
        if not paths:
            return frozenset()
        repository, places = self.equipment.repository, self.equipment.places
        rules = [
            name for name in self.kept_of(self.baseline) if name.rpartition("/")[2] == ".gitignore"
        ]
        with TemporaryDirectory(dir=places.git, prefix=".coilclaw-rules-") as made:
            root = Path(made)
            for name in rules[:MAX_RULES]:
                text = repository.read(self.baseline, name, MAX_RULES_BYTES)
                if text is not None:
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (root / name).write_bytes(text)
            return Git(places.git).find_ignored(root, paths)

    def kept_of(self, commit: str) -> AbstractSet[str]:
        """Return the files of a commit, and every directory that holds one."""
        if commit not in self._trees:
            self._trees[commit] = with_parents(self.equipment.repository.files(commit))
        return self._trees[commit]

    def find_weakened(
        self,
        origin: str,
        after: str,
        contents: tuple[Mapping[str, bytes | None], Mapping[str, bytes | None]] | None = None,
    ) -> tuple[Violation, ...]:
        """What a change takes away from the tests; ``contents`` is what ``contents`` returned."""
        key = (origin, after)
        if key not in self._known:
            old, new = contents or self.contents(origin, after)
            tree = [path for path, _, _ in self.equipment.snapshots.files(after)]
            self._known[key] = weakened_tests.find_weakened_tests(old, new, tree)
        return self._known[key]

    def contents(
        self, origin: str, after: str, diff: TreeDiff | None = None
    ) -> tuple[dict[str, bytes | None], dict[str, bytes | None]]:
        """Return what the changed files held and hold; ``None`` without a file."""
        store = self.equipment.snapshots
        diff = store.diff(origin, after, copies=True) if diff is None else diff
        old_paths = {one.old_path or one.path for one in diff if one.old_type in _TEXTS}
        new_paths = {one.path for one in diff if one.new_type in _TEXTS}
        old = _read_contents(store.read(origin, sorted(old_paths)[:MAX_READ_PATHS]))
        new = _read_contents(store.read(after, sorted(new_paths)[:MAX_READ_PATHS]))
        both = {path for change in diff for path in change.paths}
        return {p: old.get(p) for p in both}, {p: new.get(p) for p in both}


def with_parents(paths: Iterable[str]) -> AbstractSet[str]:
    """Return paths and every directory that holds one."""
    found = set[str]()
    for path in paths:
        while path and path not in found:
            found.add(path)
            path = path.rpartition("/")[0]
    return found


def _read_contents(states: Mapping[str, object]) -> dict[str, bytes | None]:
    return {
        path: state.content if isinstance(state, RegularFile) else None
        for path, state in states.items()
        if isinstance(state, RegularFile | Symlink)
    }


def _holds_secret(redact: Callable[[str], str], data: bytes, before: bytes | None) -> bool:
    """Whether contents hold a known secret that was not there before."""

    def count(text: str) -> int:
        return sum(redact(line) != line for line in text.splitlines())

    text, old = data.decode("utf-8", "replace"), (before or b"").decode("utf-8", "replace")
    return redact(text) != text and (redact(old) == old or count(text) > count(old))


def _is_askable(path: str) -> bool:
    return {"", ".", ".."}.isdisjoint(path.split("/")) and "\0" not in path


@dataclass(slots=True)
class RunStage:
    """A stage of a run: the run, and what looks at its trees."""

    run: Run
    inspection: Inspection

    @property
    def equipment(self) -> RunDependencies:
        return self.inspection.equipment
