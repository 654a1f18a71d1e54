"""The gate: the effects of a call × policy × autonomy → one judgement. Nothing grades itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, assert_never

from coilclaw.kernel import (
    Consults,
    Decision,
    External,
    Fetches,
    Reads,
    Risk,
    Runs,
    Verdict,
    Writes,
)
from coilclaw.policy.judgement import CommandSegment, Judgement, PolicyFinding, Terms, decide
from coilclaw.policy.path_rules import judge_file, judge_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.kernel import Effect, Locate
    from coilclaw.policy.settings import SecuritySettings


def judge_effects(
    effects: Sequence[Effect], settings: SecuritySettings, locate: Locate
) -> Judgement:
    """Judge all effects of one call; the strictest decides, and no effects at all are denied."""
    findings: list[PolicyFinding] = []
    segments: list[CommandSegment] = []
    terms: list[Terms] = []
    for effect in effects:
        if isinstance(effect, Runs) and settings.rules is None:
            reason = "no rules about commands exist, so no command may run"
            findings.append(PolicyFinding(Risk.HIGH, "policy.missing", reason, forbidden=True))
        elif isinstance(effect, Runs):
            from coilclaw.policy.commands.judge import judge_command

            command = judge_command(effect, settings, locate)
            finding = PolicyFinding(command.risk, command.rule, command.reason, command.forbidden)
            findings.append(replace(finding, asks=command.asks))
            segments += command.segments
            terms.append(command.terms)
        else:
            findings.append(_judge_one(effect, settings, locate))
    return Judgement(_verdict(findings, settings), tuple(segments), _widest(terms))


def _judge_one(
    effect: Reads | Writes | Fetches | Consults | External,
    settings: SecuritySettings,
    locate: Locate,
) -> PolicyFinding:
    match effect:
        case Reads(path):
            return judge_file(locate(path), settings)
        case Writes(path):
            return judge_path(locate(path), settings, writes=True)
        case Fetches(url):
            from coilclaw.policy.hosts import judge_url

            return judge_url(url, settings)
        case Consults(what):
            return PolicyFinding(Risk.LOW, f"consults.{what}", f"looks at the {what} only")
        case External(who, risk):
            return PolicyFinding(risk, "external.risk", f"{who} is trusted with {risk} risk")
        case _:
            assert_never(effect)


def _verdict(findings: Sequence[PolicyFinding], settings: SecuritySettings) -> Verdict:
    if not findings:
        return Verdict(
            Decision.DENY, Risk.HIGH, "effects.none", "the call declares nothing that it touches"
        )
    worst = max(findings, key=lambda finding: (finding.forbidden, finding.risk))
    if worst.forbidden:
        return Verdict(Decision.DENY, worst.risk, worst.rule, worst.reason)
    level = settings.autonomy
    decision = decide(worst.risk, level)
    if decision is Decision.DENY:
        return Verdict(
            decision,
            worst.risk,
            f"autonomy.{level.value}",
            f"{worst.reason} [{worst.rule}]; {worst.risk} risk is blocked at autonomy "
            f"{level.value!r}",
        )
    asking = next((finding for finding in findings if finding.asks), None)
    if decision is Decision.ALLOW and asking is not None:
        return Verdict(Decision.ASK, worst.risk, asking.rule, asking.reason)
    return Verdict(decision, worst.risk, worst.rule, worst.reason)


def _widest(terms: Sequence[Terms]) -> Terms:
    """Several commands in one call run under what the widest of them needs."""
    return Terms(
        writable=any(each.writable for each in terms),
        network=any(each.network for each in terms),
        contained=any(each.contained for each in terms),
        sweeps=any(each.sweeps for each in terms),
        sets_git=any(each.sets_git for each in terms),
        asked_for=next((each.asked_for for each in terms if each.asked_for), ""),
    )
