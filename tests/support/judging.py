"""Judge commands in a workspace that exists only in a table of paths."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Literal

from coilclaw.kernel.effects import Locate, Place, Runs
from coilclaw.policy.commands import policy_rules
from coilclaw.policy.commands.judge import CommandFinding, judge_command
from coilclaw.policy.judgement import Autonomy
from coilclaw.policy.settings import SecuritySettings

WORKSPACE = "/work/tree"
OWN = "/home/me/.coilclaw"
FORBIDDEN = ("/etc", "/sys", "/boot", "/home/me/.ssh")

Kind = Literal["file", "directory", "other", "missing"]

KINDS: Mapping[str, Kind] = {
    WORKSPACE: "directory",
    f"{WORKSPACE}/src": "directory",
    f"{WORKSPACE}/docs": "directory",
    f"{WORKSPACE}/pipe": "other",
    f"{WORKSPACE}/a.txt": "file",
    f"{WORKSPACE}/link": "file",
    "/etc/passwd": "file",
    "/etc": "directory",
    "/": "directory",
}
LINKS: Mapping[str, str] = {f"{WORKSPACE}/link": "/etc/passwd", f"{WORKSPACE}/out": "/tmp"}


def locate(path: str) -> Place:
    """Look a path up in the tables; a link is followed wherever it stands."""
    lexical = posixpath.normpath(posixpath.join(WORKSPACE, path))
    real = lexical
    for link, target in LINKS.items():
        if real == link or real.startswith(link + "/"):
            real = target + real[len(link) :]
    return Place(path, lexical, real, KINDS.get(real, "missing"))


@cache
def default_settings() -> SecuritySettings:
    rules = policy_rules.load_rules(policy_rules.read_shipped_policy())
    return SecuritySettings(WORKSPACE, rules, forbidden_paths=FORBIDDEN, own_paths=(OWN,))


def settings(
    *,
    workspace_only: bool = True,
    harmless_commands: bool = True,
    forbidden_commands: tuple[str, ...] | None = None,
    allowed_commands: tuple[str, ...] = (),
    policy: str | None = None,
    contained: bool = False,
    autonomy: Autonomy = Autonomy.SUPERVISED,
) -> SecuritySettings:
    """The shipped rules, with one thing or another changed."""
    base = default_settings()
    return replace(
        base,
        workspace_only=workspace_only,
        harmless_commands=harmless_commands,
        forbidden_commands=(
            base.forbidden_commands if forbidden_commands is None else forbidden_commands
        ),
        allowed_commands=allowed_commands,
        rules=base.rules if policy is None else policy_rules.load_rules(policy),
        contained=contained,
        autonomy=autonomy,
    )


def judged(
    command: str | tuple[str, ...],
    using: SecuritySettings | None = None,
    places: Locate = locate,
) -> CommandFinding:
    """Judge a command line, or an argv."""
    runs = Runs(command=command) if isinstance(command, str) else Runs(argv=command)
    return judge_command(runs, using or default_settings(), places)


def verdict(
    command: str | tuple[str, ...], using: SecuritySettings | None = None
) -> tuple[str, str]:
    """Return risk (or ``forbidden``) and rule."""
    found = judged(command, using)
    return ("forbidden" if found.forbidden else str(found.risk), found.rule)
