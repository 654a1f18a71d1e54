"""Verification of the work: patches and their names, scopes, tests, gates, and what came of it."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Final

from coilclaw.contracts.eventtypes import EventType
from coilclaw.contracts.paths import within
from coilclaw.errors import UsageError
from coilclaw.orchestrator import bundletree, gatesummary, layout
from coilclaw.orchestrator.codes import Code
from coilclaw.orchestrator.examination import part
from coilclaw.orchestrator.patchnames import name_only, names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.orchestrator.examination import Examination

_STATUS_KEYS: Final[Mapping[str, str]] = {
    EventType.TASK_RESULT_RECORDED: "status",
    EventType.SETUP_RESULT: "status",
    EventType.BASELINE_RESULT: "status",
    EventType.TEST_RESULT: "status",
    EventType.REVIEW_RESULT: "verdict",
}
_NEEDED: Final[Mapping[str, tuple[str, str]]] = {
    layout.TASK_RESULT: ("status", "SUCCESS"),
    layout.REVIEW_REPORT: ("verdict", "PASS"),
    layout.TEST_REPORT: ("status", "PASS"),
}
"""What the reports of a successful run say."""


def check_root_diff(examination: Examination) -> None:
    """The patch of the run, its names, and the copies of both that belong to git."""
    patch = examination.find(layout.PATCH, bundletree.MAX_PATCH_BYTES)
    listed = examination.find(layout.NAMES)
    if patch is None:
        examination.say(Code.PATCH_MISSING, "there is no patch.diff", layout.PATCH)
    if listed is None:
        examination.say(Code.DIFF_NAME_ONLY_MISSING, f"there is no {layout.NAMES}", layout.NAMES)
    if patch is None or listed is None:
        return
    _check_names(examination, patch, listed, layout.NAMES)
    for path, expected, code in (
        (layout.GIT_PATCH, patch, Code.PATCH_HASH_MISMATCH),
        (layout.GIT_NAMES, listed, Code.DIFF_NAMES_MISMATCH),
    ):
        if examination.find(path, bundletree.MAX_PATCH_BYTES) not in {None, expected}:
            examination.say(code, f"{path} is not what stands at the root", path)


def check_result(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    """A task's result: its patch, its scope, its gates."""
    patch_path = str(part(report, "git", "patch", "path"))
    patch = examination.find(patch_path, bundletree.MAX_PATCH_BYTES)
    names_path = str(part(report, "git", "changed_files", "path"))
    listed = examination.find(names_path)
    if patch is not None and listed is not None:
        _check_names(examination, patch, listed, names_path)
    if patch is not None and part(report, "gates", "diff_gate", "passed") is True:
        _check_scope(examination, patch, patch_path, str(report["task_id"]))
    _check_gates(examination, path, report)
    told = examination.chronicle.naming(path)
    recorded = told.text("patch_sha256").lower() if told is not None else ""
    if recorded and recorded != str(part(report, "git", "patch", "sha256")).lower():
        examination.say(
            Code.PATCH_HASH_MISMATCH, f"{path} names another patch than its event", path
        )


def _check_names(examination: Examination, patch: bytes, listed: bytes, path: str) -> None:
    try:
        expected = name_only(patch)
    except UsageError as problem:
        examination.say(Code.PATCH_UNREADABLE, problem.message, path)
        return
    if expected != listed:
        examination.say(Code.DIFF_NAMES_MISMATCH, f"{path} does not list what the patch has", path)


def _check_scope(examination: Examination, patch: bytes, path: str, task_id: str) -> None:
    allowed = part(examination.contracts.get(task_id), "allowed_paths")
    if not isinstance(allowed, list):
        return  # a task without a contract is noted already
    scopes = [str(scope) for scope in allowed]
    try:
        touched = names(patch).touched
    except UsageError:
        return
    for name in touched:
        if not within(os.fsdecode(name), scopes):
            examination.say(
                Code.DIFF_GATE_VIOLATION,
                f"{path} has {os.fsdecode(name)}, which task {task_id} may not change",
                path,
            )


