"""How long the command line takes to start, against the bare interpreter."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measurement import Measurement

ROUNDS = 25
TARGET = 4.0


def install(directory: Path) -> Path:
    """Install the product as pip leaves it for a user, bytecode included; return its ``bin``."""
    root = Path(__file__).parent.parent
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(directory)]
    subprocess.run([*pip, *build, str(root)], check=True)
    (wheel,) = directory.glob("*.whl")
    venv = directory / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    python = venv / "bin" / "python"
    install = ["--python", str(python), "install", "--no-index", "--no-deps", "--compile"]
    subprocess.run([*pip, *install, str(wheel)], check=True)
    return venv / "bin"


def _seconds(argv: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"})
    return time.perf_counter() - start


def run() -> list[Measurement]:
    """Compare ``coilclaw --version`` with ``python -c pass`` of the same environment."""
    with tempfile.TemporaryDirectory() as directory:
        bin_directory = install(Path(directory))
        product = [str(bin_directory / "coilclaw"), "--version"]
        floor = [str(bin_directory / "python"), "-c", "pass"]
        # Interleaved, so that whatever else the machine does falls on both alike.
        pairs = [(_seconds(product), _seconds(floor)) for _ in range(ROUNDS)]
    ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = ours / bare
    return [
        Measurement(
            name="coilclaw --version / python -c pass",
            value=ratio,
            target=f"<= {TARGET}",
            ok=ratio <= TARGET,
            detail=f"{ours * 1000:.1f} ms / {bare * 1000:.1f} ms, medians of {ROUNDS}",
        )
    ]
