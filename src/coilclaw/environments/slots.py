"""``Slot``: where cases run one after the other, and the box that they share if they want one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coilclaw.environments import containment
from coilclaw.environments.boxes import Box
from coilclaw.environments.covering import Cover
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.environments.scope import Scope


class Slot:
    """The directories that programs of its cases may write; ``apart`` is the judge's own.

    They are the same for all cases and only emptied, because a box shows them for good; what is
    above them nobody may write, so that nobody can put a link in their place.
    """

    def __init__(self, directory: Path, apart: Path) -> None:
        self.case = directory / "case"
        self.temporary = directory / "tmp"
        self.apart = apart
        self._last: Scope | None = None
        self._box: Box | None = None
        self._made_for: tuple[object, ...] = ()
        self._made = 0
        self.environ = containment.tool_environ()
        for place in (self.case, self.temporary):
            place.mkdir(mode=0o700, parents=True)

    def box(self, scope: Scope, without: tuple[Path, ...]) -> Box:
        """Return the box without these files, put up anew if the last one is gone or another."""
        wanted = (without, scope.hidden)
        if self._box is not None and wanted == self._made_for and self._box.usable:
            return self._box
        self.close()
        self._made += 1
        place = self.apart / str(self._made)
        pipes = place / "pipes"
        pipes.mkdir(parents=True)
        plan = containment.confined(scope, without, shown=(pipes,))
        cover = Cover(place / "cover", plan.originals)
        env = containment.environ(scope, {})
        self._box = Box(pipes, plan.sandbox(cover), env, scope.support, cover)
        self._made_for = wanted
        return self._box

    def is_first(self, scope: Scope) -> bool:
        """Whether nothing of a case ran in the box before."""
        known, self._last = self._last, scope
        return known is not scope

    def tidy(self) -> None:
        """Take away whatever a case left, so that the next one finds nothing."""
        for place in (self.case, self.temporary):
            os.chmod(place, 0o700)
            for name in os.listdir(place):
                remove_tree(place / name)

    def anew(self) -> None:
        """Take away whatever a case has left so far; for the box another one begins."""
        self._last = None
        self.tidy()

    def close(self) -> None:
        """End the box."""
        if self._box is not None:
            self._box.close()
            self._box.cover.close()
            self._box = None
