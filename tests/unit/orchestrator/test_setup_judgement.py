"""What a set-up may run, as the gate is asked for a contract and a commit of a real repository."""

from __future__ import annotations

from pathlib import Path

from coilclaw.runs.contracts.draft import draft_contract
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.task_contract import SetupCommand, TaskContract
from coilclaw.runs.engine.contract_checks import Baseline
from coilclaw.runs.gates.command import judge_text
from coilclaw.workspace.git.repository import Repository
from tests.support.snapshot_trees import Content, Link, Program, build, git

POLICIES = PolicySet.read_shipped("low")


def baseline_at(root: Path) -> Baseline:
    entries: dict[str, Content] = {
        "run.sh": Program(b"#!/bin/sh\n"),
        "shell": Link("/bin/sh"),
        "near": Link("run.sh"),
        "linked": Link("/usr/bin"),
    }
    build(root, entries)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    repository = Repository.open(root)
    commit = repository.resolve("HEAD")
    assert set(repository.links(commit)) == {"shell", "near", "linked"}
    return Baseline.of(commit, repository.files(commit), lambda _: None, repository.links(commit))


def contract(*setup: SetupCommand) -> TaskContract:
    return draft_contract("Do it.", ["src/"], ["pytest -q"], policies=POLICIES, setup=setup)


def test_a_program_of_the_tree_is_no_link(tmp_path: Path) -> None:
    baseline = baseline_at(tmp_path)

    def refused(cmd: str, *allowed_paths: str) -> bool:
        terms = baseline.terms(POLICIES, allowed_paths)
        return not judge_text(cmd, terms=terms, timeout_sec=60).passed

    assert not refused("./run.sh")
    assert not refused("./new.sh", "new.sh")
    for command in ("./shell -c ls", "./near", "./linked/env ls", "./new.sh"):
        assert refused(command)
    assert refused("./shell", "shell")


def test_each_command_of_a_setup_is_judged_with_the_network_it_declares(tmp_path: Path) -> None:
    baseline = baseline_at(tmp_path)
    named = contract(
        SetupCommand(name="install", cmd="npm ci", network="allow"),
        SetupCommand(name="again", cmd="npm ci"),
        SetupCommand(name="build", cmd="./run.sh", timeout_sec=5),
        SetupCommand(name="odd", cmd="sh -c ls", network="allow"),
    )
    found = [
        [violation.rule for violation in result.violations]
        for result in baseline.judge_setup(named, POLICIES)
    ]
    assert found[:3] == [[], ["tool.network"], []]
    assert "tool.inline_code" in found[3]


def test_a_forbidden_action_of_the_contract_or_the_pack_holds_for_a_setup(tmp_path: Path) -> None:
    baseline = baseline_at(tmp_path)
    installing = SetupCommand(name="install", cmd="pip install -e . --no-deps", network="allow")
    (passed,) = baseline.judge_setup(contract(installing), POLICIES)
    assert passed.passed
    (refused,) = baseline.judge_setup(contract(installing), POLICIES.under("medium"))
    assert [violation.rule for violation in refused.violations] == ["tool.forbidden_action"]
