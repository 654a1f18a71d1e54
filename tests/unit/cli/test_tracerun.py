"""``trace run``: exit codes, the line of progress, and what signals do."""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import get_args

import pytest

from coilclaw.cli.console import Console
from coilclaw.cli.traces.trace_run import TraceProgress, exit_code, stop_on_signals
from coilclaw.traces.trajectory.trace import SessionEnd, StopReason
from tests.support.recordings import commits, passing, trace_of

CODES = {
    "solved": 0,
    "part_limit": 1,
    "turn_limit": 1,
    "timeout": 1,
    "interrupted": 3,
    "agent_error": 4,
    "envoi_error": 5,
}


def end(reason: StopReason) -> SessionEnd:
    return SessionEnd(
        reason=reason,
        total_parts=1,
        total_turns=1,
        final_git_commit="a" * 40,
        timestamp="2026-11-15T10:00:00.000Z",
        elapsed_ms=1,
        detail="",
    )


def test_every_reason_has_its_exit_code() -> None:
    assert {reason: exit_code(end(reason)) for reason in get_args(StopReason)} == CODES


def test_solved_but_not_kept_is_no_success() -> None:
    assert exit_code(end("solved"), complete=False) == 5


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("live", [True, False])
def test_progress_is_one_line_on_a_terminal_and_one_a_part_elsewhere(
    tmp_path: Path, live: bool
) -> None:
    err = Terminal() if live else io.StringIO()
    console = Console(io.StringIO(), err, colour_out=False, colour_err=False)
    progress = TraceProgress(console)
    for part in trace_of(commits(tmp_path / "work", [passing("basics/get"), None])).parts:
        progress.part(part)
    progress.close()
    said = err.getvalue()
    assert "part 2  turn 1  tests –  tokens 220" in said
    assert said.count("\n") == (1 if live else 2)
    assert said.count("\r\x1b[K") == (2 if live else 0)


def test_a_first_signal_asks_and_a_second_one_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    asked: list[str] = []
    with stop_on_signals(asked.append):
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked == ["signal SIGTERM"]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert asked == ["signal SIGTERM"]
    assert signal.getsignal(signal.SIGINT) is before
