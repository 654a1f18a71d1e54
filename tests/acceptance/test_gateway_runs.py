"""Runs over HTTP, with real git, scripted agents and a gateway in a process of its own."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.agents import AgentHome
from tests.support.children import PATIENCE_S
from tests.support.gateways import Served, environment, home_at, serving
from tests.support.runs import ADDS, CALC, FIRST, NAMES, SHOUTS, TEXT, World, opened
from tests.support.scale import scaled

SLOW: list[dict[str, Any]] = [{"sleep_s": 600}, {"write": ADDS}]
BROAD = ("docs", "pkg/calc.py")
"""A whole folder of the repository: a person is asked."""
VERIFY_RUN = Path(__file__).parents[2] / "contrib/verify_run.py"


@contextmanager
def offering(world: World, **settings: object) -> Iterator[Served]:
    """A gateway that offers the runs of a world; clients may name programs."""
    chosen = {"repo": str(world.repo), "allow_run_programs": True, **settings}
    with serving(_home(world), chosen, PATH=world.environ["PATH"]) as served:
        yield served


def _home(world: World) -> AgentHome:
    if not (world.home / "config.toml").exists():
        return home_at(world.root)
    return AgentHome(world.home, world.root / "workspace")


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[World, Served]]:
    with opened() as world, offering(world) as served:
        yield world, served


@pytest.fixture
def world() -> Iterator[World]:
    with opened() as made:
        yield made


def _until(condition: Callable[[], Any]) -> Any:
    """Wait for something another process does, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def _asked(world: World, *paths: str, **more: Any) -> dict[str, Any]:
    given = {"contract": json.loads(world.contract(paths or ("pkg/calc.py",))), **more}
    # Only where none is given: it would be written over the one that is.
    return given if "runner" in given else {**given, "runner": world.script([{"write": ADDS}])}


def _begin(client: httpx2.Client, body: dict[str, Any]) -> str:
    answer = client.post("/runs", json=body)
    assert answer.status_code == 202, answer.text
    run_id = answer.json()["run_id"]
    assert answer.headers["location"] == f"/runs/{run_id}"
    assert isinstance(run_id, str)
    return run_id


def _follow(client: httpx2.Client, run_id: str, **headers: str) -> list[tuple[int, str, Any]]:
    """Read the stream of a run to its end: number, name and event."""
    found: list[tuple[int, str, Any]] = []
    number, name = 0, ""
    accept = {"accept": "text/event-stream", **headers}
    with client.stream("GET", f"/runs/{run_id}/events", headers=accept, timeout=60) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            kind, _, text = line.partition(": ")
            if kind == "id":
                number = int(text)
            elif kind == "event":
                name = text
            elif kind == "data":
                found.append((number, name, json.loads(text)))
    return found


