"""``Narrator``: tells of a run in sentences while it goes on, for ``run`` and for the demo."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from coilclaw.agents.denial import SANDBOX_RULE, TOOL_RULE
from coilclaw.app.run_failures import (
    clean_line,
    read_changed_files,
    read_dropped,
    read_failed_commands,
    read_refusals,
)
from coilclaw.cli.console import visible
from coilclaw.cli.failure_lines import command_lines, refusal_sentence
from coilclaw.cli.status_line import StatusLine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from coilclaw.cli.console import Console

TITLES: Final = {
    "S2_WORKER": "The work, each task in a worktree and a sandbox of its own",
    "S3_REVIEWER": "The reviewer looks at all accepted work together, and can write nothing",
    "S4_TEST": "The tests, run by the orchestrator and nobody else",
    "S5_FIX": "The fix loop: while retries are left, what failed becomes a new contract",
    "S6_DONE": "The end of the run",
}
"""What begins when a run enters a state."""
PLANNING: Final = "the PM plans"
AGAIN: Final = "A worker again, under the new contract"
SPLIT: Final = "The Tech Lead splits it into tasks that cannot get in each other's way"
MAX_CHARS: Final = 200
"""Of one line, as far as an agent, a model or a tool has a say in it."""
MAX_NAMES: Final = 10
_PLAN: Final = re.compile(r"plan-\d{4}\Z")
"""How the orchestrator names a conversation with the PM."""
_ROLES: Final = {"PM": "the PM", "TECH_LEAD": "the Tech Lead", "REVIEWER": "the reviewer"}


class Narrator:
    """Prints titles and what happens below them; several threads may report.

    On a terminal a last line shows who works, for how long and with how many tokens.
    """

    def __init__(
        self,
        console: Console,
        find_bundle: Callable[[str], Path],
        *,
        name_task: Callable[[str], str] = str,
        live: bool = False,
    ) -> None:
        self._console = console
        self._find_bundle = find_bundle
        self._name_task = name_task
        self._number = 0
        self._began = time.monotonic()
        self._doing = ""
        self._tokens: dict[str, int] = {}
        self._working: list[str] = []
        self._refused: set[str] = set()
        """Tasks of which it was told why they are not accepted."""
        self._line = StatusLine(console.out, self._render, live=live)
        self._says: Mapping[str, Callable[[Mapping[str, object], Facts], None]] = {
            "RUN_CREATED": self._begin,
            "RUN_RESUMED": self._resume,
            "MODEL_ASKED": self._tell_model,
            "CONTRACT_WRITTEN": self._tell_contract,
            "STATE_TRANSITION": self._tell_state,
            "LOCKS_AWAITED": self._tell_wait,
            "LOCKS_ACQUIRED": self._tell_locks,
            "LOCK_RECLAIMED": self._tell_reclaimed,
            "BASELINE_MOVED": self._tell_moved,
            "PLAN_REFUSED": self._tell_refused_plan,
            "USER_ANSWERED": self._tell_planning,
            "TASK_STARTED": self._tell_start,
            "agent_part": self._tell_part,
            "RUNNER_FAILED": self._tell_agent_failure,
            "DIFF_GATE_RESULT": self._tell_dropped,
            "TASK_RESULT_RECORDED": self._tell_result,
            "ROLLBACK_APPLIED": self._tell_rollback,
            "FIX_LOOP_TRIGGERED": self._tell_repair,
            "FIX_LOOP_EXHAUSTED": self._tell_no_repair,
            "REVIEW_RESULT": self._tell_review,
            "COMMAND_STARTED": self._tell_command_start,
            "COMMAND_FINISHED": self._tell_command,
            "SETUP_RESULT": self._tell_setup,
            "BASELINE_RESULT": self._tell_baseline,
            "policy_violation": self._tell_denial,
            "HUMAN_APPROVAL_REQUIRED": self._tell_question,
            "HUMAN_APPROVAL_COMPLETED": self._tell_answer,
            "MERGE_COMPLETED": self._tell_merge,
            "MERGE_PENDING": self._tell_pending,
        }

    def __enter__(self) -> Self:
        self._line.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._line.__exit__()

    def title(self, text: str) -> None:
        """Begin the next part of the story."""
        self._number += 1
        with self._line.cleared():
            self._console.print()
            self._console.print(f"{self._number}. {text}", "bold")
            self._console.out.flush()

    def tell(self, text: str, style: str | None = None) -> None:
        """Say one thing below a title."""
        self.print(f"  {text}", style)

    def print(self, text: str, style: str | None = None) -> None:
        """Print a line that stays; nothing in it can act on a terminal."""
        with self._line.cleared():
            self._console.print(visible(text), style)
            self._console.out.flush()

    def watch(self, event: Mapping[str, object]) -> None:
        """Take an event of the run in, and tell what a reader needs of it."""
        payload = event["payload"]
        facts = Facts(payload if isinstance(payload, dict) else {})
        with self._line.guard:
            says = self._says.get(str(event["event_type"]))
            if says is not None:
                says(event, facts)
            self._tell_failures(event)

    def _tell_failures(self, event: Mapping[str, object]) -> None:
        """Say what a gate refused, and what failed commands wrote."""
        task = self._task(event)
        for refusal in read_refusals(event):
            self._refused.add(refusal.task_id)
            self.tell(f"{task}{refusal_sentence(refusal)}", "red")
        directory = self._find_bundle(str(event["run_id"]))
        if event["event_type"] == "RUNNER_FAILED":
            return  # What its program wrote was told as it wrote it.
        for command in read_failed_commands(directory, event):
            for text in command_lines(command, directory):
                self.tell(text, "dim")

    def _task(self, event: Mapping[str, object]) -> str:
        """Return a task's name as the beginning of a sentence; empty where the run itself is it."""
        task_id = event.get("task_id")
        return f"{self._name_task(str(task_id))}: " if task_id else ""

    def _begin(self, _: Mapping[str, object], facts: Facts) -> None:
        commit = facts.text("baseline_commit")[:12]
        reviewer = facts.text("reviewer").partition(":")[0]
        reviewed = f", {reviewer} reviews" if reviewer else ""
        runner = _describe_runner(facts)
        self.tell(f"{runner} performs the work{reviewed}; it starts from {commit}")
        self._doing = "" if facts.text("contract_sha256") else PLANNING

    def _resume(self, _: Mapping[str, object], __: Facts) -> None:
        self.tell("the run is resumed")

    def _tell_model(self, _: Mapping[str, object], facts: Facts) -> None:
        self._doing = ""
        role = facts.text("role")
        if role == "TECH_LEAD":
            self.title(SPLIT)
        who = _ROLES.get(role, role.lower())
        model = facts.text("model") or facts.text("provider")
        self.tell(f"{who} ({model}) has answered; the answer is checked against its schema", "dim")

    def _tell_contract(self, event: Mapping[str, object], facts: Facts) -> None:
        if not facts.text("parent_task_id"):
            self.tell("the contract is kept: paths, tests, permissions, retries")
        elif not facts.items("replaces"):
            self.tell(f"{self._task(event)}a contract of its own")

    def _tell_state(self, _: Mapping[str, object], facts: Facts) -> None:
        target = facts.text("to")
        again = target == "S2_WORKER" and facts.text("from") == "S5_FIX"
        self._doing = ""
        if target in TITLES:
            self.title(AGAIN if again else TITLES[target])

    def _tell_wait(self, _: Mapping[str, object], facts: Facts) -> None:
        self._doing = "the run waits for its turn"
        self.tell(facts.text("reason"), "yellow")

    def _tell_reclaimed(self, event: Mapping[str, object], facts: Facts) -> None:
        former = facts.text("run_id")
        if former != event["run_id"]:  # A run that is resumed takes its own locks over.
            path = facts.text("path")
            self.tell(f"{path} is taken over from {former}, on which nobody works", "yellow")

    def _tell_moved(self, _: Mapping[str, object], facts: Facts) -> None:
        self.tell(
            f"the branch has moved: the work starts from {facts.text('baseline_commit')[:12]}"
        )

    def _tell_locks(self, _: Mapping[str, object], facts: Facts) -> None:
        self._doing = ""
        self.tell(f"every gate passed, and the paths are locked: {facts.names('paths')}")

    def _tell_planning(self, _: Mapping[str, object], __: Facts) -> None:
        self._doing = PLANNING

    def _tell_refused_plan(self, _: Mapping[str, object], facts: Facts) -> None:
        self._doing = PLANNING
        self.tell(f"plan {facts.number('number')} is refused: {facts.names('problems')}", "yellow")

    def _tell_start(self, event: Mapping[str, object], facts: Facts) -> None:
        self._working.append(str(event["task_id"]))
        self.tell(f"{self._task(event)}{_describe_runner(facts)} begins")

    def _tell_part(self, event: Mapping[str, object], facts: Facts) -> None:
        """One line for one part of an agent's work."""
        task = str(event["task_id"])
        tokens = facts.number("tokens")
        more = f" · {tokens:,} tokens" if tokens != self._tokens.get(task, 0) else ""
        self._tokens[task] = tokens
        kind = facts.text("kind")
        if kind == "end":
            if task in self._working:
                self._working.remove(task)
            spent = f", {tokens:,} tokens" if tokens else ""
            took = describe_time(facts.number("elapsed_s"))
            who = "the PM" if _PLAN.match(task) else f"{self._task(event)}the agent"
            self.tell(f"{who} ends after {took}{spent}", "dim")
            return
        whose = self._task(event) if len(self._working) > 1 else ""
        head = f"{whose}{describe_time(facts.number('elapsed_s'))}  "
        for text, style in _describe_part(kind, facts):
            self.tell(f"{head}{text}{more}", style)
            more = ""

    def _tell_agent_failure(self, event: Mapping[str, object], facts: Facts) -> None:
        how = {"failed": "failed", "exhausted": "used up what it had"}.get(
            facts.text("status"), "did not finish"
        )
        self._refused.add(str(event["task_id"]))
        self.tell(f"{self._task(event)}the agent {how}: {facts.text('reason')}", "red")

    def _tell_dropped(self, event: Mapping[str, object], _: Facts) -> None:
        """Say what an agent wrote that is not part of the change, and why."""
        by_reason: dict[str, list[object]] = {}
        for path, reason in read_dropped(event):
            by_reason.setdefault(reason, []).append(path)
        for reason, paths in by_reason.items():
            listed = Facts({"paths": paths}).names("paths")
            self.tell(f"{self._task(event)}left out of the change: {listed}: {reason}", "yellow")

    def _tell_result(self, event: Mapping[str, object], facts: Facts) -> None:
        if facts.text("status") != "SUCCESS":
            told = str(event["task_id"]) in self._refused
            why = "" if told else f": {facts.text('reason')}"
            self.tell(f"{self._task(event)}not accepted{why}", "red")
            return
        directory = self._find_bundle(str(event["run_id"]))
        files = read_changed_files(directory, str(event["task_id"]))
        listed = [f"{cut(name)} +{plus} −{minus}" for name, plus, minus in files[:MAX_NAMES]]
        listed += [f"{len(files) - MAX_NAMES} more"] if len(files) > MAX_NAMES else []
        changed = f"changed {', '.join(listed)}" if listed else "changed nothing"
        self.tell(f"{self._task(event)}{changed}; within its contract", "green")

    def _tell_rollback(self, event: Mapping[str, object], facts: Facts) -> None:
        kept = facts.text("snapshot")[:12]
        said = f"rolled back before anybody reviewed it; kept as snapshot {kept}"
        self.tell(f"{self._task(event)}{said}", "yellow")

    def _tell_repair(self, event: Mapping[str, object], facts: Facts) -> None:
        child = self._name_task(facts.text("child_task_id"))
        task_id = event.get("task_id")
        whom = self._name_task(str(task_id)) if task_id else "the work"
        self.tell(
            f"{whom} is to be repaired as {child}, with the failed "
            f"evidence bound by its hashes; retries left: {facts.number('retries_left')}"
        )

    def _tell_no_repair(self, _: Mapping[str, object], facts: Facts) -> None:
        self.tell(f"no retries are left: {facts.text('reason')}", "red")

    def _tell_review(self, event: Mapping[str, object], facts: Facts) -> None:
        passed = facts.text("verdict") == "PASS"
        self.tell(f"{self._task(event)}{facts.text('verdict')}", "green" if passed else "red")

    def _tell_command_start(self, _: Mapping[str, object], facts: Facts) -> None:
        name = facts.text("name")
        self._doing = "the PM tries a test on the baseline" if _is_trial(facts) else f"{name} runs"

    def _tell_command(self, _: Mapping[str, object], facts: Facts) -> None:
        self._doing = ""
        if _is_trial(facts):  # The part of the PM that tried it tells the rest.
            self._doing = PLANNING
            return
        code, name = facts.number("exit_code"), facts.text("name")
        said = "green" if code == 0 else "RED"
        where = f" on the {facts.text('where')}" if facts.text("where") == "baseline" else ""
        if facts.text("outcome") == "cancelled":
            self.tell(f"{name}{where}: stopped before it ended", "yellow")
            return
        bad = "yellow" if where else "red"
        self.tell(f"{name}{where}: {said} (exit code {code})", "green" if code == 0 else bad)

    def _tell_setup(self, _: Mapping[str, object], facts: Facts) -> None:
        done = facts.text("status") == "PASS"
        self.tell(
            "the set-up is made, and kept for every worktree" if done else "the set-up FAILED"
        )

    def _tell_baseline(self, _: Mapping[str, object], facts: Facts) -> None:
        if facts.text("fault"):
            self.tell("the baseline cannot be tested here", "red")
        elif facts.text("status") == "PASS":
            self.tell("the tests are green before the work begins")
        else:
            self.tell("the tests are red before the work begins")

    def _tell_denial(self, event: Mapping[str, object], facts: Facts) -> None:
        if facts.text("rule") in {TOOL_RULE, SANDBOX_RULE}:
            said = f"refused: {facts.text('what')}: {facts.text('why')}"
            self.tell(f"{self._task(event)}{said}", "yellow")

    def _tell_question(self, event: Mapping[str, object], facts: Facts) -> None:
        asked, why = facts.text("approval_id"), facts.text("reason")
        self.tell(f"{self._task(event)}waits for an approval: {why}", "yellow")
        self.tell(f"to allow it: coilclaw approve {asked}", "yellow")

    def _tell_answer(self, _: Mapping[str, object], facts: Facts) -> None:
        said = "approved" if facts.values.get("approved") is True else "not approved"
        self.tell(f"{facts.text('approval_id')} was {said} by {facts.text('by')}")

    def _tell_merge(self, _: Mapping[str, object], facts: Facts) -> None:
        commit = facts.text("commit")[:12]
        self.tell(f"the gates passed once more: {facts.text('branch')} is now at {commit}", "green")

    def _tell_pending(self, _: Mapping[str, object], facts: Facts) -> None:
        self.tell(f"the work is accepted; it is not merged into {facts.text('branch')} yet")

    def _render(self) -> str | None:
        doing = self._doing
        if self._working:
            names = [self._name_task(task) for task in self._working]
            doing = f"{names[0]} is worked on" if len(names) == 1 else f"{len(names)} tasks"
        spent = describe_time(time.monotonic() - self._began)
        tokens = sum(self._tokens.values())
        used = f" · {tokens:,} tokens" if tokens else ""
        return f"  {cut(doing)} · {spent}{used}" if doing else None


