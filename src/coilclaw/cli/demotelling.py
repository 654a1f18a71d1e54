"""``Teller``: tells of a run in plain words while it goes on."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.cli.console import Console

TITLES: Final = {
    "S1_TECH_LEAD": "The Tech Lead splits it into tasks that cannot get in each other's way",
    "S2_WORKER": "The workers, each in a worktree and a sandbox of its own",
    "S3_REVIEWER": "The reviewer looks at all accepted work together, and can write nothing",
    "S4_TEST": "The tests, run by the orchestrator and nobody else",
    "S5_FIX": "The fix loop: what failed becomes a new contract",
    "S6_DONE": "The merge",
}
"""What begins when a run enters a state."""
AGAIN: Final = "A worker again, under the new contract"


class Teller:
    """Prints numbered titles and what happens below them; several threads may report."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._guard = threading.Lock()
        self._number = 0
        self._says: Mapping[str, Callable[[str, Mapping[str, object]], None]] = {
            "MODEL_ASKED": self._asked,
            "CONTRACT_WRITTEN": self._contracted,
            "STATE_TRANSITION": self._moved,
            "LOCKS_ACQUIRED": self._locked,
            "DIFF_GATE_RESULT": self._diff,
            "ROLLBACK_APPLIED": self._rolled_back,
            "FIX_LOOP_TRIGGERED": self._repair,
            "REVIEW_RESULT": self._reviewed,
            "COMMAND_FINISHED": self._commanded,
            "MERGE_COMPLETED": self._merged,
        }

    def title(self, text: str) -> None:
        """Begin the next part of the story."""
        self._number += 1
        self._console.print()
        self._console.print(f"{self._number}. {text}", "bold")

    def tell(self, text: str, style: str | None = None) -> None:
        """Say one thing."""
        self._console.print(f"  {text}", style)
        self._console.out.flush()

    def watch(self, event: Mapping[str, object]) -> None:
        """Take an event of the run in, and tell what a reader needs of it."""
        says = self._says.get(str(event["event_type"]))
        payload = event["payload"]
        if says is None or not isinstance(payload, dict):
            return
        with self._guard:
            says(_short(str(event["task_id"] or "")), payload)

    def _asked(self, _: str, payload: Mapping[str, object]) -> None:
        role = {"PM": "the PM", "TECH_LEAD": "the Tech Lead"}[str(payload["role"])]
        self.tell(f"{role} (a scripted model) answers in JSON, checked against its schema", "dim")

    def _contracted(self, task: str, payload: Mapping[str, object]) -> None:
        if not payload["parent_task_id"]:
            self.tell("the PM's plan is now the contract: paths, tests, permissions, retries")
        elif not payload["replaces"]:
            self.tell(f"{task}: a contract of its own, for shop/{task}.py alone")

    def _moved(self, _: str, payload: Mapping[str, object]) -> None:
        target = str(payload["to"])
        again = target == "S2_WORKER" and payload["from"] == "S5_FIX"
        if target in TITLES:
            self.title(AGAIN if again else TITLES[target])

    def _locked(self, _: str, payload: Mapping[str, object]) -> None:
        paths = payload["paths"]
        assert isinstance(paths, list)
        self.tell(f"every gate passed, and the paths are locked: {', '.join(map(str, paths))}")

    def _diff(self, task: str, payload: Mapping[str, object]) -> None:
        names = json.loads(str(payload["facts"]))["names"]
        if payload["passed"]:
            self.tell(f"{task}: changed {', '.join(names)}; within its contract", "green")
            return
        violations = payload["violations"]
        assert isinstance(violations, list)
        self.tell(f"{task}: changed {', '.join(names)}", "yellow")
        for violation in violations:
            self.tell(f"{task}: REFUSED by the diff gate: {violation}", "red")

    def _rolled_back(self, task: str, payload: Mapping[str, object]) -> None:
        snapshot = str(payload["snapshot"])[:12]
        self.tell(
            f"{task}: rolled back before anybody reviewed it; kept as snapshot {snapshot}", "yellow"
        )

    def _repair(self, task: str, payload: Mapping[str, object]) -> None:
        self.tell(
            f"{task} is to be repaired as {_short(str(payload['child_task_id']))}, with the failed "
            f"evidence bound by its hashes; retries left: {payload['retries_left']}"
        )

    def _reviewed(self, task: str, payload: Mapping[str, object]) -> None:
        passed = payload["verdict"] == "PASS"
        self.tell(f"{task}: {payload['verdict']}", "green" if passed else "red")

    def _commanded(self, _: str, payload: Mapping[str, object]) -> None:
        green = payload["exit_code"] == 0
        self.tell(
            f"{payload['name']}: {'green' if green else 'RED'} (exit code {payload['exit_code']})",
            "green" if green else "red",
        )

    def _merged(self, _: str, payload: Mapping[str, object]) -> None:
        commit = str(payload["commit"])[:12]
        self.tell(f"the gates passed once more: {payload['branch']} is now at {commit}", "green")


def _short(task_id: str) -> str:
    """The part of a task's id that this story calls it by."""
    return task_id.split("-", 2)[-1]
