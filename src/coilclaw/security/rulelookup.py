"""Find the rules for a program's words, and say what they make of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.security.commandclass import (
    Classed,
    CommandClass,
    allowed,
    forbidden,
    harmless,
    other,
    strictest,
)
from coilclaw.security.network_programs import beyond_workspace
from coilclaw.security.peeled import program_name
from coilclaw.security.wordpaths import check_mentions, check_real_mentions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from coilclaw.security.commandrule import Rule
    from coilclaw.security.shellscript import Word
    from coilclaw.security.wordpaths import Scene

_PYTHON: Final = re.compile(r"python3\.\d+")
_WITH_PATTERNS: Final = frozenset(
    {"sed", "grep", "egrep", "fgrep", "rg", "ag", "jq", "find", "tr", "expr", "echo", "printf"}
    | {"awk", "gawk", "mawk", "nawk"}
)
"""Programs whose words are often patterns or texts that only look like a path."""
_WITH_SUBCOMMANDS: Final = frozenset(
    {
        *("git", "docker", "podman", "npm", "yarn", "pnpm", "kubectl", "helm", "pip", "pip3"),
        *("cargo", "go", "conda", "apt", "apt-get", "brew", "dnf", "yum", "svn", "hg", "aws"),
        *("gcloud", "gsutil", "az", "rclone", "nerdctl", "systemctl", "uv", "poetry", "make"),
        *("gh", "glab", "jj", "terraform", "nix", "snap", "flatpak", "bazel", "nx", "dvc"),
    }
)


def judge_by_rules(words: Sequence[Word], scene: Scene) -> Classed:
    """Return the class of a program that runs no other, by the first rule that permits it."""
    name = rule_name(words[0].text or "")
    tried: list[Classed] = []
    for rule, rest in _candidates(name, words, scene):
        against = rule.check(rest, scene)
        if all(each.level <= CommandClass.ALLOWED for each in against):
            return strictest([_permits(rule), *against])
        tried += against
    beyond = [*_mentioned(name, words, scene), *beyond_workspace(words)]
    if tried:
        return strictest([*tried, *beyond])
    found = [other("command.other", f"no rule names {name!r}"), *beyond]
    return strictest([*found, *_names_forbidden(name, words, scene)])


def _mentioned(name: str, words: Sequence[Word], scene: Scene) -> list[Classed]:
    """What no rule permits may read and write every path in its words."""
    check = check_real_mentions if name in _WITH_PATTERNS else check_mentions
    return [each for word in words[1:] for each in check(word, scene)]


def rule_name(text: str) -> str:
    """Return the name by which rules know a program."""
    name = program_name(text)
    return "python3" if _PYTHON.fullmatch(name) else name


def _permits(rule: Rule) -> Classed:
    name = " ".join(rule.commands[0])
    if rule.cls == "harmless":
        return harmless(rule.id, rule.reason or f"{name} only reads, with these words")
    reason = rule.reason or f"{name} is on the list of allowed commands"
    return allowed(rule.id, reason, network=rule.network)


def _candidates(
    name: str, words: Sequence[Word], scene: Scene
) -> Iterator[tuple[Rule, Sequence[Word]]]:
    rules = scene.rules
    listed = tuple(rule for rule in scene.entries if rule.commands[0][0] == name)
    for rule in (*rules.harmless.get(name, ()), *rules.allow.get(name, ()), *listed):
        for command in rule.commands:
            following = words[1 : len(command)]
            if command[0] == name and command[1:] == tuple(word.text for word in following):
                yield rule, words[len(command) :]


def _names_forbidden(name: str, words: Sequence[Word], scene: Scene) -> Iterator[Classed]:
    """An unknown program may run what its words name."""
    if name in _WITH_SUBCOMMANDS:
        return
    for word in words[1:]:
        text = program_name(word.text or "")
        if text in scene.settings.forbidden_commands:
            yield forbidden(
                "command.forbidden", f"{name} is not known, and may run {text!r} that it is given"
            )
