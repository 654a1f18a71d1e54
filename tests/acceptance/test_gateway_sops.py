"""SOPs over HTTP, with a real gateway: listed, started, followed, resumed, and killed."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2

from tests.support.agents import AgentHome, says
from tests.support.children import PATIENCE_S
from tests.support.gateways import serving

FULL = '[security]\nautonomy = "full"\nsandbox = "none"\n'
GREET = """\
name = "greet"
[inputs.file]
type = "string"
[inputs.n]
type = "integer"
default = 1
[[steps]]
id = "say"
kind = "agent"
prompt = "Greet."
[[steps]]
id = "ask"
kind = "approval"
prompt = "Write {{say.output}} to {{inputs.file}}?"
[[steps]]
id = "write"
kind = "tool"
tool = "file_write"
args = { path_from = "inputs.file", content_from = "say" }
"""
WAITS = """\
name = "waits"
[[steps]]
id = "w"
kind = "tool"
tool = "shell"
args = { argv = ["sh", "-c", "echo x >> log; while [ ! -e go ]; do sleep 0.05; done"] }
"""


def home_with(folder: Path, **sops: str) -> AgentHome:
    home = AgentHome.make(folder, FULL, [says("hello")])
    for name, text in sops.items():
        place = home.home / "workspace" / "sops" / name
        place.mkdir(parents=True)
        (place / "SOP.toml").write_text(text)
    return home


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something another process does, and return it."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def begin(client: httpx2.Client, name: str, **inputs: object) -> str:
    answer = client.post(f"/sops/{name}/runs", json={"inputs": inputs})
    assert answer.status_code == 202, answer.text
    run_id = str(answer.json()["run_id"])
    assert answer.headers["location"] == f"/sops/runs/{run_id}"
    return run_id


def follow(client: httpx2.Client, run_id: str, since: int = 0) -> list[str]:
    """Read the stream to its end: the names of its events."""
    path, accept = f"/sops/runs/{run_id}/events?since={since}", {"accept": "text/event-stream"}
    with client.stream("GET", path, headers=accept) as answer:
        assert answer.status_code == 200, answer.read()
        return [line[7:] for line in answer.iter_lines() if line.startswith("event: ")]


def test_a_sop_is_listed_started_followed_approved_and_resumed(tmp_path: Path) -> None:
    home = home_with(tmp_path, greet=GREET, broken='name = "broken"\n')
    with serving(home) as served, served.client() as client, served.client("approve") as other:
        listed = {one["name"]: one for one in client.get("/sops").json()["sops"]}
        assert (listed["greet"]["ok"], listed["broken"]["ok"]) == (True, False)
        assert [one["name"] for one in listed["greet"]["inputs"]] == ["file", "n"]
        wrong = client.post("/sops/greet/runs", json={"inputs": {"n": "x", "m": 1}})
        assert (wrong.status_code, wrong.json()["error"]["rule"]) == (400, "sop.inputs")
        for part in ("file is missing", "unknown input 'm'", "n is 'x'"):
            assert part in wrong.json()["error"]["message"]
        assert client.post("/sops/gone/runs").status_code == 404
        assert client.get("/sops/runs/sop-0123456789abcdef").status_code == 404
        run_id = begin(client, "greet", file="out.txt")
        assert follow(client, run_id) == ["begun", "started", "finished", "started", "asked"]
        (asked,) = client.get("/approvals").json()["approvals"]
        decision = {"id": asked["id"], "decision": "approve"}
        # Whoever began the run says no yes to it, as with any other request.
        own = client.post("/approvals", json=decision)
        assert (own.status_code, own.json()["error"]["rule"]) == (403, "approval.self")
        assert other.post("/approvals", json=decision).json()["asker"] == "client operator"
        assert client.post(f"/sops/runs/{run_id}/resume").status_code == 202
        assert follow(client, run_id, 5) == ["finished", "started", "finished", "ended"]
        page = client.get(f"/sops/runs/{run_id}/events?limit=1").json()
        assert (page["next"], "text" in page["events"][0]) == (1, False)
        told = client.get(f"/sops/runs/{run_id}").json()
        assert (told["status"], told["inputs"]) == ("done", {"file": "out.txt", "n": 1})
        assert (home.workspace / "out.txt").read_text() == "hello"
        again = client.post(f"/sops/runs/{run_id}/resume")
        assert (again.status_code, again.json()["error"]["rule"]) == (409, "sop.ended")
        assert [one["id"] for one in client.get("/sops/runs").json()["runs"]] == [run_id]


def test_a_run_outlives_a_killed_and_a_stopped_gateway(tmp_path: Path) -> None:
    home = home_with(tmp_path, waits=WAITS)
    log = home.workspace / "log"
    with serving(home) as served, served.client() as client:
        run_id = begin(client, "waits")
        until(log.exists)
        busy = client.post(f"/sops/runs/{run_id}/resume")
        assert (busy.status_code, busy.json()["error"]["rule"]) == (409, "sop.busy")
        served.kill()
    with serving(home) as served, served.client() as client:
        path = f"/sops/runs/{run_id}"
        assert client.get(path).json()["status"] == "interrupted"
        refused = client.post(f"{path}/resume")
        assert (refused.status_code, refused.json()["error"]["rule"]) == (409, "sop.interrupted")
        assert client.post(f"{path}/resume", json={"note": "x"}).status_code == 400
        told = {"interrupted": "redo", "note": "I looked"}
        assert client.post(f"{path}/resume", json=told).status_code == 202
        until(lambda: log.read_text() == "x\nx\n")
        # Stopped in order, the run can be resumed like a killed one.
        assert served.stop(signal.SIGTERM) == 0
    with serving(home) as served, served.client() as client:
        assert client.get(path).json()["status"] == "interrupted"
        (home.workspace / "go").touch()
        assert client.post(f"{path}/resume", json={"interrupted": "accept"}).status_code == 202
        follow(client, run_id)
        told = client.get(path).json()
        assert told["status"] == "done", json.dumps(told)
        assert [one["how"] for one in told["settlements"]] == ["redo", "accept"]
        assert {one["by"] for one in told["settlements"]} == {"client operator"}
    assert log.read_text() == "x\nx\n"
