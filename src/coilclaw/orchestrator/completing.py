"""What a bundle lacks when its run ends: reported first, and only then filled with nothing.

The evidence report says what was really there. Afterwards every file of the structure exists, and
those that stand for something that never took place say exactly that: no verdict is made up.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import schemas
from coilclaw.contracts.results import NEXT
from coilclaw.orchestrator import layout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.bundle import Bundle

NOBODY: Final = "none"
"""The agent of a report that nobody made."""
UNKNOWN_REF: Final = "unknown"
_UNJUDGED: Final[Mapping[str, Json]] = {
    "schema_gate": {"passed": False, "violations": ["there was no contract to judge"]}
}


def evidence_report(bundle: Bundle) -> dict[str, Json]:
    """Say which of the required evidence is there."""
    missing = [path for path in layout.REQUIRED_EVIDENCE if not bundle.has(path)]
    return {"status": "fail" if missing else "ok", "missing": list(missing)}


def complete(bundle: Bundle, events: Iterable[Mapping[str, object]], reason: str) -> None:
    """Write the evidence report, then what is missing. Doing it again changes nothing."""
    if not bundle.has(layout.EVIDENCE_REPORT):
        bundle.write_json(layout.EVIDENCE_REPORT, evidence_report(bundle))
    for path in layout.EMPTY_WHERE_MISSING:
        if not bundle.has(path):
            bundle.write_bytes(path, b"", redact=False)
    if not bundle.has(layout.META):
        bundle.write_json(layout.META, {})
    _reports(bundle, _Facts(bundle, events, reason))


class _Facts:
    """What the reports of a run that went no further can truly say."""

    def __init__(self, bundle: Bundle, events: Iterable[Mapping[str, object]], reason: str) -> None:
        self.run_id = bundle.run_id
        self.reason = reason
        self.first = self.last = ""
        self.baseline = UNKNOWN_REF
        self.gates: dict[str, Json] = {}
        for event in events:
            if event.get("event_type") == "RUN_SEALED":
                continue
            self.last = str(event.get("ts"))
            self.first = self.first or self.last
            payload = event.get("payload")
            if isinstance(payload, dict):
                self._look(str(event.get("event_type")), payload)
        self.contract = _contract(bundle)
        task = self.contract.get("task_id")
        self.task_id = task if isinstance(task, str) and task else bundle.run_id

    def _look(self, kind: str, payload: Mapping[str, Json]) -> None:
        commit = payload.get("baseline_commit")
        if kind in {"RUN_CREATED", "BASELINE_MOVED"} and isinstance(commit, str) and commit:
            self.baseline = commit
        gate, passed, violations = (payload.get(k) for k in ("gate", "passed", "violations"))
        if isinstance(gate, str) and isinstance(passed, bool):
            said = [str(item) for item in violations] if isinstance(violations, list) else []
            self.gates[gate] = {"passed": passed, "violations": list(said)}

    @property
    def request(self) -> str:
        inputs = self.contract.get("inputs")
        spec = inputs.get("spec") if isinstance(inputs, dict) else None
        return spec if isinstance(spec, str) and spec else self.reason or "no request was recorded"


def _contract(bundle: Bundle) -> dict[str, Json]:
    """The contract of the run; one that its schema refuses names nothing to rely on."""
    data = bundle.find(layout.CONTRACT)
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return value if not schemas.problems("task_contract.v1", value) else {}


def _reports(bundle: Bundle, facts: _Facts) -> None:
    made = {
        layout.REVIEW_REPORT: _no_review,
        layout.TEST_REPORT: _no_tests,
        layout.EVIDENCE_BUNDLE: _no_research,
    }
    for path, make in made.items():
        if not bundle.has(path):
            bundle.write_json(path, make(facts))
    if not bundle.has(layout.TASK_RESULT):
        bundle.write_json(layout.TASK_RESULT, _no_result(bundle, facts))


def _no_review(facts: _Facts) -> dict[str, Json]:
    return {
        "run_id": facts.run_id,
        "task_id": facts.task_id,
        "reviewer": {"role": "REVIEWER", "agent_id": NOBODY},
        "reviewed_at": facts.last,
        "verdict": "BLOCKED",
        "summary": "No review took place.",
        "scope_check": {"passed": False, "violations": ["no review took place"]},
        "evidence": [],
        "findings": [],
        "produced_diff": False,
    }


def _no_tests(facts: _Facts) -> dict[str, Json]:
    return {
        "run_id": facts.run_id,
        "task_id": facts.task_id,
        "runner": {"role": "ORCHESTRATOR", "agent_id": NOBODY},
        "started_at": facts.last,
        "finished_at": facts.last,
        "status": "SKIPPED",
        "commands": [],
        "artifacts": [],
    }


def _no_research(facts: _Facts) -> dict[str, Json]:
    return {
        "bundle_id": f"research-{facts.run_id}",
        "created_at": facts.last,
        "requested_by": {"role": "ORCHESTRATOR", "agent_id": NOBODY},
        "query": {"raw_question": facts.request, "refined_prompt": facts.request},
        "sources": [],
        "claims": [],
        "limitations": ["No research took place."],
    }


def _no_result(bundle: Bundle, facts: _Facts) -> dict[str, Json]:
    return {
        "run_id": facts.run_id,
        "task_id": facts.task_id,
        "producer": {"role": "ORCHESTRATOR", "agent_id": NOBODY},
        "status": "BLOCKED",
        "started_at": facts.first,
        "finished_at": facts.last,
        "summary": facts.reason or "The run ended before it had a result.",
        "artifacts": [],
        "git": {
            "baseline_ref": facts.baseline,
            "head_ref": facts.baseline,
            "changed_files": bundle.artifact(layout.NAMES).json(),
            "patch": bundle.artifact(layout.PATCH).json(),
        },
        "gates": facts.gates or dict(_UNJUDGED),
        NEXT: {"suggested_action": "see the events", "notes": ""},
        "failure": {"message": facts.reason or "no result", "hint": ""},
    }
