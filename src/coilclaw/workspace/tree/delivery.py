"""Delivery: an answer of a model, a tree and a policy → what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.changes import (
    Answer,
    AnswerLimits,
    AnswerOptions,
    ChangeSet,
    NoChanges,
    PathState,
    Plan,
    Refusal,
    planner,
)
from coilclaw.kernel import (
    PathRefused,
    PlanRefused,
    RegularFile,
    Symlink,
    TreePath,
    combine,
    quote_text,
)
from coilclaw.policy import (
    DEFAULT_POLICY,
    KEY_FILES,
    USUAL,
    ProtectedPolicy,
    ProtectedRule,
    glob_of_path,
)
from coilclaw.workspace.tree import recovery
from coilclaw.workspace.tree.writer import Purpose, Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from pathlib import Path

    from coilclaw.kernel import CoilClawError, Verdict
    from coilclaw.workspace.tree.changelog import Change
    from coilclaw.workspace.tree.root import Root
    from coilclaw.workspace.tree.state import TreeState

_KEYS: Final = ProtectedRule.of("key", "holds a key", *KEY_FILES)


@dataclass(frozen=True, slots=True)
class DeliveryTerms:
    """What the caller permits, and what for."""

    policy: ProtectedPolicy = DEFAULT_POLICY
    options: AnswerOptions = field(default_factory=AnswerOptions)
    limits: AnswerLimits = field(default_factory=AnswerLimits)
    purpose: Purpose = field(default_factory=lambda: Purpose("apply"))
    dry_run: bool = False
    ignore_root: Path | None = None
    """More ``.gitignore`` files that count, as they were at another time."""
    redact: Callable[[str], str] = str
    """Takes keys out of what an error quotes."""


@dataclass(frozen=True, slots=True)
class PathDenial:
    """One path that policy denies, and where the answer names it."""

    path: str
    line: int | None
    verdict: Verdict

    def as_error(self) -> PathRefused:
        """Return the denial as an error among others."""
        verdict = self.verdict
        return PathRefused(
            f"denied: {verdict.reason}", path=self.path, rule=verdict.rule, line=self.line
        )


@dataclass(frozen=True, slots=True)
class Denied:
    """Policy denies at least one path, so nothing was done."""

    denials: tuple[PathDenial, ...]
    failures: tuple[CoilClawError, ...] = ()
    """What is wrong with the other parts of the answer."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The plan, and the change it became; none for a dry run or when all was as asked already."""

    plan: Plan
    change: Change | None


Delivery: TypeAlias = Delivered | Denied | Refusal | NoChanges


def deliver_answer(
    root: Root,
    state: TreeState,
    answer: Answer,
    terms: DeliveryTerms,
    failures: Sequence[CoilClawError] = (),
) -> Delivery:
    """Apply an answer whole, or say why not; a malformed or unfitting one raises.

    ``failures`` are parts of the answer that could not be read: then nothing is applied, and they
    are raised together with what is wrong with the other parts.
    """
    recovery.repair_tree(root, state)
    if not isinstance(answer, ChangeSet):
        if failures:
            raise combine(failures)
        return answer
    plan, denials, failed = _examine(root, state, answer, terms)
    if failures:
        raise combine((*failures, *(denial.as_error() for denial in denials), *failed))
    if denials:
        return Denied(denials, tuple(failed))
    if failed:
        raise combine(failed)
    if terms.dry_run or not plan.changes:
        return Delivered(plan, None)
    return Delivered(plan, Writer(root, state).apply(plan, terms.purpose))


def _examine(
    root: Root, state: TreeState, answer: ChangeSet, terms: DeliveryTerms
) -> tuple[Plan, tuple[PathDenial, ...], list[CoilClawError]]:
    """Plan what may be and can be done, and say what else the answer asks for.

    Nothing that policy denies is looked at.
    """
    policy = terms.policy
    home = state.home.resolve()
    if home.is_relative_to(state.tree) and home != state.tree:
        # Our home may lie inside the tree; then it is protected like the rest of our state.
        inside = glob_of_path(home.relative_to(state.tree).as_posix())
        own = ProtectedRule.of("protected.state", "is state of CoilClaw", inside)
        policy = policy.with_rules(own)
    lines = planner.name_lines(answer)
    named = _denials(policy, ((path, line, path) for path, line in lines.items()), frozenset())
    denied = {denial.path for denial in named}
    seen, failed = _sight_all(
        root,
        {path: line for path, line in lines.items() if str(path) not in denied},
        planner.removed_paths(answer),
        terms.limits,
    )
    places = [
        (path, lines[path], place)
        for path, sighting in seen.items()
        for place in dict.fromkeys((sighting.own, sighting.real))
    ]
    ignored: frozenset[str] = frozenset()
    if policy.ignored_too:
        ignored = _find_ignored(root, state, terms, [str(place) for _, _, place in places])
    reached = _denials(policy, places, ignored)
    denied |= {denial.path for denial in reached}
    usable = {path for path in seen if str(path) not in denied}
    plan = Plan(())
    try:
        fitting = tuple(
            operation
            for operation in answer.operations
            if planner.name_lines(ChangeSet((operation,))).keys() <= usable
        )
        plan = planner.plan_changes(
            ChangeSet(fitting), seen, options=terms.options, limits=terms.limits
        )
        _check_plan(root, plan)
    except (PlanRefused, PathRefused) as problem:
        failed += problem.failures or (problem,)
    if failed:
        groups = [(path, sighting.own, sighting.real) for path, sighting in seen.items()]
        secret = {
            str(place)
            for places in groups
            if any(_KEYS.covers(place) or USUAL.holds(place.name) for place in places)
            for place in places
        }
        for part in failed:
            _redact_error(part, secret, terms.redact)
    return plan, (*named, *reached), failed


