"""Verification of contracts, reports and work against their schemas and the events."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import CoilClawError, UsageError, digest_bytes
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.paths import is_within
from coilclaw.runs.evidence import audits, bundle, layout
from coilclaw.runs.evidence.event_index import Examination, get_part, parse_json
from coilclaw.runs.evidence.patch_names import name_only, read_patch_names
from coilclaw.runs.evidence.seal import UNKNOWN_REF
from coilclaw.runs.evidence.verification_codes import Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.kernel import Json

_REPORTS: Final[Mapping[str, tuple[str, Code | None, Code]]] = {
    layout.TASK_RESULT: ("task_result.v1", Code.TASK_RESULT_MISSING, Code.TASK_RESULT_INVALID),
    layout.REVIEW_REPORT: ("review_report.v1", Code.REVIEW_MISSING, Code.REVIEW_INVALID),
    layout.TEST_REPORT: ("test_report.v1", Code.TEST_MISSING, Code.TEST_INVALID),
    layout.EVIDENCE_REPORT: ("evidence_report.v1", Code.EVIDENCE_MISSING, Code.REPORT_INVALID),
    layout.EVIDENCE_BUNDLE: ("evidence_bundle.v1", Code.EVIDENCE_MISSING, Code.REPORT_INVALID),
    "reports/work_report.json": ("work_report.v1", None, Code.REPORT_INVALID),
    "reports/agent_task_result.json": ("agent_task_result.v1", None, Code.REPORT_INVALID),
}
"""The reports with a fixed place: schema, code where it is missing, code where it is invalid."""
_TASK_REPORTS: Final = (
    ("results/", "/result.json", layout.TASK_RESULT),
    ("reviews/", ".json", layout.REVIEW_REPORT),
    ("ci/", ".json", layout.TEST_REPORT),
)
"""Those of one task are in folders, and are of the same kind as one with a fixed place."""
_NEEDED: Final[Mapping[str, tuple[str, str]]] = {
    layout.TASK_RESULT: ("status", "SUCCESS"),
    layout.REVIEW_REPORT: ("verdict", "PASS"),
    layout.TEST_REPORT: ("status", "PASS"),
}
"""What the reports of a successful run say."""


def check_contracts(examination: Examination) -> None:
    """Read the run's contract and those of its tasks."""
    events = examination.events
    # A run that ended because of its contract keeps it as evidence, and that is in order.
    refused = not examination.succeeded and (
        not events.of(EventType.CONTRACT_WRITTEN)
        or any(one.passed is False and one.text("gate") == "schema_gate" for one in events)
    )
    data = examination.find(layout.CONTRACT)
    if data is None:
        examination.say(Code.CONTRACT_MISSING, "contract.json is missing", layout.CONTRACT)
    else:
        _check_contract_hash(examination, digest_bytes(data.removesuffix(b"\n")))
    own = [] if data is None else [layout.CONTRACT]
    for path in (*_files(examination, "tasks/"), *own):
        value = examination.load(path, "task_contract.v1", Code.CONTRACT_INVALID, softly=refused)
        if value is not None:
            # The run's own contract may also be a task's, as it was handed out.
            examination.contracts.setdefault(str(value["task_id"]), value)


def _check_contract_hash(examination: Examination, actual: str) -> None:
    code = Code.CONTRACT_HASH_MISMATCH
    sealed = get_part(examination.manifest, "integrity", "contract_sha256")
    if sealed is not None and str(sealed).lower() != actual:
        examination.say(code, f"the contract's hash is {actual}", layout.CONTRACT)
    given = examination.find(layout.GIVEN)
    for told in examination.events.of(EventType.RUN_CREATED):
        begun = told.text("contract_sha256")
        if begun and begun.lower() != (actual if given is None else digest_bytes(given)):
            said = f"the run began with another contract, whose hash is {begun}"
            examination.say(code, said, layout.CONTRACT if given is None else layout.GIVEN)


