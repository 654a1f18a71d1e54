"""Verification of contracts and reports: their schemas, and that they belong to this run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.schemas import problems
from coilclaw.domain.canonical import digest
from coilclaw.errors import CoilClawError
from coilclaw.orchestrator import audit_records, bundletree, layout
from coilclaw.orchestrator.codes import Code
from coilclaw.orchestrator.completing import UNKNOWN_REF
from coilclaw.orchestrator.examination import parsed, part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.examination import Examination

_SCHEMAS: Final[Mapping[str, tuple[str, Code | None, Code]]] = {
    layout.TASK_RESULT: ("task_result.v1", Code.TASK_RESULT_MISSING, Code.TASK_RESULT_INVALID),
    layout.REVIEW_REPORT: ("review_report.v1", Code.REVIEW_MISSING, Code.REVIEW_INVALID),
    layout.TEST_REPORT: ("test_report.v1", Code.TEST_MISSING, Code.TEST_INVALID),
    layout.EVIDENCE_REPORT: ("evidence_report.v1", Code.EVIDENCE_MISSING, Code.REPORT_INVALID),
    layout.EVIDENCE_BUNDLE: ("evidence_bundle.v1", Code.EVIDENCE_MISSING, Code.REPORT_INVALID),
    "reports/work_report.json": ("work_report.v1", None, Code.REPORT_INVALID),
    "reports/agent_task_result.json": ("agent_task_result.v1", None, Code.REPORT_INVALID),
}
"""The reports with a fixed place; those of one task are in folders, by what they are."""

_OF_TASKS: Final[Mapping[str, tuple[str, Code]]] = {
    "results": ("task_result.v1", Code.TASK_RESULT_INVALID),
    "reviews": ("review_report.v1", Code.REVIEW_INVALID),
    "ci": ("test_report.v1", Code.TEST_INVALID),
}
_RESULT_NAME: Final = "result.json"


def check_contracts(examination: Examination) -> None:
    """Read the run's contract and those of its tasks."""
    say = examination.say
    # A run that ended because of its contract keeps it as evidence, and that is in order.
    refused = not examination.succeeded and (
        not examination.chronicle.of(EventType.CONTRACT_WRITTEN)
        or any(
            told.payload.get("gate") == "schema_gate" and told.payload.get("passed") is False
            for told in examination.chronicle
        )
    )
    data = examination.find(layout.CONTRACT)
    if data is None:
        say(Code.CONTRACT_MISSING, "there is no contract.json", layout.CONTRACT)
    else:
        _check_contract_hash(examination, digest(data.removesuffix(b"\n")))
        _contract(examination, layout.CONTRACT, softly=refused)
    for path in _files(examination, "tasks"):
        _contract(examination, path, softly=refused)
    for path, named in examination.chronicle.named_files().items():
        _check_named(examination, path, named)


def _check_contract_hash(examination: Examination, actual: str) -> None:
    say = examination.say
    sealed = part(examination.manifest, "integrity", "contract_sha256")
    if sealed is not None and str(sealed).lower() != actual:
        say(Code.CONTRACT_HASH_MISMATCH, f"the contract's hash is {actual}", layout.CONTRACT)
    for told in examination.chronicle.of(EventType.RUN_CREATED):
        begun = told.text("contract_sha256")
        given = examination.find(layout.GIVEN)
        if begun and begun.lower() != (actual if given is None else digest(given)):
            say(
                Code.CONTRACT_HASH_MISMATCH,
                f"the run was begun with another contract than there is: {begun}",
                layout.CONTRACT if given is None else layout.GIVEN,
            )


def _contract(examination: Examination, path: str, *, softly: bool) -> None:
    value = parsed(examination.find(path))
    found = problems("task_contract.v1", value)
    for problem in found:
        examination.say(
            Code.CONTRACT_INVALID, f"{path}{problem.path}: {problem.message}", path, softly=softly
        )
    if not found and isinstance(value, dict):
        task_id = str(value["task_id"])
        if path != layout.CONTRACT:
            # The run's own contract may also be a task's, as it was handed out.
            examination.contracts[task_id] = value
        else:
            examination.contracts.setdefault(task_id, value)


def _check_named(examination: Examination, path: str, named: list[tuple[int, str]]) -> None:
    """A file that events name has the hash that they say: of several, all or the last."""
    try:
        data = bundletree.measured(examination.directory, path).sha256
    except CoilClawError:
        examination.say(
            Code.EVENT_EVIDENCE_MISMATCH, f"event {named[-1][0]} names {path}, which is not there",
            path,
        )  # fmt: skip
        return
    for number, expected in named[-1:] if layout.is_latest(path) else named:
        if expected.lower() != data:
            examination.say(
                Code.EVENT_EVIDENCE_MISMATCH,
                f"event {number} says that {path} has the hash {expected}, and it has {data}",
                path,
            )


def reports(examination: Examination) -> Iterator[tuple[str, str, Mapping[str, Json]]]:
    """Yield path, schema and content of every report that its schema accepts."""
    for path, (schema, missing, invalid) in _SCHEMAS.items():
        _check_produced(examination, path, schema)
        value = examination.load(path, schema, missing=missing, invalid=invalid)
        if value is not None:
            yield path, schema, value
    for folder, (schema, invalid) in _OF_TASKS.items():
        for path in _files(examination, folder):
            if folder == "results" and not path.endswith(f"/{_RESULT_NAME}"):
                continue
            _check_produced(examination, path, schema)
            value = examination.load(path, schema, missing=None, invalid=invalid)
            if value is not None:
                yield path, schema, value


