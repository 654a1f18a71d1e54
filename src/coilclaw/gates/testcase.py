"""``Case`` and ``Source``: what a test demands, whatever language it is written in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Case:
    """One test. Only what can be reached and can fail is counted."""

    name: str
    assertions: tuple[str, ...] = ()
    """Each demand in a form that does not change with its place."""
    weight: int = 0
    """How many demands there are, with every row of parameters counted."""
    exact: int = 0
    """How many of them ask for equality or identity."""
    trivial: int = 0
    """Demands that can never fail."""
    skips: tuple[str, ...] = ()
    """Marks that keep it from running, or its failure from counting."""
    text: str = field(default="", compare=False)
    """The whole of it, for telling whether it changed at all."""
    ground: str = field(default="", compare=False)
    """All but its name, with what it stands on; empty if it cannot be known again by that."""
    loose: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """What the file does on its own, and may do to each test of it."""


@dataclass(frozen=True, slots=True)
class Source:
    """All tests of one file."""

    cases: tuple[Case, ...] = ()
    marks: tuple[str, ...] = ()
    """What keeps more than one test of the file from running."""
    exits: int = 0
    """Calls that end the test process."""
    hooks: tuple[str, ...] = ()
    """Hooks into the collection or the outcome of tests, with their content."""
    tree: ast.Module | None = field(default=None, compare=False, repr=False)
    """The syntax tree, where there is one: then all but additions to a test is a change."""

    def by_name(self) -> dict[str, Case]:
        """Cases by name; the second of the same name in a file has ``#2`` after it."""
        counts: Counter[str] = Counter()
        found = {}
        for case in self.cases:
            counts[case.name] += 1
            number = counts[case.name]
            found[case.name if number == 1 else f"{case.name}#{number}"] = case
        return found


def losses(old: Case, new: Case) -> Iterator[tuple[str, str]]:
    """Say what a test lost: the rule and what happened."""
    for mark in sorted((Counter(new.skips) - Counter(old.skips)).elements()):
        yield "tests.skipped", f"is kept from running or failing by {mark}"
    if new.weight < old.weight:
        yield "tests.fewer_assertions", f"makes {new.weight} assertions and made {old.weight}"
    elif new.exact < old.exact:
        yield "tests.loosened", f"asks for {new.exact} exact results and asked for {old.exact}"
    if new.trivial > old.trivial:
        yield (
            "tests.trivial",
            f"has {new.trivial} assertions that cannot fail, and had {old.trivial}",
        )


def keeps(old: Case, new: Case) -> bool:
    """Whether one test makes all the demands of another, under any name."""
    if old.ground or new.ground:
        return old.ground == new.ground != "unknown" and new.loose <= old.loose
    same = not Counter(old.assertions) - Counter(new.assertions)
    return same and bool(old.assertions) and not [*losses(old, new)]
