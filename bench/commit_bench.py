"""code-commit less model and build, against a script that reads, logs and writes the same."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Final

from bench.floor import write_files
from bench.measurement import Measurement
from coilclaw.commit import project
from coilclaw.commit.build import Build
from coilclaw.commit.interrupts import Interrupts
from coilclaw.commit.query import initial_query
from coilclaw.commit.run_log import RunLog
from coilclaw.commit.workflow import CommitRun
from coilclaw.kernel.messages import ChatRequest, ChatResponse, ProviderCapabilities
from coilclaw.kernel.secret import Secret
from coilclaw.policy.protected_files import KEY_FILES
from coilclaw.policy.redaction import SecretRedactor
from coilclaw.workspace.git.client import Git
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState

ROLLUP_BYTES: Final = 4 * 2**20
FILES: Final = 200
ROUNDS: Final = 5
TARGET: Final = 3.0
KEY: Final = "AIzaSyD-bench_0123456789abcdefXYZw"


class _Model:
    """Answers at once, and makes the request body a real provider would send."""

    name = "bench"
    capabilities = ProviderCapabilities(tools=False, streaming=False)

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._payload = json.dumps({"text": answer}).encode()

    def chat(self, request: ChatRequest) -> ChatResponse:
        json.dumps({"contents": [{"parts": [{"text": request.messages[0].content}]}]}).encode()
        return ChatResponse(self._answer, raw_provider_payload=self._payload)


class _Watch:
    """Remembers how long the build took, so that it can be left out."""

    def __init__(self) -> None:
        self.build_s = 0.0

    def line(self, text: str, style: str | None = None) -> None: ...
    def attempt(self, number: int, name: str) -> None: ...
    def asking(self, model: str) -> None: ...
    def answered(self, response: ChatResponse, seconds: float) -> None: ...
    def applied(self, plan: object, change_id: str) -> None: ...
    def not_applied(self, reason: str) -> None:
        raise AssertionError(reason)

    def building(self) -> None: ...
    def output(self, data: bytes) -> None: ...
    def built(self, build: Build) -> None:
        self.build_s += build.seconds


def _prepare(root: Path) -> dict[str, str]:
    root.mkdir()
    line = "    value = compute(index, 'text') + other[\"key\"]  # comment\\n\n"
    (root / "codeRollup.txt").write_text(line * (ROLLUP_BYTES // len(line)))
    (root / "query.txt").write_text("Change it.\n")
    (root / "build.sh").write_text("#!/bin/sh\nexit 0\n")
    (root / "build.sh").chmod(0o755)
    (root / ".gitignore").write_text("".join(f"/{name}\n" for name in KEY_FILES))
    (root / "gemini-key.txt").write_text(KEY)
    return {f"src/m{n}.py": f"# {n}\n" + "x = 1\n" * 300 for n in range(FILES)}


def _floor(root: Path, contents: dict[str, str], answer: str) -> float:
    start = time.perf_counter()
    text = initial_query((root / "query.txt").read_text(), (root / "codeRollup.txt").read_text())
    with open(root / "query.log", "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    body = json.dumps({"contents": [{"parts": [{"text": text}]}]}).encode()
    with open(root / "body.json", "wb") as file:
        file.write(body)
    (root / "answer.txt").write_text(answer)
    write_files(root, contents)
    return time.perf_counter() - start


def _ours(directory: Path, home: Path, answer: str) -> float:
    watch = _Watch()
    start = time.perf_counter()
    with Root(directory) as root:
        secrets = (Secret(KEY),)
        loaded = project.load_project(root.path)
        state = TreeState.of(home, root.path)
        state.create()
        git = Git(state.git)
        project.check_ignored(
            root.path, KEY_FILES, lambda names: git.find_ignored(root.path, names)
        )
        run = CommitRun(
            project=loaded,
            root=root,
            state=state,
            log=RunLog.create(root.path, datetime.now().astimezone(), SecretRedactor(secrets)),
            provider=_Model(answer),
            model="bench",
            environ=dict(os.environ),
            interrupts=Interrupts(),
            observer=watch,
            build_timeout_s=60,
            run_id="bench",
        )
        outcome = run.go()
    spent = time.perf_counter() - start
    assert outcome.status == "passed"
    return spent - watch.build_s


def run() -> list[Measurement]:
    """Measure, interleaved, and compare the medians."""
    floor: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("COILCLAW_BENCH_DIR")) as folder:
        base = Path(folder)
        for number in range(ROUNDS):
            contents = _prepare(base / f"floor{number}")
            answer = "".join(f"^^^{name}\n{text}^^^end\n" for name, text in contents.items())
            floor.append(_floor(base / f"floor{number}", contents, answer))
            _prepare(base / f"ours{number}")
            ours.append(_ours(base / f"ours{number}", base / "home", answer))
    ratio = statistics.median(ours) / statistics.median(floor)
    return [
        Measurement(
            "code-commit, 4 MB roll-up, 200 files / a script that does the same",
            ratio,
            f"<= {TARGET}",
            ratio <= TARGET,
            f"{statistics.median(ours) * 1000:.0f} ms / {statistics.median(floor) * 1000:.0f} ms",
        )
    ]
