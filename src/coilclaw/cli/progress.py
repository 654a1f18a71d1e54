"""How a run of code-commit looks: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Self

from coilclaw.cli.report import counted
from coilclaw.cli.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.changes.plan import Plan
    from coilclaw.cli.console import Console
    from coilclaw.codecommit.build import Build
    from coilclaw.domain.messages import ChatResponse

TAIL_LINES: Final = 12
TAIL_BYTES: Final = 8192


class Progress:
    """Tells a person what the run is doing."""

    def __init__(
        self, console: Console, *, live: bool, redact: Callable[[str], str], repairs: int
    ) -> None:
        self._console = console
        self._live = live
        self._redact = redact
        self._repairs = repairs
        self._status: str | None = None
        self._began = 0.0
        self._tail = b""
        self._line = StatusLine(console.err, self._render, live=live)

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._line.__exit__()

    # What the workflow tells.

    def attempt(self, number: int, name: str) -> None:
        what = "initial attempt" if number == 0 else f"repair {number} of {self._repairs}"
        self.line(f"{what} ({name})", "bold")

    def asking(self, model: str) -> None:
        self._say(f"waiting for {model}", announce=True)

    def answered(self, response: ChatResponse, seconds: float) -> None:
        usage = response.usage
        tokens = ""
        if usage and usage.input_tokens is not None and usage.output_tokens is not None:
            tokens = f", {usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
        self._say(None)
        self.line(f"  answered in {seconds:.1f} s{tokens}")

    def applied(self, plan: Plan, change_id: str) -> None:
        if plan.empty:
            self.line("  the answer changes nothing")
            return
        self.line(f"  applied {change_id}: {counted(plan)}")
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
        self._say("building", announce=True)

    def output(self, data: bytes) -> None:
        with self._line.guard:
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    def built(self, build: Build) -> None:
        self._say(None)
        if build.passed:
            self.line(f"  the build passed in {build.seconds:.1f} s", "green")
            return
        code = "no exit code" if build.exit_code is None else f"exit code {build.exit_code}"
        self.line(f"  the build failed after {build.seconds:.1f} s: {code}", "red")
        for line in self._last_lines(TAIL_LINES):
            self.line(f"    | {line}", "dim")

    def line(self, text: str, style: str | None = None) -> None:
        """Print one line for good."""
        with self._line.cleared():
            self._console.note(self._redact(text), style)

    # The live line.

    def _say(self, status: str | None, *, announce: bool = False) -> None:
        with self._line.cleared():
            self._status = status
            self._began = time.monotonic()
        if announce and not self._live and status:
            self.line(f"  {status}")

    def _render(self) -> str | None:
        if self._status is None:
            return None
        spent = time.monotonic() - self._began
        last = self._last_lines(1)
        tail = f" · {last[0]}" if last and self._status == "building" else ""
        return self._redact(f"  {self._status} {spent:.0f} s{tail}")

    def _last_lines(self, number: int) -> list[str]:
        text = self._tail.decode("utf-8", "replace")
        return [line for line in self._redact(text).splitlines() if line.strip()][-number:]
