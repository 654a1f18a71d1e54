"""The agent: one message from start to exit, and a long loop of tool calls over loopback."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.measurement import Measurement
from bench.startup_bench import install

ROUNDS: Final = 25
START_TARGET: Final = 12.0
TOOL_ROUNDS: Final = 50
LOOPS: Final = 7
LOOP_TARGET: Final = 2.5


def run() -> list[Measurement]:
    """Measure both."""
    return [_start(), _loop()]


def _start() -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        programs = install(Path(folder))
        home = Path(folder) / "home"
        env = {"PATH": "/usr/bin:/bin", "HOME": folder, "COILCLAW_HOME": str(home)}
        ours = [str(programs / "coilclaw"), "agent", "-m", "hi"]
        bare = [str(programs / "python"), "-c", "pass"]
        (Path(folder) / "workspace").mkdir()
        home.mkdir()
        (home / "config.toml").write_text(f'workspace_dir = "{folder}/workspace"\n')
        _seconds(ours, env)
        pairs = [(_seconds(ours, env), _seconds(bare, env)) for _ in range(ROUNDS)]
    took, floor = (statistics.median(column) for column in zip(*pairs, strict=True))
    return Measurement(
        "coilclaw agent -m hi / python -c pass",
        took / floor,
        f"<= {START_TARGET}",
        took <= START_TARGET * floor,
        f"{took * 1000:.1f} ms / {floor * 1000:.1f} ms, medians of {ROUNDS}, everything synced",
    )


def _seconds(argv: list[str], env: dict[str, str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
    return time.perf_counter() - began


def _loop() -> Measurement:
    calls = [{"tool_calls": [{"name": "time", "arguments": {}}]}] * TOOL_ROUNDS
    ours: list[float] = []
    bare: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        script.write_text(json.dumps({"answers": [*calls, {"text": "done"}]}))
        log = Path(folder) / "requests.jsonl"
        with _server(script, log) as url:
            ours.append(_governed(Path(folder), url))
        bodies = [json.dumps(json.loads(line)["body"]).encode() for line in log.open()]
        bodies = bodies[-(TOOL_ROUNDS + 1) :]
        with _server(script, Path(folder) / "again.jsonl") as url:
            for _ in range(LOOPS):
                ours.append(_governed(Path(folder), url))
                bare.append(_bare(url, bodies))
    took, floor = statistics.median(ours[1:]), statistics.median(bare)
    return Measurement(
        f"{TOOL_ROUNDS} rounds of time over loopback / bare HTTP",
        took / floor,
        f"<= {LOOP_TARGET}",
        took <= LOOP_TARGET * floor,
        f"{took * 1000:.0f} ms / {floor * 1000:.0f} ms, medians of {LOOPS}",
    )


@contextmanager
def _server(script: Path, log: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "coilclaw", "mock-server", "--script", str(script)]
    with subprocess.Popen(
        [*command, "--port", "0", "--log", str(log)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield server.stdout.readline().rsplit(" ", 1)[1].strip()
        server.terminate()


def _governed(folder: Path, url: str) -> float:
    from coilclaw.app.agent_runtime import People, open_runtime
    from coilclaw.kernel.messages import ApprovalAnswer, ApprovalReply

    with tempfile.TemporaryDirectory(dir=folder) as place:
        home = Path(place)
        (home / "workspace").mkdir()
        (home / "config.toml").write_text(
            f'workspace_dir = "{home}/workspace"\ndefault_provider = "served"\n'
            f"[limits]\nmax_tool_rounds = {TOOL_ROUNDS}\n"
            '[providers.models.served]\nkind = "openai-compatible"\nmodel = "m"\n'
            f'base_url = "{url}/v1"\n'
        )
        people = People(lambda _: ApprovalAnswer(ApprovalReply.NO, "nobody"), lambda _: None)
        with open_runtime(home, os.environ, people) as runtime:
            began = time.perf_counter()
            outcome = runtime.turn("what time is it?")
            took = time.perf_counter() - began
    assert (outcome.text, outcome.tool_calls) == ("done", TOOL_ROUNDS), outcome
    return took


def _bare(url: str, bodies: list[bytes]) -> float:
    import httpx2

    began = time.perf_counter()
    with httpx2.Client(trust_env=False) as client:
        for body in bodies:
            answer = client.post(
                f"{url}/v1/chat/completions",
                content=body,
                headers={"content-type": "application/json"},
            )
            assert answer.status_code == 200, answer.text
            answer.json()
    return time.perf_counter() - began
