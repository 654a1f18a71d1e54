"""What a hook asks: does an active contract allow what would be committed or pushed?

A contract is active from the moment a run has accepted it until that run is sealed: while the run
works, while it waits for an approval, and after a kill until it is resumed or abandoned. While none
is, a person commits and pushes as in any repository, unless the hooks are strict. In a worktree of
a run nothing is committed without one.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import DeniedError, UsageError
from coilclaw.runs.contract_validation import ContractChecks
from coilclaw.runs.contracts.roles import PLANNERS
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.bundle import sealed_manifest
from coilclaw.runs.evidence.layout import check_run_id
from coilclaw.runs.gates import diff as diff_gate
from coilclaw.runs.gates.diff import binary_among
from coilclaw.runs.gates.scope import Scope
from coilclaw.runs.orchestrator import find_run_places
from coilclaw.workspace import COMMIT_ID, Repository, commits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import TreeDiff
    from coilclaw.runs.contracts.task_contract import TaskContract
    from coilclaw.runs.evidence.layout import RunPlaces
    from coilclaw.runs.gates.result import Violation
    from coilclaw.runs.orchestrator import Orchestrator

MAX_CONTRACT_BYTES: Final = 2**20
MAX_ACTIVE: Final = 1000
MAX_PUSH_BYTES: Final = 2**22
_PUSHED: Final = re.compile(r"(\S+) ([0-9a-f]{40}) (\S+) ([0-9a-f]{40})")
_NOTHING: Final = "0" * 40
_RUN: Final = re.compile(r"run_[0-9]{8}_[0-9]{6}_[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class Active:
    """A contract that is being worked on, and where its run began."""

    run_id: str
    contract: TaskContract
    baseline: str


@dataclass(frozen=True, slots=True)
class HookJudgement:
    """What the contracts say; it is allowed if one of them has nothing against it."""

    allowed_by: str
    """The run whose contract allows it; empty where none does."""
    violations: Mapping[str, tuple[Violation, ...]]
    """What each contract that was asked has against it, by run."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Something that would be committed or pushed."""

    diff: TreeDiff
    contents: commits.Contents
    tree: Collection[str]
    submodules: Collection[str]


class HookCheck:
    """Asks the active contracts of a repository."""

    def __init__(self, orchestrator: Orchestrator, places: tuple[RunPlaces, ...]) -> None:
        self._orchestrator = orchestrator
        self._places = places

    def commit(self, index: str | None) -> HookJudgement:
        """Judge what the index would commit; ``index`` is the one that git names, if it does."""
        active = self._active()
        repository = self._orchestrator.repository
        variables = {"GIT_INDEX_FILE": str(repository.top / index)} if index else {}
        diff = commits.diff_index(repository, variables)
        head = repository.resolve("HEAD")
        change = _Change(
            diff,
            commits.read_contents(repository, diff),
            commits.index_paths(repository, variables),
            repository.gitlinks(head),
        )
        return self._judge_changes(active, {one.run_id: [change] for one in active})

    def push(self, remote: str, lines: str) -> HookJudgement | None:
        """Judge the commits that a remote does not have yet; ``None``: nothing is pushed."""
        pushed = _parse_push(lines)
        if not pushed:
            return None
        active = self._active()
        repository = self._orchestrator.repository
        known = self._commits_of_remote(remote, [old for _, old in pushed])
        changes: dict[str, list[_Change]] = {one.run_id: [] for one in active}
        for one in active:
            bases = [*known, one.baseline]
            tips = [repository.resolve(tip) for tip, _ in pushed if tip != _NOTHING]
            new = (commits.new_commits(repository, tip, bases) for tip in tips)
            found = list(dict.fromkeys(chain.from_iterable(new)))
            if len(found) > commits.MAX_COMMITS:
                raise DeniedError(
                    f"more than {commits.MAX_COMMITS} commits would be pushed at once",
                    rule="hooks.many",
                )
            for commit in found:
                diff = commits.diff_commit(repository, commit)
                contents = commits.read_contents(repository, diff)
                tree, links = repository.files(commit), repository.gitlinks(commit)
                changes[one.run_id].append(_Change(diff, contents, tree, links))
        return self._judge_changes(active, changes)

    def _commits_of_remote(self, remote: str, old: list[str]) -> list[str]:
        """The commits that the remote is known to have."""
        repository = self._orchestrator.repository
        known = [commit for commit in old if commit != _NOTHING]
        if remote and re.fullmatch(r"[A-Za-z0-9._-]+", remote):
            listing = repository.git.run(
                "for-each-ref", "--format=%(objectname)", f"refs/remotes/{remote}/"
            )
            known += listing.decode("ascii").split()
        there = []
        for commit in dict.fromkeys(known):
            with suppress(UsageError):  # the remote has it, and we do not
                there.append(repository.resolve(commit))
        return there

    def _judge_changes(
        self, active: list[Active], changes: Mapping[str, list[_Change]]
    ) -> HookJudgement:
        against: dict[str, tuple[Violation, ...]] = {}
        for one in active:
            scope, all_changes = self._scope(one.contract), changes[one.run_id]
            found = [each for change in all_changes for each in self._violations(change, scope)]
            if not found:
                return HookJudgement(one.run_id, against)
            against[one.run_id] = tuple(dict.fromkeys(found))
        return HookJudgement("", against)

    def _violations(self, change: _Change, scope: Scope) -> tuple[Violation, ...]:
        contents, redact = change.contents, self._orchestrator.settings.redactor.redact
        observed = diff_gate.Observed(
            binary=binary_among({*contents.old, *contents.new}, contents.old, contents.new)
            | contents.large,
            secrets=frozenset(
                path
                for path, data in contents.new.items()
                # A known secret stands on more lines than before.
                if data and _lines(redact, data) > _lines(redact, contents.old.get(path) or b"")
            ),
            ignored=frozenset(),
            modes={},
            tree=change.tree,
            submodules=change.submodules,
        )
        return diff_gate.judge_diff(change.diff, scope=scope, observed=observed).violations

    def _scope(self, contract: TaskContract) -> Scope:
        places = self._orchestrator.places
        inside = places.runtime.is_relative_to(places.repository)
        read_only = contract.tool_permissions.filesystem == "read-only"
        return Scope(
            allowed_paths=contract.allowed_paths,
            binary_paths=contract.binary_paths or (),
            runtime_root=places.runtime.relative_to(places.repository).as_posix() if inside else "",
            control=self._orchestrator.control_paths,
            # A planner writes nothing itself; the contracts that it makes do.
            read_only=read_only and contract.assigned_agent.role not in PLANNERS,
        )

    def _active(self) -> list[Active]:
        """All active contracts; none, or one that is not valid, is a refusal."""
        found = [
            self._read(places, run_id, path)
            for places in self._places
            for run_id, path in _contracts(places)
        ]
        if not found:
            raise DeniedError(
                "there is no active contract, so nothing says what may be committed or pushed",
                rule="hooks.contract",
                hint="let a run do it (coilclaw run CONTRACT.json --merge), or go past the hook "
                "with --no-verify, or install hooks that are not strict: "
                "coilclaw hooks uninstall && coilclaw hooks install",
            )
        return found

    def _read(self, places: RunPlaces, run_id: str, path: Path) -> Active:
        with path.open("rb") as file:
            data = file.read(MAX_CONTRACT_BYTES + 1)
        seen = ContractChecks(self._orchestrator).check(data)
        if seen.contract is None or seen.problems:
            listed = "; ".join(str(each) for each in seen.problems[:5])
            raise UsageError(
                f"the active contract of run {run_id} is not valid: {listed}",
                rule="hooks.invalid",
                hint="end the run, or take the hook away: coilclaw hooks uninstall",
            )
        return Active(run_id, seen.contract, self._baseline(places, run_id, seen.contract))

    def _baseline(self, places: RunPlaces, run_id: str, contract: TaskContract) -> str:
        """Where the run began, by its own record: a name such as HEAD has moved since."""
        place = places.bundle(run_id) / layout.GIT_BASELINE
        if place.is_file() and not place.is_symlink():
            text = place.read_text("ascii", "replace").strip()
            if COMMIT_ID.fullmatch(text):
                return text
        named = contract.rollback.baseline_ref
        if COMMIT_ID.fullmatch(named):
            return named
        raise UsageError(
            f"run {run_id} does not say which commit it began from", rule="hooks.baseline"
        )


