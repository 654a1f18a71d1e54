"""What a gate is asked, ``ContractCase``, and what it answers, ``GateResult``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import quote_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from coilclaw.kernel import Json
    from coilclaw.runs.contracts.policy_set import PolicySet
    from coilclaw.runs.contracts.task_contract import TaskContract


GateName: TypeAlias = str
"""One of ``GATES``."""
MAX_NAMES: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:-]{0,199}")


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is not as it must be."""

    rule: str
    """Dotted and stable, such as ``diff.out_of_scope``."""
    message: str
    """What, where, and what is allowed."""
    path: str = ""
    """The path in the tree, or the key in the contract, where there is one."""

    def __str__(self) -> str:
        return f"{self.rule}: {self.message}"


@dataclass(frozen=True, slots=True)
class GateResult:
    """The answer of one gate; it passed exactly when nothing violates it."""

    gate: GateName
    violations: tuple[Violation, ...] = ()
    facts: Mapping[str, Json] = field(default_factory=dict)
    """What was looked at, for the event: integers, texts, booleans and lists of them."""

    @property
    def passed(self) -> bool:
        return not self.violations


@dataclass(frozen=True, slots=True)
class ContractCase:
    """A contract, and everything that its gates look at beside it."""

    contract: TaskContract
    policies: PolicySet
    """Under the pack that judges."""
    approved: Collection[str]
    """The kinds of approvals that a person gave."""
    directories: Collection[str]
    """The directories of the baseline that are too much for one task without an override."""
    runners: tuple[str, ...]
    """The kinds of agents that take part."""
    commands: tuple[GateResult, ...]
    """What the command gate says of each command of the set-up and each acceptance test."""
    is_part: bool
    """Whether the contract lies within one that was approved as a whole."""


def find_malformed_names(rule: str, key: str, names: Sequence[object]) -> Iterator[Violation]:
    """Yield what is wrong with a list of names; a plain string is not a list."""
    if isinstance(names, str) or len(names) > MAX_NAMES:
        yield Violation(rule, f"{key} is not a list of at most {MAX_NAMES} names", key)
        return
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield Violation(rule, f"{key} holds {quote_text(str(name))}, which is not a name", key)
