"""What an agent is told at the beginning of a turn: first the task, later how far it got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.trajectory.testing import Standing
    from coilclaw.trajectory.trace import EnvoiCall

CONTINUE: Final = "Continue with the task: fix what fails, and do not break what passes."
MAX_PATHS: Final = 10
MAX_CASES: Final = 20


def later(standing: Standing | None, calls: Sequence[EnvoiCall]) -> str:
    """The prompt of every turn but the first; ``calls`` are those since the turn before."""
    if standing is None or not standing.required:
        return CONTINUE
    lines = [CONTINUE, "", "Current test status:", *_progress(standing)]
    broken = _still(calls, standing.statuses, "newly_broken", passed=False)
    fixed = _still(calls, standing.statuses, "newly_fixed", passed=True)
    lines += _named("Newly broken", broken)
    lines += _named("Newly fixed", fixed)
    last = standing.latest
    if last is not None and last.error:
        lines += ["", f"The last run of the tests said: {last.error}"]
    return "\n".join(lines)


def _progress(standing: Standing) -> list[str]:
    """Every path that is not solved, with how much of it passes."""
    if not standing.statuses:
        return ["- no test was run yet"]
    rows = []
    for path, (passed, total) in _tallies(standing).items():
        if passed < total or not total:
            rows.append(f"- {path}: {passed}/{total}" if total else f"- {path}: not run")
    if not rows:
        return ["- everything that was run passes"]
    more = len(rows) - MAX_PATHS
    return rows[:MAX_PATHS] + ([f"- and {more} more paths"] if more > 0 else [])


def _tallies(standing: Standing) -> dict[str, tuple[int, int]]:
    paths = list(standing.required)
    if paths == [""]:
        paths = sorted({name.partition("/")[0] for name in standing.statuses})
    counted: dict[str, tuple[int, int]] = dict.fromkeys(paths, (0, 0))
    for name, status in standing.statuses.items():
        path = next((p for p in paths if name == p or name.startswith(f"{p}/")), None)
        if path is not None and status != "skipped":
            passed, total = counted[path]
            counted[path] = (passed + (status == "passed"), total + 1)
    return counted


def _still(
    calls: Sequence[EnvoiCall], statuses: Mapping[str, str], kind: str, *, passed: bool
) -> list[str]:
    """The cases that changed in one of the calls and are still so."""
    changed = {name: None for call in calls for name in getattr(call, kind)}
    return [name for name in changed if (statuses.get(name) == "passed") is passed]


def _named(title: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - MAX_CASES} more" if len(names) > MAX_CASES else ""
    return ["", f"{title}: {', '.join(names[:MAX_CASES])}{more}"]
