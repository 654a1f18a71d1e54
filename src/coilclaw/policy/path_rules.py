"""The rules about paths: the workspace, what is forbidden, what is ours, what belongs to git.

A path is judged where it stands and where it leads: a link does not bypass any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.kernel import PathRefused, Risk, TreePath
from coilclaw.policy.judgement import PolicyFinding
from coilclaw.policy.protected_files import DEFAULT_POLICY

if TYPE_CHECKING:
    from coilclaw.kernel import Place
    from coilclaw.policy.settings import SecuritySettings


def judge_path(place: Place, settings: SecuritySettings, *, writes: bool) -> PolicyFinding:
    """Say what reading or writing at a place means."""
    if place.real is None:
        return _forbidden("path.unknown", f"where {place.given!r} leads cannot be told")
    for base in settings.own_paths:
        if touches(place, base):
            return _forbidden("path.state", f"{place.given!r} is state of CoilClaw")
    for base in settings.forbidden_paths:
        if touches(place, base):
            return _forbidden("path.forbidden", f"{place.given!r} is under {base}")
    if not inside(place, settings.workspace):
        if settings.workspace_only:
            return _forbidden("path.outside", f"{place.given!r} is outside the workspace")
        reason = f"{'writes' if writes else 'reads'} {place.given!r} outside the workspace"
        return PolicyFinding(Risk.HIGH if writes else Risk.MEDIUM, "path.elsewhere", reason)
    if not writes:
        secret = settings.secrets.judge(place)
        return secret or PolicyFinding(
            Risk.LOW, "path.workspace", f"reads {place.given!r} in the workspace"
        )
    return _judge_write(place, place.real, settings)


def judge_file(place: Place, settings: SecuritySettings) -> PolicyFinding:
    """Say what it means that a tool reads a file: git's own files are not for reading either."""
    finding = judge_path(place, settings, writes=False)
    if finding.forbidden or place.real is None or not inside(place, settings.workspace):
        return finding
    for path in dict.fromkeys((place.lexical, place.real)):
        relative = path[len(settings.workspace) :].strip("/")
        try:
            if relative:
                TreePath.parse(relative)
        except PathRefused as refused:
            return _forbidden(refused.rule, refused.message)
    return finding


def inside(place: Place, workspace: str) -> bool:
    """Whether a path stays in the workspace, lexically and with all links followed."""
    return (
        under(place.lexical, workspace) and place.real is not None and under(place.real, workspace)
    )


def touches(place: Place, base: str) -> bool:
    """Whether a path stands or leads below ``base``."""
    return under(place.lexical, base) or (place.real is not None and under(place.real, base))


def under(path: str, base: str) -> bool:
    """Whether an absolute, normal path is ``base`` or below it."""
    return path == base or path.startswith(base if base.endswith("/") else base + "/")


def _judge_write(place: Place, real: str, settings: SecuritySettings) -> PolicyFinding:
    for path in dict.fromkeys((place.lexical, real)):
        relative = path[len(settings.workspace) :].strip("/")
        if not relative:
            return _forbidden("path.root", "the workspace itself cannot be written as a file")
        try:
            verdict = DEFAULT_POLICY.judge(TreePath.parse(relative), ignored=False)
        except PathRefused as refused:
            return _forbidden(refused.rule, refused.message)
        if verdict.denied:
            return _forbidden(verdict.rule, verdict.reason)
    return PolicyFinding(
        Risk.MEDIUM, "path.workspace.write", f"writes {place.given!r} in the workspace"
    )


def _forbidden(rule: str, reason: str) -> PolicyFinding:
    return PolicyFinding(Risk.HIGH, rule, reason, forbidden=True)
