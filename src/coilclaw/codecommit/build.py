"""Running ``./build.sh`` and saying what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.codecommit.project import BUILD
from coilclaw.workspace import process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.workspace.process import Cancellation, ProcessResult
    from coilclaw.workspace.sandbox import Sandbox, SandboxSupport

OUTPUT_BYTES: Final = 16 * 2**20
"""What is kept of each of stdout and stderr: the head and the tail."""

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
    """One run of the build, or what stood in its place."""

    passed: bool
    text: str
    """stdout, stderr and exit code: what the log holds, and what goes into a repair query."""
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
    sandbox: Sandbox = process.NO_SANDBOX,
    support: SandboxSupport | None = None,
) -> Build:
    """Build the project in the environment given, less the keys."""
    result = process.run(
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
    stdout, stderr = result.stdout.text(), result.stderr.text()
    ending = _ending(result, timeout_s)
    text = _section("stdout", stdout) + _section("stderr", stderr) + ending
    passed = result.outcome == "exited" and result.exit_code == 0
    return Build(passed, text, result.exit_code, result.duration_s)


def not_run(problem: str) -> Build:
    """An answer that could not be used takes the place of a build."""
    text = f"The answer was not applied, and the build was not run: {problem}\n"
    return Build(False, text, None, 0.0)


def clean_environment(environ: Mapping[str, str], redact: Callable[[str], str]) -> dict[str, str]:
    """Return the user's environment less every variable that is or holds a provider's key."""
    return {
        name: value
        for name, value in environ.items()
        if name not in KEY_VARIABLES and redact(value) == value
    }


def _section(name: str, text: str) -> str:
    body = text if text.endswith("\n") or not text else text + "\n"
    return f"--- {name} ---\n{body}"


def _ending(result: ProcessResult, timeout_s: float) -> str:
    if result.outcome == "exited":
        return f"exit code: {result.exit_code}\n"
    if result.outcome == "timed_out":
        return f"exit code: none, the build was ended after {timeout_s:g} s\n"
    if result.outcome == "signalled":
        return f"exit code: none, the build was ended by signal {result.signal}\n"
    return "exit code: none, the build was stopped\n"
