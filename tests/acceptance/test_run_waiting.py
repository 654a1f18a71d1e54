"""Runs that want the same paths take turns: real processes that wait, are stopped, are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.children import PATIENCE_S
from tests.support.gateways import home_at, serving
from tests.support.runcommands import Coilclaw
from tests.support.runs import SHOUTS, TEXT, World, opened

VERIFY_RUN = Path(__file__).parents[2] / "contrib/verify_run.py"
AGENT = """\
import json, os, sys, time
asked = json.load(sys.stdin)
deadline = time.monotonic() + 600
while {gate!r} and not os.path.exists({gate!r}) and time.monotonic() < deadline:
    time.sleep(0.05)
text = open("pkg/calc.py").read().replace("a - b", "a + b")
open("pkg/calc.py", "w").write(text + "# {name}\\n")
print(json.dumps({{"task_id": asked["task_id"], "status": "SUCCESS", "summary": "done",
                  "evidence_refs": {{}}, "failure": None}}))
"""


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something another process does, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


@dataclass
class Started:
    """A run in a process of its own."""

    scene: Scene
    process: subprocess.Popen[bytes]
    output: Path
    gate: Path

    @property
    def text(self) -> str:
        return self.output.read_text()

    @property
    def run_id(self) -> str:
        def named() -> str:
            found = [line for line in self.text.splitlines() if line.startswith("run_id=")]
            return found[0].removeprefix("run_id=") if found else ""

        return str(until(named))

    def reached(self, kind: str) -> dict[str, Any]:
        """Wait for an event; return the payload of the last one of its kind."""
        payloads = until(lambda: self.scene.world.of(self.run_id, kind))
        found: dict[str, Any] = payloads[-1]
        return found

    def holders(self) -> list[tuple[str, bool]]:
        """For whom it waits, and whether they hold what it wants."""
        return [
            (each["run_id"], each["holds"]) for each in self.reached("LOCKS_AWAITED")["holders"]
        ]

    def open(self) -> None:
        """Let the agent get on with its work."""
        self.gate.touch()

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)


@dataclass
class Scene:
    """A world with the processes that were started in it."""

    coilclaw: Coilclaw
    started: list[Started] = field(default_factory=list)

    @property
    def world(self) -> World:
        return self.coilclaw.world

    @property
    def gates(self) -> Path:
        """Where agents look whether they may begin; no agent sees more of the world."""
        return self.world.root / "gates"

    def command(self, *arguments: str, gate: str = "none") -> Started:
        output = self.world.root / f"output-{len(self.started)}"
        with output.open("wb") as file:
            process = subprocess.Popen(
                self.coilclaw.argv(*arguments),
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.world.repo,
                env=self.coilclaw.env(),
            )
        self.started.append(Started(self, process, output, self.gates / gate))
        return self.started[-1]

    def agent(self, name: str, *, gated: bool = False) -> str:
        gate = str(self.gates / f"gate-{name}") if gated else ""
        return self.world.program(AGENT.format(gate=gate, name=name), name)

    def run(self, name: str, *arguments: str, gated: bool = False) -> Started:
        contract = self.coilclaw.keep(self.world.contract(), f"{name}.json")
        runner = self.agent(name, gated=gated)
        return self.command(
            "run", contract, "--runner", runner, "--merge", *arguments, gate=f"gate-{name}"
        )

    def holding(self, name: str = "first", *arguments: str) -> Started:
        """A run whose agent is at work, and does not get on with it."""
        holder = self.run(name, *arguments, gated=True)
        holder.reached("TASK_STARTED")
        return holder

    def lines(self) -> list[str]:
        """Who changed the file, in order, as it is merged."""
        text = self.world.git("show", "HEAD:pkg/calc.py")
        return [line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")]

    def status(self, run_id: str) -> str:
        return str(self.coilclaw("runs", "show", run_id, "--json").json["status"])

    def check_ended(self, *runs: Started) -> None:
        """Every one has ended well: sealed, verified by both verifiers, nothing left."""
        for each in runs:
            assert each.ended() == 0, each.text
            done = self.coilclaw("runs", "verify", each.run_id)
            assert done.code == 0, done.out
            bundle, key = self.world.bundle(each.run_id), self.world.home / "keys/journal.key"
            checked = subprocess.run(
                [sys.executable, VERIFY_RUN, bundle, "--journal-key", key],
                capture_output=True,
                check=False,
            )
            assert checked.returncode == 0, checked
        assert [path.name for path in (self.world.runtime / "locks").iterdir()] == ["table"]
        assert self.world.left(runs[0].run_id) == []


@pytest.fixture
def scene() -> Iterator[Scene]:
    with opened() as world:
        made = Scene(Coilclaw(world))
        made.gates.mkdir()
        world.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        (world.home / "config.toml").write_text(f"[sandbox]\nread = ['{made.gates}']\n")
        try:
            yield made
        finally:
            for each in made.started:
                if each.process.poll() is None:
                    each.process.kill()
                each.process.wait()


def test_two_runs_that_start_at_once_are_both_merged(scene: Scene) -> None:
    runs = [scene.run(name, "--wait") for name in ("left", "right")]
    scene.check_ended(*runs)
    assert sorted(scene.lines()) == ["left", "right"]


def test_a_run_waits_says_for_whom_and_begins_at_what_it_waited_for(scene: Scene) -> None:
    first = scene.holding()
    second = scene.run("second", "--wait")
    assert second.holders() == [(first.run_id, True)]
    told = second.reached("LOCKS_AWAITED")
    assert told["paths"] == ["pkg/calc.py"]
    sentence = f"waits since {told['since']} for run {first.run_id}, which has held 'pkg/calc.py'"
    assert told["reason"].startswith(sentence)
    until(lambda: sentence in second.text)
    shown = scene.coilclaw("runs", "show", second.run_id)
    assert "status   waiting" in shown.out
    assert sentence in shown.out
    (row,) = (
        row for row in scene.coilclaw("runs", "list").out.splitlines() if second.run_id in row
    )
    assert " waiting " in row
    assert scene.status(first.run_id) == "running"
    first.open()
    scene.check_ended(first, second)
    assert scene.lines() == ["first", "second"]
    kinds = scene.world.kinds(second.run_id)
    assert (
        kinds.index("LOCKS_AWAITED") < kinds.index("LOCKS_ACQUIRED") < kinds.index("TASK_STARTED")
    )
    (moved,) = scene.world.of(second.run_id, "BASELINE_MOVED")
    (merged,) = scene.world.of(first.run_id, "MERGE_COMPLETED")
    assert moved["baseline_commit"] == merged["commit"]
    again = scene.coilclaw("runs", "reexec", second.run_id)
    assert again.code == 0, again.out


def test_a_contract_that_names_its_baseline_keeps_it(scene: Scene) -> None:
    world = scene.world
    first = scene.holding()
    contract = world.contract(
        ["pkg/calc.py", "pkg/text.py"],
        [TEXT],
        spec="Shout.",
        baseline_ref=world.git("rev-parse", "HEAD"),
    )
    kept = scene.coilclaw.keep(contract, "pinned.json")
    runner = world.script([{"write": SHOUTS}], name="shouts")
    second = scene.command("run", "--runner", runner, "--merge", "--wait", kept)
    assert second.holders() == [(first.run_id, True)]
    first.open()
    scene.check_ended(first, second)
    assert world.of(second.run_id, "BASELINE_MOVED") == []
    assert scene.lines() == ["first"]


@pytest.mark.parametrize("arguments", [(), ("--no-wait",), ("--wait", "0"), ("--wait", "0.6")])
def test_a_run_that_may_not_wait_fails_and_names_the_holder(
    scene: Scene, arguments: tuple[str, ...]
) -> None:
    first = scene.holding()
    second = scene.run("second", *arguments)
    assert second.ended() == 1
    (failed,) = scene.world.of(second.run_id, "gate_failed")
    assert failed["rule"] == "lock.held"
    assert f"of run {first.run_id} holds" in failed["reason"]
    (ended,) = scene.world.of(second.run_id, "RUN_FINISHED")
    waited = "within 0.6 seconds" in ended["reason"]
    assert ("--wait" not in ended["reason"]) is waited is (arguments == ("--wait", "0.6"))
    assert bool(scene.world.of(second.run_id, "LOCKS_AWAITED")) is (arguments == ("--wait", "0.6"))
    first.open()
    scene.check_ended(first)
    assert scene.lines() == ["first"]


def test_runs_that_do_not_overlap_do_not_wait(scene: Scene) -> None:
    first = scene.holding()
    contract = scene.world.contract(["pkg/text.py"], [TEXT], spec="Shout.")
    kept = scene.coilclaw.keep(contract, "text.json")
    runner = scene.world.script([{"write": SHOUTS}], name="shouts")
    other = scene.command("run", kept, "--runner", runner, "--merge", "--wait")
    assert other.ended() == 0, other.text
    assert scene.world.of(other.run_id, "LOCKS_AWAITED") == []
    first.open()
    scene.check_ended(first, other)


def test_those_who_wait_keep_their_order(scene: Scene) -> None:
    first = scene.holding()
    waiting = []
    for name in ("second", "third", "fourth"):
        waiting.append(scene.run(name, "--wait"))
        ahead = [(first.run_id, True), *((each.run_id, False) for each in waiting[:-1])]
        assert waiting[-1].holders() == ahead
    # Nobody slips in, not even once the path is free for a moment.
    late = scene.run("late", "--no-wait")
    assert late.ended() == 1
    first.open()
    scene.check_ended(first, *waiting)
    assert scene.lines() == ["first", "second", "third", "fourth"]


@pytest.mark.parametrize("how", ["interrupt", "terminate", "stop"])
def test_a_wait_is_cancelled_and_the_next_one_has_its_turn(scene: Scene, how: str) -> None:
    first = scene.holding()
    second = scene.run("second", "--wait")
    second.reached("LOCKS_AWAITED")
    third = scene.run("third", "--wait")
    assert third.holders() == [(first.run_id, True), (second.run_id, False)]
    if how == "stop":
        done = scene.coilclaw("runs", "stop", second.run_id)
        assert done.code == 0, done.err
        assert f"coilclaw runs resume {second.run_id}" in done.out
    else:
        second.process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGTERM)
    assert second.ended() == 3
    assert "status   stopped" in second.text
    assert scene.status(second.run_id) == "interrupted"
    # It is not sealed yet, and what is there of it holds.
    found = scene.coilclaw("runs", "verify", second.run_id, "--json").json["errors"]
    assert {each["path"] for each in found if each["code"].startswith("event")} == {"events.jsonl"}
    assert [each["code"] for each in found if each["code"].startswith("event")] == [
        "events_not_sealed"
    ]
    first.open()
    assert third.ended() == 0, third.text
    assert scene.lines() == ["first", "third"]
    resumed = scene.command("runs", "resume", second.run_id)
    scene.check_ended(first, third, resumed)
    assert scene.lines() == ["first", "third", "second"]


def test_a_wait_that_is_given_up_leaves_nothing(scene: Scene) -> None:
    first = scene.holding()
    second = scene.run("second", "--wait")
    second.reached("LOCKS_AWAITED")
    stopped = scene.coilclaw("runs", "stop", second.run_id)
    assert (stopped.code, stopped.err) == (0, "")
    again = scene.coilclaw("runs", "stop", second.run_id, "--json").json
    hint = f"see 'coilclaw runs show {second.run_id}'"
    assert (again["rule"], again["hint"]) == ("run.idle", hint)
    given_up = scene.coilclaw("runs", "abandon", second.run_id)
    assert (given_up.code, "resumed" in given_up.out) == (0, False), given_up.out
    assert "\nstatus   abandoned\nreason   the user gave the run up\n" in given_up.out
    done = scene.coilclaw("runs", "verify", second.run_id)
    assert done.code == 0, done.out
    first.open()
    scene.check_ended(first)


def test_a_run_that_works_is_stopped_too(scene: Scene) -> None:
    first = scene.holding()
    assert scene.coilclaw("runs", "stop", first.run_id).code == 0
    assert first.ended() == 3
    first.open()
    resumed = scene.command("runs", "resume", first.run_id)
    scene.check_ended(resumed)


def test_a_holder_that_is_killed_holds_nobody_up(scene: Scene) -> None:
    first = scene.holding()
    second = scene.run("second", "--wait", gated=True)
    second.reached("LOCKS_AWAITED")
    first.process.kill()
    second.reached("TASK_STARTED")
    (taken,) = scene.world.of(second.run_id, "LOCK_RECLAIMED")
    assert (taken["run_id"], taken["path"]) == (first.run_id, "pkg/calc.py")
    # What was killed is resumed: it may not work beside the one that took its paths.
    first.open()
    refused = scene.coilclaw("runs", "resume", first.run_id, "--json")
    assert (refused.code, refused.json["rule"]) == (2, "run.locks")
    resumed = scene.command("runs", "resume", first.run_id, "--wait")
    until(lambda: scene.status(first.run_id) == "waiting")
    assert resumed.holders() == [(second.run_id, True)]
    second.open()
    assert second.ended() == 0, second.text
    # Both changed the same lines, and the first had begun already: its work is not merged blindly.
    assert resumed.ended() == 1
    assert scene.lines() == ["second"]
    scene.check_ended(second)


def test_one_that_waits_and_is_killed_holds_nobody_up_and_keeps_its_place(scene: Scene) -> None:
    first = scene.holding()
    second = scene.run("second", "--wait")
    second.reached("LOCKS_AWAITED")
    third = scene.run("third", "--wait", gated=True)
    third.reached("LOCKS_AWAITED")
    fourth = scene.run("fourth", "--wait")
    fourth.reached("LOCKS_AWAITED")
    second.process.kill()
    second.process.wait()
    first.open()
    third.reached("TASK_STARTED")
    resumed = scene.command("runs", "resume", second.run_id)
    assert until(lambda: [h for h in [fourth.holders()] if (second.run_id, False) in h])
    third.open()
    scene.check_ended(first, third, fourth, resumed)
    assert scene.lines() == ["first", "third", "second", "fourth"]


def test_runs_of_several_paths_never_wait_for_each_other(scene: Scene) -> None:
    world = scene.world
    runs = []
    for number in range(4):
        paths = ["pkg/calc.py", "pkg/text.py"]
        contract = world.contract(paths if number % 2 else paths[::-1], task_id=f"task-000{number}")
        kept = scene.coilclaw.keep(contract, f"{number}.json")
        runner = scene.agent(f"agent{number}")
        runs.append(scene.command("run", kept, "--runner", runner, "--merge", "--wait"))
    scene.check_ended(*runs)
    assert sorted(scene.lines()) == [f"agent{number}" for number in range(4)]


def test_the_wait_may_stand_before_the_contract(scene: Scene) -> None:
    contract = scene.coilclaw.keep(scene.world.contract())
    runner = scene.agent("only")
    done = scene.coilclaw("run", "--runner", runner, "--merge", "--wait", contract)
    assert done.code == 0, done.err
    wrong = scene.coilclaw("run", contract, "--wait", "soon", "--json")
    assert (wrong.code, json.loads(wrong.out)["rule"]) == (2, "usage.wait")


# Over HTTP.


def _asked(scene: Scene, name: str, *, gated: bool = False, **more: Any) -> dict[str, Any]:
    return {
        "contract": json.loads(scene.world.contract()),
        "runner": scene.agent(name, gated=gated),
        "merge": True,
        **more,
    }


def _begun(client: httpx2.Client, body: dict[str, Any]) -> str:
    answer = client.post("/runs", json=body)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["run_id"])


def _reaches(client: httpx2.Client, run_id: str, *wanted: str) -> dict[str, Any]:
    """Wait until a run has one of some statuses; return what is told of it."""

    def look() -> dict[str, Any] | None:
        told: dict[str, Any] = client.get(f"/runs/{run_id}").json()
        return told if told["status"] in wanted else None

    found: dict[str, Any] = until(look)
    return found


@contextmanager
def _offered(scene: Scene) -> Iterator[httpx2.Client]:
    world = scene.world
    settings = {"repo": str(world.repo), "allow_run_programs": True, "max_runs": 4}
    home = home_at(world.root, config=f"[sandbox]\nread = ['{world.root / 'gates'}']\n")
    with serving(home, settings, PATH=world.environ["PATH"]) as served, served.client() as client:
        yield client


def test_over_http_a_run_waits_unless_it_is_told_not_to(scene: Scene) -> None:
    with _offered(scene) as client:
        first = _begun(client, _asked(scene, "first", gated=True))
        until(lambda: scene.world.of(first, "TASK_STARTED"))
        second = _begun(client, _asked(scene, "second"))
        told = _reaches(client, second, "waiting")
        assert f"for run {first}, which has held 'pkg/calc.py'" in told["reason"]
        third = _begun(client, _asked(scene, "third", wait=False))
        _reaches(client, third, "failed")
        (failed,) = scene.world.of(third, "gate_failed")
        assert failed["rule"] == "lock.held"
        (scene.gates / "gate-first").touch()
        for run_id in (first, second):
            assert _reaches(client, run_id, "passed", "failed")["status"] == "passed"
    assert scene.lines() == ["first", "second"]


def test_over_http_a_wait_is_cancelled_and_the_next_one_has_its_turn(scene: Scene) -> None:
    with _offered(scene) as client:
        first = _begun(client, _asked(scene, "first", gated=True))
        until(lambda: scene.world.of(first, "TASK_STARTED"))
        second = _begun(client, _asked(scene, "second"))
        _reaches(client, second, "waiting")
        third = _begun(client, _asked(scene, "third"))
        _reaches(client, third, "waiting")
        assert client.post(f"/runs/{second}/cancel").status_code == 202
        _reaches(client, second, "interrupted")
        # The gateway outlives the run that it stops: what the run held is not waited for.
        assert client.post(f"/runs/{first}/cancel").status_code == 202
        assert _reaches(client, third, "passed", "failed")["status"] == "passed"
        assert client.post(f"/runs/{second}/resume").status_code == 202
        assert _reaches(client, second, "passed", "failed")["status"] == "passed"
    assert scene.lines() == ["third", "second"]