def _check_produced(examination: Examination, path: str, schema: str) -> None:
    """A review that changed something is a fault of its own, whatever else its report lacks."""
    if schema == "review_report.v1" and part(parsed(examination.find(path)), "produced_diff"):
        examination.say(
            Code.REVIEW_PRODUCED_DIFF, f"{path} says that the review changed something", path
        )


def _files(examination: Examination, folder: str) -> tuple[str, ...]:
    try:
        found = bundletree.listing(examination.directory).files
    except CoilClawError:
        return ()
    return tuple(p for p in found if p.startswith(f"{folder}/") and p.endswith(".json"))


def check_report(
    examination: Examination, path: str, schema: str, report: Mapping[str, Json]
) -> None:
    """What holds for every report: whose it is, and that the files it names are there."""
    say = examination.say
    run_id = report.get("run_id")
    # A run that goes on has no manifest yet, which is an error of its own.
    own = examination.manifest.get("run_id", examination.directory.name)
    if "run_id" in report and run_id != own:
        say(Code.RUN_ID_MISMATCH, f"{path} is of run {run_id}", path)
    task_id = report.get("task_id")
    known = {*examination.contracts, examination.manifest.get("task_id"), _run_task(examination)}
    if task_id is not None and task_id not in known:
        say(Code.TASK_ID_MISMATCH, f"{path} is of task {task_id}, which has no contract", path)
    for artifact in _artifacts(dict(report)):
        _check_artifact(examination, path, artifact)
    if schema == "task_result.v1":
        _check_commits(examination, path, report)
    if path == layout.EVIDENCE_REPORT and report["status"] != "ok" and examination.succeeded:
        say(Code.EVIDENCE_INCOMPLETE, f"what is missing: {report['missing']}", path)


def _run_task(examination: Examination) -> str:
    """What the reports of a run without a readable contract are bound to."""
    return str(examination.manifest.get("run_id")) if not examination.contracts else ""


def _artifacts(value: Json) -> Iterator[Mapping[str, Json]]:
    """Every reference to a file, wherever in a report it stands."""
    if isinstance(value, dict):
        if {"name", "path", "sha256"} <= value.keys():
            yield value
        for item in value.values():
            yield from _artifacts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _artifacts(item)


def _check_artifact(examination: Examination, path: str, artifact: Mapping[str, Json]) -> None:
    target = str(artifact["path"])
    if target in {layout.EVENTS, layout.ANCHOR, layout.MANIFEST}:
        return  # they grew after every report; the seal covers them
    try:
        actual = bundletree.measured(examination.directory, layout.checked(target))
    except CoilClawError:
        examination.say(Code.ARTIFACT_MISMATCH, f"{path} names {target}, which is not there", path)
        return
    size = artifact.get("size_bytes")
    if actual.sha256 != str(artifact["sha256"]).lower() or size not in {None, actual.size}:
        examination.say(Code.ARTIFACT_MISMATCH, f"{path} names another {target}", path)


def _check_commits(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    say = examination.say
    baseline = str(part(report, "git", "baseline_ref"))
    begun = examination.chronicle.baseline
    manifest = part(examination.manifest, "repo", "baseline_ref")
    if baseline != UNKNOWN_REF and (baseline != begun or (manifest and manifest != begun)):
        say(
            Code.BASELINE_MISMATCH,
            f"{path} starts at {baseline}, the manifest at {manifest}, and the run at {begun}",
            path,
        )
    head = str(part(report, "git", "head_ref"))
    if head != UNKNOWN_REF and head not in examination.chronicle.commits:
        say(Code.HEAD_MISMATCH, f"{path} ends at {head}, which no event names", path)


def check_bindings(examination: Examination, run_id: str) -> None:
    """The bundle is the one of the run that was asked for."""
    own = examination.manifest.get("run_id")
    if examination.manifest and own != run_id:
        examination.say(
            Code.RUN_ID_TARGET_MISMATCH, f"this is the bundle of run {own}, not of {run_id}"
        )
    recorded = examination.find(layout.GIT_BASELINE) or b""
    begun = examination.chronicle.baseline
    if recorded.strip() and recorded.decode("utf-8", "replace").strip() != begun:
        examination.say(
            Code.BASELINE_MISMATCH,
            f"{layout.GIT_BASELINE} is not {begun}, where the run began",
            layout.GIT_BASELINE,
        )
    final = part(examination.manifest, "repo", "final_ref")
    if final and final not in examination.chronicle.commits:
        examination.say(Code.HEAD_MISMATCH, f"the manifest ends at {final}, which no event names")
    for audit in audit_records.list_audits(examination.directory):
        if audit.is_foreign(run_id):
            named = ", ".join(sorted(audit.run_ids - {run_id}))
            path = f"{layout.AUDITS}/{audit.name}"
            examination.say(Code.AUDIT_FOREIGN, f"{path} is an audit of run {named}", path)
    for task in sorted(examination.chronicle.tasks - examination.contracts.keys()):
        if examination.contracts:
            examination.say(Code.TASK_ID_MISMATCH, f"events name task {task}, without a contract")
