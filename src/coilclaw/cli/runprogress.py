"""A run while the user watches it: its events, its end, and what to do next."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.app import next_command
from coilclaw.cli.eventlines import line
from coilclaw.cli.failure_lines import command_lines, refusal_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from coilclaw.app.run_failures import Failures
    from coilclaw.app.runwiring import Orchestrator, Terms
    from coilclaw.cli.console import Console
    from coilclaw.cli.run_narration import Narrator
    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.engine import Outcome
    from coilclaw.telemetry.logs import Logs
    from coilclaw.workspace.cancel import Cancellation

    Watch: TypeAlias = Callable[[Mapping[str, object]], None]
    Carry: TypeAlias = Callable[[Orchestrator, Watch], Outcome]

MAX_TOLD: Final = 500
"""Problems that are listed one by one."""
AGENT_PART: Final = "agent_part"
RESULT: Final = "result"
"""The type of the last line with ``--json``."""
_SIGNALS: Final = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: signal.SIGTERM.name}
"""What ends a run cleanly, as its reason names it."""


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
    terms = replace(terms or Terms(), ask_user=_asking_user(console, cancel))
    runs = Orchestrator(Path(args.repo), home(), os.environ, terms=terms, cancel=cancel)
    shown = Display(console, View.of(args, console, runs.places.bundle))
    try:
        with _logging(runs), _stoppable(cancel), shown.narrator or nullcontext():
            outcome = carry(runs, shown.watch)
    except Stopped as problem:
        if not shown.run_id:
            raise
        shown.stopped(problem.message)
        return DENIED
    if outcome.waiting:
        outcome = replace(outcome, waiting=_unanswered(runs, outcome.waiting))
    return shown.ended(outcome, runs.places.bundle(outcome.run_id))


def _asking_user(console: Console, cancel: Cancellation) -> Callable[[str], str | None]:
    """Ask at the terminal what the planner must know, if there is one.

    The run pauses on an empty line, on Ctrl-C and at the end of the input. What
    the planner wrote cannot act on the terminal.
    """
    from coilclaw.cli.console import visible
    from coilclaw.cli.question import Questions
    from coilclaw.errors import Stopped

    questions = Questions(console, sys.stdin, cancel)

    def ask(question: str) -> str | None:
        if console.as_json or not questions.attended:
            return None
        console.note("the planner asks:", "yellow")
        try:
            return questions.text(f"{visible(question)}\n>", flag="--answer", default="") or None
        except Stopped:
            return None

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
        cancel.cancel(_SIGNALS[signal.Signals(number)])

    before = {number: signal.signal(number, arrived) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class View:
    """How much of a run is shown, and what the caller typed."""

    narrator: Narrator | None
    """Tells of the run in sentences; ``None`` where machines read, or nobody wants to know."""
    quiet: bool
    verbose: bool
    repository: str
    contract: str
    """The file of the contract; empty where there is none that can be named."""
    abandon: bool
    """Whether the run is given up."""

    @classmethod
    def of(
        cls, args: argparse.Namespace, console: Console, find_bundle: Callable[[str], Path]
    ) -> View:
        """Take it from the arguments; a status line is for terminals that can show one."""
        from coilclaw.cli.run_narration import Narrator

        live = console.out.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}
        silent = console.as_json or args.quiet
        contract = getattr(args, "contract", None)
        return cls(
            None if silent else Narrator(console, find_bundle, live=live),
            args.quiet,
            args.verbose,
            args.repo,
            "" if contract in {None, "-"} else str(contract),
            getattr(args, "action", None) == "abandon",
        )


class Display:
    """Prints a run. Several threads may tell it something at the same time."""

    def __init__(self, console: Console, view: View) -> None:
        self._console = console
        self._view = view
        self._guard = threading.Lock()
        self.run_id = ""
        self._problems: list[str] = []

    @property
    def narrator(self) -> Narrator | None:
        return self._view.narrator

    def watch(self, event: Mapping[str, object]) -> None:
        """Take an event in; a reader that goes away, as in ``… | head``, does not end the run."""
        from coilclaw.cli.dispatch import forget_output

        try:
            self._tell(event)
        except BrokenPipeError:
            forget_output()

    def _tell(self, event: Mapping[str, object]) -> None:
        with self._guard:
            self._begin(str(event["run_id"]))
            payload = event["payload"]
            assert isinstance(payload, dict)
            if payload.get("passed") is False and isinstance(payload.get("violations"), list):
                self._problems += [str(each) for each in payload["violations"]]
            narrator = self._view.narrator
            if narrator is not None:
                if self._view.verbose and event["event_type"] != AGENT_PART:
                    narrator.tell(line(event), "dim")
                narrator.watch(event)
            elif self._console.as_json and not self._view.quiet:
                self._console.data(dict(event))
            self._console.out.flush()

    def _begin(self, run_id: str) -> None:
        if self.run_id:
            return
        self.run_id = run_id
        if self._console.as_json:
            self._console.note(f"run_id={run_id}")
        elif self._view.narrator is not None:
            self._view.narrator.print(f"run_id={run_id}")
        else:
            self._console.print(f"run_id={run_id}")

    def stopped(self, reason: str) -> None:
        """Say that it was stopped, and how it goes on."""
        again = next_command.resume(self.run_id, (), repo=self._view.repository)
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
        abandoned = self._view.abandon and outcome.status == "denied"
        failures = _read_failures(bundle)
        record = self._record(outcome, bundle, failures)
        if self._console.as_json:
            self._console.data(record)
        else:
            if self._view.narrator is not None:
                self._console.print()
            if outcome.status in {"invalid", "failed"}:
                self._print_failures(failures, bundle)
            good = {"passed": "green", "paused": "yellow"}.get(outcome.status, "red")
            self._console.print(f"status   {'abandoned' if abandoned else outcome.status}", good)
            for name in ("reason", "merge", "bundle", "anchor", "next"):
                if record[name]:
                    self._console.print(f"{name:<8} {visible(str(record[name]))}")
        if outcome.status == "passed" and outcome.merge == "pending" and outcome.reason:
            return FAILED  # it was to be merged, and something is in the way
        if abandoned:
            return DONE
        codes = {"passed": DONE, "failed": FAILED, "invalid": USAGE, "provider": PROVIDER}
        return codes.get(outcome.status, DENIED)

    def _print_failures(self, failures: Failures, bundle: Path) -> None:
        """Print what failed at last; what commands wrote only where it was not told already."""
        last = max((each.attempt for each in failures.refusals), default=0)
        for refusal in failures.refusals[:MAX_TOLD]:
            if refusal.attempt == last:
                self._console.print(f"problem  {refusal_line(refusal)}", "red")
        for command in failures.commands[-1:] if self._view.narrator is None else ():
            for text in command_lines(command, bundle):
                self._console.print(f"         {text}", "dim")

    def _record(self, outcome: Outcome, bundle: Path, failures: Failures) -> dict[str, Json]:
        integrity = outcome.manifest.integrity if outcome.manifest else None
        return {
            "event_type": RESULT,
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
            **failures.json(),
            "next": next_command.after_run(
                outcome, repo=self._view.repository, contract=self._view.contract
            ),
        }


def _read_failures(bundle: Path) -> Failures:
    from coilclaw.app.run_failures import read_failures
    from coilclaw.app.runlisting import events

    return read_failures(bundle, events(bundle))
