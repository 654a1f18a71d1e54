"""``coilclaw run`` and ``coilclaw runs`` through the executable, as a user meets them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.kernel.checkpoint import parse_checkpoints, render_checkpoint
from coilclaw.runs.contracts.task_contract import RuntimeOptions
from tests.support.children import PATIENCE_S
from tests.support.runcommands import Coilclaw
from tests.support.runs import ADDS, CALC, FILES, World, opened
from tests.support.sandboxes import supported

ADD = [{"write": ADDS}]
BROAD = ("pkg/calc.py", "docs")


@pytest.fixture
def world() -> Iterator[World]:
    with opened({**FILES, "docs/guide.md": b"# Guide\n"}) as made:
        yield made


@pytest.fixture
def coilclaw(world: World) -> Coilclaw:
    return Coilclaw(world)


@pytest.fixture(scope="module")
def ended() -> Iterator[tuple[Coilclaw, str]]:
    """A world with one run that passed and waits to be merged; tests only look at it."""
    with opened() as made:
        config = f'[receipts]\ncheckpoint = "{made.root / "checkpoints"}"\n'
        (made.home / "config.toml").write_text(config)
        outcome = made.ended(made.run())
        assert outcome.status == "passed"
        yield Coilclaw(made), outcome.run_id


# run


def test_a_run_that_passes_says_where_everything_is(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract())
    runner = world.script(ADD)
    done = coilclaw.program("run", contract, "--runner", runner, "--merge", "--quiet")
    assert done.code == 0, done.err
    first, *rest = done.out.splitlines()
    run_id = first.removeprefix("run_id=")
    bundle = world.bundle(run_id)
    said = dict(line.split(maxsplit=1) for line in rest)
    assert said == {
        "status": "passed",
        "merge": "merged",
        "bundle": str(bundle),
        "anchor": world.read(run_id, "manifest.json")["integrity"]["root_hash"],
        "next": f"coilclaw runs verify {run_id}",
    }
    assert "\x1b" not in done.out + done.err
    assert world.git("show", "main:pkg/calc.py") == ADDS["pkg/calc.py"].strip()
    assert coilclaw("runs", "verify", run_id, "--root", said["anchor"]).code == 0


def test_json_is_one_event_a_line_and_with_quiet_the_result_alone(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract())
    runner = world.script(ADD)
    done = coilclaw("run", contract, "--runner", runner, "--json", "--quiet")
    result = json.loads(done.out)
    assert (done.code, result["status"], result["merge"]) == (0, "passed", "pending")
    assert done.err.startswith(f"run_id={result['run_id']}\n")
    followed = coilclaw("run", "-", "--runner", runner, "--json", stdin=world.contract())
    lines = [json.loads(line) for line in followed.out.splitlines()]
    assert followed.code == 0
    kinds = [line["event_type"] for line in lines]
    assert (kinds[0], kinds[-2], kinds[-1]) == ("RUN_CREATED", "LOCKS_RELEASED", "result")
    assert lines[-1]["status"] == "passed"
    parts = [line["payload"] for line in lines if line["event_type"] == "agent_part"]
    assert [part["kind"] for part in parts] == ["file", "end"]
    assert parts[0]["files"] == [{"path": "pkg/calc.py", "added": 1, "removed": 1}]
    assert {line["run_id"] for line in lines} == {lines[-1]["run_id"]}


def test_followed_states_stand_out_and_nothing_an_agent_says_can_act(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract(max_retries=0))
    crash = world.script([{"text": "bye \x1b[2J"}, {"crash": True}])
    done = coilclaw("run", contract, "--runner", crash, "--follow")
    assert done.code == 1
    assert "  == S0_PM -> S1_TECH_LEAD (contract_accepted)" in done.out.splitlines()
    assert "\x1b" not in done.out + done.err


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[1]", b'{"task_id": "x"}', b"\xff\xfe", b'{"a": ' * 70 + b"1" + b"}" * 70]
)
def test_a_malformed_contract_ends_with_2_and_a_bundle_that_says_why(
    coilclaw: Coilclaw, data: bytes
) -> None:
    done = coilclaw("run", coilclaw.keep(data), "--json")
    assert done.code == 2, done.err
    assert done.json["status"] == "invalid"
    assert done.json["problems"]
    run_id = done.json["run_id"]
    assert coilclaw.world.read(run_id, "manifest.json")["status"] == "FAILURE"
    assert coilclaw("runs", "verify", run_id).code == 0


def test_every_problem_of_a_contract_is_listed(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    value = json.loads(world.contract())
    value["allowed_paths"] = ["../up", "src/**"]
    value["rollback"]["baseline_ref"] = "no-such-branch"
    done = coilclaw("run", coilclaw.keep(json.dumps(value).encode()), "--runner", "builtin")
    assert done.code == 2
    problems = [line for line in done.out.splitlines() if line.startswith("problem")]
    for word in ("/allowed_paths/0", "/allowed_paths/1", "/rollback/baseline_ref"):
        assert any(word in line for line in problems), (word, done.out)


def test_usage_that_starts_nothing(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract())
    for arguments, rule in (
        ([], "usage.run"),
        ([contract, "--request", "x"], "usage.run"),
        (["--request", "  "], "request.empty"),
        ([contract, "--runner", "nobody"], "runner.unknown"),
        ([contract, "--runner", "process:"], "runner.argument"),
        ([contract, "--runner", "scripted:/nonexistent.json"], "script.read"),
        ([contract, "--wait", "-1"], "usage.wait"),
        (["/nonexistent.json"], "contract.read"),
        (["--resume", "run_none_at_all"], "run.unknown"),
        (["--resume", "last", "--merge"], "usage.resume"),
        ([contract, "--repo", "/"], "repository.none"),
    ):
        done = coilclaw("run", *arguments, "--json")
        assert (done.code, done.json["rule"]) == (2, rule), arguments
    assert not world.runtime.joinpath("runs").exists() or not os.listdir(world.runtime / "runs")


def test_a_contract_that_names_a_runner_with_an_argument_is_not_given_to_another(
    coilclaw: Coilclaw,
) -> None:
    world = coilclaw.world
    value = json.loads(world.contract())
    value["runtime_options"] = {"runner": "scripted"}
    value["role_contract"]["runtime_binding"]["runner"] = "scripted"
    contract = coilclaw.keep(json.dumps(value).encode())
    refused = coilclaw("run", contract, "--json")
    assert (refused.code, refused.json["rule"]) == (2, "runner.argument")
    done = coilclaw("run", contract, "--runner", world.script(ADD), "--json")
    assert (done.code, done.json["status"]) == (0, "passed"), done.out


@pytest.mark.parametrize("named", [None, "code-commit"])
def test_the_runner_of_the_contract_is_the_default(coilclaw: Coilclaw, named: str | None) -> None:
    """Without a model nobody of ours can perform, and that is said before any work."""
    world = coilclaw.world
    options = None if named is None else RuntimeOptions.of({"runner": named})
    contract = coilclaw.keep(world.contract(max_retries=0, runtime_options=options))
    done = coilclaw("run", contract, "--json", "--diagnostic")
    assert (done.code, done.json["rule"]) == (2, "run.model"), done.out
    (run_id,) = [path.name for path in (world.runtime / "runs").iterdir()]
    (created,) = world.of(run_id, "RUN_CREATED")
    assert (created["runner"], created["reviewer"]) == (named or "builtin", "rules")
    assert created["diagnostic"] is True
    given_up = coilclaw("runs", "abandon", "last", "--json")
    assert (given_up.code, given_up.json["status"]) == (0, "denied"), given_up.out
    assert coilclaw("runs", "verify", "last").code == 0


def test_a_provider_that_cannot_be_asked_is_4(coilclaw: Coilclaw) -> None:
    (coilclaw.world.home / "config.toml").write_text(
        'default_provider = "far"\n[providers.models.far]\nkind = "openai-compatible"\n'
        'model = "m"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "KEY"\n'
    )
    coilclaw.world.environ["KEY"] = "sk-0123456789abcdef"
    done = coilclaw("run", "--request", "Make add add.", "--json")
    assert (done.code, done.json["status"]) == (4, "provider"), done.out
    assert coilclaw("runs", "verify", "last").code == 0


@pytest.mark.parametrize(
    ("chosen", "used"), [("landlock", "landlock"), ("bubblewrap", "bubblewrap"), ("none", "auto")]
)
def test_a_run_takes_the_sandbox_that_was_chosen_and_never_none(
    coilclaw: Coilclaw, chosen: str, used: str
) -> None:
    world = coilclaw.world
    if used != "auto":
        supported(used)
    (world.home / "config.toml").write_text(f'[security]\nsandbox = "{chosen}"\n')
    done = coilclaw("run", coilclaw.keep(world.contract()), "--runner", world.script(ADD))
    assert done.code == 0, done
    (run_id,) = os.listdir(world.runtime / "runs")
    assert world.read(run_id, "meta.json")["sandbox"]["kind"] == used


def test_trouble_of_our_own_is_5(coilclaw: Coilclaw) -> None:
    coilclaw.world.environ["CORTEXPILOT_RUNTIME_ROOT"] = "/dev/null/runs"
    contract = coilclaw.keep(coilclaw.world.contract())
    done = coilclaw("run", contract, "--runner", coilclaw.world.script(ADD), "--json")
    assert (done.code, done.json["rule"]) == (5, "run.places")


def test_a_gate_that_fails_is_1_and_what_was_rolled_back_can_be_seen(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract(max_retries=0))
    bad = world.script([{"write": {"other/outside.txt": "mine\n"}}])
    done = coilclaw("run", contract, "--runner", bad)
    assert done.code == 1
    assert any("diff.out_of_scope" in line for line in done.out.splitlines())
    rejected = coilclaw("runs", "diff", "last", "--rejected")
    assert "+mine" in rejected.out
    assert coilclaw("runs", "diff", "last").out == ""
    assert coilclaw("runs", "diff", "last", "--task", "nobody").code == 2
    shown = coilclaw("runs", "show", "last")
    assert "gate     diff_gate of task-0001: diff.out_of_scope" in shown.out
    nothing = coilclaw("runs", "reexec", "last", "--json")
    assert (nothing.code, nothing.json["rule"]) == (2, "reexec.nothing")
    unmerged = coilclaw("runs", "apply", "last", "--json")
    assert (unmerged.code, unmerged.json["rule"]) == (2, "apply.nothing")


def test_a_process_performs(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    runner = world.program(
        "import json, pathlib, sys\n"
        "contract = json.load(sys.stdin)\n"
        "pathlib.Path('pkg/calc.py').write_text('def add(a, b):\\n    return a + b\\n')\n"
        "print(json.dumps({'task_id': contract['task_id'], 'status': 'SUCCESS',"
        " 'summary': 'It adds.', 'evidence_refs': {}, 'failure': None}))\n"
    )
    done = coilclaw("run", coilclaw.keep(world.contract()), "--runner", runner, "--json")
    assert (done.code, done.json["status"]) == (0, "passed"), done.out


def test_a_broad_path_waits_and_an_approved_run_goes_on(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract(BROAD))
    runner = world.script(ADD)
    paused = coilclaw("run", contract, "--runner", runner, "--json")
    assert (paused.code, paused.json["status"]) == (3, "paused"), paused.out
    run_id, (approval,) = paused.json["run_id"], paused.json["waiting"]
    assert coilclaw("runs", "list", "--json").json[0]["status"] == "paused"
    unsealed = coilclaw("runs", "verify", run_id)
    assert (unsealed.code, "manifest_missing" in unsealed.out) == (1, True)
    approved = coilclaw("approve", approval)
    assert f"next: coilclaw runs resume {run_id}" in approved.err
    done = coilclaw("runs", "resume", "last", "--json")
    assert (done.code, done.json["status"]) == (0, "passed")
    again = coilclaw("runs", "resume", run_id, "--json")
    assert (again.code, again.json["rule"]) == (2, "run.sealed")


def test_a_rejected_run_ends_with_3(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract(BROAD))
    paused = coilclaw("run", contract, "--runner", world.script(ADD), "--json")
    (approval,) = paused.json["waiting"]
    assert coilclaw("reject", approval).code == 0
    done = coilclaw("run", "--resume", paused.json["run_id"], "--json")
    assert (done.code, done.json["status"]) == (3, "denied")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_can_go_on(coilclaw: Coilclaw, number: signal.Signals) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract())
    slow = world.script([{"sleep_s": 600}, *ADD])
    process = coilclaw.start("run", contract, "--runner", slow, "--follow")
    assert process.stdout is not None
    for line in process.stdout:
        if b"TASK_STARTED" in line:
            break
    process.send_signal(number)
    out, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 3
    run_id = coilclaw("runs", "list", "--json").json[0]["run_id"]
    assert f"next     coilclaw runs resume {run_id}".encode() in out
    shown = coilclaw("runs", "show", run_id, "--json").json
    assert (shown["status"], shown["state"]) == ("interrupted", "S2_WORKER")
    assert not list((world.runtime / "worktrees").glob("*/*"))
    world.script(ADD)  # the same file, without the sleep
    done = coilclaw("runs", "resume", run_id, "--json")
    assert (done.code, done.json["status"]) == (0, "passed"), done.out
    assert world.left(run_id) == []


def test_events_are_followed_from_another_process(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    contract = coilclaw.keep(world.contract())
    slow = world.script([{"sleep_s": 1}, *ADD])
    process = coilclaw.start("run", contract, "--runner", slow, "--json")
    runs = world.runtime / "runs"
    until = time.monotonic() + PATIENCE_S
    while not list(runs.glob("*/events.jsonl")) and time.monotonic() < until:
        time.sleep(0.05)
    followed = coilclaw("runs", "events", "last", "--follow", "--json")
    assert process.wait(PATIENCE_S) == 0
    lines = [json.loads(line) for line in followed.out.splitlines()]
    assert lines[-1]["event_type"] == "RUN_SEALED"
    assert lines == coilclaw("runs", "events", "last", "--json").json
    for stream in (process.stdout, process.stderr):
        assert stream is not None
        stream.close()


# runs: looking


def test_runs_are_listed_and_shown(ended: tuple[Coilclaw, str]) -> None:
    coilclaw, run_id = ended
    (row,) = coilclaw("runs", "list", "--json").json
    assert (row["run_id"], row["status"], row["merge"]) == (run_id, "passed", "pending")
    assert coilclaw("runs", "list").out.startswith(f"{run_id}  ")
    shown = coilclaw("runs", "show", run_id, "--json").json
    assert [test["status"] for test in shown["tests"]] == ["PASS"]
    assert shown["tests"][0]["commands"][0]["cmd_argv"] == CALC.split()
    assert shown["tasks"]["task-0001"]["verdict"] == "PASS"
    events = coilclaw("runs", "events", "last").out.splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d RUN_SEALED status=SUCCESS", events[-1])
    patch = coilclaw("runs", "diff", "last", "--task", "task-0001").out
    assert patch == (coilclaw.world.bundle(run_id) / "patch.diff").read_text()


def test_ids_may_be_short(ended: tuple[Coilclaw, str]) -> None:
    coilclaw, run_id = ended
    for name in (run_id, run_id[:20], run_id.rpartition("_")[2][:6], "last"):
        assert coilclaw("runs", "show", name, "--json").json["run_id"] == run_id
    for name in ("run", "nobody", "../..", "", "/etc", "run_20991231"):
        done = coilclaw("runs", "show", name, "--json")
        assert (done.code, done.json["rule"]) == (2, "run.unknown"), name


def test_an_unknown_run_is_2_and_nothing_is_made(coilclaw: Coilclaw) -> None:
    before = sorted(coilclaw.world.repo.rglob("*"))
    for action in ("show", "events", "diff", "verify", "replay", "reexec", "apply", "export"):
        done = coilclaw("runs", action, "run_20261115_000000_0123456789abcdef", "--json")
        assert (done.code, done.json["rule"]) == (2, "run.unknown"), action
    assert sorted(coilclaw.world.repo.rglob("*")) == before
    assert coilclaw("runs", "list", "--json").json == []


# runs: verify and replay


def test_verification_only_reads_unless_it_is_asked_to_record(
    ended: tuple[Coilclaw, str],
) -> None:
    coilclaw, run_id = ended
    bundle = coilclaw.world.bundle(run_id)
    before = sorted(bundle.rglob("*"))
    report = coilclaw("runs", "verify", run_id, "--json")
    assert (report.code, report.json["status"], report.json["audit"]) == (0, "pass", None)
    wrong = coilclaw("runs", "verify", run_id, "--root", "0" * 64, "--json")
    assert wrong.code == 1
    assert [each["code"] for each in wrong.json["errors"]] == ["root_hash_unexpected"]
    assert coilclaw("runs", "verify", run_id, "--root", "abc").code == 2
    assert sorted(bundle.rglob("*")) == before
    kept = coilclaw("runs", "verify", run_id, "--record", "--json").json
    assert json.loads((Path(kept["audit"]) / "verify_report.json").read_text())["status"] == "pass"
    assert coilclaw("runs", "verify", run_id).code == 0


def test_a_sealed_run_is_stated_elsewhere_and_compared_with_that(
    ended: tuple[Coilclaw, str],
) -> None:
    coilclaw, run_id = ended
    file = coilclaw.world.root / "checkpoints"
    (kept,) = parse_checkpoints(file.read_text())
    assert coilclaw("runs", "checkpoint", run_id).out == file.read_text()
    assert kept.checkpoint.origin == f"coilclaw/runs/{run_id}"
    assert coilclaw("runs", "verify", run_id, "--checkpoint", str(file)).code == 0
    other = coilclaw.world.root / "other"
    other.write_text(render_checkpoint(replace(kept.checkpoint, root="0" * 64), None))
    wrong = coilclaw("runs", "verify", run_id, "--checkpoint", str(other), "--json")
    assert wrong.code == 1
    assert [each["code"] for each in wrong.json["errors"]] == ["checkpoint_mismatch"]


def test_a_changed_byte_is_found_by_verify_and_replay(ended: tuple[Coilclaw, str]) -> None:
    coilclaw, run_id = ended
    copy = coilclaw.world.runtime / "runs" / f"{run_id[:-1]}x"
    shutil.copytree(coilclaw.world.bundle(run_id), copy)
    place = copy / "reviews" / "task-0001.json"
    try:
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o755)
        place.write_text(place.read_text().replace("PASS", "FAIL"))
        found = coilclaw("runs", "verify", copy.name, "--json")
        assert found.code == 1
        codes = {each["code"] for each in found.json["errors"]}
        assert {"manifest_hash_mismatch", "event_evidence_mismatch"} <= codes
        told = coilclaw("runs", "replay", copy.name, "--json")
        assert told.code == 1
        assert told.json["first_divergence"] is not None
        for action in ("reexec", "apply", "export"):
            refused = coilclaw("runs", action, copy.name, "--json")
            assert refused.code in {1, 2}, (action, refused.out)
    finally:
        shutil.rmtree(copy)
    assert coilclaw("runs", "replay", run_id).code == 0


# runs: reexec


def test_re_execution_passes_and_leaves_only_its_report(ended: tuple[Coilclaw, str]) -> None:
    coilclaw, run_id = ended
    done = coilclaw("runs", "reexec", run_id, "--json")
    assert (done.code, done.json["status"]) == (0, "pass"), done.out
    assert (done.json["hard_diffs"], done.json["errors"]) == ([], [])
    said = done.json
    audit = Path(said.pop("audit"))
    assert json.loads((audit / "reexec_report.json").read_text()) == said
    assert coilclaw.world.left(run_id) == []
    assert "refs/coilclaw" in coilclaw.world.git("for-each-ref")
    assert "reexec" not in coilclaw.world.git("for-each-ref")
    assert coilclaw("runs", "verify", run_id).code == 0


def test_re_execution_fails_when_a_test_ends_otherwise(coilclaw: Coilclaw) -> None:
    """The test depends on what is outside of the repository, and that changes."""
    world = coilclaw.world
    flag = world.root / "shown" / "flag"
    flag.parent.mkdir()
    flag.touch()
    (world.home / "config.toml").write_text(f"[sandbox]\nread = ['{flag.parent}']\n")
    source = f"import os\n\nassert os.path.exists({str(flag)!r}), 'gone'\n"
    (world.repo / "tests/check_calc.py").write_text(source)
    world.git("commit", "-q", "-a", "-m", "depends")
    run_id = world.ended(world.run()).run_id
    flag.unlink()
    done = coilclaw("runs", "reexec", run_id, "--json")
    assert (done.code, done.json["status"]) == (1, "fail")
    assert {each["key"] for each in done.json["hard_diffs"]} == {
        "gates.tests_gate",
        "tests.001-acceptance-1.exit_code",
    }
    assert "the result differs" in coilclaw("runs", "reexec", run_id).out


def test_re_execution_says_that_the_baseline_is_gone(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.ended(world.run()).run_id
    world.git("checkout", "-q", "--orphan", "fresh")
    world.git("commit", "-q", "-m", "another history")
    world.git("branch", "-q", "-D", "main")
    world.git("update-ref", "-d", f"refs/coilclaw/runs/{run_id}/candidate")
    world.git("reflog", "expire", "--expire=now", "--all")
    world.git("gc", "-q", "--prune=now")
    done = coilclaw("runs", "reexec", run_id, "--json")
    assert (done.code, done.json["status"]) == (1, "fail")
    assert "does not name a commit" in done.json["errors"][0]


def test_re_execution_asks_the_command_gate_of_today(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.ended(world.run()).run_id
    assert coilclaw("init", "--repo").code == 0
    policy = world.repo / "policies/command_allowlist.json"
    value = json.loads(policy.read_text())
    value["allow"] = [rule for rule in value["allow"] if not rule["exec"].startswith("python")]
    policy.write_text(json.dumps(value))
    done = coilclaw("runs", "reexec", run_id, "--json")
    assert done.code == 1
    assert "gates.tool_gate" in {each["key"] for each in done.json["hard_diffs"]}
    assert "policies.sha256" in {each["key"] for each in done.json["soft_diffs"]}


# runs: apply


def test_apply_merges_once(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.ended(world.run()).run_id
    before = (world.bundle(run_id) / "manifest.json").read_bytes()
    done = coilclaw("runs", "apply", "last", "--json")
    assert (done.code, done.json["status"], done.json["already"]) == (0, "merged", False)
    assert world.git("rev-parse", "main") == done.json["commit"]
    assert (world.repo / "pkg/calc.py").read_text() == ADDS["pkg/calc.py"]
    audit = Path(done.json["audit"])
    kinds = [
        json.loads(line)["event_type"] for line in (audit / "events.jsonl").read_text().splitlines()
    ]
    assert kinds == ["MERGE_GATE_RESULT", "MERGE_STARTED", "MERGE_COMPLETED"]
    audits = os.listdir(audit.parent)
    again = coilclaw("runs", "apply", "last", "--json")
    assert (again.code, again.json["already"], again.json["audit"]) == (0, True, None)
    assert again.json["commit"] == done.json["commit"]
    assert os.listdir(audit.parent) == audits
    assert (world.bundle(run_id) / "manifest.json").read_bytes() == before
    assert coilclaw("runs", "verify", "last").code == 0
    assert world.left(run_id) == []


def test_a_run_that_was_applied_says_when_and_as_which_commit(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    waiting = world.ended(world.run()).run_id
    (before,) = coilclaw("runs", "list", "--json").json
    assert (before["merge"], before["applied"]) == ("pending", None)
    assert f"coilclaw runs apply {waiting}" in coilclaw("runs", "show", "last").out
    done = coilclaw("runs", "apply", "last", "--json").json
    report = json.loads((Path(done["audit"]) / "apply.json").read_text())
    applied = {
        "audit": Path(done["audit"]).name,
        "at": report["applied_at"],
        "branch": "main",
        "commit": done["commit"],
    }
    (after,) = coilclaw("runs", "list", "--json").json
    assert after == {**before, "merge": "merged", "applied": applied}
    shown = coilclaw("runs", "show", "last")
    assert f"at {applied['at']} to main as {applied['commit']}" in shown.out
    assert "runs apply" not in shown.out
    assert (
        f"applied {applied['at'][:19]}Z as {applied['commit'][:12]}" in coilclaw("runs", "list").out
    )


def test_an_apply_that_was_refused_leaves_the_run_pending(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    world.ended(world.run())
    (world.repo / "pkg/calc.py").write_text("def add(a, b):\n    return 3\n")
    world.git("commit", "-q", "-am", "another sum")
    assert coilclaw("runs", "apply", "last").code == 1
    (row,) = coilclaw("runs", "list", "--json").json
    assert (row["merge"], row["applied"]) == ("pending", None)


@pytest.mark.parametrize("edited", [False, True], ids=["copied", "report-rewritten"])
def test_an_audit_of_another_run_is_foreign(coilclaw: Coilclaw, edited: bool) -> None:
    world = coilclaw.world
    applied = world.ended(world.run()).run_id
    done = coilclaw("runs", "apply", applied, "--json").json
    world.git("reset", "-q", "--hard", "HEAD~1")
    other = world.ended(world.run()).run_id
    assert coilclaw("runs", "verify", other, "--record").code == 0
    source = Path(done["audit"])
    copy = world.bundle(other) / "audits" / source.name
    shutil.copytree(source, copy)
    if edited:
        report = json.loads((copy / "apply.json").read_text())
        (copy / "apply.json").write_text(json.dumps({**report, "run_id": other}))
    shown = coilclaw("runs", "show", other, "--json").json
    (own,) = shown["audits"]
    assert own.endswith("-verify")
    assert shown["foreign_audits"] == [source.name]
    assert (shown["merge"], shown["applied"]) == ("pending", None)
    assert f"foreign  {source.name}" in coilclaw("runs", "show", other).out
    report = coilclaw("runs", "verify", other, "--json")
    assert (report.code, report.json["status"]) == (0, "pass")
    (warning,) = report.json["warnings"]
    assert warning["code"] == "audit_foreign"
    assert applied in warning["message"]
    assert coilclaw("runs", "show", applied, "--json").json["foreign_audits"] == []
    assert coilclaw("runs", "verify", applied, "--json").json["warnings"] == []


def test_apply_after_the_branch_moved_tests_the_merged_tree(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.ended(world.run()).run_id
    (world.repo / "README.md").write_text("# More sums\n")
    world.git("commit", "-q", "-a", "-m", "meanwhile")
    done = coilclaw("runs", "apply", run_id, "--json")
    assert (done.code, done.json["status"]) == (0, "merged"), done.out
    assert len(world.git("rev-list", "--parents", "-1", "main").split()) == 3
    assert (world.repo / "README.md").read_text() == "# More sums\n"
    assert (world.repo / "pkg/calc.py").read_text() == ADDS["pkg/calc.py"]
    report = json.loads((Path(done.json["audit"]) / "reports/test_report.json").read_text())
    assert report["status"] == "PASS"


def test_apply_refuses_a_merged_tree_that_is_red(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.ended(world.run()).run_id
    with (world.repo / "tests/check_calc.py").open("a") as file:
        file.write("assert add(1, 1) == 3\n")
    world.git("commit", "-q", "-a", "-m", "another test")
    tip = world.git("rev-parse", "main")
    done = coilclaw("runs", "apply", run_id, "--json")
    assert (done.code, done.json["status"]) == (1, "refused"), done.out
    assert world.git("rev-parse", "main") == tip


def test_apply_refuses_a_conflict_and_can_be_tried_again(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.ended(world.run()).run_id
    (world.repo / "pkg/calc.py").write_text("def add(a, b):\n    return sum((a, b))\n")
    world.git("commit", "-q", "-a", "-m", "in the way")
    tip = world.git("rev-parse", "main")
    done = coilclaw("runs", "apply", run_id)
    assert done.code == 1
    assert "pkg/calc.py" in done.err
    assert world.git("rev-parse", "main") == tip
    world.git("branch", "-q", "side", "main~1")
    other = coilclaw("runs", "apply", run_id, "--branch", "side", "--json")
    assert (other.code, other.json["branch"]) == (0, "side"), other.out
    assert world.git("rev-parse", "side") == other.json["commit"]


# runs: export and keys


def test_export_needs_a_key_and_says_how_to_make_one(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.ended(world.run()).run_id
    out = world.root / "run.tar"
    missing = coilclaw("runs", "export", "last", "--out", str(out))
    assert (missing.code, "coilclaw keys new" in missing.err) == (2, True)
    assert coilclaw("keys", "show").code == 2
    made = coilclaw("keys", "new", "--json").json
    assert coilclaw("keys", "show").out == made["public_key"]
    assert coilclaw("keys", "new").code == 2
    assert coilclaw("keys", "show", "--json").json == made
    assert coilclaw("runs", "export", "last", "--out", str(out)).out == f"{out}\n"
    with tarfile.open(out) as archive:
        assert "attestation.dsse.json" in archive.getnames()
        assert "bundle/manifest.json" in archive.getnames()
    there = coilclaw("runs", "export", run_id, "--out", str(out), "--json")
    assert (there.code, there.json["rule"]) == (2, "export.exists")
    new = coilclaw("keys", "new", "--force", "--json").json
    assert new["key_id"] != made["key_id"]
    names = sorted(path.name for path in (world.home / "keys").glob("signing*"))
    assert names == ["signing.key", f"signing.key.{made['key_id'][:16]}"]


def test_the_hint_after_a_pause_names_only_what_is_not_answered(coilclaw: Coilclaw) -> None:
    from coilclaw.cli.runs.run_display import _find_unanswered
    from coilclaw.runs.next_command import after_run

    world = coilclaw.world
    paused = world.run(world.contract(BROAD))
    (approval,) = paused.waiting
    runs = world.orchestrator()
    assert _find_unanswered(runs, ("gone", approval)) == (approval,)
    resume = f"coilclaw runs resume {paused.run_id}"
    assert after_run(paused, repo=".") == f"coilclaw approve {approval} && {resume}"
    assert coilclaw("approve", approval).code == 0
    assert _find_unanswered(runs, paused.waiting) == ()
    assert after_run(replace(paused, waiting=()), repo=".") == resume


# runs: gc


def test_gc_removes_leftovers_and_keeps_what_is_needed(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    passed = world.ended(world.run()).run_id
    failed = world.ended(
        world.run(world.contract(max_retries=0), world.script([{"write": {"README.md": "x"}}]))
    ).run_id
    paused = world.run(world.contract(BROAD)).run_id
    empty = world.runtime / "runs" / "run_20200101_000000_0000000000000000"
    empty.mkdir()
    (world.runtime / "homes" / failed).mkdir(parents=True)
    (world.runtime / "homes" / paused).mkdir(parents=True, exist_ok=True)
    stray = world.runtime / "worktrees" / failed / "task"
    stray.mkdir(parents=True)
    dry = coilclaw("runs", "gc", "--dry-run", "--json").json["removed"]
    assert (stray.exists(), empty.exists()) == (True, True)
    done = coilclaw("runs", "gc", "--json").json["removed"]
    assert done == dry
    assert {(row["what"], row["run_id"]) for row in done} == {
        ("worktree", failed),
        ("home", failed),
        ("bundle", empty.name),
    }
    assert (stray.exists(), empty.exists()) == (False, False)
    assert (world.runtime / "homes" / paused).exists()
    assert world.runtime.joinpath("active", paused).exists()
    assert f"refs/coilclaw/runs/{passed}/candidate" in world.git("for-each-ref")
    assert coilclaw("runs", "gc", "--json").json["removed"] == []
    assert coilclaw("runs", "apply", passed).code == 0


def test_gc_removes_bundles_only_when_asked_and_never_unmerged_work(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    first, second = (world.ended(world.run()).run_id for _ in range(2))
    assert coilclaw("runs", "gc", "--bundles", "--json").json["rule"] == "gc.bundles"
    assert coilclaw("runs", "gc", "--bundles", "--keep", "-1").code == 2
    kept = coilclaw("runs", "gc", "--bundles", "--keep", "0", "--json").json["removed"]
    assert kept == []
    assert coilclaw("runs", "apply", first).code == 0
    assert coilclaw("runs", "gc", "--bundles", "--older-than", "1", "--json").json["removed"] == []
    gone = coilclaw("runs", "gc", "--bundles", "--keep", "0", "--json").json["removed"]
    assert {(row["what"], row["run_id"]) for row in gone} == {("refs", first), ("bundle", first)}
    assert [row["run_id"] for row in coilclaw("runs", "list", "--json").json] == [second]
    gone = coilclaw("runs", "gc", "--bundles", "--keep", "0", "--pending", "--json").json["removed"]
    assert {row["run_id"] for row in gone} == {second}
    assert coilclaw("runs", "list").err == f"no runs in {world.runtime / 'runs'}\n"


def test_gc_believes_git_and_no_report_that_work_was_merged(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.ended(world.run()).run_id
    gc = ("runs", "gc", "--bundles", "--keep", "0", "--json")
    place = world.bundle(run_id) / "audits" / "20200101-apply" / "apply.json"
    place.parent.mkdir(parents=True)
    head = world.git("rev-parse", "HEAD").strip()
    branch = world.git("symbolic-ref", "--short", "HEAD").strip()
    candidate = world.git("rev-parse", f"refs/coilclaw/runs/{run_id}/candidate").strip()
    for commit in (head, candidate, "0" * 40, "HEAD", "--all"):
        for name in (branch, "other", "../x"):
            said = {"run_id": run_id, "status": "merged", "branch": name, "commit": commit}
            place.write_text(json.dumps(said))
            if name == branch or commit == candidate:
                assert coilclaw(*gc).json["removed"] == [], said
    assert coilclaw("runs", "apply", run_id).code == 0
    assert {row["what"] for row in coilclaw(*gc).json["removed"]} == {"refs", "bundle"}


def test_gc_keeps_a_run_whose_events_somebody_removed(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.run(world.contract(BROAD)).run_id
    bundle = world.bundle(run_id)
    for name in ("events.jsonl", "events.jsonl.anchor"):
        (bundle / name).unlink()
    assert coilclaw("runs", "gc", "--json").json["removed"] == []
    assert bundle.is_dir()
    begun = world.runtime / "runs" / "run_20200101_000000_0000000000000000"
    for folder in ("artifacts", "git", "tasks"):
        (begun / folder).mkdir(parents=True)
    (begun / "git" / "baseline_commit.txt").write_text("x\n")
    kept = begun / "tasks" / "contract.json"
    kept.write_text("{}")
    assert coilclaw("runs", "gc", "--json").json["removed"] == []
    kept.unlink()
    assert [row["run_id"] for row in coilclaw("runs", "gc", "--json").json["removed"]] == [
        begun.name
    ]


def test_a_seal_that_was_not_checked_does_not_hold(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    run_id = world.ended(world.run()).run_id
    checked = coilclaw("runs", "verify", run_id, "--no-strict")
    assert (checked.code, "seal" in checked.out, "not checked" in checked.out) == (0, True, False)
    (world.home / "keys" / "journal.key").unlink()
    unchecked = coilclaw("runs", "verify", run_id, "--no-strict")
    assert unchecked.code == 0, unchecked.out
    (holds,) = (line for line in unchecked.out.splitlines() if " holds: " in line)
    assert "seal" not in holds.partition(": ")[2].split(", ")
    assert "not checked: seal" in unchecked.out
    report = coilclaw("runs", "verify", run_id, "--no-strict", "--json").json
    assert (report["status"], report["checks"]["seal"]) == ("pass", False)
    assert coilclaw("runs", "verify", run_id).code == 1


def test_what_a_terminal_would_obey_is_in_no_commit_message(coilclaw: Coilclaw) -> None:
    world = coilclaw.world
    given = json.loads(world.contract())
    given["inputs"]["spec"] = "Add \u202eright\x1b[31m\u2066, not left.\nÄ second line."
    run_id = world.ended(world.run(json.dumps(given).encode())).run_id
    world.git("commit", "-q", "--allow-empty", "-m", "after")
    assert coilclaw("runs", "apply", run_id).code == 0
    merge, candidate = (
        world.git("log", "-1", "--format=%B", ref).rstrip("\n") for ref in ("HEAD", "HEAD^2")
    )
    assert merge == f"Merge run {run_id}\n\nAdd  right [31m , not left.\nÄ second line."
    assert candidate.splitlines()[0].endswith(": Add right [31m , not left. Ä second line.")
