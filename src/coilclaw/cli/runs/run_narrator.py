"""``Narrator``: describe a run in sentences while it is active, for ``run`` and the demo."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from coilclaw.cli.runs.run_events import Event, command_lines, refusal_sentence
from coilclaw.cli.status_line import StatusLine
from coilclaw.runners import SANDBOX_RULE, TOOL_RULE
from coilclaw.runs import (
    clean_line,
    read_changed_files,
    read_dropped,
    read_failed_commands,
    read_refusals,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from coilclaw.cli.console import Console

TITLES: Final = {
    "S2_WORKER": "The work, each task in a worktree and a sandbox of its own",
    "S3_REVIEWER": "The reviewer checks all accepted work together, read-only",
    "S4_TEST": "The tests, run by the orchestrator alone",
    "S5_FIX": "The fix loop: while retries are left, a failure becomes a new contract",
    "S6_DONE": "The end of the run",
}
"""The title of each state that a run enters."""
PLANNING: Final = "the PM plans"
AGAIN: Final = "A worker again, under the new contract"
SPLIT: Final = "The Tech Lead splits it into tasks that cannot conflict"
MAX_CHARS: Final = 200
"""Of the text of an agent, a model or a tool in one line."""
MAX_NAMES: Final = 10
_PLAN: Final = re.compile(r"plan-\d{4}\Z")
"""How the orchestrator names a conversation with the PM."""
_ROLES: Final = {"PM": "the PM", "TECH_LEAD": "the Tech Lead", "REVIEWER": "the reviewer"}
_DOING: Final = {
    "MODEL_ASKED": "",
    "STATE_TRANSITION": "",
    "LOCKS_AWAITED": "the run waits for its turn",
    "LOCKS_ACQUIRED": "",
    "PLAN_REFUSED": PLANNING,
    "USER_ANSWERED": PLANNING,
    "COMMAND_FINISHED": "",
}
"""What the status line shows after an event."""
_SENTENCES: Final[Mapping[str, tuple[str, str | None]]] = {
    "RUN_RESUMED": ("the run is resumed", None),
    "LOCKS_AWAITED": ("{reason}", "yellow"),
    "LOCKS_ACQUIRED": ("every gate passed, and the paths are locked: {paths}", None),
    "BASELINE_MOVED": ("the branch has moved: the work starts from {baseline_commit:.12}", None),
    "PLAN_REFUSED": ("plan {number} is refused: {problems}", "yellow"),
    "ROLLBACK_APPLIED": (
        "{task}rolled back without a review; kept as snapshot {snapshot:.12}",
        "yellow",
    ),
    "HUMAN_APPROVAL_REQUIRED": (
        "{task}waits for an approval: {reason}\nto allow it: coilclaw approve {approval_id}",
        "yellow",
    ),
    "FIX_LOOP_EXHAUSTED": ("no retries are left: {reason}", "red"),
    "MERGE_COMPLETED": ("the gates passed once more: {branch} is now at {commit:.12}", "green"),
    "MERGE_PENDING": ("the work is accepted; it is not merged into {branch} yet", None),
}
"""The sentence for an event, with values of its payload, and its style."""


class Narrator(StatusLine):
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
        super().__init__(console.out, live=live, render=self._describe)
        self._console = console
        self._find_bundle = find_bundle
        self._name_task = name_task
        self._number = 0
        self._began = time.monotonic()
        self._doing = ""
        self._tokens: dict[str, int] = {}
        self._working: list[str] = []
        self._refused: set[str] = set()
        """Tasks whose refusal was explained already."""

    def title(self, text: str) -> None:
        """Print the title of the next part."""
        self._number += 1
        with self.clear_line():
            self._console.print()
            self._console.print(f"{self._number}. {text}", "bold")
            self._console.out.flush()

    def tell(self, text: str, style: str | None = None) -> None:
        """Print one line below a title."""
        self.print(f"  {text}", style)

    def print(self, text: str, style: str | None = None) -> None:
        """Print a line that stays, with control characters escaped."""
        with self.clear_line():
            self._console.show(text, style)
            self._console.out.flush()

    def watch(self, record: Mapping[str, object]) -> None:
        """Print what a reader needs to know about an event.

        An event without a sentence in the table has a method: ``_on_`` and its type.
        """
        facts = Facts(record, self._name_task)
        with self.guard:
            self._doing = _DOING.get(facts.kind, self._doing)
            if sentence := _SENTENCES.get(facts.kind):
                for line in sentence[0].split("\n"):
                    self.tell(line.format_map(facts), sentence[1])
            elif teller := getattr(self, f"_on_{facts.kind.lower()}", None):
                teller(facts)
            self._tell_failures(facts)

    def _tell_failures(self, facts: Facts) -> None:
        """Print what a gate refused, and the output of failed commands."""
        for refusal in read_refusals(facts.record):
            self._refused.add(refusal.task_id)
            self.tell(f"{facts.task}{refusal_sentence(refusal)}", "red")
        if facts.kind == "RUNNER_FAILED":
            return  # The output of its program was printed already.
        directory = self._find_bundle(facts.run_id)
        for command in read_failed_commands(directory, facts.record):
            for text in command_lines(command, directory):
                self.tell(text, "dim")

    def _on_run_created(self, facts: Facts) -> None:
        reviewer = facts["reviewer"].partition(":")[0]
        reviewed = f", {reviewer} reviews" if reviewer else ""
        commit = facts["baseline_commit"][:12]
        self.tell(f"{facts.runner} performs the work{reviewed}; it starts from {commit}")
        self._doing = "" if facts["contract_sha256"] else PLANNING

    def _on_model_asked(self, facts: Facts) -> None:
        role = facts["role"]
        if role == "TECH_LEAD":
            self.title(SPLIT)
        who = _ROLES.get(role, role.lower())
        model = facts["model"] or facts["provider"]
        self.tell(f"{who} ({model}) has answered; the answer is checked against its schema", "dim")

    def _on_contract_written(self, facts: Facts) -> None:
        if not facts["parent_task_id"]:
            self.tell("the contract is kept: paths, tests, permissions, retries")
        elif not facts["replaces"]:
            self.tell(f"{facts.task}a contract of its own")

    def _on_state_transition(self, facts: Facts) -> None:
        target = facts["to"]
        again = target == "S2_WORKER" and facts["from"] == "S5_FIX"
        if target in TITLES:
            self.title(AGAIN if again else TITLES[target])

    def _on_lock_reclaimed(self, facts: Facts) -> None:
        former = facts["run_id"]
        if former != facts.run_id:  # A resumed run takes over its own locks.
            said = f"{facts['path']} is taken over from {former}, which is not active"
            self.tell(said, "yellow")

    def _on_task_started(self, facts: Facts) -> None:
        self._working.append(facts.task_id)
        self.tell(f"{facts.task}{facts.runner} begins")

    def _on_agent_part(self, facts: Facts) -> None:
        """Print one part of an agent's work in one line."""
        task = facts.task_id
        tokens = facts.number("tokens")
        more = f" · {tokens:,} tokens" if tokens != self._tokens.get(task, 0) else ""
        self._tokens[task] = tokens
        took = describe_time(facts.number("elapsed_s"))
        if facts["kind"] == "end":
            if task in self._working:
                self._working.remove(task)
            spent = f", {tokens:,} tokens" if tokens else ""
            who = "the PM" if _PLAN.match(task) else f"{facts.task}the agent"
            self.tell(f"{who} ends after {took}{spent}", "dim")
            return
        whose = facts.task if len(self._working) > 1 else ""
        for text, style in _describe_part(facts):
            self.tell(f"{whose}{took}  {text}{more}", style)
            more = ""

    def _on_runner_failed(self, facts: Facts) -> None:
        ends = {"failed": "failed", "exhausted": "exhausted its limits"}
        how = ends.get(facts["status"], "did not finish")
        self._refused.add(facts.task_id)
        self.tell(f"{facts.task}the agent {how}: {facts['reason']}", "red")

    def _on_diff_gate_result(self, facts: Facts) -> None:
        """Print which files of an agent are not part of the change, and why."""
        by_reason: dict[str, list[str]] = {}
        for path, reason in read_dropped(facts.record):
            by_reason.setdefault(reason, []).append(path)
        for reason, paths in by_reason.items():
            listed = join_names(map(cut, paths))
            self.tell(f"{facts.task}left out of the change: {listed}: {reason}", "yellow")

    def _on_task_result_recorded(self, facts: Facts) -> None:
        if facts["status"] != "SUCCESS":
            why = "" if facts.task_id in self._refused else f": {facts['reason']}"
            self.tell(f"{facts.task}not accepted{why}", "red")
            return
        files = read_changed_files(self._find_bundle(facts.run_id), facts.task_id)
        listed = join_names(f"{cut(name)} +{plus} −{minus}" for name, plus, minus in files)
        self.tell(f"{facts.task}changed {listed or 'nothing'}; within its contract", "green")

    def _on_fix_loop_triggered(self, facts: Facts) -> None:
        child = self._name_task(facts["child_task_id"])
        whom = facts.task.removesuffix(": ") or "the work"
        self.tell(
            f"{whom} is to be repaired as {child}, with the failed "
            f"evidence bound by its hashes; retries left: {facts.number('retries_left')}"
        )

    def _on_review_result(self, facts: Facts) -> None:
        verdict = facts["verdict"]
        self.tell(f"{facts.task}{verdict}", "green" if verdict == "PASS" else "red")

    def _on_command_started(self, facts: Facts) -> None:
        tried = "the PM tries a test on the baseline"
        self._doing = tried if facts.is_trial else f"{facts['name']} runs"

    def _on_command_finished(self, facts: Facts) -> None:
        if facts.is_trial:  # The part of the PM that tried it reports the result.
            self._doing = PLANNING
            return
        baseline = facts["where"] == "baseline"
        name = facts["name"] + (" on the baseline" if baseline else "")
        if facts["outcome"] == "cancelled":
            self.tell(f"{name}: stopped before it ended", "yellow")
            return
        code = facts.number("exit_code")
        bad = "yellow" if baseline else "red"
        said, style = ("green", "green") if code == 0 else ("RED", bad)
        self.tell(f"{name}: {said} (exit code {code})", style)

    def _on_setup_result(self, facts: Facts) -> None:
        done = facts["status"] == "PASS"
        self.tell(
            "the set-up is done, and kept for every worktree" if done else "the set-up FAILED"
        )

    def _on_baseline_result(self, facts: Facts) -> None:
        if facts["fault"]:
            self.tell("the baseline cannot be tested here", "red")
            return
        colour = "green" if facts["status"] == "PASS" else "red"
        self.tell(f"the tests are {colour} before the work begins")

    def _on_policy_violation(self, facts: Facts) -> None:
        if facts["rule"] in {TOOL_RULE, SANDBOX_RULE}:
            self.tell(f"{facts.task}refused: {facts['what']}: {facts['why']}", "yellow")

    def _on_human_approval_completed(self, facts: Facts) -> None:
        said = "approved" if facts.facts.get("approved") is True else "not approved"
        self.tell(f"{facts['approval_id']} was {said} by {facts['by']}")

    def _describe(self) -> str | None:
        doing = self._doing
        if self._working:
            names = [self._name_task(task) for task in self._working]
            doing = f"{names[0]} is worked on" if len(names) == 1 else f"{len(names)} tasks"
        spent = describe_time(time.monotonic() - self._began)
        tokens = sum(self._tokens.values())
        used = f" · {tokens:,} tokens" if tokens else ""
        return f"  {cut(doing)} · {spent}{used}" if doing else None


