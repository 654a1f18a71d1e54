"""``Sightings``: the names that a planner was told, listed, searched or read.

A plan may only name what its author has seen, or what it says is new. What was seen is taken from
the tool calls that are in the evidence, never from the planner's word.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import paths
from coilclaw.contracts.schemas import Problem
from coilclaw.domain.treepath import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coilclaw.domain.parts import Part
    from coilclaw.orchestrator.baseline import Baseline

_LISTED_NAME: Final = 20
"""The column in which a line of ``file_list`` has the name."""


class Sightings:
    """What one planner has seen of a baseline."""

    def __init__(self, baseline: Baseline) -> None:
        self._baseline = baseline
        self._names: set[str] = set()

    def add(self, names: Iterable[str]) -> None:
        """Note names; of those that the baseline does not have, nothing was seen."""
        known = self._baseline
        for name in names:
            if name in known.files or name in known.directories:
                self._names.add(name)
                while name := name.rpartition("/")[0]:
                    self._names.add(name)

    def take(self, part: Part) -> None:
        """Note what a tool call showed; one that failed showed nothing."""
        if part.kind != "tool" or part.exit_code != 0:
            return
        path = _path(part)
        if part.tool == "file_read":
            self.add([path])
        elif part.tool == "file_list":
            below = f"{path}/" if path else ""
            names = (line[_LISTED_NAME:].partition(" -> ")[0] for line in _lines(part))
            self.add([path, *(f"{below}{name.rstrip('/')}" for name in names)])
        elif part.tool == "file_search":
            self.add(line.partition(":")[0] for line in _lines(part))

    def problems(self, allowed: Sequence[str], new: Sequence[str]) -> tuple[Problem, ...]:
        """Say which paths of a plan nobody has looked at, and which are not there."""
        found: list[Problem] = []
        announced = [path for path in new if paths.flaw(path) is None]
        for index, path in enumerate(allowed):
            name = path.removesuffix("/")
            if paths.flaw(path) is not None or name in self._names:
                continue
            if self._exists(name):
                said = (
                    f"{shown(path)} exists, and you have not seen it: list, search or read it first"
                )
            elif paths.within(name, announced):
                continue
            else:
                said = (
                    f"{shown(path)} does not exist at the baseline: name a path that exists, or "
                    "name it in new_paths if the work is to create it"
                )
            found.append(Problem(f"/allowed_paths/{index}", said))
        for index, path in enumerate(new):
            if self._exists(path.removesuffix("/")):
                said = f"{shown(path)} exists already, and is not new"
                found.append(Problem(f"/new_paths/{index}", said))
        return tuple(found)

    def _exists(self, name: str) -> bool:
        return name in self._baseline.files or name in self._baseline.directories


def _path(part: Part) -> str:
    """Return the path that a call was about, relative to the top; empty: the top itself."""
    given = json.loads(part.input or "{}").get("path", ".")
    names = [name for name in str(given).split("/") if name not in {"", "."}]
    return "/".join(names)


def _lines(part: Part) -> list[str]:
    return part.output.split("\n")
