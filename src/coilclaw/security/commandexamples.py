"""Try the examples of a policy file, in a workspace that exists only in name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.domain.effects import Place, Runs
from coilclaw.security.commandclass import CONTAINED_RULE
from coilclaw.security.commandrules import ExampleResult
from coilclaw.security.commands import judge_command
from coilclaw.security.settings import SecuritySettings

if TYPE_CHECKING:
    from coilclaw.security.commandrules import CommandRules

WORKSPACE: Final = "/workspace"


def try_examples(rules: CommandRules) -> tuple[ExampleResult, ...]:
    """Judge every example; it holds when the rule is the one that decides, or is not."""
    plain = SecuritySettings(WORKSPACE, rules, forbidden_commands=())
    results = []
    for examples in rules.rules.examples:
        settings = replace(plain, contained=examples.rule == CONTAINED_RULE)
        for expected, commands in ((True, examples.match), (False, examples.no_match)):
            for command in commands:
                found = judge_command(Runs(command=command), settings, locate)
                deciding = {each.rule for each in found.segments if each.risk is found.risk}
                holds = (examples.rule in deciding) is expected and (
                    examples.rule == found.rule or not found.forbidden or not expected
                )
                results.append(ExampleResult(examples.rule, command, expected, found.rule, holds))
    return tuple(results)


def locate(path: str) -> Place:
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
