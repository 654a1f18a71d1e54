"""``code-commit`` (= ``coilclaw commit``): edit, build, repair."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DONE, FAILED, PROVIDER, Console, Namespace, Parser, find_home, pick
from coilclaw.cli.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.changes import Plan
    from coilclaw.commit import Build, Committed
    from coilclaw.kernel import ChatResponse

DEFAULT_TIMEOUT_S: Final = 30 * 60
TAIL_LINES: Final = 12
TAIL_BYTES: Final = 8192


def main() -> int:
    """Run as the executable ``code-commit``."""
    from coilclaw.cli.main import run_program

    return run_program("code-commit", "commit")


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value("action", "init", "set up this project, and exit", nargs="?", choices=("init",))
    parser.value("--model", "NAME", "default: gemini-2.5-pro", default="gemini-2.5-pro")
    parser.value("--base-url", "URL", "an OpenAI-compatible endpoint; by default without a key")
    parser.value("--key-file", "NAME", "the key of the endpoint; .gitignore must list it")
    summary = "use this model if the one before cannot be reached (repeatable)"
    parser.many("--fallback", "MODEL", summary)
    for name, what in (("--build-timeout", "build"), ("--model-timeout", "request")):
        summary = f"end a {what} that takes longer (default: 1800)"
        parser.value(name, "SECONDS", summary, type=seconds, default=DEFAULT_TIMEOUT_S)
    summary = "fail at once if another run is active in this project, instead of waiting"
    parser.flag("--no-wait", summary)
    parser.flag("--rollup", "write codeRollup.txt first").json()


def seconds(text: str) -> float:
    """Read a time limit."""
    value = float(text)
    if not 0 < value < 10**7:
        raise ValueError(text)
    return value


def run(args: Namespace, console: Console) -> int:
    """Run the workflow in the current directory."""
    from coilclaw.commit import CommitOptions, run_commit

    directory = Path.cwd()
    if args.action == "init":
        return _init(directory, console)
    options = CommitOptions(
        directory=directory,
        home=find_home(),
        model=args.model,
        base_url=args.base_url,
        key_file=args.key_file,
        fallbacks=tuple(args.fallback),
        build_timeout_s=args.build_timeout,
        model_timeout_s=args.model_timeout,
        rollup=args.rollup,
        wait=not args.no_wait,
    )
    done = run_commit(
        options, os.environ, lambda redact, repairs: CommitProgress(console, redact, repairs)
    )
    return _report(done, console)


def _init(directory: Path, console: Console) -> int:
    from coilclaw.commit import set_up

    made = set_up(directory)
    if console.emit({"outcome": "set_up", "made": made}):
        return DONE
    for what in made:
        console.note(f"made {what}")
    if not made:
        console.note("everything is already set up")
    console.note(
        "next: put a key into gemini-key.txt, write query.txt, and run code-commit --rollup"
    )
    return DONE


def _report(done: Committed, console: Console) -> int:
    outcome, redact = done.outcome, done.redact
    attempts = outcome.attempts
    console.emit(
        {
            "outcome": outcome.status,
            "model": (attempts[-1].model if attempts else "") or done.model,
            "log": str(done.log),
            "attempts": [
                {
                    **pick(attempt, "name", "change"),
                    "files": [redact(name) for name in attempt.files],
                    **pick(attempt, "exit_code", "passed"),
                    "problem": redact(attempt.problem) if attempt.problem else None,
                }
                for attempt in attempts
            ],
            "problem": redact(str(outcome.problem)) if outcome.problem else None,
        }
    )
    if outcome.status == "passed":
        console.note(f"passed after {len(attempts)} of 4 attempts; logs in {done.log}", "green")
        return DONE
    problem = outcome.problem
    if outcome.status == "failed":
        console.note(f"the build still fails; logs in {done.log}", "red")
    else:
        assert problem is not None
        said = f"{redact(problem.message)}; logs in {done.log}"
        console.error(said, rule=problem.rule, hint=problem.hint)
    changes = [attempt.change for attempt in attempts if attempt.change]
    if changes:
        console.note(f"revert everything with: coilclaw undo --run {changes[-1]}", "dim")
    return FAILED if outcome.status == "failed" else PROVIDER


class CommitProgress(StatusLine):
    """Shows what the workflow is doing: a live line on a terminal, plain lines elsewhere."""

    def __init__(self, console: Console, redact: Callable[[str], str], repairs: int) -> None:
        live = console.err.isatty() and console.colour_err
        super().__init__(console.err, live=live, render=self._describe)
        self._console = console
        self._redact = redact
        self._repairs = repairs
        self._status: str | None = None
        self._began = 0.0
        self._tail = b""

    def attempt(self, number: int, name: str) -> None:
        what = "initial attempt" if number == 0 else f"repair {number} of {self._repairs}"
        self.line(f"{what} ({name})", "bold")

    def asking(self, model: str) -> None:
        self._begin(f"waiting for {model}")

    def answered(self, response: ChatResponse, seconds: float) -> None:
        usage = response.usage
        tokens = ""
        if usage and usage.input_tokens is not None and usage.output_tokens is not None:
            tokens = f", {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
        self._begin(None)
        self.line(f"  answered in {seconds:.1f} s{tokens}")

    def applied(self, plan: Plan, change_id: str) -> None:
        from coilclaw.cli.plan_report import count_changes

        if not plan.changes:
            self.line("  the answer changes nothing")
            return
        self.line(f"  applied {change_id}: {count_changes(plan)}")
        for item in plan.changes[:TAIL_LINES]:
            mark = "+" if item.before is None else "-" if item.after is None else "~"
            self.line(f"    {mark} {item.path}")
        if len(plan.changes) > TAIL_LINES:
            self.line(f"    … and {len(plan.changes) - TAIL_LINES} more")

    def not_applied(self, reason: str) -> None:
        first, *more = reason.splitlines() or [""]
        self.line(f"  not applied: {first}", "yellow")
        for line in more:
            self.line(f"    {line.strip()}", "yellow")

    def building(self) -> None:
        self._tail = b""
        self._begin("building")

    def output(self, data: bytes) -> None:
        with self.guard:
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    def built(self, build: Build) -> None:
        self._begin(None)
        if build.passed:
            self.line(f"  the build passed in {build.seconds:.1f} s", "green")
            return
        code = "no exit code" if build.exit_code is None else f"exit code {build.exit_code}"
        self.line(f"  the build failed after {build.seconds:.1f} s: {code}", "red")
        for line in self._last_lines(TAIL_LINES):
            self.line(f"    | {line}", "dim")

    def line(self, text: str, style: str | None = None) -> None:
        """Print a line that stays."""
        with self.clear_line():
            self._console.note(self._redact(text), style)

    def _begin(self, status: str | None) -> None:
        """Show a status from now on; without a live line, print it once."""
        with self.clear_line():
            self._status = status
            self._began = time.monotonic()
        if status and not self._live:
            self.line(f"  {status}")

    def _describe(self) -> str | None:
        if self._status is None:
            return None
        spent = time.monotonic() - self._began
        last = self._last_lines(1)
        tail = f" · {last[0]}" if last and self._status == "building" else ""
        return self._redact(f"  {self._status} {spent:.0f} s{tail}")

    def _last_lines(self, number: int) -> list[str]:
        text = self._tail.decode("utf-8", "replace")
        return [line for line in self._redact(text).splitlines() if line.strip()][-number:]
