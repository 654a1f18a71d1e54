"""The policy file: which commands are harmless, which are allowed, which are denied.

Every rule carries examples, and a file loads only when all of them hold. A file that is broken
anywhere does not load at all, so that half of it never permits what the other half would deny.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Place, Runs, UsageError
from coilclaw.policy.commands.command_class import CONTAINED_RULE
from coilclaw.policy.settings import SecuritySettings

if TYPE_CHECKING:
    from collections.abc import Collection

    from coilclaw.policy.commands.rule import ExampleResult, RuleSet

MAX_FILE: Final = 2**20
MAX_PROBLEMS: Final = 50
WORKSPACE: Final = "/workspace"
_PROGRAM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


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


def read_shipped_policy() -> str:
    """Return the policy file that ships."""
    from pkgutil import get_data

    data = get_data("coilclaw.policy", "policy.toml")
    assert data is not None
    return data.decode("utf-8")


def load_rules(text: str) -> CommandRules:
    """Read a policy file; ``UsageError`` lists everything that is wrong with it.

    The shipped file is checked where it is made, by the tests, and not again at every start.
    """
    rules = CommandRules(sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), text)
    if text == read_shipped_policy():
        return rules
    problems = [
        f"{result.rule}: the example {result.example!r} must "
        f"{'' if result.expected else 'not '}match, and came to {result.came}"
        for result in check_examples(rules)
        if not result.holds
    ]
    if problems:
        raise _broken(problems, rule="policy.example")
    return rules


def check_examples(rules: CommandRules) -> tuple[ExampleResult, ...]:
    """Judge every example; it holds when the rule is the one that decides, or is not.

    The workspace of the examples exists only in name.
    """
    from coilclaw.policy.commands.judge import judge_command
    from coilclaw.policy.commands.rule import ExampleResult

    plain = SecuritySettings(WORKSPACE, rules, forbidden_commands=())
    results = []
    for examples in rules.rules.examples:
        settings = replace(plain, contained=examples.rule == CONTAINED_RULE)
        for expected, commands in ((True, examples.match), (False, examples.no_match)):
            for command in commands:
                found = judge_command(Runs(command=command), settings, locate_by_text)
                deciding = {each.rule for each in found.segments if each.risk is found.risk}
                holds = (examples.rule in deciding) is expected and (
                    examples.rule == found.rule or not found.forbidden or not expected
                )
                results.append(ExampleResult(examples.rule, command, expected, found.rule, holds))
    return tuple(results)


def locate_by_text(path: str) -> Place:
    """Look a path up by its text alone."""
    whole = path if path.startswith("/") else f"{WORKSPACE}/{path}"
    names: list[str] = []
    for name in whole.split("/"):
        if name == "..":
            del names[-1:]
        elif name not in {"", "."}:
            names.append(name)
    lexical = "/" + "/".join(names)
    return Place(path, lexical, lexical, "directory" if path.endswith("/") else "file")


def find_missing(rules: CommandRules) -> tuple[str, ...]:
    """Return the names of the shipped rules that a policy file does not have."""
    own = {each.rule for each in rules.rules.examples}
    return tuple(
        each.rule for each in _parse(read_shipped_policy()).examples if each.rule not in own
    )


def check_entry(entry: str, *, forbidden: Collection[str] = ()) -> None:
    """Raise ``UsageError`` for an entry of ``allowed_commands`` that is none, or has no effect.

    ``forbidden`` are the forbidden commands, which no entry allows.
    """
    from coilclaw.policy.commands.policy_file import read_entry
    from coilclaw.policy.commands.simple_command import is_forbidden
    from coilclaw.policy.commands.wrappers import runs_others

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
    from coilclaw.policy.commands.policy_file import read_policy

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
        hint="correct it, or move it aside to use the shipped one",
    )
