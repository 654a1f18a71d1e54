"""S5: what failed becomes a new contract, with the evidence of the failure bound by its hash."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import binding, rolecontract
from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.taskcontract import InputArtifact, TaskContract
from coilclaw.orchestrator.places import segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.contracts.policyset import PolicySet
    from coilclaw.orchestrator.progress import TaskProgress
    from coilclaw.orchestrator.run import Run

MAX_ARTIFACTS: Final = 20
_REPAIR: Final = re.compile(r"(?:-fix-[0-9]+)+\Z")


def evidence_prefix(run_id: str) -> str:
    """How a contract names a file of its own run's bundle."""
    return f"runs/{run_id}/"


class Fixing:
    """Writes the contracts of the next round."""

    def __init__(self, run: Run, policies: PolicySet) -> None:
        self._run = run
        self._policies = policies

    @property
    def left(self) -> int:
        """How often the run may still go round."""
        return self._run.root_contract.timeout_retry.max_retries - self._run.progress.attempt

    def contracts(self, blamed: Sequence[str], reason: str) -> tuple[TaskContract, ...]:
        """Write a child contract for each task that has to be repaired.

        Where no single task is to blame, one contract covers them all.
        """
        active = self._run.progress.active
        groups: list[tuple[TaskProgress, ...]]
        groups = [(task,) for task in active if task.task_id in set(blamed)]
        # After a kill some of them, or the one for all, may have been written already.
        if not blamed and not any(task.state == "pending" for task in active):
            groups = [tuple(active)]
        children = []
        for group in groups:
            child = self._child(group, reason)
            names = tuple(task.task_id for task in group)
            self._run.emit(
                EventType.FIX_LOOP_TRIGGERED,
                {
                    "child_task_id": child.task_id,
                    "reason": reason,
                    "retries_left": self.left - 1,
                    "replaces": list(names),
                },
                task_id=names[0],
                level="WARN",
            )
            self._run.write_contract(child, replaces=names)
            children.append(child)
        return tuple(children)

    def _child(self, group: tuple[TaskProgress, ...], reason: str) -> TaskContract:
        run = self._run
        first = run.contract(group[0].task_id)
        joint = len(group) > 1
        parent = run.root_contract if joint else first
        attempt = run.progress.attempt + 1
        origin = _REPAIR.sub("", parent.task_id)
        tests = parent.acceptance_tests
        paths = first.allowed_paths
        if joint:
            several = [run.contract(task.task_id) for task in group]
            paths = tuple(dict.fromkeys(path for one in several for path in one.allowed_paths))
        child = replace(
            first,
            task_id=self._free(f"{origin}-fix-{attempt}"),
            parent_task_id=parent.task_id,
            inputs=replace(
                first.inputs,
                spec=parent.inputs.spec,
                artifacts=(
                    *(
                        each
                        for each in first.inputs.artifacts
                        if not each.uri.startswith(evidence_prefix(run.id))
                    ),
                    *self._evidence(group),
                ),
            ),
            allowed_paths=paths,
            acceptance_tests=tests,
            evidence_links=tuple(dict.fromkeys((*first.evidence_links, reason[:500]))),
            # The baseline was tried once, for the contract that this one repairs.
            expected_baseline=None,
        )
        bound = binding.bound(child)
        if bound.role_contract is None:
            return bound
        return rolecontract.with_role_contract(bound, self._policies.registry)

    def _free(self, name: str) -> str:
        """A name that no task has: somebody may have called one as repairs are called."""
        known, number = self._run.progress.tasks, 1
        free = name
        while free in known:
            number += 1
            free = f"{name}.{number}"
        return free

    def _evidence(self, group: tuple[TaskProgress, ...]) -> tuple[InputArtifact, ...]:
        """What shows the failure: the reviews, the tests, the refused patch; each with its hash."""
        bundle = self._run.bundle
        paths: list[str] = []
        for task in group:
            name = segment(task.task_id)
            paths += [f"results/{name}/result.json", f"artifacts/rejected/{name}.diff"]
            if task.reviewed and task.reviewed != "PASS":
                paths.append(f"reviews/{name}.json")
        tested = str(self._run.progress.tested.get("path", ""))
        if tested:
            folder = tested.rpartition("/")[0]
            paths += [tested, *self._logs(folder)]
        return tuple(
            InputArtifact(
                name=f"failed.{path.replace('/', '.')}",
                uri=f"{evidence_prefix(self._run.id)}{path}",
                sha256=bundle.artifact(path).sha256,
            )
            for path in list(dict.fromkeys(paths))[:MAX_ARTIFACTS]
            if bundle.has(path)
        )

    def _logs(self, folder: str) -> list[str]:
        place = self._run.bundle.directory / folder
        return sorted(f"{folder}/{entry.name}" for entry in place.glob("*.log"))