def _refused(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["rule"]


def _status(client: httpx2.Client, run_id: str) -> str:
    told = client.get(f"/runs/{run_id}").json()
    return str(told["status"]) + (f": {told['reason']}" if told["status"] == "failed" else "")


def _verified(client: httpx2.Client, run_id: str) -> None:
    report = client.post(f"/runs/{run_id}/verify").json()
    assert (report["status"], report["errors"]) == ("pass", [])


# What is refused.


def test_without_a_repository_there_are_no_runs(tmp_path: Path) -> None:
    with serving(home_at(tmp_path)) as served, served.client() as client:
        operations = [
            (method, path)
            for path, item in client.get("/openapi.json").json()["paths"].items()
            for method in item
            if path.startswith("/runs")
        ]
        assert len(operations) == 9
        for method, path in operations:
            body = {"request": "x"} if (method, path) == ("post", "/runs") else None
            at = path.replace("{run_id}", "run_20260101_000000_0123456789abcdef")
            answer = client.request(method, at, json=body)
            assert (path, *_refused(answer)) == (path, 404, "runs.unavailable")
            assert "git repository" in answer.json()["error"]["message"]


@pytest.mark.parametrize("name", ["", "nowhere"])
def test_a_folder_that_is_no_repository_cannot_be_offered(tmp_path: Path, name: str) -> None:
    home = home_at(tmp_path)
    place = str(tmp_path / name)
    command = [sys.executable, "-m", "coilclaw", "serve", "--port", "0", "--repo", place]
    done = subprocess.run(
        command,
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert place in done.stderr


@pytest.mark.parametrize("name", ["process:/bin/true", "scripted:/etc/passwd"])
@pytest.mark.parametrize("who", ["runner", "reviewer", "contract"])
def test_a_client_cannot_have_programs_started_unless_that_is_allowed(
    shared: tuple[World, Served], plain: Served, name: str, who: str
) -> None:
    world, _ = shared
    body = {"contract": json.loads(world.contract())}
    if who == "contract":
        body["contract"]["runtime_options"] = {"reviewer": name}
    else:
        body[who] = name
    with plain.client() as client:
        before = client.get("/runs").json()
        assert _refused(client.post("/runs", json=body)) == (403, "run.programs")
        assert client.get("/runs").json() == before


@pytest.fixture(scope="module")
def plain(shared: tuple[World, Served]) -> Iterator[Served]:
    """A gateway over the same runs, as it is without any flag."""
    world, _ = shared
    with offering(world, allow_run_programs=False) as served:
        yield served


def test_without_the_flag_our_own_runners_perform(
    shared: tuple[World, Served], plain: Served
) -> None:
    world, _ = shared
    body = {"contract": json.loads(world.contract(max_retries=0)), "runner": "code-commit"}
    with plain.client() as client:
        run_id = _begin(client, body)
        # It is allowed, and ends where it would need a model: none is configured here.
        _until(lambda: _status(client, run_id) == "interrupted")
        assert "no model" in client.get(f"/runs/{run_id}").json()["reason"]


def test_a_run_with_a_program_is_not_resumed_without_the_flag(
    shared: tuple[World, Served], plain: Served
) -> None:
    world, served = shared
    outcome = world.run(world.contract(BROAD))
    assert outcome.status == "paused"
    with plain.client() as client, served.client() as allowed:
        at = f"/runs/{outcome.run_id}/resume"
        assert _refused(client.post(at)) == (403, "run.programs")
        assert _status(client, outcome.run_id) == "paused"
        assert allowed.post(at).status_code == 202
        allowed.post(f"/runs/{outcome.run_id}/cancel")
        # Cancelled before or after it has asked again.
        _until(lambda: _status(client, outcome.run_id) in {"paused", "interrupted"})


@pytest.mark.parametrize(
    ("change", "status", "rule"),
    [
        ({"contract": None}, 400, "body.schema"),
        ({"request": "both"}, 400, "body.schema"),
        ({"contract": []}, 400, "body.schema"),
        ({"runner": "nobody"}, 400, "body.schema"),
        ({"runner": "builtin:x"}, 400, "body.schema"),
        ({"runner": "process:'"}, 400, "runner.argument"),
        ({"runner": "scripted:/nowhere.json"}, 400, "script.read"),
        ({"merge": "yes"}, 400, "body.schema"),
        ({"colour": "red"}, 400, "body.schema"),
        ({"runner": None, "contract": {"runtime_options": {"runner": "process"}}}, 400, ""),
        ({"contract": {"spec": "x" * 1_100_000}}, 413, "contract.large"),
        ({"contract": {"spec": "x" * 2_100_000}}, 413, "body.large"),
    ],
)
def test_what_cannot_be_asked_makes_no_run(
    shared: tuple[World, Served], change: dict[str, Any], status: int, rule: str
) -> None:
    world, served = shared
    body = {**_asked(world), **change}
    body = {name: value for name, value in body.items() if value is not None}
    with served.client() as client:
        before = client.get("/runs").json()
        answer = client.post("/runs", json=body)
        assert _refused(answer) == (status, rule or "runner.argument")
        assert client.get("/runs").json() == before


@pytest.mark.parametrize(
    ("query", "headers"),
    [
        ("since=-1", {}),
        ("since=x", {}),
        ("limit=0", {}),
        ("limit=1001", {}),
        ("colour=red", {}),
        ("", {"last-event-id": "x"}),
        ("", {"last-event-id": "-1"}),
        ("", {"last-event-id": ""}),
    ],
)
def test_a_page_that_cannot_be_is_refused(
    shared: tuple[World, Served], query: str, headers: dict[str, str]
) -> None:
    _, served = shared
    with served.client() as client:
        answer = client.get(f"/runs/run_x_unheard_of/events?{query}", headers=headers)
        assert answer.status_code == 400
        assert _refused(client.get("/runs/run_x_unheard_of/events")) == (404, "run.unknown")


@pytest.mark.parametrize("name", ["run_x_unheard_of", "last", "..%2f..%2fhome", "%00", "r" * 300])
def test_a_run_that_is_not_there_is_not_found(shared: tuple[World, Served], name: str) -> None:
    _, served = shared
    with served.client() as client:
        for method, end in (
            ("GET", ""),
            ("GET", "/events"),
            ("GET", "/diff"),
            ("GET", "/bundle"),
            ("POST", "/verify"),
            ("POST", "/resume"),
            ("POST", "/cancel"),
        ):
            assert client.request(method, f"/runs/{name}{end}").status_code == 404


# What a run over HTTP is.


def test_a_run_goes_on_by_itself_and_everything_of_it_can_be_had(world: World) -> None:
    with offering(world) as served, served.client() as client:
        run_id = _begin(client, _asked(world, merge=True))
        told = _follow(client, run_id)
        assert [number for number, _, _ in told] == list(range(1, len(told) + 1))
        assert (told[0][1], told[-1][1]) == ("RUN_CREATED", "RUN_SEALED")
        assert [event for _, _, event in told] == world.recorded(run_id)
        assert all(event["event_type"] == name for _, name, event in told)

        # A lost connection goes on behind the last event; so does a page.
        assert _follow(client, run_id, **{"last-event-id": "7"}) == told[7:]
        page = client.get(f"/runs/{run_id}/events?since=2&limit=3").json()
        assert page == {
            "run_id": run_id,
            "events": [event for _, _, event in told[2:5]],
            "next": 5,
            "goes_on": False,
        }
        assert client.get(f"/runs/{run_id}/events?since=9999").json()["events"] == []

        (one,) = client.get("/runs").json()["runs"]
        shown = client.get(f"/runs/{run_id}").json()
        assert (one["run_id"], one["status"], one["state"], one["merge"]) == (
            run_id,
            "passed",
            "S6_DONE",
            "merged",
        )
        assert {name: shown[name] for name in one} == one
        told = json.loads(_coilclaw(world, "runs", "show", run_id, "--json"))
        assert {**shown, "next": ""} == told
        assert (world.repo / "pkg/calc.py").read_text() == ADDS["pkg/calc.py"]

        patch = client.get(f"/runs/{run_id}/diff")
        assert patch.headers["content-type"].startswith("text/x-diff")
        assert patch.content == (world.bundle(run_id) / "patch.diff").read_bytes()
        assert client.get(f"/runs/{run_id}/diff?task=task-0001").content == patch.content
        assert client.get(f"/runs/{run_id}/diff?work=rejected").content == b""
        assert _refused(client.get(f"/runs/{run_id}/diff?task=x")) == (404, "run.task")

        _verified(client, run_id)
        root = shown["root_hash"]
        at = f"/runs/{run_id}/verify"
        assert client.post(at, json={"root": root}).json()["status"] == "pass"
        assert client.post(at, json={"root": "0" * 64}).json()["status"] == "fail"
        _check_archive(world, client, run_id, root)
        for end in ("resume", "cancel"):
            answer = client.post(f"/runs/{run_id}/{end}")
            assert answer.status_code == 409, answer.text
        lines = client.get("/metrics").text.splitlines()
    assert 'coilclaw_runs_total{status="passed"} 1' in lines
    assert "coilclaw_runs_active 0" in lines


def _check_archive(world: World, client: httpx2.Client, run_id: str, root: str) -> None:
    """The archive is the bundle, whole, and checks out without us."""
    answer = client.get(f"/runs/{run_id}/bundle")
    assert answer.headers["content-type"] == "application/x-tar"
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert answer.content == client.get(f"/runs/{run_id}/bundle").content
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        # Early versions of Python 3.11 have no filters, and later ones want one.
        if hasattr(tarfile, "data_filter"):
            archive.extractall(world.root / "unpacked", filter="data")
        else:
            archive.extractall(world.root / "unpacked")
    unpacked = world.root / "unpacked" / run_id
    bundle = world.bundle(run_id)
    kept = {path.relative_to(bundle) for path in bundle.rglob("*")}
    assert {path.relative_to(unpacked) for path in unpacked.rglob("*")} == kept
    done = subprocess.run(
        [sys.executable, VERIFY_RUN, "--root", root, unpacked],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _coilclaw(world: World, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "coilclaw", *arguments],
        env=environment(_home(world), PATH=world.environ["PATH"]),
        cwd=world.repo,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_invalid_contract_is_a_run_that_says_why(shared: tuple[World, Served]) -> None:
    _, served = shared
    with served.client() as client:
        run_id = _begin(client, {"contract": {"task_id": "x"}})
        _follow(client, run_id)
        shown = client.get(f"/runs/{run_id}").json()
        assert (shown["status"], shown["sealed"]) == ("failed", True)
        assert "owner_agent" in json.dumps(shown["gates"])
        assert 'coilclaw_runs_total{status="invalid"}' in client.get("/metrics").text
        _verified(client, run_id)


def test_one_sentence_needs_a_model(shared: tuple[World, Served]) -> None:
    _, served = shared
    with served.client() as client:
        refused = client.post("/runs", json={"request": "  Make add\nadd. "})
        assert _refused(refused) == (409, "run.model")


def test_runs_at_once_are_bounded_and_a_cancelled_one_is_resumed(world: World) -> None:
    with offering(world, max_runs=1) as served, served.client() as client:
        run_id = _begin(client, _asked(world, runner=world.script(SLOW)))
        _until(lambda: "TASK_STARTED" in world.kinds(run_id))
        assert _status(client, run_id) == "running"
        assert client.get(f"/runs/{run_id}/events").json()["goes_on"] is True
        assert "coilclaw_runs_active 1" in client.get("/metrics").text
        assert _refused(client.get(f"/runs/{run_id}/bundle")) == (409, "run.unsealed")
        assert _refused(client.post("/runs", json=_asked(world))) == (429, "runs.busy")
        assert _refused(client.post(f"/runs/{run_id}/resume")) == (429, "runs.busy")
        assert client.get("/runs").json()["runs"][0]["status"] == "running"

        began = time.monotonic()
        assert client.post(f"/runs/{run_id}/cancel").status_code == 202
        _until(lambda: _status(client, run_id) == "interrupted")
        assert time.monotonic() - began < PATIENCE_S
        assert "cancel" in client.get(f"/runs/{run_id}").json()["reason"]
        # Whoever else looks sees the same, though the process is still there.
        (one,) = json.loads(_coilclaw(world, "runs", "list", "--json"))
        assert one["status"] == "interrupted"
        assert _refused(client.post(f"/runs/{run_id}/cancel")) == (409, "run.idle")
        assert _refused(client.get(f"/runs/{run_id}/bundle")) == (409, "run.unsealed")

        world.script([{"write": ADDS}])
        assert client.post(f"/runs/{run_id}/resume").status_code == 202
        assert _follow(client, run_id)[-1][1] == "RUN_SEALED"
        assert _status(client, run_id) == "passed"
        _verified(client, run_id)
        assert world.left(run_id) == []
        metrics = client.get("/metrics").text
    assert 'coilclaw_runs_total{status="stopped"} 1' in metrics
    assert 'coilclaw_runs_total{status="passed"} 1' in metrics


def test_a_run_of_another_process_is_seen_but_not_cancelled(
    shared: tuple[World, Served], plain: Served
) -> None:
    world, served = shared
    runner = world.script(SLOW, name="slow")
    with served.client() as client, plain.client() as other:
        run_id = _begin(client, _asked(world, "pkg/names.py", runner=runner))
        assert _status(other, run_id) == "running"
        assert _refused(other.post(f"/runs/{run_id}/cancel")) == (409, "run.elsewhere")
        assert client.post(f"/runs/{run_id}/cancel").status_code == 202
        _until(lambda: _status(other, run_id) == "interrupted")


@pytest.mark.parametrize("decision", ["approve", "reject"])
def test_a_run_waits_for_its_approval_and_goes_on_by_itself(world: World, decision: str) -> None:
    with (
        offering(world) as served,
        served.client() as client,
        served.client("approve") as approver,
    ):
        run_id = _begin(client, _asked(world, *BROAD))
        (waiting,) = _until(lambda: approver.get("/approvals").json()["approvals"])
        assert (waiting["origin"], waiting["kind"], waiting["asker"]) == (
            run_id,
            "override",
            "client operator",
        )
        shown = client.get(f"/runs/{run_id}").json()
        assert (shown["status"], shown["waiting"]) == ("running", [waiting["id"]])
        own = client.post("/approvals", json={"id": waiting["id"], "decision": "approve"})
        assert _refused(own) == (403, "approval.self")
        assert approver.get(f"/runs/{run_id}/events").status_code == 200
        assert _refused(approver.post(f"/runs/{run_id}/cancel")) == (403, "role.needed")
        answer = approver.post("/approvals", json={"id": waiting["id"], "decision": decision})
        assert answer.status_code == 200
        assert _follow(client, run_id)[-1][1] == "RUN_SEALED"
        (created,) = world.of(run_id, "RUN_CREATED")
        assert created["asker"] == "client operator"
        assert _status(client, run_id).partition(":")[0] == (
            "passed" if decision == "approve" else "failed"
        )
        _verified(client, run_id)


def test_who_began_a_run_does_not_approve_it_when_another_resumed_it(world: World) -> None:
    with offering(world) as served, served.client("admin") as began, served.client() as client:
        run_id = _begin(began, _asked(world, *BROAD))
        _until(lambda: client.get("/approvals").json()["approvals"])
        served.kill()
        token = began.headers["authorization"]
    with offering(world) as served, served.client() as client:
        assert client.post(f"/runs/{run_id}/resume").status_code == 202
        (waiting,) = _until(lambda: client.get("/approvals").json()["approvals"])
        body = {"id": waiting["id"], "decision": "approve"}
        with served.client(headers={"authorization": token}) as began:
            assert _refused(began.post("/approvals", json=body)) == (403, "approval.self")
        assert client.post("/approvals", json=body).status_code == 200


def test_a_paused_run_is_approved_and_resumed_over_http(world: World) -> None:
    outcome = world.run(world.contract(BROAD))
    run_id, (approval,) = outcome.run_id, outcome.waiting
    with offering(world) as served, served.client() as client:
        assert _status(client, run_id) == "paused"
        client.post("/approvals", json={"id": approval, "decision": "approve"})
        assert client.post(f"/runs/{run_id}/resume").status_code == 202
        _follow(client, run_id)
        assert _status(client, run_id) == "passed"
        _verified(client, run_id)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_runs_end_with_the_gateway_and_go_on_with_the_next_one(world: World, how: str) -> None:
    with offering(world) as served, served.client() as client:
        run_id = _begin(client, _asked(world, runner=world.script(SLOW)))
        _until(lambda: "TASK_STARTED" in world.kinds(run_id))
        if how == "kill":
            served.kill()
        else:
            assert served.stop() == 0
    before = world.recorded(run_id)
    world.script([{"write": ADDS}])
    with offering(world) as served, served.client() as client:
        (one,) = client.get("/runs").json()["runs"]
        assert (one["run_id"], one["status"]) == (run_id, "interrupted")
        page = client.get(f"/runs/{run_id}/events").json()
        assert (page["events"], page["goes_on"]) == (before, False)
        assert _follow(client, run_id)[-1][2] == before[-1]
        assert client.post(f"/runs/{run_id}/resume").status_code == 202
        told = _follow(client, run_id, **{"last-event-id": str(len(before))})
        assert told[0][:2] == (len(before) + 1, "RUN_RESUMED")
        assert _status(client, run_id) == "passed"
        _verified(client, run_id)
    assert world.recorded(run_id)[: len(before)] == before
    assert world.left(run_id) == []


def test_a_run_that_breaks_off_says_why_and_can_be_resumed(world: World) -> None:
    outcome = world.run(world.contract(BROAD))
    run_id, (approval,) = outcome.run_id, outcome.waiting
    (world.root / "agent.json").rename(world.root / "away.json")
    with offering(world) as served, served.client() as client:
        client.post("/approvals", json={"id": approval, "decision": "approve"})
        assert client.post(f"/runs/{run_id}/resume").status_code == 202
        _follow(client, run_id)
        shown = client.get(f"/runs/{run_id}").json()
        assert (shown["status"], shown["sealed"]) == ("interrupted", False)
        assert "agent.json" in shown["reason"]
        assert 'coilclaw_runs_total{status="fault"} 1' in client.get("/metrics").text
        (world.root / "away.json").rename(world.root / "agent.json")
        assert client.post(f"/runs/{run_id}/resume").status_code == 202
        _follow(client, run_id)
        assert _status(client, run_id) == "passed"
        _verified(client, run_id)


def test_a_stream_ends_with_the_gateway(world: World) -> None:
    with offering(world) as served, served.client() as client:
        run_id = _begin(client, _asked(world, *BROAD))
        _until(lambda: client.get("/approvals").json()["approvals"])
        accept = {"accept": "text/event-stream"}
        with client.stream("GET", f"/runs/{run_id}/events", headers=accept) as answer:
            lines = answer.iter_lines()
            assert next(lines) == "id: 1"
            assert served.stop() == 0
            assert "event: HUMAN_APPROVAL_REQUIRED" in list(lines)


def test_runs_side_by_side_do_not_get_into_each_other_s_way(world: World) -> None:
    work = [(ADDS, CALC), (SHOUTS, TEXT), (FIRST, NAMES)]
    with offering(world) as served, served.client() as client:
        begun = []
        for number, (files, test) in enumerate(work):
            contract = world.contract(tuple(files), (test,), task_id=f"task-000{number}")
            runner = world.script([{"write": files}], name=f"agent-{number}")
            begun.append(_begin(client, {"contract": json.loads(contract), "runner": runner}))
        ends = [_follow(client, run_id)[-1][1] for run_id in begun]
        assert ends == ["RUN_SEALED"] * 3
        runs = client.get("/runs?limit=2").json()["runs"]
        assert [one["run_id"] for one in runs] == sorted(begun, reverse=True)[:2]
        assert [_status(client, run_id) for run_id in begun] == ["passed"] * 3
        for run_id in begun:
            _verified(client, run_id)
        assert world.left(begun[0]) == []


def test_the_emergency_stop_stops_runs_and_lets_none_begin(world: World) -> None:
    with offering(world) as served, served.client() as client:
        run_id = _begin(client, _asked(world, runner=world.script(SLOW)))
        _until(lambda: "TASK_STARTED" in world.kinds(run_id))
        client.post("/estop", json={"reason": "enough"})
        _until(lambda: _status(client, run_id) == "interrupted")
        assert _refused(client.post("/runs", json=_asked(world))) == (503, "estop")
        assert _refused(client.post(f"/runs/{run_id}/resume")) == (503, "estop")
        assert len(client.get("/runs").json()["runs"]) == 1
        client.delete("/estop")
        world.script([{"write": ADDS}])
        assert client.post(f"/runs/{run_id}/resume").status_code == 202
        _follow(client, run_id)
        assert _status(client, run_id) == "passed"


@pytest.mark.full
def test_schemathesis_finds_nothing_in_runs(world: World) -> None:
    named = os.environ.get("COILCLAW_SCHEMATHESIS") or str(
        Path(sys.executable).with_name("schemathesis")
    )
    if shutil.which(named) is None:
        pytest.skip("schemathesis is not installed beside this Python")
    settings = {"requests_per_minute": 10**6, "max_runs": 64, "allow_run_programs": False}
    with offering(world, **settings) as served:
        done = subprocess.run(
            [
                named,
                "run",
                f"{served.url}/openapi.json",
                "--header",
                f"Authorization: Bearer {served.token}",
                "--include-path-regex",
                "^/runs",
                "--phases",
                "examples,coverage,fuzzing,stateful" if scaled(full=1, default=0) else "fuzzing",
                "--max-examples",
                str(scaled(full=60, default=10)),
                "--request-timeout",
                "60",
                "--seed",
                "1",
            ],
            cwd=world.root,
            env={**os.environ, "NO_COLOR": "1", "HYPOTHESIS_STORAGE_DIRECTORY": str(world.root)},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        assert "Traceback" not in served.logged()
