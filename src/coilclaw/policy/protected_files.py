"""Protected files: paths that no answer of a model may change, as named policies.

A rule names paths; the strictest wins and nothing switches a rule off. Names are compared as the
least discerning file system would, so ``Build.SH`` is as protected as ``build.sh``. Which paths the
tree's ``.gitignore`` files name is a fact that the caller brings along.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Decision, Risk, UsageError, Verdict, fold_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.kernel import TreePath


MAX_GLOB: Final = 1000


def _compile_glob(text: str) -> re.Pattern[str]:
    """Compile a glob; an empty, absolute or climbing one is a usage error.

    One without a slash matches at any depth, one with a slash from the root.
    """
    trimmed = text.rstrip("/")
    anchored = trimmed.startswith("/")
    body = trimmed.removeprefix("/").removeprefix("./")
    names = body.split("/")
    if not body or "" in names or ".." in names or len(text) > MAX_GLOB:
        raise UsageError(
            f"glob {text!r} is not a relative path pattern",
            rule="glob.malformed",
            hint="use names, '*', '?', '[…]' and '**', for example 'docs/**' or '*.lock'",
        )
    if len(names) == 1 and not anchored:
        names = ["**", *names]
    return re.compile(_translate(names))


def glob_of_path(path: str) -> str:
    """Return the glob that means exactly this path and what is below it."""
    return "/" + "".join(f"[{char}]" if char in "*?[" else char for char in path)


def _translate(names: list[str]) -> str:
    out: list[str] = []
    for index, name in enumerate(names):
        last = index == len(names) - 1
        if name == "**":
            out.append(".+" if last else "(?:[^/]+/)*")
            continue
        out.append(_name(fold_pattern(name)))
        if not last:
            out.append("/")
    return "".join(out) + r"(?:/.*)?\Z"


def fold_pattern(name: str) -> str:
    """Fold the literal text of one glob name as ``TreePath.folded`` folds names."""
    folded = fold_name(name)
    return folded or name


def _name(name: str) -> str:
    out: list[str] = []
    index = 0
    while index < len(name):
        char = name[index]
        index += 1
        if char == "*":
            out.append("[^/]*")
        elif char == "?":
            out.append("[^/]")
        elif char == "[" and (end := name.find("]", index + 1)) > 0:
            body = name[index:end].replace("\\", "\\\\").replace("[", "\\[")
            if body.startswith("!"):
                body = "^/" + body[1:]
            out.append(f"[{body}]")
            index = end + 1
        else:
            out.append(re.escape(char))
    return "".join(out)


KEY_FILES: Final = ("gemini-key.txt", "openai-key.txt", "anthropic-key.txt")
"""Where a project keeps the key of each supported provider."""

STAGING_PREFIX: Final = ".coilclaw-"
"""Names of ours that stand in a tree while a change is being applied, and only then."""


@dataclass(frozen=True, slots=True)
class ProtectedRule:
    """One named rule: the globs it covers and why."""

    name: str
    globs: tuple[re.Pattern[str], ...]
    reason: str

    @classmethod
    def of(cls, name: str, reason: str, *globs: str) -> ProtectedRule:
        return cls(name, tuple(map(_compile_glob, globs)), reason)

    def covers(self, path: TreePath) -> bool:
        """Tell whether the path, or a directory it lies in, matches, however it is spelled."""
        folded = "/".join(path.folded)
        return any(glob.match(folded) for glob in self.globs)


@dataclass(frozen=True, slots=True)
class ProtectedPolicy:
    """A named set of rules; ``ignored_too`` also protects what ``.gitignore`` files name."""

    name: str
    rules: tuple[ProtectedRule, ...]
    ignored_too: bool = False

    def judge(self, path: TreePath, *, ignored: bool) -> Verdict:
        """Say whether a change may touch the path; the first rule that covers it denies."""
        for rule in self.rules:
            if rule.covers(path):
                return Verdict(Decision.DENY, Risk.HIGH, rule.name, f"'{path}' {rule.reason}")
        if self.ignored_too and ignored:
            return Verdict(
                Decision.DENY,
                Risk.HIGH,
                "protected.gitignore",
                f"'{path}' is named by the tree's .gitignore",
            )
        return Verdict(
            Decision.ALLOW, Risk.LOW, f"policy.{self.name}", f"no rule of '{self.name}' covers it"
        )

    def with_rules(self, *rules: ProtectedRule) -> ProtectedPolicy:
        """Return the policy with more rules; no rule can be taken away."""
        return ProtectedPolicy(self.name, (*self.rules, *rules), self.ignored_too)


_ALWAYS: Final = (
    ProtectedRule.of("protected.git", "belongs to git", "/.git", "**/.git"),
    ProtectedRule.of(
        "protected.state",
        "is state of CoilClaw",
        "/.coilclaw",
        "/.runtime-cache/cortexpilot",
        f"{STAGING_PREFIX}*",
    ),
)

DEFAULT_POLICY: Final = ProtectedPolicy("default", _ALWAYS)

CODE_COMMIT_POLICY: Final = ProtectedPolicy(
    "code-commit",
    (
        *_ALWAYS,
        ProtectedRule.of(
            "protected.critical",
            "is a critical file of the project",
            "/Cargo.lock",
            "/build.sh",
            "/codeRollup.sh",
            "/codeRollup.txt",
            "/query.txt",
            "/LLMInstructions.md",
            "/UserSpecification.md",
        ),
        ProtectedRule.of("protected.key", "holds a provider's key", *KEY_FILES),
        ProtectedRule.of("protected.logs", "lies in the logs folder", "/logs"),
        ProtectedRule.of("protected.target", "lies in the target folder", "/target"),
    ),
    ignored_too=True,
)

_POLICIES: Final = (DEFAULT_POLICY, CODE_COMMIT_POLICY)
POLICY_NAMES: Final = tuple(policy.name for policy in _POLICIES)


def find_protected_policy(name: str, protect: Sequence[str] = ()) -> ProtectedPolicy:
    """Return a policy by name, with the caller's globs protected as well."""
    for policy in _POLICIES:
        if policy.name == name:
            if not protect:
                return policy
            return policy.with_rules(
                ProtectedRule.of("protected.caller", "is protected by --protect", *protect)
            )
    raise UsageError(
        f"no policy is named {name!r}",
        rule="policy.unknown",
        hint=f"choose one of {', '.join(POLICY_NAMES)}",
    )