def _redact_error(
    problem: CoilClawError, secret: Container[str], redact: Callable[[str], str]
) -> None:
    """Remove what may be a secret from an error: keys, and all contents of a secret file."""
    if isinstance(problem, PlanRefused):
        if problem.path in secret:
            problem.nearest, problem.hint = (), None
        problem.nearest = tuple(replace(line, text=redact(line.text)) for line in problem.nearest)
    problem.message = redact(problem.message)
    problem.hint = None if problem.hint is None else redact(problem.hint)


def _sight_all(
    root: Root,
    lines: Mapping[TreePath, int | None],
    removed: frozenset[TreePath],
    limits: AnswerLimits,
) -> tuple[dict[TreePath, PathState], list[CoilClawError]]:
    """Look every path up, and say what is wrong with those that cannot be."""
    seen: dict[TreePath, PathState] = {}
    failed: list[CoilClawError] = []
    for path, line in lines.items():
        try:
            below = _sight_below_removed(root, path, removed, limits) if removed else None
            seen[path] = below or root.sight(path, limit=limits.file_bytes)
        except (PathRefused, PlanRefused) as refused:
            refused.line = line
            failed.append(refused)
    return seen, failed


def _sight_below_removed(
    root: Root, path: TreePath, removed: frozenset[TreePath], limits: AnswerLimits
) -> PathState | None:
    """Return the state of a path below a file or link that the answer removes: nothing exists."""
    for depth in range(1, len(path.parts)):
        above = TreePath(path.parts[:depth])
        if above in removed:
            found = root.sight(above, limit=limits.file_bytes)
            if isinstance(found.own_found, RegularFile | Symlink):
                place = TreePath((*found.own.parts, *path.parts[depth:]))
                return PathState(place, None, place, None)
    return None


def _check_plan(root: Root, plan: Plan) -> None:
    """Refuse a link that leaves the tree, and a file where a directory would not become empty."""
    gone = frozenset(change.path.parts for change in plan.changes if change.after is None)
    crowded: list[PlanRefused] = []
    for change in plan.changes:
        if isinstance(change.after, Symlink):
            # It must end inside the tree, also by way of links that are there already.
            parts = list(change.path.parents)
            for name in change.after.target.decode("utf-8").split("/"):
                if name == "..":
                    parts.pop()
                elif name not in {"", "."}:
                    parts.append(name)
            root.sight(TreePath.parse("/".join(parts)))
        # A directory makes room for a file only if the plan takes everything out of it.
        if not gone or change.after is None or change.before is not None:
            continue
        left = root.first_left(change.path, gone)
        if left is not None:
            what = "is a directory that holds more than the answer removes"
            crowded.append(
                PlanRefused(
                    f"'{change.path}' {what}: {quote_text('/'.join(left))}",
                    rule="plan.obstacle",
                    path=str(change.path),
                )
            )
    if crowded:
        raise combine(crowded)


def _denials(
    policy: ProtectedPolicy,
    places: Iterable[tuple[TreePath, int | None, TreePath]],
    ignored: frozenset[str],
) -> tuple[PathDenial, ...]:
    judged = (
        PathDenial(str(path), line, policy.judge(place, ignored=str(place) in ignored))
        for path, line, place in places
    )
    return tuple(denial for denial in judged if denial.verdict.denied)


def _find_ignored(
    root: Root, state: TreeState, terms: DeliveryTerms, names: Sequence[str]
) -> frozenset[str]:
    from coilclaw.workspace.git.client import Git

    state.create()
    git = Git(state.git)
    ignored = git.find_ignored(root.path, names)
    if terms.ignore_root is not None:
        ignored |= git.find_ignored(terms.ignore_root, names)
    return ignored
