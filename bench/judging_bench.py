"""What judging a compiler costs: a case against bare compiling and running, and two at once."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from bench.measurement import Measurement
from bench.snapshot_bench import _seconds
from coilclaw.traces.environments import catalogue
from coilclaw.traces.environments.case_run import Handling, Request, run_cases
from coilclaw.traces.environments.containment import find_tools
from coilclaw.traces.environments.declarations import Documents
from coilclaw.traces.environments.environment import PlannedCase, load_environment
from coilclaw.traces.environments.results import Case
from coilclaw.workspace.process.confinement import SandboxSupport
from coilclaw.workspace.process.sandbox import probe_sandboxes

SHARDS = ("smoke", "variables", "control_flow", "functions", "expressions")
COMPILER = "gcc"
ROUNDS = 5
OVERHEAD_TARGET = 1.2
PARALLEL_TARGET = 0.6


class Compilable(Protocol):
    """What is needed of a program to compile it by hand."""

    @property
    def sources(self) -> tuple[Path, ...]: ...

    @property
    def reference_flags(self) -> tuple[str, ...]: ...


def _bare(programs: Sequence[Compilable], place: Path) -> None:
    for program in programs:
        line = [COMPILER, *program.reference_flags, *map(str, program.sources), "-o", "made"]
        subprocess.run(line, cwd=place, capture_output=True, check=True)
        subprocess.run([str(place / "made")], cwd=place, capture_output=True, check=False)


def _judged(
    cases: Sequence[PlannedCase], file: Path, place: Path, support: SandboxSupport, jobs: int
) -> None:
    session, scratch = place / "session", place / "scratch"
    for directory in (session, scratch):
        directory.mkdir(parents=True)
    params = {"reference": COMPILER}
    request = Request("test", file, session, scratch, "", params, jobs, True, support)
    outcomes: list[Case] = []
    run_cases(
        cases,
        Handling(request, Documents(session), find_tools(os.environ["PATH"])),
        jobs,
        outcomes.append,
    )
    shutil.rmtree(place)
    wrong = [case.id for case in outcomes if not case.passed]
    if wrong or len(outcomes) != len(cases):
        raise RuntimeError(f"{COMPILER} does not pass {wrong}")


def run() -> list[Measurement]:
    """Judge the same programs one after the other and two at once, and compile them by hand."""
    place = catalogue.find_environment("c_compiler")
    environment = load_environment(place.file)
    loader = sys.modules["basics"]
    known = loader.programs(place.directory / "basics")
    programs = [program for shard in SHARDS for program in known[shard]]
    cases = [case for shard in SHARDS for case in environment.select(f"basics/{shard}").cases]
    support = probe_sandboxes()
    bare: list[float] = []
    alone: list[float] = []
    both: list[float] = []
    with tempfile.TemporaryDirectory() as directory:
        top = Path(os.path.realpath(directory))
        for number in range(ROUNDS):
            # In turn, so that whatever else the machine does falls on all alike.
            bare.append(_seconds(lambda: _bare(programs, top)))
            for jobs, times in ((1, alone), (2, both)):
                into = top / f"{number}-{jobs}"
                times.append(
                    _seconds(lambda: _judged(cases, place.file, into, support, jobs))  # noqa: B023
                )
    each = [statistics.median(times) / len(cases) * 1e3 for times in (bare, alone, both)]
    overhead, parallel = each[1] / each[0], each[2] / each[1]
    return [
        Measurement(
            "judging a case / bare compile + run",
            overhead,
            f"<= {OVERHEAD_TARGET:g}",
            overhead <= OVERHEAD_TARGET,
            f"{each[1]:.1f} ms against {each[0]:.1f} ms, {len(cases)} programs, {COMPILER}",
        ),
        Measurement(
            "judging, 2 jobs / 1 job",
            parallel,
            f"<= {PARALLEL_TARGET:g}",
            parallel <= PARALLEL_TARGET,
            f"{each[2]:.1f} ms against {each[1]:.1f} ms a case, {os.cpu_count()} processors",
        ),
    ]
