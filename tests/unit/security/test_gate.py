"""The gate over everything but commands: each rule with a denial and its neighbour allowed."""

from __future__ import annotations

import pytest

from coilclaw.kernel.effects import (
    Consults,
    Decision,
    Effect,
    Fetches,
    Place,
    Reads,
    Risk,
    Runs,
    Verdict,
    Writes,
)
from coilclaw.policy.gate import judge_effects
from coilclaw.policy.judgement import Autonomy, decide
from coilclaw.policy.settings import SecuritySettings

LINKS = {
    "/ws/out": "/etc/passwd",
    "/ws/in": "/ws/a.txt",
    "/ws/hooks": "/ws/.git/hooks",
    "/ws/keys": "/home/me/.coilclaw/keys",
    "/ws/loop": None,
}


def locate(given: str) -> Place:
    import posixpath

    lexical = posixpath.normpath(posixpath.join("/ws", given))
    for link, target in LINKS.items():
        if lexical == link or lexical.startswith(link + "/"):
            real = None if target is None else target + lexical[len(link) :]
            return Place(given, lexical, real, "file")
    return Place(given, lexical, lexical, "file")


def settings(
    autonomy: Autonomy = Autonomy.SUPERVISED, *, workspace_only: bool = True
) -> SecuritySettings:
    return SecuritySettings(
        workspace="/ws",
        rules=None,
        autonomy=autonomy,
        workspace_only=workspace_only,
        forbidden_paths=("/etc", "/home/me/.ssh", "/ws/private"),
        own_paths=("/home/me/.coilclaw",),
        allowed_domains=("example.com",),
    )


def told(effect: Effect, found: SecuritySettings | None = None) -> tuple[str, str, str]:
    verdict = judge_effects((effect,), found or settings(), locate).verdict
    return str(verdict.decision), str(verdict.risk), verdict.rule


@pytest.mark.parametrize(
    ("effect", "answer"),
    [
        (Reads("/etc/passwd"), ("deny", "high", "path.forbidden")),
        (Reads("/etcetera/x"), ("deny", "high", "path.outside")),
        (Reads("../x"), ("deny", "high", "path.outside")),
        (Reads("/ws2/x"), ("deny", "high", "path.outside")),
        (Reads("a/../b"), ("allow", "low", "path.workspace")),
        (Reads("."), ("allow", "low", "path.workspace")),
        (Reads("/ws/a"), ("allow", "low", "path.workspace")),
        (Reads("out"), ("deny", "high", "path.forbidden")),
        (Reads("in"), ("allow", "low", "path.workspace")),
        (Reads("loop"), ("deny", "high", "path.unknown")),
        (Reads("private/x"), ("deny", "high", "path.forbidden")),
        (Reads("privately/x"), ("allow", "low", "path.workspace")),
        (Reads("keys/journal.key"), ("deny", "high", "path.state")),
        (Reads("/home/me/.coilclaw/config.toml"), ("deny", "high", "path.state")),
        (Reads("/home/me/.coilclawful"), ("deny", "high", "path.outside")),
        (Reads(".git/config"), ("deny", "high", "path.git")),
        (Reads("hooks/pre-commit"), ("deny", "high", "path.git")),
        (Reads(".gitignore"), ("allow", "low", "path.workspace")),
        (Writes(".git/config"), ("deny", "high", "path.git")),
        (Writes(".GIT/config"), ("deny", "high", "path.git")),
        (Writes("sub/.git/hooks/x"), ("deny", "high", "path.git")),
        (Writes("hooks/pre-commit"), ("deny", "high", "path.git")),
        (Writes(".gitignore"), ("ask", "medium", "path.workspace.write")),
        (Writes("a.txt"), ("ask", "medium", "path.workspace.write")),
        (Writes("."), ("deny", "high", "path.root")),
        (Writes("/tmp/x"), ("deny", "high", "path.outside")),
        (Writes("a\x00b"), ("deny", "high", "path.nul")),
        (Fetches("https://example.com/x"), ("allow", "low", "http.allowed")),
        (Fetches("https://example.org/x"), ("deny", "high", "http.domain")),
        (Consults("clock"), ("allow", "low", "consults.clock")),
    ],
)
def test_what_the_gate_says_when_supervised(effect: Effect, answer: tuple[str, str, str]) -> None:
    assert told(effect) == answer


@pytest.mark.parametrize(
    ("effect", "answer"),
    [
        (Reads("/usr/include/x.h"), ("ask", "medium", "path.elsewhere")),
        (Writes("/tmp/x"), ("deny", "high", "autonomy.supervised")),
        (Reads("/etc/passwd"), ("deny", "high", "path.forbidden")),
        (Writes("/home/me/.coilclaw/config.toml"), ("deny", "high", "path.state")),
        (Reads("a"), ("allow", "low", "path.workspace")),
    ],
)
def test_outside_the_workspace_when_that_is_allowed(
    effect: Effect, answer: tuple[str, str, str]
) -> None:
    assert told(effect, settings(workspace_only=False)) == answer


@pytest.mark.parametrize(
    ("autonomy", "decisions"),
    [
        (Autonomy.READONLY, (Decision.ALLOW, Decision.DENY, Decision.DENY)),
        (Autonomy.SUPERVISED, (Decision.ALLOW, Decision.ASK, Decision.DENY)),
        (Autonomy.FULL, (Decision.ALLOW, Decision.ALLOW, Decision.ALLOW)),
    ],
)
def test_what_each_level_makes_of_each_risk(
    autonomy: Autonomy, decisions: tuple[Decision, ...]
) -> None:
    assert tuple(decide(risk, autonomy) for risk in Risk) == decisions


def test_a_level_that_denies_says_so_and_why() -> None:
    verdict = judge_effects((Writes("a.txt"),), settings(Autonomy.READONLY), locate).verdict
    assert verdict == Verdict(
        Decision.DENY,
        Risk.MEDIUM,
        "autonomy.readonly",
        "writes 'a.txt' in the workspace [path.workspace.write]; medium risk is blocked at "
        "autonomy 'readonly'",
    )
    assert judge_effects((Reads("a.txt"),), settings(Autonomy.READONLY), locate).verdict.rule == (
        "path.workspace"
    )


def test_forbidden_stays_forbidden_in_full() -> None:
    full = settings(Autonomy.FULL, workspace_only=False)
    assert told(Reads("/etc/passwd"), full) == ("deny", "high", "path.forbidden")
    assert told(Writes("/tmp/x"), full) == ("allow", "high", "path.elsewhere")


def test_the_strictest_of_several_effects_decides() -> None:
    effects = (Reads("a"), Writes("b"), Reads("/etc/shadow"), Writes("c"))
    assert judge_effects(effects, settings(), locate).verdict.rule == "path.forbidden"
    assert judge_effects(effects[:2], settings(), locate).verdict.rule == "path.workspace.write"


def test_silence_denies() -> None:
    assert judge_effects((), settings(Autonomy.FULL), locate).verdict == Verdict(
        Decision.DENY, Risk.HIGH, "effects.none", "the call declares nothing that it touches"
    )


def test_without_rules_no_command_runs() -> None:
    verdict = judge_effects((Runs(argv=("ls",)),), settings(Autonomy.FULL), locate).verdict
    assert verdict.denied
