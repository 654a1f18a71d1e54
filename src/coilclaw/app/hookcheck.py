"""What a hook asks: does an active contract allow what would be committed or pushed?

A contract is active from the moment a run has accepted it until that run is sealed: while the run
works, while it waits for an approval, and after a kill until it is resumed or abandoned. While none
is, a person commits and pushes as in any repository, unless the hooks are strict. In a worktree of
a run nothing is committed without one.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.app.contractchecks import Checks
from coilclaw.contracts.roles import PLANNERS
from coilclaw.errors import DeniedError, UsageError
from coilclaw.gates import diff as diff_gate
from coilclaw.gates.binary import binary_among
from coilclaw.gates.scope import Scope
from coilclaw.orchestrator import layout
from coilclaw.orchestrator.bundle import sealed_manifest
from coilclaw.orchestrator.places import checked
from coilclaw.workspace import commits
from coilclaw.workspace.repository import COMMIT_ID, Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

    from coilclaw.app.runwiring import Orchestrator
    from coilclaw.contracts.taskcontract import TaskContract
    from coilclaw.domain.treediff import TreeDiff
    from coilclaw.gates.result import Violation
    from coilclaw.orchestrator.places import Places

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
    path: Path
    contract: TaskContract
    baseline: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the contracts say; it is allowed if one of them has nothing against it."""

    allowed_by: str
    """The run whose contract allows it; empty where none does."""
    violations: Mapping[str, tuple[Violation, ...]]
    """What each contract that was asked has against it, by run."""

    @property
    def allowed(self) -> bool:
        return bool(self.allowed_by)


@dataclass(frozen=True, slots=True)
class _Change:
    """Something that would be committed or pushed."""

    diff: TreeDiff
    contents: commits.Contents
    tree: Collection[str]
    submodules: Collection[str]


class HookCheck:
    """Asks the active contracts of a repository."""

    def __init__(self, orchestrator: Orchestrator, places: tuple[Places, ...]) -> None:
        self._orchestrator = orchestrator
        self._places = places

    def commit(self, index: str | None) -> Judgement:
        """Judge what the index would commit; ``index`` is the one that git names, if it does."""
        active = self._active()
        repository = self._orchestrator.repository
        variables: dict[str, str] = {}
        if index:
            variables["GIT_INDEX_FILE"] = str(repository.top / index)
        diff = commits.staged(repository, variables)
        head = repository.resolve("HEAD")
        change = _Change(
            diff,
            commits.contents(repository, diff),
            commits.index_paths(repository, variables),
            repository.gitlinks(head),
        )
        return self._judged(active, {one.run_id: [change] for one in active})

    def push(self, remote: str, lines: str) -> Judgement | None:
        """Judge the commits that a remote does not have yet; ``None``: nothing is pushed."""
        pushed = _pushed(lines)
        if not pushed:
            return None
        active = self._active()
        repository = self._orchestrator.repository
        known = self._known(remote, [old for _, old in pushed])
        changes: dict[str, list[_Change]] = {}
        for one in active:
            found: dict[str, None] = {}
            for tip, _ in pushed:
                if tip != _NOTHING:
                    new = commits.new_commits(
                        repository, repository.resolve(tip), [*known, one.baseline]
                    )
                    found.update(dict.fromkeys(new))
            if len(found) > commits.MAX_COMMITS:
                raise DeniedError(
                    f"more than {commits.MAX_COMMITS} commits would be pushed at once",
                    rule="hooks.many",
                )
            changes[one.run_id] = [self._committed(commit) for commit in found]
        return self._judged(active, changes)

    def _committed(self, commit: str) -> _Change:
        repository = self._orchestrator.repository
        diff = commits.committed(repository, commit)
        contents = commits.contents(repository, diff)
        return _Change(diff, contents, repository.files(commit), repository.gitlinks(commit))

    def _known(self, remote: str, old: list[str]) -> list[str]:
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
            try:
                there.append(repository.resolve(commit))
            except UsageError:
                continue  # the remote has it, and we do not
        return there

    def _judged(self, active: list[Active], changes: Mapping[str, list[_Change]]) -> Judgement:
        against: dict[str, tuple[Violation, ...]] = {}
        for one in active:
            scope = self._scope(one.contract)
            found = [
                violation
                for change in changes[one.run_id]
                for violation in self._violations(change, scope)
            ]
            if not found:
                return Judgement(one.run_id, against)
            against[one.run_id] = tuple(dict.fromkeys(found))
        return Judgement("", against)

    def _violations(self, change: _Change, scope: Scope) -> tuple[Violation, ...]:
        contents, redact = change.contents, self._orchestrator.redactor.redact
        observed = diff_gate.Observed(
            binary=binary_among({*contents.old, *contents.new}, contents.old, contents.new)
            | contents.large,
            secrets=frozenset(
                path
                for path, data in contents.new.items()
                if data and _holds(redact, data, contents.old.get(path))
            ),
            ignored=frozenset(),
            modes={},
            tree=change.tree,
            submodules=change.submodules,
        )
        return diff_gate.judge(change.diff, scope=scope, observed=observed).violations

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

    def _read(self, places: Places, run_id: str, path: Path) -> Active:
        with path.open("rb") as file:
            data = file.read(MAX_CONTRACT_BYTES + 1)
        seen = Checks(self._orchestrator).check(data)
        if seen.contract is None or seen.problems:
            listed = "; ".join(str(each) for each in seen.problems[:5])
            raise UsageError(
                f"the active contract of run {run_id} is not valid: {listed}",
                rule="hooks.invalid",
                hint="end the run, or take the hook away: coilclaw hooks uninstall",
            )
        return Active(run_id, path, seen.contract, self._baseline(places, run_id, seen.contract))

    def _baseline(self, places: Places, run_id: str, contract: TaskContract) -> str:
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


