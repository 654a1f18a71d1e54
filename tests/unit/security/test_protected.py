from __future__ import annotations

import pytest

from coilclaw.kernel.effects import Decision
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.tree_path import TreePath
from coilclaw.policy.protected_files import (
    CODE_COMMIT_POLICY,
    DEFAULT_POLICY,
    KEY_FILES,
    POLICY_NAMES,
    ProtectedPolicy,
    find_protected_policy,
)

CODE_COMMIT_DENIED = [
    ("Cargo.lock", "protected.critical"),
    ("build.sh", "protected.critical"),
    ("Build.SH", "protected.critical"),
    ("bu\u200cild.sh", "protected.critical"),
    ("codeRollup.sh", "protected.critical"),
    ("codeRollup.txt", "protected.critical"),
    ("query.txt", "protected.critical"),
    ("LLMInstructions.md", "protected.critical"),
    ("UserSpecification.md", "protected.critical"),
    ("gemini-key.txt", "protected.key"),
    ("openai-key.txt", "protected.key"),
    ("anthropic-key.txt", "protected.key"),
    ("logs", "protected.logs"),
    ("logs/2026/a.txt", "protected.logs"),
    ("LOGS/a.txt", "protected.logs"),
    ("target/debug/x", "protected.target"),
    (".coilclaw/config.toml", "protected.state"),
    (".runtime-cache/cortexpilot/runs/x", "protected.state"),
    ("src/.coilclaw-20260101-1", "protected.state"),
]

CODE_COMMIT_ALLOWED = [
    "src/main.rs",
    "Cargo.toml",
    "crates/a/Cargo.lock",
    "sub/build.sh",
    "build.shx",
    "xbuild.sh",
    "catalogs/a.txt",
    "logs.txt",
    "targets/x",
    "src/target.rs",
    "docs/query.txt.md",
    ".runtime-cache/other",
    ".coilclawrc",
]


def judge(policy: ProtectedPolicy, path: str, *, ignored: bool = False) -> tuple[str, str]:
    verdict = policy.judge(TreePath.parse(path), ignored=ignored)
    return str(verdict.decision), verdict.rule


@pytest.mark.parametrize(("path", "rule"), CODE_COMMIT_DENIED)
def test_code_commit_denies(path: str, rule: str) -> None:
    assert judge(CODE_COMMIT_POLICY, path) == ("deny", rule)


@pytest.mark.parametrize("path", CODE_COMMIT_ALLOWED)
def test_code_commit_allows_the_neighbour(path: str) -> None:
    assert judge(CODE_COMMIT_POLICY, path) == ("allow", "policy.code-commit")


def test_git_is_denied_even_to_a_path_that_skipped_the_lexical_rules() -> None:
    for parts in ((".git", "config"), ("sub", ".git", "hooks", "x"), (".GIT",)):
        for policy in (DEFAULT_POLICY, CODE_COMMIT_POLICY):
            verdict = policy.judge(TreePath(parts), ignored=False)
            assert (verdict.decision, verdict.rule) == (Decision.DENY, "protected.git")


def test_ignored_files_are_protected_by_code_commit_only() -> None:
    assert judge(CODE_COMMIT_POLICY, "secret.env", ignored=True) == ("deny", "protected.gitignore")
    assert judge(CODE_COMMIT_POLICY, "secret.env", ignored=False)[0] == "allow"
    assert judge(DEFAULT_POLICY, "secret.env", ignored=True)[0] == "allow"


def test_the_default_policy_protects_our_state_and_little_else() -> None:
    assert judge(DEFAULT_POLICY, ".coilclaw/x") == ("deny", "protected.state")
    assert judge(DEFAULT_POLICY, "build.sh")[0] == "allow"


def test_the_callers_globs_are_added_and_nothing_is_taken_away() -> None:
    policy = find_protected_policy("code-commit", ["*.lock", "docs/**"])
    assert judge(policy, "sub/poetry.lock") == ("deny", "protected.caller")
    assert judge(policy, "docs/a/b.md") == ("deny", "protected.caller")
    assert judge(policy, "build.sh") == ("deny", "protected.critical")
    assert judge(policy, "src/a.py")[0] == "allow"


def test_an_unknown_policy_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no policy is named"):
        find_protected_policy("nope")
    assert [find_protected_policy(name).name for name in POLICY_NAMES] == ["default", "code-commit"]


def test_every_provider_has_a_key_file() -> None:
    assert KEY_FILES == ("gemini-key.txt", "openai-key.txt", "anthropic-key.txt")
