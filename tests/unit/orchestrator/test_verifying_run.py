"""Verification of runs: every code, found where it stands, in bundles that hold otherwise.

Most of what is wrong here was wrong before the seal, which is then genuine: only the content tells.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel import checkpoint
from coilclaw.kernel.checkpoint import parse_checkpoints, render_checkpoint
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Json
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.manifest import RunManifest
from coilclaw.runs.evidence import layout
from coilclaw.runs.evidence.audits import make_checkpoint
from coilclaw.runs.evidence.bundle import json_bytes, new_audit
from coilclaw.runs.evidence.seal import keyed_seal, root_hash
from coilclaw.runs.evidence.verification import VerifyReport, verify_run
from coilclaw.runs.evidence.verification_codes import LENIENT, WARNINGS, Check, Code
from tests.support.bundles import CHILD, KEY, RUN_ID, TASK, World, patch_of, picture, sealed


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A whole run that is not sealed yet; only to be copied."""
    world = World(tmp_path_factory.mktemp("played"))
    world.play()
    return world


@pytest.fixture(scope="module")
def whole(played: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A sealed run; only to be copied."""
    world = played.copied(tmp_path_factory.mktemp("whole"))
    world.seal()
    return world


def _codes(report: VerifyReport) -> set[str]:
    return {finding.code.value for finding in report.errors}


def _verify(world: World, **options: object) -> VerifyReport:
    return verify_run(world.directory, key_path=world.key_path, **options)  # type: ignore[arg-type]


def _edit(world: World, path: str, change: Callable[[Any], object]) -> None:
    """Change a JSON file as if it had always been so."""
    place = world.directory / path
    value = json.loads(place.read_bytes())
    change(value)
    place.write_bytes(json_bytes(value))


def _write(world: World, path: str, data: bytes) -> None:
    (world.directory / path).write_bytes(data)


def _names(world: World, data: bytes) -> None:
    for path in (layout.NAMES, layout.GIT_NAMES):
        _write(world, path, data)


def _gate(world: World, gate: str, *, passed: bool) -> None:
    outcome = {"passed": passed, "violations": []}
    _edit(world, layout.TASK_RESULT, lambda r: r["gates"].update({gate: outcome}))


REPORT = f"ci/{CHILD}/report-1.json"
RESULT = f"results/{CHILD}/result.json"

FORGED: dict[str, tuple[Callable[[World], object], set[str]]] = {
    "the contract lacks a field": (
        lambda w: _edit(w, layout.CONTRACT, lambda c: c.pop("rollback")),
        {"contract_invalid", "contract_hash_mismatch"},
    ),
    "the contract is no JSON": (
        lambda w: _write(w, layout.CONTRACT, b"{"),
        {"contract_invalid", "contract_hash_mismatch"},
    ),
    "the contract is another": (
        lambda w: _edit(w, layout.CONTRACT, lambda c: c.update(forbidden_actions=["x"])),
        {"contract_hash_mismatch"},
    ),
    "a task's contract was replaced": (
        lambda w: _edit(w, f"tasks/{CHILD}.json", lambda c: c.update(forbidden_actions=["x"])),
        {"event_evidence_mismatch"},
    ),
    "a task's contract is gone": (
        lambda w: (w.directory / f"tasks/{CHILD}.json").unlink(),
        {"event_evidence_mismatch", "task_id_mismatch"},
    ),
    "a log of the tests was replaced": (
        lambda w: _write(w, f"ci/{CHILD}/stdout-1.log", b"all is well\n"),
        {"artifact_mismatch"},
    ),
    "a report of another run": (
        lambda w: _edit(w, layout.TEST_REPORT, lambda r: r.update(run_id="run_another")),
        {"run_id_mismatch"},
    ),
    "a report of an unknown task": (
        lambda w: _edit(w, layout.TEST_REPORT, lambda r: r.update(task_id="task-unknown")),
        {"task_id_mismatch"},
    ),
    "a report of another task than its event": (
        lambda w: _edit(w, REPORT, lambda r: r.update(task_id=TASK)),
        {"task_id_mismatch", "event_evidence_mismatch"},
    ),
    "a report of another attempt than its event": (
        lambda w: _edit(w, REPORT, lambda r: r.update(attempt=7)),
        {"attempt_mismatch", "event_evidence_mismatch"},
    ),
    "a report that says otherwise than its event": (
        lambda w: _edit(w, f"ci/{TASK}/report-0.json", lambda r: r.update(status="SKIPPED")),
        {"status_mismatch", "event_evidence_mismatch"},
    ),
    "a result from another commit": (
        lambda w: _edit(w, layout.TASK_RESULT, lambda r: r["git"].update(baseline_ref="f" * 40)),
        {"baseline_mismatch"},
    ),
    "another commit as baseline": (
        lambda w: _write(w, layout.GIT_BASELINE, b"f" * 40),
        {"baseline_mismatch"},
    ),
    "a result at a commit that nobody knows": (
        lambda w: _edit(w, layout.TASK_RESULT, lambda r: r["git"].update(head_ref="f" * 40)),
        {"head_mismatch"},
    ),
    "another command than the acceptance test": (
        lambda w: _edit(
            w, layout.TEST_REPORT, lambda r: r["commands"][0].update(cmd_argv=["true"])
        ),
        {"test_command_outside_acceptance"},
    ),
    "a command more than the acceptance tests": (
        lambda w: _edit(w, layout.TEST_REPORT, lambda r: r["commands"].append(r["commands"][0])),
        {"test_command_outside_acceptance"},
    ),
    "a command less than the acceptance tests": (
        lambda w: _edit(w, layout.TEST_REPORT, lambda r: r["commands"].pop()),
        {"test_command_outside_acceptance"},
    ),
    "the acceptance tests in another order": (
        lambda w: _edit(w, layout.TEST_REPORT, lambda r: r["commands"].reverse()),
        {"test_command_outside_acceptance"},
    ),
    "a test that must not fail need not pass": (
        lambda w: _edit(w, layout.TEST_REPORT, lambda r: r["commands"][0].update(must_pass=False)),
        {"test_command_outside_acceptance", "test_status_inconsistent"},
    ),
    "tests that failed and passed": (
        lambda w: _edit(w, layout.TEST_REPORT, lambda r: r["commands"][0].update(exit_code=1)),
        {"test_status_inconsistent"},
    ),
    "a successful run whose tests failed": (
        lambda w: _edit(w, layout.TEST_REPORT, lambda r: r.update(status="FAIL")),
        {"status_mismatch"},
    ),
    "a successful run that was not reviewed well": (
        lambda w: _edit(w, layout.REVIEW_REPORT, lambda r: r.update(verdict="FAIL")),
        {"status_mismatch"},
    ),
    "a passing review with a blocking finding": (
        lambda w: _edit(
            w, layout.REVIEW_REPORT, lambda r: r["findings"][0].update(severity="blocking")
        ),
        {"status_mismatch"},
    ),
    "a review that produced a diff": (
        lambda w: _edit(w, layout.REVIEW_REPORT, lambda r: r.update(produced_diff=True)),
        {"review_invalid", "review_produced_diff"},
    ),
    "a review without a verdict": (
        lambda w: _edit(w, layout.REVIEW_REPORT, lambda r: r.pop("verdict")),
        {"review_invalid"},
    ),
    "a report of tests without a status": (
        lambda w: _edit(w, layout.TEST_REPORT, lambda r: r.pop("status")),
        {"test_invalid"},
    ),
    "a result without its gates": (
        lambda w: _edit(w, layout.TASK_RESULT, lambda r: r.pop("gates")),
        {"task_result_invalid"},
    ),
    "a research bundle with a field of its own": (
        lambda w: w.bundle.write_json(layout.EVIDENCE_BUNDLE, {"x": 1}),
        {"report_invalid"},
    ),
    "names that the patch has not": (
        lambda w: _names(w, b"src/app/b.py\n"),
        {"diff_names_mismatch", "artifact_mismatch"},
    ),
    "names for git that are others": (
        lambda w: _write(w, layout.GIT_NAMES, b""),
        {"diff_names_mismatch"},
    ),
    "a patch for git that is another": (
        lambda w: _write(w, layout.GIT_PATCH, b""),
        {"patch_hash_mismatch"},
    ),
    "a patch with names that cannot be read": (
        lambda w: _write(w, layout.PATCH, b"diff --git a/x b/y z\n"),
        {"patch_unreadable", "artifact_mismatch", "patch_hash_mismatch"},
    ),
    "a task's patch that was replaced": (
        lambda w: _write(w, f"patches/{CHILD}.diff", patch_of("src/app/b.py")),
        {"diff_names_mismatch", "artifact_mismatch"},
    ),
    "a gate that passed and failed": (
        lambda w: w.gate(EventType.TESTS_GATE_RESULT, "tests_gate", TASK, 1, passed=False),
        {"gate_mismatch"},
    ),
    "a gate that never judged": (
        lambda w: _gate(w, "merge_gate", passed=True),
        {"gate_mismatch"},
    ),
    "a success with a gate that failed": (
        lambda w: _gate(w, "mcp_gate", passed=False),
        {"status_mismatch"},
    ),
    "an end that is not the manifest's": (
        lambda w: w.finish("FAILURE", "no"),
        {"status_mismatch"},
    ),
    "a jump": (
        lambda w: w.move("S6_DONE", "S2_WORKER", "fix_contracted"),
        {"state_transition_illegal", "status_mismatch"},
    ),
    "a move from where the run was not": (
        lambda w: w.move("S4_TEST", "S6_DONE", "tests_passed"),
        {"state_transition_illegal"},
    ),
    "an event of a task without a contract": (
        lambda w: w.tell(EventType.RUNNER_FAILED, "task-unknown", 0, status="failed", reason="x"),
        {"task_id_mismatch"},
    ),
    "evidence that was missing": (
        lambda w: (w.directory / layout.REVIEW_REPORT).unlink(),
        {"evidence_incomplete", "status_mismatch"},
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_was_wrong_before_the_seal_is_found(played: World, tmp_path: Path, name: str) -> None:
    forge, codes = FORGED[name]
    world = played.copied(tmp_path)
    forge(world)
    world.seal()
    report = _verify(world)
    assert _codes(report) == codes, report.errors
    failed = {finding.code.check.value for finding in report.errors}
    assert {check for check, held in report.checks.items() if not held} == failed


def test_a_patch_that_leaves_its_scope_is_found(tmp_path: Path) -> None:
    world = sealed(tmp_path, allowed=("src/ap", "src/app/b.py"))
    report = _verify(world)
    assert _codes(report) == {"diff_gate_violation"}
    assert sorted(finding.path for finding in report.errors) == [
        "patch.diff",
        f"patches/{CHILD}.diff",
        f"patches/{TASK}.diff",
    ]


@pytest.mark.parametrize("allowed", ["src/app", "src/app/", "src", "src/app/a.py"])
def test_a_patch_inside_its_scope_is_not(tmp_path: Path, allowed: str) -> None:
    assert _verify(sealed(tmp_path, allowed=(allowed,))).errors == ()


def test_a_patch_that_the_gate_rejected_may_be_out_of_scope(tmp_path: Path) -> None:
    world = World(tmp_path, allowed=("src/other",))
    world.begin()
    world.gate(EventType.DIFF_GATE_RESULT, "diff_gate", TASK, 0, passed=False)
    world.bundle.write_bytes(layout.PATCH, patch_of("src/app/a.py"), redact=False)
    world.bundle.write_bytes(layout.NAMES, b"src/app/a.py\n", redact=False)
    world.bundle.write_bytes(layout.GIT_PATCH, patch_of("src/app/a.py"), redact=False)
    world.bundle.write_bytes(layout.GIT_NAMES, b"src/app/a.py\n", redact=False)
    world.move("S2_WORKER", "FAILED", "gate_failed")
    world.finish("FAILURE", "out of scope")
    world.seal("FAILURE", "out of scope")
    assert _verify(world).errors == ()


def test_an_invalid_contract_that_ended_its_run_is_only_a_warning(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.bundle.create()
    world.tell(
        EventType.RUN_CREATED, contract_sha256="", source="contract", baseline_commit="1" * 40,
        runner="scripted", policy_sha256="5" * 64,
    )  # fmt: skip
    world.bundle.write_json(layout.CONTRACT, {"task_id": "x"})
    world.bundle.write_json(f"tasks/{TASK}.json", {"task_id": "x"})
    world.gate(EventType.SCHEMA_GATE_RESULT, "schema_gate", None, 0, passed=False)
    world.move("S0_PM", "FAILED", "gate_failed")
    world.finish("FAILURE", "the contract is invalid")
    world.seal("FAILURE", "the contract is invalid")
    report = _verify(world)
    assert _codes(report) <= {"task_id_mismatch"}
    assert {finding.code for finding in report.warnings} == {Code.CONTRACT_INVALID}


def test_an_unknown_run_is_a_usage_error_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        verify_run(tmp_path / "runs" / RUN_ID, key_path=tmp_path / "key")
    assert caught.value.rule == "run.unknown"
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError):
        verify_run(tmp_path / "file", key_path=tmp_path / "key")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_link_to_a_bundle_is_no_bundle(whole: World, tmp_path: Path) -> None:
    world = whole.copied(tmp_path)
    (tmp_path / "link").symlink_to(world.directory)
    with pytest.raises(UsageError):
        verify_run(tmp_path / "link", key_path=world.key_path, run_id=RUN_ID)


def test_a_sound_run_passes_again_and_again_and_nothing_changes(
    whole: World, tmp_path: Path
) -> None:
    world = whole.copied(tmp_path)
    before = picture(tmp_path)
    reports = [_verify(world) for _ in range(3)]
    assert picture(tmp_path) == before
    assert reports[0] == reports[1] == reports[2]
    manifest = json.loads(world.bundle.read(layout.MANIFEST))
    assert reports[0].json() == {
        "run_id": RUN_ID,
        "status": "pass",
        "strict": True,
        "root_hash": manifest["integrity"]["root_hash"],
        "errors": [],
        "warnings": [],
        "checks": dict.fromkeys([check.value for check in Check], True),
    }


def test_audits_do_not_count_whatever_is_in_them(whole: World, tmp_path: Path) -> None:
    world = whole.copied(tmp_path)
    place = new_audit(world.directory, "2026-05-12T15:00:00.000000Z", "verify")
    (place / "report.json").write_text("{}")
    (place / "link").symlink_to("/etc/passwd")
    report = _verify(world)
    assert (report.errors, report.warnings) == ((), ())


def test_an_audit_that_names_another_run_is_told_and_fails_nothing(
    whole: World, tmp_path: Path
) -> None:
    world = whole.copied(tmp_path)
    for number, named in enumerate((world.directory.name, "run_other", None, "x" * 9999)):
        place = new_audit(world.directory, f"2026-05-12T15:00:0{number}.000000Z", "verify")
        (place / "verify_report.json").write_text(json.dumps({"run_id": named}))
    (world.directory / "audits" / "link").symlink_to("/etc")
    report = _verify(world)
    assert report.errors == ()
    assert [finding.code for finding in report.warnings] == [Code.AUDIT_FOREIGN] * 3
    assert "run_other" in report.warnings[0].message
    assert report.checks["bindings"]


def test_without_the_key_a_run_does_not_pass_unless_leniently(whole: World, tmp_path: Path) -> None:
    world = whole.copied(tmp_path)
    world.key_path.unlink()
    assert _codes(_verify(world)) == {"seal_key_missing", "seal_key_other"}
    report = _verify(world, strict=False)
    assert report.status == "pass"
    assert {finding.code for finding in report.warnings} <= LENIENT


def test_with_another_key_a_run_does_not_pass(whole: World, tmp_path: Path) -> None:
    world = whole.copied(tmp_path)
    other = tmp_path / "other.key"
    other.write_bytes(b"x" * 32)
    assert _codes(verify_run(world.directory, key_path=other)) == {"seal_key_other"}


def test_a_root_that_was_noted_elsewhere_is_compared(whole: World, tmp_path: Path) -> None:
    world = whole.copied(tmp_path)
    root = _verify(world).root_hash
    assert _verify(world, expected_root=root.upper()).errors == ()
    assert _codes(_verify(world, expected_root="0" * 64)) == {"root_hash_unexpected"}


def test_checkpoints_that_were_kept_elsewhere_are_compared(tmp_path: Path) -> None:
    key, other = (checkpoint.create_key(tmp_path / name) for name in ("one", "other"))
    world = sealed(tmp_path, signing_key=key)
    manifest = RunManifest.of(json.loads((world.directory / layout.MANIFEST).read_bytes()))
    made = make_checkpoint(manifest)
    assert made is not None

    def found(*texts: str, **options: object) -> set[str]:
        notes = parse_checkpoints("".join(texts))
        report = _verify(world, checkpoints=notes, public_key=key.public, **options)
        return {str(one.code) for one in (*report.errors, *report.warnings)}

    elsewhere = replace(made, origin="coilclaw/runs/run_other", root="0" * 64)
    assert found(render_checkpoint(made, key), render_checkpoint(elsewhere, None)) == set()
    assert found(render_checkpoint(made, None)) == {"checkpoint_unsigned"}
    assert found(render_checkpoint(made, other)) == {"checkpoint_unsigned"}
    assert found(render_checkpoint(replace(made, size=made.size - 1), key)) == {
        "checkpoint_mismatch"
    }
    assert found(
        render_checkpoint(made, key), render_checkpoint(replace(made, root="0" * 64), key)
    ) == {"checkpoint_mismatch"}
    forged = render_checkpoint(made, key).replace("time ", "times ")
    assert found(forged) == {"checkpoint_signature_invalid"}
    assert found(render_checkpoint(elsewhere, key)) == {"checkpoint_missing"}
    assert found() == {"checkpoint_missing"}


def test_a_whole_run_under_another_name_is_found(whole: World, tmp_path: Path) -> None:
    world = whole.copied(tmp_path)
    other = world.directory.with_name("run_something_else")
    shutil.copytree(world.directory, other)
    assert _codes(verify_run(other, key_path=world.key_path)) == {"run_id_target_mismatch"}
    assert verify_run(other, key_path=world.key_path, run_id=RUN_ID).errors == ()


def test_a_run_that_goes_on_is_not_sealed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.play()
    running: dict[str, Json] = {
        **world.facts(), "status": "RUNNING", "artifacts": [], "evidence_hashes": {},
        "directories": [],
    }  # fmt: skip
    world.bundle.write_json(layout.MANIFEST, running)
    assert _codes(_verify(world)) >= {"manifest_unsealed", "events_not_sealed"}
    assert "manifest_unsealed" not in _codes(_verify(world, strict=False))


def test_signatures(tmp_path: Path) -> None:
    key, other = (checkpoint.create_key(tmp_path / name) for name in ("one", "other"))
    world = sealed(tmp_path, signing_key=key)
    assert _verify(world, public_key=key.public).warnings == ()
    for given in (None, other.public):
        report = _verify(world, public_key=given)
        assert report.errors == ()
        assert [finding.code for finding in report.warnings] == [Code.SIGNATURE_UNCHECKED]


def test_a_signature_cannot_be_stripped_or_exchanged(tmp_path: Path) -> None:
    key = checkpoint.create_key(tmp_path / "signing")
    world = sealed(tmp_path, signing_key=key)
    place = world.directory / layout.MANIFEST
    place.chmod(0o644)
    manifest = json.loads(place.read_bytes())
    signature = manifest["integrity"].pop("signature")
    place.write_bytes(json_bytes(manifest))
    assert _codes(_verify(world)) == {"seal_invalid"}
    manifest["integrity"]["signature"] = {**signature, "sig": "AAAA" + signature["sig"][4:]}
    place.write_bytes(json_bytes(manifest))
    assert _codes(_verify(world, public_key=key.public)) == {"seal_invalid", "signature_invalid"}


def _spaced(manifest: Any) -> bytes:
    return json.dumps(manifest, ensure_ascii=False, sort_keys=True).encode() + b"\n"


def _with(change: Callable[[Any], object]) -> Callable[[Any], bytes]:
    """Change the manifest, and seal it with the genuine key: only what it says can tell."""

    def rewrite(manifest: Any) -> bytes:
        change(manifest)
        integrity = manifest["integrity"]
        integrity["root_hash"] = root_hash(manifest)
        integrity["seal"] = keyed_seal(KEY, integrity["root_hash"], integrity.get("signature"))
        return json_bytes(manifest)

    return rewrite


def _only(change: Callable[[Any], object]) -> Callable[[Any], bytes]:
    """Change the manifest, and nothing else."""

    def rewrite(manifest: Any) -> bytes:
        change(manifest)
        return json_bytes(manifest)

    return rewrite


MANIFESTS: dict[str, tuple[Callable[[Any], bytes], set[str]]] = {
    "another root hash": (
        _only(lambda m: m["integrity"].update(root_hash="0" * 64)),
        {"root_hash_mismatch"},
    ),
    "another seal": (_only(lambda m: m["integrity"].update(seal="0" * 64)), {"seal_invalid"}),
    "other bytes for the same": (_spaced, {"manifest_not_canonical"}),
    "a key named twice": (
        lambda m: json_bytes(m).replace(b'{"artifacts"', b'{"notes":"x","artifacts"', 1),
        {"manifest_not_canonical", "root_hash_mismatch", "seal_invalid"},
    ),
    "no JSON": (lambda m: json_bytes(m)[:-3], {"manifest_invalid"}),
    "a number that JSON has not": (lambda _: b'{"a":NaN}\n', {"manifest_invalid"}),
    "an unknown field": (_with(lambda m: m.update(unknown=1)), {"manifest_invalid"}),
    "another count of events": (
        _with(lambda m: m["integrity"].update(events_count=3)),
        {"events_count_mismatch"},
    ),
    "another last event": (
        _with(lambda m: m["integrity"].update(events_head="0" * 64)),
        {"events_head_mismatch"},
    ),
    "another contract": (
        _with(lambda m: m["integrity"].update(contract_sha256="0" * 64)),
        {"contract_hash_mismatch"},
    ),
    "an artifact less than hashes": (
        _with(lambda m: m["artifacts"].pop()),
        {"manifest_hashes_inconsistent"},
    ),
    "another size": (
        _with(lambda m: m["artifacts"][0].update(size_bytes=1)),
        {"manifest_hash_mismatch"},
    ),
    "a directory that is not there": (
        _with(lambda m: m["directories"].append("zzz")),
        {"directory_missing"},
    ),
    "a commit that nobody knows": (
        _with(lambda m: m["repo"].update(final_ref="f" * 40)),
        {"head_mismatch"},
    ),
    "another status": (
        _with(lambda m: m.update(status="FAILURE", failure_reason="none")),
        {"status_mismatch"},
    ),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_that_says_something_else_is_found(
    whole: World, tmp_path: Path, name: str
) -> None:
    rewrite, codes = MANIFESTS[name]
    world = whole.copied(tmp_path)
    place = world.directory / layout.MANIFEST
    place.chmod(0o644)
    place.write_bytes(rewrite(json.loads(place.read_bytes())))
    report = _verify(world)
    found = _codes(report)
    # Without a manifest that can be read, no report can be bound to its run.
    assert (found >= codes) if "manifest_invalid" in codes else (found == codes), report.errors


def test_a_genuine_key_makes_any_manifest_pass_that_is_true(whole: World, tmp_path: Path) -> None:
    world = whole.copied(tmp_path)
    place = world.directory / layout.MANIFEST
    place.chmod(0o644)
    place.write_bytes(_with(lambda m: m.update(notes="x"))(json.loads(place.read_bytes())))
    assert _verify(world).errors == ()


def test_a_bundle_that_is_almost_nothing_is_reported_not_crashed_on(tmp_path: Path) -> None:
    place = tmp_path / RUN_ID
    place.mkdir()
    report = verify_run(place, key_path=tmp_path / "key")
    assert _codes(report) >= {"manifest_missing", "events_missing", "contract_missing"}
    assert not list(place.iterdir())
    os.mkfifo(place / "events.jsonl")
    os.mkfifo(place / "manifest.json")
    report = verify_run(place, key_path=tmp_path / "key")
    assert _codes(report) >= {"manifest_missing", "entry_odd", "evidence_unreadable"}


def test_every_code_has_its_check() -> None:
    assert {code.check for code in Code} == set(Check)
    assert set(Code) >= LENIENT | WARNINGS