@dataclass(frozen=True, slots=True)
class Facts:
    """The payload of an event, whose texts may be anything."""

    values: Mapping[str, object]

    def text(self, name: str) -> str:
        """Return a value as one bounded line; nothing where there is none."""
        value = self.values.get(name)
        return "" if value is None else cut(str(value))

    def number(self, name: str) -> int:
        """Return a value that should be a number; nothing is 0."""
        value = self.values.get(name)
        return int(value) if isinstance(value, int | float) else 0

    def items(self, name: str) -> list[object]:
        """Return a value that should be a list."""
        value = self.values.get(name)
        return value if isinstance(value, list) else []

    def names(self, name: str) -> str:
        """Return a list of names, as far as it fits a line."""
        found = [cut(str(each)) for each in self.items(name)]
        more = [f"{len(found) - MAX_NAMES} more"] if len(found) > MAX_NAMES else []
        return ", ".join(found[:MAX_NAMES] + more)


def _is_trial(facts: Facts) -> bool:
    """Tell a command that the PM tries from a test of the contract."""
    return facts.text("where") == "plan"


def _describe_runner(facts: Facts) -> str:
    """Return what kind of runner it is, without the file or the command line behind it."""
    return facts.text("runner").partition(":")[0]


def _describe_part(kind: str, facts: Facts) -> list[tuple[str, str | None]]:
    text = cut(clean_line(str(facts.values.get("text", ""))))
    code = facts.values.get("exit_code")
    if kind == "file":
        return [(_describe_file(file), "cyan") for file in facts.items("files")]
    if kind in {"command", "tool"}:
        ended = "" if code is None else f" (exit code {code})"
        mark = "$ " if kind == "command" else ""
        return [(f"{mark}{text}{ended}", None if code in {None, 0} else "yellow")]
    label = {"thought": "thinks: ", "message": "says: ", "output": "| "}.get(kind, "")
    return [(f"{label}{text}", "dim")] if text else []


def _describe_file(file: object) -> str:
    facts = Facts(file if isinstance(file, dict) else {})
    if facts.values.get("added") is None:
        return f"{facts.text('path')} changed"
    return f"{facts.text('path')} +{facts.number('added')} −{facts.number('removed')}"


def describe_time(seconds: float) -> str:
    """Return a duration as minutes and seconds, with hours where there are any."""
    whole = int(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def cut(text: str) -> str:
    """Return a text on one line, cut to what a line has room for."""
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_CHARS else f"{flat[:MAX_CHARS]}…"