class Facts(Event):
    """The payload of an event by name, each value as one bounded line; a missing value is empty.

    ``task`` is the beginning of a sentence about a task; it is empty for the run itself.
    """

    def __init__(self, record: Mapping[str, object], name_task: Callable[[str], str]) -> None:
        super().__init__(record)
        self.task = f"{name_task(self.task_id)}: " if self.task_id else ""

    def __getitem__(self, name: str) -> str:
        if name == "task":
            return self.task
        value = self.facts.get(name)
        if isinstance(value, list):
            return join_names(cut(str(each)) for each in value)
        return _read_text(self.facts, name)

    def number(self, name: str) -> int:
        """Return a number; a missing value is 0."""
        return _read_number(self.facts, name)

    @property
    def is_trial(self) -> bool:
        """Whether a command is a trial of the PM, not a test of the contract."""
        return self["where"] == "plan"

    @property
    def runner(self) -> str:
        """The kind of the runner, without the file or the command line behind it."""
        return self["runner"].partition(":")[0]


def _read_text(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    return "" if value is None else cut(str(value))


def _read_number(values: Mapping[str, object], name: str) -> int:
    value = values.get(name)
    return int(value) if isinstance(value, int | float) else 0


def _describe_part(facts: Facts) -> list[tuple[str, str | None]]:
    kind, files = facts["kind"], facts.facts.get("files")
    if kind == "file":
        listed = files if isinstance(files, list) else []
        return [(_describe_file(file if isinstance(file, dict) else {}), "cyan") for file in listed]
    text = cut(clean_line(str(facts.facts.get("text", ""))))
    code = facts.facts.get("exit_code")
    if kind in {"command", "tool"}:
        ended = "" if code is None else f" (exit code {code})"
        mark = "$ " if kind == "command" else ""
        return [(f"{mark}{text}{ended}", None if code in {None, 0} else "yellow")]
    label = {"thought": "thinks: ", "message": "says: ", "output": "| "}.get(kind, "")
    return [(f"{label}{text}", "dim")] if text else []


def _describe_file(file: Mapping[str, object]) -> str:
    path = _read_text(file, "path")
    if file.get("added") is None:
        return f"{path} changed"
    return f"{path} +{_read_number(file, 'added')} −{_read_number(file, 'removed')}"


def join_names(names: Iterable[str]) -> str:
    """Return the first names in one text, and how many more there are."""
    found = list(names)
    more = [f"{len(found) - MAX_NAMES} more"] if len(found) > MAX_NAMES else []
    return ", ".join(found[:MAX_NAMES] + more)


def describe_time(seconds: float) -> str:
    """Return a duration as minutes and seconds, with hours where there are any."""
    minutes, left = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def cut(text: str) -> str:
    """Return a text on one line, cut to ``MAX_CHARS``."""
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_CHARS else f"{flat[:MAX_CHARS]}…"
