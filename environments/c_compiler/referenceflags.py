"""Which flags a reference compiler knows.

One that does not know a flag rejects every program for it, and would be credited with the programs
that have to be rejected.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from coilclaw.environments.authoring import case_path, run

if TYPE_CHECKING:
    from pathlib import Path

PROBE_S: Final = 20.0


@cache
def understood(compiler: str, flags: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the flags with which a compiler still compiles the simplest program."""
    place = case_path() / ".flags"
    place.mkdir(exist_ok=True)
    source = place / "simplest.c"
    source.write_text("int main(void) { return 0; }\n", encoding="ascii")
    return tuple(flag for flag in flags if _compiles(compiler, flag, source))


def _compiles(compiler: str, flag: str, source: Path) -> bool:
    command: list[str | Path] = [compiler, flag, source, "-o", source.with_suffix(".out")]
    return run(command, cwd=source.parent, timeout_s=PROBE_S).ok