def _check_gates(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    say = examination.say
    task_id, attempt = str(report["task_id"]), report.get("attempt")
    gates = report["gates"]
    assert isinstance(gates, dict)
    if path == layout.TASK_RESULT:
        _check_summed(examination, path, gates)
    chronicle, number = examination.chronicle, attempt if type(attempt) is int else None
    named = chronicle.naming(path)
    before = len(chronicle) + 1 if named is None else named.number
    for gate, outcome in gates.items():
        passed = part(outcome, "passed")
        told = chronicle.gate(gate, task_id, number, before=before)
        if path == layout.TASK_RESULT:
            pass  # what it says of the whole run is compared with the whole run
        elif told is None and passed:
            say(Code.GATE_MISMATCH, f"{path} says that {gate} passed, and it never judged", path)
        elif told is not None and told.payload["passed"] is not passed:
            say(
                Code.GATE_MISMATCH,
                f"{path} says of {gate} that passed is {passed}, event {told.number} does not",
                path,
            )
        if passed is False and report["status"] == "SUCCESS":
            say(Code.STATUS_MISMATCH, f"{path} is a success, and {gate} failed", path)


def _check_summed(examination: Examination, path: str, gates: Mapping[str, Json]) -> None:
    """The result of the run says of each gate what all of its tasks together come to."""
    told = gatesummary.summed((one.kind, one.task_id, one.payload) for one in examination.chronicle)
    for gate, outcome in gates.items():
        said = part(outcome, "passed")
        if said is not (told[gate].passed if gate in told else False):
            examination.say(
                Code.GATE_MISMATCH, f"{path} says of {gate} what its events do not", path
            )


def check_tests(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    """The commands that ran are those of the contract: these, in this order, and no others."""
    commands = report["commands"]
    assert isinstance(commands, list)
    contract = examination.contracts.get(str(report["task_id"]))
    is_setup = path.startswith(layout.SETUPS)
    wanted = _commands(contract, "setup" if is_setup else "acceptance_tests")
    if is_setup and part(contract, "setup") is None:
        # The policies named them, and stand outside of the bundle.
        contract = None
    ran = [tuple(part(item, key) for key in ("name", "cmd_argv", "must_pass")) for item in commands]
    whole = report["status"] == "PASS"
    if contract is not None and (ran != wanted[: len(ran)] or (whole and len(ran) < len(wanted))):
        examination.say(
            Code.TEST_COMMAND_OUTSIDE_ACCEPTANCE,
            f"{path} has other commands than the contract",
            path,
        )
    failed = [item for item in commands if part(item, "must_pass") and part(item, "exit_code") != 0]
    if whole and (failed or not any(part(item, "must_pass") for item in commands)):
        examination.say(
            Code.TEST_STATUS_INCONSISTENT, f"{path} says PASS, and its commands do not", path
        )


def _commands(contract: Mapping[str, Json] | None, key: str) -> list[tuple[Json, ...]]:
    tests = part(contract, key)
    found: list[tuple[Json, ...]] = []
    for item in tests if isinstance(tests, list) else ():
        try:
            argv: list[Json] = list(shlex.split(str(part(item, "cmd"))))
        except ValueError:
            argv = []
        must_pass = True if key == "setup" else part(item, "must_pass")
        found.append((part(item, "name"), argv, must_pass))
    return found


def check_outcome(examination: Examination, path: str, report: Mapping[str, Json]) -> None:
    """A report says what its event says; of a successful run, that all went well."""
    say = examination.say
    told = examination.chronicle.naming(path)
    if told is not None:
        key = _STATUS_KEYS.get(told.kind)
        if key is not None and told.text(key) != report.get(key):
            say(Code.STATUS_MISMATCH, f"{path} and event {told.number} say different things", path)
        attempt = report.get("attempt")
        if told.attempt is not None and attempt is not None and told.attempt != attempt:
            say(Code.ATTEMPT_MISMATCH, f"{path} is of attempt {attempt}, not {told.attempt}", path)
        if told.task_id is not None and report.get("task_id") not in {None, told.task_id}:
            say(Code.TASK_ID_MISMATCH, f"{path} is of another task than event {told.number}", path)
    findings = report.get("findings")
    blocking = isinstance(findings, list) and any(
        part(item, "severity") == "blocking" for item in findings
    )
    if blocking and report.get("verdict") == "PASS":
        say(Code.STATUS_MISMATCH, f"{path} passes work with blocking findings", path)
    needed = _NEEDED.get(path)
    if needed is not None and examination.succeeded and report.get(needed[0]) != needed[1]:
        say(Code.STATUS_MISMATCH, f"the run succeeded, and {path} is not {needed[1]}", path)
