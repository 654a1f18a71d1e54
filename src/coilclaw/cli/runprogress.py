"""A run while somebody watches it: its events, its end, and what to do next."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.cli import next_command
from coilclaw.cli.eventlines import line, style

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from coilclaw.app.runwiring import Orchestrator, Terms
    from coilclaw.cli.console import Console
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.engine import Outcome
    from coilclaw.telemetry.logs import Logs
    from coilclaw.workspace.cancel import Cancellation

    Watch: TypeAlias = Callable[[Mapping[str, object]], None]
    Carry: TypeAlias = Callable[[Orchestrator, Watch], Outcome]

MAX_TOLD: Final = 500
"""Problems that are listed one by one."""
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def attend(
    args: argparse.Namespace, console: Console, carry: Carry, terms: Terms | None = None
) -> int:
    """Carry out a run, tell of it as it goes on, and return the exit code."""
    from coilclaw.app.home import home
    from coilclaw.app.runwiring import Orchestrator, Terms
    from coilclaw.cli.dispatch import DENIED
    from coilclaw.errors import Stopped
    from coilclaw.workspace.cancel import Cancellation

    cancel = Cancellation()
    terms = replace(terms or Terms(), ask_user=_asking_user(console))
    runs = Orchestrator(Path(args.repo), home(), os.environ, terms=terms, cancel=cancel)
    contract = getattr(args, "contract", None)
    shown = Display(console, follow=args.follow, repo=args.repo, contract=contract)
    try:
        with _logging(runs), _stoppable(cancel):
            outcome = carry(runs, shown.watch)
    except Stopped as problem:
        if not shown.run_id:
            raise
        shown.stopped(problem.message)
        return DENIED
    if outcome.waiting:
        outcome = replace(outcome, waiting=_unanswered(runs, outcome.waiting))
    return shown.ended(outcome, runs.places.bundle(outcome.run_id))


def _asking_user(console: Console) -> Callable[[str], str | None]:
    """Ask at the terminal what the planner must know, if there is one; an empty line is no answer.

    What the planner wrote cannot act on the terminal.
    """
    from coilclaw.cli.console import visible
    from coilclaw.cli.question import Questions

    questions = Questions(console, sys.stdin)

    def ask(question: str) -> str | None:
        if console.as_json or not questions.attended:
            return None
        console.note("the planner asks:", "yellow")
        return questions.text(f"{visible(question)}\n>", flag="--answer", default="") or None

    return ask


def _unanswered(runs: Orchestrator, waiting: tuple[str, ...]) -> tuple[str, ...]:
    """Those of a run's questions that somebody still has to answer."""
    pending = {each.id for each in runs.equipment.desk.list()}
    return tuple(name for name in waiting if name in pending)


def _logging(runs: Orchestrator) -> Logs:
    """Warnings only, unless logs are asked for: the events are told already."""
    from coilclaw.telemetry.logs import VARIABLE, configure

    return configure(
        os.environ,
        sys.stderr,
        redact=runs.redactor.redact,
        level=logging.INFO if os.environ.get(VARIABLE) else logging.WARNING,
        audit=runs.config.security.audit_log,
    )


@contextmanager
def _stoppable(cancel: Cancellation) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the run cleanly; a second one does not wait for that."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def arrived(number: int, _: FrameType | None) -> None:
        if cancel.cancelled:
            raise KeyboardInterrupt
        cancel.cancel(signal.Signals(number).name)

    before = {number: signal.signal(number, arrived) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Display:
    """Prints a run. Several threads may tell it something at the same time."""

    def __init__(
        self, console: Console, *, follow: bool, repo: str, contract: str | None = None
    ) -> None:
        self._console = console
        self._follow = follow
        self._repo = repo
        self._contract = contract
        self._guard = threading.Lock()
        self.run_id = ""
        self._problems: list[str] = []

    def watch(self, event: Mapping[str, object]) -> None:
        """Take an event in."""
        with self._guard:
            self._begin(str(event["run_id"]))
            payload = event["payload"]
            assert isinstance(payload, dict)
            if payload.get("passed") is False and isinstance(payload.get("violations"), list):
                self._problems += [str(each) for each in payload["violations"]]
            console = self._console
            if self._follow and console.as_json:
                console.data(dict(event))
            elif self._follow:
                console.print(line(event), style(event))
            elif not console.as_json and _stands_out(event):
                console.note(line(event), style(event))
            console.out.flush()

    def _begin(self, run_id: str) -> None:
        if self.run_id:
            return
        self.run_id = run_id
        if self._console.as_json:
            self._console.note(f"run_id={run_id}")
        else:
            self._console.print(f"run_id={run_id}")

    def stopped(self, reason: str) -> None:
        """Say that it was stopped, and how it goes on."""
        again = next_command.resume(self.run_id, (), repo=self._repo)
        if self._console.as_json:
            self._console.data(
                {"run_id": self.run_id, "status": "stopped", "reason": reason, "next": again}
            )
            return
        self._console.print("status   stopped", "yellow")
        self._console.print(f"reason   {reason}")
        self._console.print(f"next     {again}")

    def ended(self, outcome: Outcome, bundle: Path) -> int:
        """Say how it ended, where the evidence is, and what is to be done."""
        from coilclaw.cli.console import visible
        from coilclaw.cli.dispatch import DENIED, DONE, FAILED, PROVIDER, USAGE

        self._begin(outcome.run_id)
        record = self._record(outcome, bundle)
        if self._console.as_json:
            self._console.data(record)
        else:
            problems = self._problems if outcome.status != "passed" else []
            for text in problems[:MAX_TOLD] if outcome.status in {"invalid", "failed"} else ():
                self._console.print(f"problem  {visible(text)}", "red")
            good = {"passed": "green", "paused": "yellow"}.get(outcome.status, "red")
            self._console.print(f"status   {outcome.status}", good)
            for name in ("reason", "merge", "bundle", "anchor", "next"):
                if record[name]:
                    self._console.print(f"{name:<8} {visible(str(record[name]))}")
        if outcome.status == "passed" and outcome.merge == "pending" and outcome.reason:
            return FAILED  # it was to be merged, and something is in the way
        codes = {"passed": DONE, "failed": FAILED, "invalid": USAGE, "provider": PROVIDER}
        return codes.get(outcome.status, DENIED)

    def _record(self, outcome: Outcome, bundle: Path) -> dict[str, Json]:
        integrity = outcome.manifest.integrity if outcome.manifest else None
        return {
            "run_id": outcome.run_id,
            "status": outcome.status,
            "state": outcome.state.value,
            "reason": outcome.reason,
            "merge": outcome.merge,
            "bundle": str(bundle),
            "anchor": integrity.root_hash if integrity else "",
            "waiting": list(outcome.waiting),
            "question": outcome.question,
            "problems": list(self._problems[:MAX_TOLD]) if outcome.status != "passed" else [],
            "next": next_command.after_run(outcome, repo=self._repo, contract=self._contract),
        }


def _stands_out(event: Mapping[str, object]) -> bool:
    kind = event["event_type"]
    return kind in {
        "STATE_TRANSITION",
        "TASK_STARTED",
        "gate_failed",
        "HUMAN_APPROVAL_REQUIRED",
        "LOCKS_AWAITED",
        "PLAN_REFUSED",
        "FIX_LOOP_TRIGGERED",
        "MERGE_COMPLETED",
    }