def _files(examination: Examination, start: str, end: str = ".json") -> tuple[str, ...]:
    try:
        found = bundle.list_bundle(examination.directory).files
    except CoilClawError:
        return ()
    return tuple(path for path in found if path.startswith(start) and path.endswith(end))


def check_bindings(examination: Examination, run_id: str) -> None:
    """Check that the bundle belongs to the run that was asked for."""
    say, events, manifest = examination.say, examination.events, examination.manifest
    own = manifest.get("run_id")
    if manifest and own != run_id:
        say(Code.RUN_ID_TARGET_MISMATCH, f"this is the bundle of run {own}, not of {run_id}")
    path = layout.GIT_BASELINE
    recorded = (examination.find(path) or b"").decode("utf-8", "replace").strip()
    if recorded and recorded != events.baseline:
        said = f"{path} is not {events.baseline}, where the run began"
        say(Code.BASELINE_MISMATCH, said, path)
    final = get_part(manifest, "repo", "final_ref")
    if final and final not in events.commits:
        say(Code.HEAD_MISMATCH, f"the manifest ends at {final}, which no event names")
    for audit in audits.list_audits(examination.directory):
        if audit.is_foreign(run_id):
            named = ", ".join(sorted(audit.run_ids - {run_id}))
            path = f"{layout.AUDITS}/{audit.name}"
            say(Code.AUDIT_FOREIGN, f"{path} is an audit of run {named}", path)
    tasks = {event.task_id for event in events if event.task_id}
    for task in sorted(tasks - examination.contracts.keys()) if examination.contracts else ():
        say(Code.TASK_ID_MISMATCH, f"events name task {task}, without a contract")


def check_reports(examination: Examination) -> None:
    """Compare every report with its schema, its run, its events and the files that it names."""
    found = [(path, path) for path in _REPORTS]
    for start, end, kind in _TASK_REPORTS:
        found += [(path, kind) for path in _files(examination, start, end)]
    for path, kind in found:
        schema, missing, invalid = _REPORTS[kind]
        data = examination.find(path)
        if data is None:
            if missing is not None and path == kind:
                examination.say(missing, f"{path} is missing", path)
            continue
        # A review that changed something is a fault of its own, whatever else its report lacks.
        if kind == layout.REVIEW_REPORT and get_part(parse_json(data), "produced_diff"):
            said = f"{path} says that the review changed something"
            examination.say(Code.REVIEW_PRODUCED_DIFF, said, path)
        report = examination.load(path, schema, invalid)
        if report is None:
            continue
        _check_owner(examination, path, report)
        _check_outcome(examination, path, report)
        if kind == layout.TASK_RESULT:
            _check_result(examination, path, report)
        elif kind == layout.TEST_REPORT:
            _check_tests(examination, path, report)


