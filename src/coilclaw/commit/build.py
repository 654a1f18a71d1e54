"""Run ``./build.sh`` and report its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.commit.project import BUILD
from coilclaw.workspace import command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.workspace import Cancellation, Sandbox, SandboxSupport

OUTPUT_BYTES: Final = 16 * 2**20
"""Bytes of stdout and of stderr that are kept: the head and the tail."""

KEY_VARIABLES: Final = frozenset(
    {
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "AZURE_OPENAI_API_KEY",
        "GEMINI_API_KEY",
        "GOOGLE_API_KEY",
        "OPENAI_API_KEY",
    }
)


@dataclass(frozen=True, slots=True)
class Build:
    """The result of a build, or of an answer that was not applied."""

    passed: bool
    text: str
    """stdout, stderr and exit code, for the log and for a repair query."""
    exit_code: int | None
    seconds: float


def run(
    project: Path,
    *,
    timeout_s: float,
    environ: Mapping[str, str],
    redact: Callable[[str], str],
    cancel: Cancellation,
    observe: Callable[[bytes], None],
    sandbox: Sandbox = command.NO_SANDBOX,
    support: SandboxSupport | None = None,
) -> Build:
    """Build the project in the given environment without keys, and return the result."""
    result = command.run(
        [f"./{BUILD}"],
        cwd=project,
        timeout_s=timeout_s,
        env=clean_environment(environ, redact),
        limit_bytes=OUTPUT_BYTES,
        cancel=cancel,
        observe=observe,
        sandbox=sandbox,
        support=support,
    )
    passed = result.outcome == "exited" and result.exit_code == 0
    ending = {
        "exited": f"{result.exit_code}",
        "timed_out": f"none, the build was ended after {timeout_s:g} s",
        "signalled": f"none, the build was ended by signal {result.signal}",
    }.get(result.outcome, "none, the build was stopped")
    sections = (_section("stdout", result.stdout.text()), _section("stderr", result.stderr.text()))
    text = f"{''.join(sections)}exit code: {ending}\n"
    return Build(passed, text, result.exit_code, result.duration_s)


def not_run(problem: str) -> Build:
    """Return the result for an answer that could not be applied."""
    text = f"The answer was not applied, and the build was not run: {problem}\n"
    return Build(False, text, None, 0.0)


def clean_environment(environ: Mapping[str, str], redact: Callable[[str], str]) -> dict[str, str]:
    """Return the user's environment without every variable that holds a provider's key."""
    return {
        name: value
        for name, value in environ.items()
        if name not in KEY_VARIABLES and redact(value) == value
    }


def _section(name: str, text: str) -> str:
    body = text if text.endswith("\n") or not text else text + "\n"
    return f"--- {name} ---\n{body}"
