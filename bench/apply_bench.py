"""Applying a file bundle, against writing the same files by temp, write, fsync, rename."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

from bench.floor import write_files
from bench.measurement import Measurement
from coilclaw.changes import answer
from coilclaw.workspace.tree.delivery import Delivered, DeliveryTerms, deliver_answer
from coilclaw.workspace.tree.root import Root
from coilclaw.workspace.tree.state import TreeState

FILES: Final = 1000
ROUNDS: Final = 5
TARGET: Final = 2.0


def _contents() -> dict[str, str]:
    return {
        f"pkg{index % 20}/mod{index}.py": f"# {index}\n" + "value = 1\n" * 200
        for index in range(FILES)
    }


def _floor(root: Path, contents: dict[str, str]) -> float:
    root.mkdir()
    start = time.perf_counter()
    write_files(root, contents)
    return time.perf_counter() - start


def _ours(root: Path, home: Path, text: str) -> float:
    root.mkdir()
    start = time.perf_counter()
    parsed = answer.parse_answer(text)
    with Root(root) as opened:
        outcome = deliver_answer(opened, TreeState.of(home, root), parsed, DeliveryTerms())
    spent = time.perf_counter() - start
    assert isinstance(outcome, Delivered)
    assert len(outcome.plan.changes) == FILES
    return spent


def run() -> list[Measurement]:
    """Measure, interleaved, and compare the medians."""
    contents = _contents()
    bundle = {"root": ".", "files": [{"path": p, "content": c} for p, c in contents.items()]}
    text = "```json\n" + json.dumps(bundle) + "\n```\n"
    floor: list[float] = []
    ours: list[float] = []
    with tempfile.TemporaryDirectory(dir=os.environ.get("COILCLAW_BENCH_DIR")) as folder:
        base = Path(folder)
        for number in range(ROUNDS):
            floor.append(_floor(base / f"floor{number}", contents))
            ours.append(_ours(base / f"ours{number}", base / "home", text))
    ratio = statistics.median(ours) / statistics.median(floor)
    return [
        Measurement(
            "apply a 1,000-file bundle / temp, write, fsync, rename",
            ratio,
            f"<= {TARGET}",
            ratio <= TARGET,
            f"{statistics.median(ours) * 1000:.0f} ms / {statistics.median(floor) * 1000:.0f} ms",
        )
    ]