def _check_owner(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    """Check what holds for every report: its run and task, and the files that it names."""
    say, manifest, contracts = examination.say, examination.manifest, examination.contracts
    # A run that has not ended has no manifest yet, which is an error of its own.
    if report.get("run_id") not in {None, manifest.get("run_id", examination.directory.name)}:
        say(Code.RUN_ID_MISMATCH, f"{path} is of run {report['run_id']}", path)
    task_id = report.get("task_id")
    # The reports of a run without a readable contract are bound to the run.
    bound = None if contracts else manifest.get("run_id")
    if task_id not in {None, *contracts, manifest.get("task_id"), bound}:
        say(Code.TASK_ID_MISMATCH, f"{path} is of task {task_id}, which has no contract", path)
    for artifact in _find_artifacts(dict(report)):
        target = str(artifact["path"])
        if target in {layout.EVENTS, layout.ANCHOR, layout.MANIFEST}:
            continue  # they grew after every report; the seal covers them
        try:
            actual = bundle.measure_file(examination.directory, layout.check_bundle_path(target))
        except CoilClawError:
            say(Code.ARTIFACT_MISMATCH, f"{path} names {target}, which is missing", path)
            continue
        size = artifact.get("size_bytes")
        if actual.sha256 != str(artifact["sha256"]).lower() or size not in {None, actual.size}:
            say(Code.ARTIFACT_MISMATCH, f"{path} names another {target}", path)
    if path == layout.EVIDENCE_REPORT and report["status"] != "ok" and examination.succeeded:
        say(Code.EVIDENCE_INCOMPLETE, f"what is missing: {report['missing']}", path)


def _find_artifacts(value: Json) -> Iterator[Mapping[str, Json]]:
    """Yield every reference to a file in a report."""
    if isinstance(value, dict):
        if {"name", "path", "sha256"} <= value.keys():
            yield value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from _find_artifacts(item)


def _check_outcome(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    """Check that no verdict passes a blocking finding, and that reports agree with a success."""
    findings = report.get("findings")
    blocking = isinstance(findings, list) and any(
        get_part(item, "severity") == "blocking" for item in findings
    )
    if blocking and report.get("verdict") == "PASS":
        said = f"{path} passes work with blocking findings"
        examination.say(Code.STATUS_MISMATCH, said, path)
    key, needed = _NEEDED.get(path, ("", None))
    if examination.succeeded and report.get(key) != needed:
        said = f"the run succeeded, and {path} is not {needed}"
        examination.say(Code.STATUS_MISMATCH, said, path)


def check_root_diff(examination: Examination) -> None:
    """Check the patch of the run, its names, and the copies of both in ``git/``."""
    patch = examination.find(layout.PATCH, bundle.MAX_PATCH_BYTES)
    listed = examination.find(layout.NAMES)
    if patch is None:
        examination.say(Code.PATCH_MISSING, "patch.diff is missing", layout.PATCH)
    if listed is None:
        examination.say(Code.DIFF_NAME_ONLY_MISSING, f"{layout.NAMES} is missing", layout.NAMES)
    if patch is None or listed is None:
        return
    _check_names(examination, patch, listed, layout.NAMES)
    for path, expected, code in (
        (layout.GIT_PATCH, patch, Code.PATCH_HASH_MISMATCH),
        (layout.GIT_NAMES, listed, Code.DIFF_NAMES_MISMATCH),
    ):
        if examination.find(path, bundle.MAX_PATCH_BYTES) not in {None, expected}:
            examination.say(code, f"{path} is not what stands at the root", path)


def _check_names(examination: Examination, patch: bytes, listed: bytes, path: str) -> None:
    try:
        expected = name_only(patch)
    except UsageError as problem:
        examination.say(Code.PATCH_UNREADABLE, problem.message, path)
        return
    if expected != listed:
        examination.say(Code.DIFF_NAMES_MISMATCH, f"{path} does not list what the patch has", path)


def _check_result(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    """Check the commits, the patch, the scope and the gates of a task's result."""
    say, events = examination.say, examination.events
    baseline, head = (str(get_part(report, "git", key)) for key in ("baseline_ref", "head_ref"))
    begun, manifest = events.baseline, get_part(examination.manifest, "repo", "baseline_ref")
    if baseline != UNKNOWN_REF and (baseline != begun or (manifest and manifest != begun)):
        said = f"{path} starts at {baseline}, the manifest at {manifest}, and the run at {begun}"
        say(Code.BASELINE_MISMATCH, said, path)
    if head != UNKNOWN_REF and head not in events.commits:
        say(Code.HEAD_MISMATCH, f"{path} ends at {head}, which no event names", path)
    patch_path = str(get_part(report, "git", "patch", "path"))
    patch = examination.find(patch_path, bundle.MAX_PATCH_BYTES)
    names_path = str(get_part(report, "git", "changed_files", "path"))
    listed = examination.find(names_path)
    if patch is not None and listed is not None:
        _check_names(examination, patch, listed, names_path)
    if patch is not None and get_part(report, "gates", "diff_gate", "passed") is True:
        _check_scope(examination, patch, patch_path, str(report["task_id"]))
    _check_gates(examination, path, report)
    told = events.naming(path)
    recorded = told.text("patch_sha256").lower() if told is not None else ""
    if recorded and recorded != str(get_part(report, "git", "patch", "sha256")).lower():
        say(Code.PATCH_HASH_MISMATCH, f"{path} names another patch than its event", path)


def _check_scope(examination: Examination, patch: bytes, path: str, task_id: str) -> None:
    allowed = get_part(examination.contracts.get(task_id), "allowed_paths")
    if not isinstance(allowed, list):
        return  # a task without a contract is noted already
    try:
        touched = [os.fsdecode(name) for name in read_patch_names(patch).touched]
    except UsageError:
        return
    for name in touched:
        if not is_within(name, [str(scope) for scope in allowed]):
            said = f"{path} has {name}, which task {task_id} may not change"
            examination.say(Code.DIFF_GATE_VIOLATION, said, path)


def _check_gates(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    """Check that a result says of each gate what its event says.

    The result of the run sums up each gate over all tasks.
    """
    say, events = examination.say, examination.events
    gates = report["gates"]
    assert isinstance(gates, dict)
    named, whole = events.naming(path), events.gates
    before = len(events) + 1 if named is None else named.number
    for gate, outcome in gates.items():
        passed = get_part(outcome, "passed")
        if path == layout.TASK_RESULT:
            if passed is not (whole[gate].passed if gate in whole else False):
                say(Code.GATE_MISMATCH, f"{path} says of {gate} what its events do not", path)
        else:
            told = events.gate(gate, str(report["task_id"]), report.get("attempt"), before=before)
            if told is None and passed:
                said = f"{path} says that {gate} passed, and it never judged"
                say(Code.GATE_MISMATCH, said, path)
            elif told is not None and told.passed is not passed:
                said = (
                    f"{path} says of {gate} that passed is {passed}, event {told.number} does not"
                )
                say(Code.GATE_MISMATCH, said, path)
        if passed is False and report["status"] == "SUCCESS":
            say(Code.STATUS_MISMATCH, f"{path} is a success, and {gate} failed", path)


def _check_tests(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    """Check that exactly the commands of the contract ran, in their order."""
    commands = report["commands"]
    assert isinstance(commands, list)
    contract = examination.contracts.get(str(report["task_id"]))
    key = "setup" if path.startswith(layout.SETUPS) else "acceptance_tests"
    # A set-up that the contract does not name comes from the policies, outside of the bundle.
    known = contract is not None and (key != "setup" or get_part(contract, key) is not None)
    wanted = _read_commands(get_part(contract, key), is_setup=key == "setup")
    ran = [
        tuple(get_part(item, name) for name in ("name", "cmd_argv", "must_pass"))
        for item in commands
    ]
    whole = report["status"] == "PASS"
    if known and (ran != wanted[: len(ran)] or (whole and len(ran) < len(wanted))):
        said = f"{path} has other commands than the contract"
        examination.say(Code.TEST_COMMAND_OUTSIDE_ACCEPTANCE, said, path)
    needed = [item for item in commands if get_part(item, "must_pass")]
    if whole and (not needed or any(get_part(item, "exit_code") != 0 for item in needed)):
        said = f"{path} says PASS, and its commands do not"
        examination.say(Code.TEST_STATUS_INCONSISTENT, said, path)


def _read_commands(tests: Json, *, is_setup: bool) -> list[tuple[Json, ...]]:
    found: list[tuple[Json, ...]] = []
    for item in tests if isinstance(tests, list) else ():
        try:
            argv: list[Json] = [*shlex.split(str(get_part(item, "cmd")))]
        except ValueError:
            argv = []
        found.append((get_part(item, "name"), argv, is_setup or get_part(item, "must_pass")))
    return found
