"""``run --request`` in a project whose tests need a set-up, which a real npm makes."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest

from coilclaw.runs.contracts.task_contract import SetupCommand, TaskContract
from coilclaw.runs.run_failures import read_failures
from tests.acceptance.test_planner_exploration import (
    PLAN,
    call,
    calling,
    calls,
    planned,
    saying,
    serving,
    told,
)
from tests.support.runs import World, opened
from tests.support.snapshot_trees import Content

pytestmark = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")

NEEDED = {"dep": "file:vendor/dep"}
PACKAGE: dict[str, Any] = {
    "name": "sums",
    "version": "1.0.0",
    "scripts": {"test": "node check.js"},
    "dependencies": NEEDED,
}
LOCK: dict[str, Any] = {
    "name": "sums",
    "version": "1.0.0",
    "lockfileVersion": 3,
    "requires": True,
    "packages": {
        "": {"name": "sums", "version": "1.0.0", "dependencies": NEEDED},
        "node_modules/dep": {"resolved": "vendor/dep", "link": True},
        "vendor/dep": {"version": "1.0.0"},
    },
}
FILES: dict[str, Content] = {
    ".gitignore": b"node_modules/\n",
    "package.json": json.dumps(PACKAGE).encode(),
    "package-lock.json": json.dumps(LOCK).encode(),
    "vendor/dep/package.json": b'{"name": "dep", "version": "1.0.0"}',
    "vendor/dep/index.js": b"module.exports = require('assert');\n",
    "calc.js": b"exports.add = (a, b) => a - b;\n",
    "check.js": b"require('dep').equal(require('./calc').add(1, 2), 3, 'add does not add');\n",
}
TESTS = [{"name": "sums", "cmd": "npm test", "must_pass": True, "timeout_sec": 60}]
NODE_PLAN = {**PLAN, "allowed_paths": ["calc.js"], "acceptance_tests": TESTS}
INSTALL = SetupCommand(name="install-node", cmd="npm ci", network="allow")


def contract_of(world: World, run_id: str) -> TaskContract:
    return TaskContract.of(world.read(run_id, "contract.json"))


def test_the_project_decides_the_set_up_and_a_model_that_names_one_is_refused() -> None:
    own = {**NODE_PLAN, "setup": [{"name": "mine", "cmd": "npm install evil", "network": "allow"}]}
    trying = [calling(call("try_test", cmd="npm test")), saying(own)]
    with opened(FILES) as world:
        agent = world.script([{"write": {"calc.js": "exports.add = (a, b) => a + b;\n"}}])
        with serving(world, trying, [saying(NODE_PLAN)]) as server:
            outcome = world.run(sentence="Sums are wrong.", runner=agent, merge=True)
            assert "'npm ci' has prepared the tree before a test runs" in told(server, 0)
            # What npm installed is there for the trial: it fails for the fault alone.
            assert "add does not add" in told(server, 1)
        assert (outcome.status, outcome.merge) == ("passed", "merged"), outcome.reason
        world.ended(outcome)
        assert calls(world, outcome) == [("try_test", "failed")]
        (refused,) = world.of(outcome.run_id, "PLAN_REFUSED")
        (reason,) = refused["problems"]
        assert reason.startswith("/plan")
        assert "'setup'" in reason
        assert contract_of(world, outcome.run_id).setup == (INSTALL,)
        # Made once, before there was a contract, and kept.
        (made,) = world.of(outcome.run_id, "SETUP_RESULT")
        assert made["status"] == "PASS"
        assert str(made["path"]).startswith("artifacts/setup-")
        assert world.kinds(outcome.run_id).index("SETUP_RESULT") < world.kinds(
            outcome.run_id
        ).index("MODEL_ASKED")
        assert not (world.repo / "node_modules").exists()


def test_a_set_up_that_fails_ends_the_run_before_a_model_is_asked() -> None:
    stale = json.dumps({**PACKAGE, "dependencies": {"dep": "file:vendor/gone"}}).encode()
    with opened({**FILES, "package.json": stale}) as world:
        with serving(world, [saying(NODE_PLAN)]) as server:
            outcome = world.ended(planned(world))
            assert server.requests == []
        assert outcome.status == "failed"
        assert outcome.reason.startswith("the set-up failed: install-node ended with exit code 1")
        (failed,) = read_failures(
            world.bundle(outcome.run_id), world.recorded(outcome.run_id)
        ).commands
        assert (failed.name, failed.where, failed.argv) == ("install-node", "setup", ("npm", "ci"))
        assert any("npm" in line for log in failed.logs for line in log.lines)
