"""Show a run while the user watches: its events, its result, and what to do next."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.cli.command import DENIED, DONE, FAILED, PROVIDER, USAGE, Namespace, find_home
from coilclaw.cli.console import Console, escape_hidden
from coilclaw.cli.runs.run_events import Event, command_lines, refusal_line
from coilclaw.kernel import Stopped, signal_scope
from coilclaw.runs import next_command

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.app import Logs
    from coilclaw.runs import Failures, Orchestrator, RunOutcome, WaitTerms
    from coilclaw.workspace import Cancellation

    Watch: TypeAlias = Callable[[Mapping[str, object]], None]
    Carry: TypeAlias = Callable[[Orchestrator, Watch], RunOutcome]

MAX_LISTED: Final = 500
"""Problems listed one by one."""
AGENT_PART: Final = "agent_part"
RESULT: Final = "result"
"""The type of the last line with ``--json``."""
_CODES: Final = {"passed": DONE, "failed": FAILED, "invalid": USAGE, "provider": PROVIDER}


def attend_run(
    args: Namespace, console: Console, carry: Carry, terms: WaitTerms | None = None
) -> int:
    """Carry out a run, show it while it is active, and return the exit code."""
    from coilclaw.app import open_orchestrator
    from coilclaw.runs import WaitTerms
    from coilclaw.workspace import Cancellation

    cancel = Cancellation()

    def stop(number: signal.Signals) -> None:
        """End the run cleanly; a second signal ends it at once."""
        if cancel.cancelled:
            raise KeyboardInterrupt
        cancel.cancel("Ctrl-C" if number is signal.SIGINT else number.name)

    terms = replace(terms or WaitTerms(), ask_user=_ask_user(console, cancel))
    runs = open_orchestrator(Path(args.repo), find_home(), os.environ, terms=terms, cancel=cancel)
    shown = RunDisplay(console, args, runs)
    hearing = signal_scope(stop, signal.SIGINT, signal.SIGTERM)
    try:
        with _logging(runs), hearing, shown.narrator or nullcontext():
            outcome = carry(runs, shown.watch)
    except Stopped as problem:
        if not shown.run_id:
            raise
        shown.show_stop(problem.message)
        return DENIED
    if outcome.waiting:
        outcome = replace(outcome, waiting=_find_unanswered(runs, outcome.waiting))
    return shown.show_end(outcome)


def _ask_user(console: Console, cancel: Cancellation) -> Callable[[str], str | None]:
    """Return a function that asks the planner's questions at the terminal, if there is one.

    The run pauses on an empty line, on Ctrl-C and at the end of the input. Control
    characters of the planner are escaped.
    """
    from coilclaw.cli.question import Questions

    questions = Questions(console, sys.stdin, cancel)

    def ask(question: str) -> str | None:
        if console.as_json or not questions.attended:
            return None
        console.note("the planner asks:", "yellow")
        try:
            return (
                questions.text(f"{escape_hidden(question)}\n>", flag="--answer", default="") or None
            )
        except Stopped:
            return None

    return ask


def _find_unanswered(runs: Orchestrator, waiting: tuple[str, ...]) -> tuple[str, ...]:
    """Return the questions of a run that are not answered yet."""
    pending = {each.id for each in runs.equipment.desk.list()}
    return tuple(name for name in waiting if name in pending)


def _logging(runs: Orchestrator) -> Logs:
    """Log only warnings unless logs are requested: the events are shown already."""
    from coilclaw.app import VARIABLE, configure, open_config

    return configure(
        os.environ,
        sys.stderr,
        redact=runs.settings.redactor.redact,
        level=logging.INFO if os.environ.get(VARIABLE) else logging.WARNING,
        audit=open_config(runs.home, os.environ).security.audit_log,
    )


class RunDisplay:
    """Prints a run; several threads may report events at the same time."""

    def __init__(self, console: Console, args: Namespace, runs: Orchestrator) -> None:
        from coilclaw.cli.runs.run_narrator import Narrator

        self._console = console
        self._args = args
        self._find_bundle = runs.places.bundle
        # Only some terminals can show a status line.
        live = console.out.isatty() and os.environ.get("TERM", "") not in {"", "dumb"}
        silent = console.as_json or args.quiet
        self.narrator = None if silent else Narrator(console, self._find_bundle, live=live)
        """Describes the run in sentences; ``None`` with ``--json`` and ``--quiet``."""
        self._guard = threading.Lock()
        self.run_id = ""
        self._problems: list[str] = []

    def watch(self, event: Mapping[str, object]) -> None:
        """Show an event; a closed pipe, as in ``… | head``, does not end the run."""
        from coilclaw.cli.dispatch import forget_output

        try:
            self._show_event(event)
        except BrokenPipeError:
            forget_output()

    def _show_event(self, event: Mapping[str, object]) -> None:
        with self._guard:
            self._begin(str(event["run_id"]))
            payload = event["payload"]
            assert isinstance(payload, dict)
            if payload.get("passed") is False and isinstance(payload.get("violations"), list):
                self._problems += [str(each) for each in payload["violations"]]
            if self.narrator is not None:
                if self._args.verbose and event["event_type"] != AGENT_PART:
                    self.narrator.tell(Event(event).line, "dim")
                self.narrator.watch(event)
            elif self._console.as_json and not self._args.quiet:
                self._console.data(dict(event))
            self._console.out.flush()

    def _begin(self, run_id: str) -> None:
        if self.run_id:
            return
        self.run_id = run_id
        if self._console.as_json:
            self._console.note(f"run_id={run_id}")
        else:
            (self.narrator or self._console).print(f"run_id={run_id}")

    def show_stop(self, reason: str) -> None:
        """Print that the run was stopped, and how to resume it."""
        again = next_command.resume(self.run_id, (), repo=self._args.repo)
        record = {"run_id": self.run_id, "status": "stopped", "reason": reason, "next": again}
        if not self._console.emit(record):
            self._console.print("status   stopped", "yellow")
            self._console.print(f"reason   {reason}")
            self._console.print(f"next     {again}")

    def show_end(self, outcome: RunOutcome) -> int:
        """Print the result, where the evidence is, and what to do next."""
        from coilclaw.runs import read_events, read_failures

        self._begin(outcome.run_id)
        bundle = self._find_bundle(outcome.run_id)
        abandoned = getattr(self._args, "action", "") == "abandon" and outcome.status == "denied"
        failures = read_failures(bundle, read_events(bundle))
        record = self._record(outcome, bundle, failures)
        if not self._console.emit(record):
            if self.narrator is not None:
                self._console.print()
            if outcome.status in {"invalid", "failed"}:
                self._show_failures(failures, bundle)
            style = {"passed": "green", "paused": "yellow"}.get(outcome.status, "red")
            self._console.print(f"status   {'abandoned' if abandoned else outcome.status}", style)
            for name in ("reason", "merge", "bundle", "anchor", "next"):
                if record[name]:
                    self._console.print(f"{name:<8} {escape_hidden(str(record[name]))}")
        if outcome.status == "passed" and outcome.merge == "pending" and outcome.reason:
            return FAILED  # it should have been merged, and could not be
        return DONE if abandoned else _CODES.get(outcome.status, DENIED)

    def _show_failures(self, failures: Failures, bundle: Path) -> None:
        """Print the last failures, with the output of commands if the narrator did not print it."""
        last = max((each.attempt for each in failures.refusals), default=0)
        for refusal in failures.refusals[:MAX_LISTED]:
            if refusal.attempt == last:
                self._console.print(f"problem  {refusal_line(refusal)}", "red")
        for command in failures.commands[-1:] if self.narrator is None else ():
            for text in command_lines(command, bundle):
                self._console.print(f"         {text}", "dim")

    def _record(self, outcome: RunOutcome, bundle: Path, failures: Failures) -> dict[str, object]:
        integrity = outcome.manifest.integrity if outcome.manifest else None
        contract = getattr(self._args, "contract", None)
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
            "problems": self._problems[:MAX_LISTED] if outcome.status != "passed" else [],
            **failures.json(),
            "next": next_command.after_run(
                outcome,
                repo=self._args.repo,
                contract="" if contract in {None, "-"} else str(contract),
            ),
        }
