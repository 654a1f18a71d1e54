"""``coilclaw demo run`` and ``scripts/e2e.sh``: what a newcomer sees first does what it shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coilclaw.cli.console import Console
from coilclaw.cli.demo import orchestration, stage
from coilclaw.kernel import schemas
from coilclaw.runs.evidence.verification import verify_run
from coilclaw.runs.orchestrator import find_run_places
from coilclaw.workspace.tree.removal import remove_tree
from tests.support.command import Command
from tests.support.repository import ROOT


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the sandbox of an agent does not cover."""
    made = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="coilclaw-test-"))
    yield made
    remove_tree(made)


@pytest.fixture
def playing(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a demo that is played in this process makes its directory."""
    monkeypatch.setattr(stage, "PLACE", str(place))
    return place


def _console(capsys: pytest.CaptureFixture[str]) -> Console:
    capsys.readouterr()
    return Console.of(sys.stdout, sys.stderr, {"NO_COLOR": "1"})


def test_the_demo_tells_of_a_run_from_a_sentence_to_forged_evidence(tmp_path: Path) -> None:
    before = set(os.listdir(stage.PLACE))
    done = Command(tmp_path / "home")("demo", "run")
    told = done.stdout.decode()
    assert (done.returncode, done.stderr.decode()) == (0, ""), told
    in_order = (
        "receipt: REFUSED by the diff gate: diff.out_of_scope: 'deploy/production.txt'",
        "receipt: rolled back",
        "receipt is to be repaired as receipt-fix-1",
        "price: RED (exit code 1)",
        "price is to be repaired as price-fix-2",
        "price-fix-2: PASS",
        "price: green",
        "receipt: green",
        "main is now at",
        "everything holds",
        "one byte of the patch is changed: found (",
        "one event is cut out: found (",
    )
    places = [told.find(text) for text in in_order]
    assert -1 not in places, told
    assert places == sorted(places), told
    left = {name for name in set(os.listdir(stage.PLACE)) - before if "coilclaw-demo-" in name}
    assert not left
    assert not (tmp_path / "home").exists()


def test_a_demo_that_is_kept_holds_a_repository_and_a_run_that_verifies(
    playing: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orchestration.run(_console(capsys), keep=True) == 0
    (folder,) = playing.iterdir()
    assert f"kept in {folder}" in capsys.readouterr().out
    places = find_run_places(folder / "shop", {})
    (bundle,) = places.runs.iterdir()
    report = verify_run(bundle, key_path=folder / "home/keys/journal.key")
    assert (report.status, report.errors) == ("pass", ())
    story = stage.load_story("run")
    for name, text in {**story["files"], **story["result"]}.items():
        assert (folder / "shop" / name).read_text() == text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("script", [[{"text": "I do nothing at all."}]]),
        ("plan", {"spec": "no plan"}),
        ("split", "no JSON"),
        ("result", {"shop/price.py": "something else\n"}),
    ],
)
def test_a_demo_that_goes_another_way_says_so_and_cleans_up(
    playing: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: object,
) -> None:
    story = {**stage.load_story("run"), name: value}
    monkeypatch.setattr(orchestration, "load_story", lambda _: story)
    assert orchestration.run(_console(capsys), keep=False) == 1
    assert "demo.failed" in capsys.readouterr().err
    assert list(playing.iterdir()) == []


def test_the_scripted_models_answer_what_their_schemas_ask_for() -> None:
    story = stage.load_story("run")
    for schema, answer in (("plan.v1", story["plan"]), ("split.v1", story["split"])):
        assert schemas.find_schema_problems(schema, json.loads(json.dumps(answer))) == ()


def test_keep_is_for_the_demo_of_a_run_alone(tmp_path: Path) -> None:
    done = Command(tmp_path / "home")("demo", "deliver", "--keep")
    assert done.returncode == 2
    assert b"usage.demo" in done.stderr


def _e2e(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    coilclaw = Path(sys.executable).with_name("coilclaw")
    base = {
        "PATH": f"{os.path.dirname(os.path.realpath(sys.executable))}:/usr/bin:/bin",
        "HOME": str(place / "user"),
        "COILCLAW": str(coilclaw),
        "COILCLAW_E2E_DIR": str(place),
        # What a caller's shell may hold, and what must not matter.
        "GIT_DIR": "/nowhere",
        "COILCLAW_HOME": "/nowhere",
        "CORTEXPILOT_RUNTIME_ROOT": "/nowhere",
    }
    return subprocess.run(
        [ROOT / "scripts/e2e.sh", *arguments],
        cwd="/",
        env={**base, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_first_day_from_nothing_to_a_verified_merge(place: Path) -> None:
    done = _e2e(place)
    assert done.returncode == 0, done.stdout + done.stderr
    titles = [line for line in done.stdout.splitlines() if line.startswith("== ")]
    assert titles == [
        "== a repository with a bug that a test shows",
        "== init --repo: runtime root, ignore line, policies, hooks",
        "== contract init: the user story as a contract",
        "== run --merge, by a scripted agent",
        "== runs verify",
        "== runs reexec",
        "== runs replay",
        "== runs verify, once more: looking at a run changes nothing of it",
        "== done",
    ]
    assert list(place.iterdir()) == []


def test_the_first_day_fails_when_the_product_does(place: Path) -> None:
    broken = place / "coilclaw"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    done = _e2e(place, COILCLAW=str(broken))
    assert done.returncode == 3
    assert "e2e: failed with exit code 3" in done.stderr
    assert [path.name for path in place.iterdir()] == ["coilclaw"]
    assert _e2e(place, "--surplus").returncode == 2
