"""The seal: what it covers, that it says what was missing, and that a kill does not change it."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel import checkpoint
from coilclaw.kernel.canonical_json import hash_json
from coilclaw.kernel.errors import CoilClawError, UsageError, VerificationFailed
from coilclaw.kernel.messages import Json
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.manifest import RunManifest
from coilclaw.runs.evidence import bundle, layout
from coilclaw.runs.evidence.seal import complete_bundle, seal_bundle
from coilclaw.runs.evidence.verification import verify_run
from coilclaw.workspace.tree.removal import remove_tree
from tests.support.bundles import KEY, TASK, World, picture, sealed
from tests.support.scale import scaled
from tests.unit.storage.worlds import fork, reap

KILLS = scaled(full=120, default=30)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A whole run that is not sealed yet; only to be copied."""
    world = World(tmp_path_factory.mktemp("played"))
    world.play()
    return world


@pytest.fixture(scope="module")
def whole(played: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A sealed run; only to be looked at, or copied."""
    world = played.copied(tmp_path_factory.mktemp("whole"))
    world.seal()
    return world


def _manifest(world: World) -> dict[str, Json]:
    value = json.loads((world.directory / layout.MANIFEST).read_bytes())
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize(
    "change", [{"status": "RUNNING"}, {"run_id": "run_another"}, {"status": None}]
)
def test_a_run_is_not_sealed_as_another_or_unfinished(
    played: World, tmp_path: Path, change: dict[str, Json]
) -> None:
    world = played.copied(tmp_path)
    before = picture(world.directory)
    with pytest.raises(UsageError) as caught:
        seal_bundle(world.bundle, world.log, {**world.facts(), **change})
    assert caught.value.rule == "seal.facts"
    assert picture(world.directory) == before


def test_facts_that_no_schema_accepts_seal_nothing(played: World, tmp_path: Path) -> None:
    world = played.copied(tmp_path)
    with pytest.raises(UsageError) as caught:
        seal_bundle(world.bundle, world.log, {**world.facts(), "unknown": 1})
    assert caught.value.rule == "contract.schema"
    assert not (world.directory / layout.MANIFEST).exists()
    world.seal()
    assert verify_run(world.directory, key_path=world.key_path).errors == ()


def test_a_link_in_the_bundle_is_not_sealed(played: World, tmp_path: Path) -> None:
    world = played.copied(tmp_path)
    (world.directory / "artifacts" / "x").symlink_to("/etc/passwd")
    with pytest.raises(VerificationFailed) as caught:
        world.seal()
    assert caught.value.rule == "seal.odd"


def test_a_sealed_manifest_that_was_changed_is_not_sealed_again(
    whole: World, tmp_path: Path
) -> None:
    world = whole.copied(tmp_path)
    place = world.directory / layout.MANIFEST
    place.chmod(0o644)
    place.write_bytes(place.read_bytes().replace(b"Make one", b"Bake one"))
    with pytest.raises(VerificationFailed) as caught:
        world.seal()
    assert caught.value.rule == "seal.broken"


def test_without_the_key_nothing_is_sealed(played: World, tmp_path: Path) -> None:
    world = played.copied(tmp_path)
    world.log.close()
    world.key_path.unlink()
    with pytest.raises(CoilClawError):
        world.seal()
    assert not (world.directory / layout.MANIFEST).exists()


def test_the_manifest_covers_every_file_and_directory(whole: World) -> None:
    world = whole
    manifest = _manifest(world)
    found = bundle.list_bundle(world.directory)
    hashes = manifest["evidence_hashes"]
    assert isinstance(hashes, dict)
    assert sorted(hashes) == [path for path in found.files if path != layout.MANIFEST]
    assert manifest["directories"] == list(found.directories)
    assert layout.ANCHOR in hashes
    for path, expected in hashes.items():
        assert bundle.measure_file(world.directory, path).sha256 == expected


def test_the_structure_of_the_specification_is_there(whole: World) -> None:
    world = whole
    there = set(bundle.list_bundle(world.directory).files)
    assert there >= {
        "contract.json", "manifest.json", "events.jsonl", "patch.diff", "diff_name_only.txt",
        "meta.json", "worktree_ref.txt", "reports/task_result.json", "reports/review_report.json",
        "reports/test_report.json", "reports/evidence_bundle.json", "reports/evidence_report.json",
        f"tasks/{TASK}.json", f"results/{TASK}/result.json", f"reviews/{TASK}.json",
        f"patches/{TASK}.diff", f"codex/{TASK}/events.jsonl", f"codex/{TASK}/transcript.md",
        f"codex/{TASK}/thread_id.txt", "git/baseline_commit.txt", "git/patch.diff",
        "git/diff_name_only.txt", "tests/command.txt", "tests/stdout.log", "tests/stderr.log",
        "trace/trace_id.txt",
    }  # fmt: skip


def test_the_last_event_is_the_seal_and_the_manifest_knows_it(whole: World) -> None:
    world = whole
    events = list(world.log.read())
    integrity = _manifest(world)["integrity"]
    assert isinstance(integrity, dict)
    assert events[-1]["event_type"] == "RUN_SEALED"
    assert (integrity["events_count"], integrity["events_head"]) == (
        len(events),
        events[-1]["event_hash"],
    )
    assert _manifest(world)["finished_at"] == events[-1]["ts"]
    assert integrity["contract_sha256"] == hash_json(world.contract())


def test_everything_is_read_only_but_the_audits(whole: World) -> None:
    world = whole
    modes = {
        str(path.relative_to(world.directory)): stat.S_IMODE(path.lstat().st_mode)
        for path in world.directory.rglob("*")
    }
    assert modes.pop(layout.AUDITS) & 0o700 == 0o700
    for path, mode in modes.items():
        assert mode == (0o555 if (world.directory / path).is_dir() else 0o444), path
    assert stat.S_IMODE(world.directory.lstat().st_mode) == 0o555


def test_sealing_again_changes_nothing(whole: World, tmp_path: Path) -> None:
    world = whole.copied(tmp_path)
    before = picture(world.directory)
    first = RunManifest.of(_manifest(world))
    assert world.seal() == first
    again = World(tmp_path)
    assert again.seal() == first
    assert picture(world.directory) == before


def test_two_runs_of_the_same_course_have_the_same_root(tmp_path: Path) -> None:
    one, other = sealed(tmp_path / "a"), sealed(tmp_path / "b")
    assert _manifest(one) == _manifest(other)


def test_a_signing_key_signs_the_root(tmp_path: Path) -> None:
    key = checkpoint.create_key(tmp_path / "signing.key")
    world = sealed(tmp_path, signing_key=key)
    report = verify_run(world.directory, key_path=world.key_path, public_key=key.public)
    assert (report.errors, report.warnings) == ((), ())
    integrity = _manifest(world)["integrity"]
    assert isinstance(integrity, dict)
    assert isinstance(integrity["signature"], dict)
    assert integrity["signature"]["keyid"] == key.key_id


def test_a_run_that_ended_early_says_what_is_missing_and_makes_nothing_up(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin()
    world.gate(EventType.POLICY_GATE_RESULT, "policy_gate", None, 0, passed=False)
    world.move("S2_WORKER", "FAILED", "gate_failed")
    world.finish("FAILURE", "policy_gate failed")
    world.seal("FAILURE", "policy_gate failed")

    def read(path: str) -> Any:
        return json.loads(world.bundle.read(path))

    assert read(layout.EVIDENCE_REPORT) == {
        "status": "fail",
        "missing": [
            "patch.diff",
            "reports/review_report.json",
            "reports/task_result.json",
            "reports/test_report.json",
        ],
    }
    assert read(layout.REVIEW_REPORT)["verdict"] == "BLOCKED"
    assert read(layout.REVIEW_REPORT)["reviewer"]["agent_id"] == "none"
    assert (read(layout.TEST_REPORT)["status"], read(layout.TEST_REPORT)["commands"]) == (
        "SKIPPED",
        [],
    )
    assert read(layout.TASK_RESULT)["status"] == "BLOCKED"
    assert read(layout.TASK_RESULT)["gates"] == {
        "policy_gate": {"passed": False, "violations": ["policy_gate.rule: it does not hold"]}
    }
    assert read(layout.EVIDENCE_BUNDLE)["sources"] == []
    report = verify_run(world.directory, key_path=world.key_path)
    assert report.errors == ()


def test_a_kill_while_the_rest_is_filled_in_does_not_make_it_evidence(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.begin()
    complete_bundle(world.bundle, world.log.read(), "killed")  # and here the process died
    world.finish("FAILURE", "killed")
    world.seal("FAILURE", "killed")
    report = json.loads(world.bundle.read(layout.EVIDENCE_REPORT))
    assert (report["status"], layout.REVIEW_REPORT in report["missing"]) == ("fail", True)


def test_evidence_that_is_there_is_reported_as_there(whole: World) -> None:
    world = whole
    assert json.loads(world.bundle.read(layout.EVIDENCE_REPORT)) == {"status": "ok", "missing": []}


class _Killed(BaseException):
    """Stands for a kill at an exact place."""


def test_a_kill_before_any_write_of_the_seal_leaves_it_to_be_done(
    played: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of the seal, one after the other, is never reached."""
    reference = played.copied(tmp_path / "reference")
    expected = reference.seal()
    wanted = bundle.list_bundle(reference.directory)
    # Up to the manifest every write counts; afterwards there are only modes to be set.
    for place in [*range(1, 14), *range(14, 200, 16)]:
        world = played.copied(tmp_path / f"kill-{place}")
        now, left = world.clock.now, place

        def counted(real: Callable[..., object]) -> Callable[..., object]:
            def call(*arguments: object, **options: object) -> object:
                nonlocal left
                left -= 1
                if left == 0:
                    raise _Killed
                return real(*arguments, **options)

            return call

        with monkeypatch.context() as patch:
            for name in ("replace", "fchmod", "pwrite"):
                patch.setattr(os, name, counted(getattr(os, name)))
            try:
                world.seal()
            except _Killed:
                killed = True
            else:
                killed = False
        again = World(world.root)
        again.clock.now = now
        assert again.seal() == expected, place
        assert bundle.list_bundle(world.directory) == wanted
        if not killed:
            assert place > 40
            return
    raise AssertionError("the seal never came to its end")


def test_killed_at_any_instant_it_is_sealed_to_the_same_result(
    played: World, tmp_path: Path
) -> None:
    reference = played.copied(tmp_path / "reference")
    begun = time.perf_counter()
    expected = reference.seal()
    took = time.perf_counter() - begun
    chance = random.Random(6)
    endings = set()
    for number in range(KILLS):
        world = played.copied(tmp_path / f"kill-{number}")
        now = world.clock.now
        child = fork(world.seal_quietly)
        time.sleep(chance.uniform(0, 1.3 * took))
        os.kill(child, signal.SIGKILL)
        endings.add(reap(child))
        again = World(world.root)
        again.clock.now = now
        sealed = again.seal()
        if any(world.directory.glob("*.torn-*")):
            # The kernel may cut a write short when it kills: what is left over is evidence, too.
            torn = ("artifacts", "evidence_hashes", "integrity")
            sealed = replace(sealed, **{name: getattr(expected, name) for name in torn})
        assert sealed == expected
        report = verify_run(world.directory, key_path=world.key_path)
        assert report.errors == ()
        remove_tree(world.root)
    assert -signal.SIGKILL in endings


def test_the_key_of_the_tests_is_private(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.key_path.read_bytes() == KEY
    assert stat.S_IMODE(world.key_path.stat().st_mode) == 0o600