def open_check(
    start: Path, home: Path, environ: Mapping[str, str], *, strict: bool
) -> HookCheck | None:
    """Make the check for a worktree; ``None`` where nothing is active and nothing is refused.

    The question is settled before anything else is read, so that a person's commit depends neither
    on a configuration nor on there being a first commit.
    """
    from coilclaw.app.runwiring import Orchestrator

    repository = Repository.open(start, unborn=True)
    places = _all_places(repository, environ)
    held = strict or _is_of_run(repository.top, places)
    if not held and not any(True for each in places for _ in _contracts(each)):
        return None
    return HookCheck(Orchestrator(start, home, environ), places)


def _all_places(repository: Repository, environ: Mapping[str, str]) -> tuple[Places, ...]:
    """Where contracts may be active: runs may also have been started from the main worktree."""
    from coilclaw.app.runwiring import places_of

    places = [places_of(repository.top, environ)]
    main = repository.common_dir.parent
    if repository.common_dir.name == ".git" and main != repository.top:
        places.append(places_of(main, environ))
    return tuple({each.runtime: each for each in places}.values())


def _is_of_run(top: Path, places: tuple[Places, ...]) -> bool:
    """Whether a worktree was made for a task, wherever the runtime root of its run lies."""
    if any(top.is_relative_to(each.worktrees) for each in places):
        return True
    run = top.parent
    return run.parent.name == "worktrees" and _RUN.fullmatch(run.name) is not None


def _contracts(places: Places) -> Iterator[tuple[str, Path]]:
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
        bundle = places.bundle(checked(name))
        if bundle.is_dir() and sealed_manifest(bundle) is None:
            yield name, path


def _pushed(lines: str) -> list[tuple[str, str]]:
    """What git tells a pre-push hook: the commits that go, and those that are replaced."""
    if len(lines) > MAX_PUSH_BYTES:
        raise UsageError("git names too many refs at once", rule="hooks.refs")
    found = []
    for line in lines.splitlines():
        if not line.strip():
            continue
        match = _PUSHED.fullmatch(line)
        if match is None:
            raise UsageError(f"{line[:200]!r} is no line of a push", rule="hooks.refs")
        found.append((match[2], match[4]))
    return found


def _holds(redact: Callable[[str], str], data: bytes, before: bytes | None) -> bool:
    """Whether contents hold a known secret on more lines than before."""
    return _lines(redact, data) > _lines(redact, before or b"")


def _lines(redact: Callable[[str], str], data: bytes) -> int:
    text = data.decode("utf-8", "replace")
    if redact(text) == text:
        return 0
    return sum(1 for line in text.splitlines() if redact(line) != line) or 1
