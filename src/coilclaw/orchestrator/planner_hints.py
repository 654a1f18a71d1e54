"""Hints for a planner: what the names in a repository suggest about its tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.orchestrator.baseline import Baseline

MAX_HINTS: Final = 16
_MARKERS: Final[Mapping[str, str]] = {
    "pyproject.toml": "a Python project, whose tests are often run with 'python -m pytest'",
    "setup.cfg": "a Python project, whose tests are often run with 'python -m pytest'",
    "tox.ini": "environments of tox, perhaps 'tox -e py'",
    "package.json": "a Node project, whose tests are often run with 'npm test'",
    "Cargo.toml": "a Rust project, whose tests are run with 'cargo test'",
    "go.mod": "a Go module, whose tests are run with 'go test ./...'",
    "Makefile": "targets of make, perhaps 'make test'",
    "justfile": "recipes of just, perhaps 'just test'",
    "pom.xml": "a Maven project, whose tests are run with 'mvn -q test'",
    "gradlew": "a Gradle project, whose tests are run with './gradlew test'",
}


def hint_lines(baseline: Baseline) -> tuple[str, ...]:
    """Return what a planner is told about the project, one sentence a line.

    This is the place for whatever recognises projects; it may read files of the baseline.
    """
    found = [f"{name}: {said}" for name, said in _MARKERS.items() if name in baseline.files]
    return tuple(found[:MAX_HINTS])
