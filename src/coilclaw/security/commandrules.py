"""The policy file: which commands are harmless, which are allowed, which are denied.

Every rule carries examples, and a file loads only when all of them hold. A file that is broken
anywhere does not load at all, so that half of it never permits what the other half would deny.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError
from coilclaw.security.secret_files import USUAL, SecretFiles

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from coilclaw.security.commandrule import Rule
    from coilclaw.security.denyrule import DenyRule

MAX_FILE: Final = 2**20
MAX_PROBLEMS: Final = 50
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


@dataclass(frozen=True, slots=True)
class Examples:
    """The commands that a rule must match and must not."""

    rule: str
    match: tuple[str, ...]
    no_match: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """One example with what was expected of it and what came."""

    rule: str
    example: str
    expected: bool
    """Whether the rule must match."""
    came: str
    """The rule that the judge named."""
    holds: bool


@dataclass(frozen=True, slots=True)
class RuleSet:
    """The rules of a file; the tables are looked up by the program's name."""

    harmless: Mapping[str, tuple[Rule, ...]]
    allow: Mapping[str, tuple[Rule, ...]]
    deny: tuple[DenyRule, ...]
    examples: tuple[Examples, ...]
    contained: bool = False
    """Whether the file holds the rule ``allow.contained``."""
    secrets: SecretFiles = USUAL


@dataclass(frozen=True, slots=True, eq=False)
class CommandRules:
    """The rules of one policy file. Those of the shipped file are read when first asked for."""

    digest: str
    """SHA-256 of the file's text."""
    _text: str = field(repr=False)
    _parsed: list[RuleSet] = field(default_factory=list, repr=False)

    @property
    def rules(self) -> RuleSet:
        if not self._parsed:
            self._parsed.append(_parse(self._text))
        return self._parsed[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CommandRules) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def default_text() -> str:
    """Return the policy file that ships."""
    from pkgutil import get_data

    data = get_data(__name__, "policy.toml")
    assert data is not None
    return data.decode("utf-8")


def load(text: str) -> CommandRules:
    """Read a policy file; ``UsageError`` lists everything that is wrong with it.

    The shipped file is checked where it is made, by the tests, and not again at every start.
    """
    rules = CommandRules(sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), text)
    if text == default_text():
        return rules
    problems = [
        f"{result.rule}: the example {result.example!r} must "
        f"{'' if result.expected else 'not '}match, and came to {result.came}"
        for result in check(rules)
        if not result.holds
    ]
    if problems:
        raise _broken(problems, rule="policy.example")
    return rules


def check(rules: CommandRules) -> tuple[ExampleResult, ...]:
    """Try every example of every rule."""
    from coilclaw.security.commandexamples import try_examples

    return try_examples(rules)


def find_missing(rules: CommandRules) -> tuple[str, ...]:
    """Return the names of the shipped rules that a policy file does not have."""
    own = {each.rule for each in rules.rules.examples}
    return tuple(each.rule for each in _parse(default_text()).examples if each.rule not in own)


def check_entry(entry: str, *, forbidden: Collection[str] = ()) -> None:
    """Raise ``UsageError`` for an entry of ``allowed_commands`` that is none, or has no effect.

    ``forbidden`` are the forbidden commands, which no entry allows.
    """
    from coilclaw.security.policyfile import read_entry
    from coilclaw.security.simplecommand import is_forbidden
    from coilclaw.security.wrappers import runs_others

    (name, *more), *_ = read_entry(entry).commands
    problem = None
    if _PROGRAM.fullmatch(name) is None:
        problem = f"{name!r} is a pattern, and not the name of a program"
    elif runs_others(name, more[0] if more else None):
        problem = f"{name!r} runs other programs, which are judged one by one"
    elif is_forbidden(name, forbidden):
        problem = f"{name!r} is one of the forbidden commands"
    if problem is not None:
        raise UsageError(
            f"allowed_commands has the entry {entry!r}, which has no effect: {problem}",
            rule="policy.entry",
            hint="name the program itself that is to be allowed",
        )


def _parse(text: str) -> RuleSet:
    from coilclaw.security.policyfile import read_policy

    if len(text) > MAX_FILE:
        raise UsageError(f"the policy file is longer than {MAX_FILE} bytes", rule="policy.long")
    rules, problems = read_policy(text)
    if problems or rules is None:
        raise _broken(problems, rule="policy.file")
    return rules


def _broken(problems: list[str], *, rule: str) -> UsageError:
    shown = problems[:MAX_PROBLEMS]
    more = f"\n  and {len(problems) - len(shown)} more" if len(problems) > len(shown) else ""
    lines = "".join(f"\n  {problem}" for problem in shown)
    return UsageError(
        f"the policy file is broken, and nothing of it holds:{lines}{more}",
        rule=rule,
        hint="correct it, or move it away to use the shipped one",
    )
