"""``coilclaw runs report`` on real runs of every state."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.kernel.messages import ChatRequest, ChatResponse, Usage
from tests.support.children import PATIENCE_S
from tests.support.html_page import EVIL, Page
from tests.support.runcommands import Coilclaw
from tests.support.runs import ADDS, CALC, FILES, Answering, World, opened

MULTIPLIES = {"pkg/calc.py": "def add(a, b):\n    return a * b\n"}
SPEECH = EVIL.replace("\x00", "").replace("\ud800", "")
ODD_NAME = "pkg/<img src=x onerror=alert(1)> \"'&.py"


@pytest.fixture
def world() -> Iterator[World]:
    with opened({**FILES, "docs/guide.md": b"# Guide\n"}) as made:
        yield made


@pytest.fixture
def coilclaw(world: World) -> Coilclaw:
    return Coilclaw(world)


@pytest.fixture(scope="module")
def ended() -> Iterator[tuple[Coilclaw, str]]:
    """A run that was repaired, passed and waits to be merged; tests only look at it."""
    with opened() as made:
        outcome = made.run(runner=made.script([{"write": MULTIPLIES}], [{"write": ADDS}]))
        assert outcome.status == "passed"
        yield Coilclaw(made), outcome.run_id


def page_of(coilclaw: Coilclaw, run_id: str = "last", code: int = 0) -> Page:
    done = coilclaw("runs", "report", run_id, "-o", "-")
    assert done.code == code, done.err
    return Page(done.out.encode()).check()


def test_a_repaired_run_shows_both_attempts_and_how_to_verify_it(
    ended: tuple[Coilclaw, str],
) -> None:
    coilclaw, run_id = ended
    page = page_of(coilclaw, run_id)
    for section, words in {
        "outcome": ("Passed, the merge is pending", f"coilclaw runs apply {run_id}"),
        "verification": ("The evidence holds", f"coilclaw runs reexec {run_id}"),
        "timeline": ("The acceptance tests failed.", "task-0001-fix-1", "attempt 2"),
        "contract": ("Make add add.", "pkg/calc.py", CALC, "must pass"),
        "tasks": ("task-0001-fix-1",),
        "changes": ("The change of the run", "Work of task-0001", "patches/task-0001.diff"),
        "gates": ("1 red", "tests.failed"),
        "tests": ("exit 0", "exit 1", "AssertionError: add does not add"),
        "reviews": ("PASS", "rules"),
    }.items():
        for word in words:
            assert word in page.sections[section], (section, word)
    assert "<del>-</del>" in page.source
    assert "<ins>+</ins>" in page.source
    root = coilclaw.world.read(run_id, "manifest.json")["integrity"]["root_hash"]
    assert f"coilclaw runs verify {run_id} --root {root}" in page.sections["verification"]


def test_the_file_is_put_where_it_is_asked_for_and_a_new_one_replaces_it(
    ended: tuple[Coilclaw, str], tmp_path: Path
) -> None:
    coilclaw, run_id = ended
    repo = ("--repo", str(coilclaw.world.repo))
    for _ in range(2):
        done = coilclaw("runs", "report", "last", *repo, cwd=tmp_path)
        assert (done.code, done.out) == (0, f"{run_id}.html\n")
    assert os.listdir(tmp_path) == [f"{run_id}.html"]
    Page((tmp_path / f"{run_id}.html").read_bytes()).check()
    told = coilclaw("runs", "report", "last", *repo, "-o", "x.html", "--json", cwd=tmp_path).json
    assert told == {
        "run_id": run_id,
        "status": "passed",
        "verification": "holds",
        "file": str(tmp_path / "x.html"),
    }


def test_links_directories_and_pipes_are_left_alone(
    ended: tuple[Coilclaw, str], tmp_path: Path
) -> None:
    coilclaw, run_id = ended
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = sorted(os.listdir(tmp_path))
    for name, rule in (
        ("link", "report.link"),
        ("dangling", "report.link"),
        ("folder", "report.place"),
        ("pipe", "report.place"),
    ):
        done = coilclaw("runs", "report", run_id, "-o", str(tmp_path / name), "--json")
        assert (done.code, done.json["rule"]) == (2, rule)
    assert (sorted(os.listdir(tmp_path)), target.read_text()) == (before, "mine")
    missing = coilclaw("runs", "report", run_id, "-o", str(tmp_path / "no/x.html"), "--json")
    assert missing.code == 5
    both = coilclaw("runs", "report", run_id, "-o", "-", "--json")
    assert (both.code, both.json["rule"]) == (2, "usage.report")
    unknown = coilclaw("runs", "report", "run_20261115_000000_0123456789abcdef", "--json")
    assert (unknown.code, unknown.json["rule"]) == (2, "run.unknown")


def test_a_report_writes_nothing_into_the_bundle(ended: tuple[Coilclaw, str]) -> None:
    coilclaw, run_id = ended
    bundle = coilclaw.world.bundle(run_id)
    before = sorted(bundle.rglob("*"))
    page_of(coilclaw, run_id)
    assert sorted(bundle.rglob("*")) == before


def test_red_tests_are_told_with_the_end_of_their_output(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    runner = world.script([{"write": MULTIPLIES}])
    assert world.run(world.contract(max_retries=0), runner).status == "failed"
    page = page_of(coilclaw)
    assert page.sections["outcome"].lstrip().startswith("Outcome Failed")
    assert "'acceptance-1' ended with exit code 1" in page.sections["outcome"]
    assert "AssertionError: add does not add" in page.sections["outcome"]


def test_refused_work_is_told_with_its_gate_and_its_diff(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    runner = world.script([{"write": {"other/outside.txt": "mine\n"}}])
    assert world.run(world.contract(max_retries=0), runner).status == "failed"
    page = page_of(coilclaw)
    assert "'other/outside.txt' was modified; allowed: pkg/calc.py" in page.sections["outcome"]
    assert "diff.out_of_scope" in page.sections["gates"]
    assert "Refused work of task-0001" in page.sections["changes"]
    assert "mine" in page.sections["changes"]
    assert "reexec" not in page.sections["verification"]


def test_hostile_text_of_the_contract_the_agent_the_tests_and_names_stays_text(
    coilclaw: Coilclaw,
) -> None:
    world = coilclaw.world
    (world.repo / "tests/check_calc.py").write_text(f"print({SPEECH!r}, 'z' * 5000)\n")
    world.git("commit", "-q", "-a", "-m", "loud")
    long = "# " + "w" * 5000 + "\n"
    runner = world.script(
        [
            {"reasoning": SPEECH},
            {"write": {ODD_NAME: f"# {SPEECH.splitlines()[0]}\n{long}"}},
            {"text": SPEECH},
        ]
    )
    outcome = world.run(world.contract(("pkg/calc.py", ODD_NAME), spec=SPEECH), runner)
    page = page_of(coilclaw, outcome.run_id)
    for section in ("outcome", "contract", "tasks", "tests", "changes"):
        assert "<img src=x onerror=alert(1)>" in page.sections[section], section
    assert ODD_NAME in page.sections["changes"]
    assert "\\x1b[2J" in page.sections["tests"]
    assert "more characters)" in page.sections["changes"]
    assert "more characters)" in page.sections["tests"]


def test_a_run_that_waits_is_told_and_then_denied(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    paused = world.run(world.contract(("pkg/calc.py", "docs")))
    page = page_of(coilclaw)
    assert "Paused" in page.sections["outcome"]
    assert f"coilclaw runs resume {paused.run_id}" in page.sections["outcome"]
    assert "is not sealed yet" in page.sections["verification"]
    assert "waits for an answer" in page.sections["approvals"]
    assert coilclaw("reject", paused.waiting[0]).code == 0
    assert world.resume(paused.run_id).status == "denied"
    page = page_of(coilclaw)
    assert "Denied" in page.sections["outcome"]
    assert "rejected" in page.sections["approvals"]
    assert "The evidence holds" in page.sections["verification"]


def test_a_run_that_goes_on_and_then_is_interrupted_is_told(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    slow = world.script([{"sleep_s": 600}, {"write": ADDS}])
    process = coilclaw.start("run", coilclaw.keep(world.contract()), "--runner", slow, "--follow")
    assert process.stdout is not None
    for line in process.stdout:
        if b"TASK_STARTED" in line:
            break
    page = page_of(coilclaw)
    assert "Running" in page.sections["outcome"]
    assert "Work began with" in page.sections["timeline"]
    assert "is not sealed yet" in page.sections["verification"]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_S)
    page = page_of(coilclaw)
    assert "Interrupted" in page.sections["outcome"]
    assert "is not sealed yet" in page.sections["verification"]
    assert "coilclaw runs resume run_" in page.sections["outcome"]


def test_a_merge_by_runs_apply_is_told(coilclaw: Coilclaw) -> None:
    run_id = coilclaw.world.run().run_id
    assert "the merge is pending" in page_of(coilclaw).sections["outcome"]
    assert coilclaw("runs", "apply", run_id).code == 0
    page = page_of(coilclaw)
    assert "merged later by runs apply" in page.sections["outcome"]
    assert "merged" in page.sections["audits"]
    (audit,) = (coilclaw.world.bundle(run_id) / "audits").glob("*-apply/apply.json")
    audit.chmod(0o644)
    audit.write_text(json.dumps({**json.loads(audit.read_text()), "run_id": "run_of_another"}))
    page = page_of(coilclaw)
    assert "belongs to another run" in page.sections["audits"]
    assert "the merge is pending" in page.sections["outcome"]


def test_tampered_evidence_is_said_first_and_ends_with_1(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.run().run_id
    bundle = world.bundle(run_id)
    review = bundle / "reviews/task-0001.json"
    for path in (bundle, review.parent, review):
        path.chmod(0o755)
    review.write_text(review.read_text().replace("PASS", "FAIL"))
    page = page_of(coilclaw, run_id, code=1)
    top = page.text.partition("Outcome")[0]
    assert "The evidence does not hold" in top
    assert "manifest_hash_mismatch" in top
    assert "Claimed, and not proven" in page.sections["outcome"]
    done = coilclaw("runs", "report", run_id, "-o", str(world.root / "x.html"))
    assert (done.code, "does not hold" in done.err) == (1, True)
    Page((world.root / "x.html").read_bytes()).check()


def test_a_secret_of_the_configuration_is_not_shown(coilclaw: Coilclaw) -> None:
    """It became known after the run, so that the bundle still has it."""
    world = coilclaw.world
    secret = "sk-0123456789abcdefghij"
    world.run(world.contract(spec=f"Make add add, not {secret}."))
    assert secret in page_of(coilclaw).source
    (world.home / "config.toml").write_text(
        'default_provider = "far"\n[providers.models.far]\nkind = "openai-compatible"\n'
        'model = "m"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "KEY"\n'
    )
    world.environ["KEY"] = secret
    page = page_of(coilclaw)
    assert secret not in page.source
    assert "Make add add, not" in page.sections["contract"]


class Counting(Answering):
    """A provider that says how many tokens it took."""

    def chat(self, request: ChatRequest) -> ChatResponse:
        return replace(super().chat(request), usage=Usage(1200, 34))


def test_tokens_of_models_that_plan_are_counted(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    world.models["PM"] = Counting("this is no contract")
    outcome = world.run(sentence="Make add add.")
    asked = world.of(outcome.run_id, "MODEL_ASKED")
    assert asked[0]["usage"] == {"input_tokens": 1200, "output_tokens": 34}
    page = page_of(coilclaw)
    row = ["PM", "model-x", str(len(asked)), f"{1200 * len(asked):,}", str(34 * len(asked))]
    assert " ".join(row) in page.sections["tokens"]
