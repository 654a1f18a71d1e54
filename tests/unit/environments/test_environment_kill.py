"""A judge that is killed leaves nothing that runs, and nothing that spoils the next one."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coilclaw.traces.environments import catalogue
from coilclaw.traces.environments.judge import Judge
from coilclaw.workspace.process.confinement import SandboxSupport
from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support.children import PATIENCE_S
from tests.support.environments import submit, write_environment
from tests.support.scale import scaled


def _in_a_child(act: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    return pid


def _running(marker: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in line:
                found.append(int(entry.name))
    return found


def _eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock", "none"])
def test_what_runs_ends_with_the_judge(tmp_path: Path, kind: str) -> None:
    support = probe_sandboxes()
    if kind != "bubblewrap":
        support = replace(support, bubblewrap=None)
    if kind == "none":
        support = SandboxSupport()
    marker = f"4{random.randint(10**6, 10**7)}"
    write_environment(
        tmp_path / "environment",
        "from coilclaw.environments.authoring import run, start, test\n"
        f"@test\ndef a() -> None:\n    run(['sleep', '{marker}'], timeout_s=50)\n"
        f"@test\ndef b() -> None:\n    start(['sleep', '{marker}']).receive(50)\n",
    )
    place = catalogue.find_environment(str(tmp_path / "environment"))
    (tmp_path / "work").mkdir()
    judge = Judge(place, support=support, home=tmp_path / "home", environ=os.environ, jobs=2)
    child = _in_a_child(lambda: judge.test(tmp_path / "work"))
    assert _eventually(lambda: len(_running(marker)) >= 2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert _eventually(lambda: _running(marker) == [])
    assert _eventually(lambda: _running(str(tmp_path)) == [])


def test_killed_anywhere_the_next_one_judges_right(tmp_path: Path) -> None:
    judge = Judge(
        catalogue.find_environment("kv_store"),
        support=probe_sandboxes(),
        home=tmp_path / "home",
        environ=os.environ,
        jobs=2,
        timeout_s=120,
    )
    work = submit(tmp_path / "work")
    for n in range(scaled(full=30, default=5)):
        # Every other time there is something to build.
        (work / "notes").write_text(str(n // 2), encoding="utf-8")
        child = _in_a_child(lambda: judge.test(work, "basics"))
        time.sleep(random.uniform(0.0, 0.8))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert judge.test(work, "basics").solved
    assert _eventually(lambda: _running(str(tmp_path)) == [])
    assert judge.test(work, "basics").solved
    assert os.listdir(tmp_path / "home" / "scratch") == []