def find_hook_places(
    start: Path, environ: Mapping[str, str], *, strict: bool
) -> tuple[RunPlaces, ...] | None:
    """Return where contracts may be active; ``None`` where none is, so that nothing is refused.

    The question is settled before anything else is read, so that a person's commit depends neither
    on a configuration nor on there being a first commit.
    """
    repository = Repository.open(start, unborn=True)
    # Runs may also have been started from the main worktree.
    tops = [repository.top]
    if repository.common_dir.name == ".git":
        tops.append(repository.common_dir.parent)
    known = (find_run_places(top, environ) for top in tops)
    places = tuple({each.runtime: each for each in known}.values())
    # A worktree that was made for a task, wherever the runtime root of its run lies.
    run = repository.top.parent
    of_run = any(repository.top.is_relative_to(each.worktrees) for each in places) or (
        run.parent.name == "worktrees" and _RUN.fullmatch(run.name) is not None
    )
    if not (strict or of_run or any(True for each in places for _ in _contracts(each))):
        return None
    return places


def _contracts(places: RunPlaces) -> Iterator[tuple[str, Path]]:
    """The active contracts below one runtime root; a run that is sealed or gone has none."""
    folder = places.runtime / "active"
    try:
        names = sorted(os.listdir(folder))[:MAX_ACTIVE]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        path = folder / name / layout.CONTRACT
        if not path.is_file() or path.is_symlink():
            continue
        bundle = places.bundle(check_run_id(name))
        if bundle.is_dir() and sealed_manifest(bundle) is None:
            yield name, path


def _parse_push(lines: str) -> list[tuple[str, str]]:
    """What git tells a pre-push hook: the commits that go, and those that are replaced."""
    if len(lines) > MAX_PUSH_BYTES:
        raise UsageError("git names too many refs at once", rule="hooks.refs")
    found = []
    for line in lines.splitlines():
        if not line.strip():
            continue
        match = _PUSHED.fullmatch(line)
        if match is None:
            raise UsageError(f"{line[:200]!r} is not a line of a push", rule="hooks.refs")
        found.append((match[2], match[4]))
    return found


def _lines(redact: Callable[[str], str], data: bytes) -> int:
    text = data.decode("utf-8", "replace")
    if redact(text) == text:
        return 0
    return sum(1 for line in text.splitlines() if redact(line) != line) or 1
