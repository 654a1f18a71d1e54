"""Delivery: an answer of a model, a tree and a policy → what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from coilclaw.changes import planner
from coilclaw.changes.operations import Answer, ChangeSet, Limits, NoChanges, Options, Refusal
from coilclaw.security.globs import literal
from coilclaw.security.protected import DEFAULT_POLICY, ProtectedPolicy, ProtectedRule
from coilclaw.workspace import recovery
from coilclaw.workspace.writer import Purpose, Writer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.changes.plan import Plan
    from coilclaw.changes.sighting import Sighting
    from coilclaw.domain.treepath import TreePath
    from coilclaw.domain.verdict import Verdict
    from coilclaw.workspace.changefile import Change
    from coilclaw.workspace.resolve import Root
    from coilclaw.workspace.state import TreeState


@dataclass(frozen=True, slots=True)
class Terms:
    """What the caller permits, and what for."""

    policy: ProtectedPolicy = DEFAULT_POLICY
    options: Options = field(default_factory=Options)
    limits: Limits = field(default_factory=Limits)
    purpose: Purpose = field(default_factory=lambda: Purpose("apply"))
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Denied:
    """Policy denies at least one path, so nothing was done."""

    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class Delivered:
    """The plan, and the change it became; none for a dry run or when all was as asked already."""

    plan: Plan
    change: Change | None


Delivery: TypeAlias = Delivered | Denied | Refusal | NoChanges


def deliver(root: Root, state: TreeState, answer: Answer, terms: Terms) -> Delivery:
    """Apply an answer whole, or say why not; a malformed or unfitting one raises."""
    recovery.repair(root, state)
    if not isinstance(answer, ChangeSet):
        return answer
    policy = terms.policy.with_rules(*_own_state(state))
    named = planner.paths_of(answer)
    denials = _denials(policy, named, frozenset())
    if denials:
        return Denied(denials)
    seen = {path: root.sight(path, limit=terms.limits.file_bytes) for path in named}
    places = _places(seen.values())
    denials = _denials(policy, places, _ignored(policy, root, state, places))
    if denials:
        return Denied(denials)
    plan = planner.plan(answer, seen, options=terms.options, limits=terms.limits)
    if terms.dry_run or plan.empty:
        return Delivered(plan, None)
    return Delivered(plan, Writer(root, state).apply(plan, terms.purpose))


def _own_state(state: TreeState) -> tuple[ProtectedRule, ...]:
    """Our home may lie inside the tree; then it is protected like the rest of our state."""
    home = state.home.resolve()
    if not home.is_relative_to(state.tree) or home == state.tree:
        return ()
    inside = home.relative_to(state.tree).as_posix()
    return (ProtectedRule.of("protected.state", "is state of CoilClaw", literal(inside)),)


def _places(seen: Iterable[Sighting]) -> tuple[TreePath, ...]:
    places: dict[TreePath, None] = {}
    for sighting in seen:
        places[sighting.own] = None
        places[sighting.real] = None
    return tuple(places)


def _denials(
    policy: ProtectedPolicy, paths: Iterable[TreePath], ignored: frozenset[str]
) -> tuple[Verdict, ...]:
    verdicts = (policy.judge(path, ignored=str(path) in ignored) for path in paths)
    return tuple(verdict for verdict in verdicts if verdict.denied)


def _ignored(
    policy: ProtectedPolicy, root: Root, state: TreeState, places: tuple[TreePath, ...]
) -> frozenset[str]:
    if not policy.ignored_too:
        return frozenset()
    from coilclaw.workspace.git import Git

    state.create()
    return Git(state.git).ignored(root.path, [str(path) for path in places])
