"""Where the Codex program is: the native one, never the script that a package manager installs.

The script starts the native program as a child of its own, which outlives it and keeps the thread
locked.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault
from coilclaw.workspace import environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

VARIABLE: Final = "COILCLAW_CODEX"
"""Names the program, or a directory that it was installed into."""

_SCRIPT_START: Final = b"#!"
_MAX_PARENTS: Final = 6
_NATIVE: Final = (
    "codex-*/vendor/*/bin/codex",
    "codex-*/vendor/*/codex/codex",
    "codex/vendor/*/bin/codex",
    "codex/vendor/*/codex/codex",
)
"""Below ``node_modules/@openai``; each is the layout of some versions."""


def find(given: Path | None, environ: Mapping[str, str]) -> Path:
    """Return the native program: the one given, the one ``$COILCLAW_CODEX`` names, or on PATH."""
    named = str(given) if given is not None else environ.get(VARIABLE, "")
    start = Path(named) if named else _on_path(environ)
    if start is None or not start.exists():
        where = f"at {named!r}" if named else "on PATH"
        raise EnvironmentFault(
            f"There is no Codex program {where}.",
            rule="codex.missing",
            hint=f"Install it with: coilclaw agents install codex; or set {VARIABLE} to its path.",
        )
    for candidate in _candidates(start):
        if _is_native(candidate):
            return Path(os.path.realpath(candidate))
    if named and start.is_file() and os.access(start, os.X_OK) and not _is_packaged(start):
        # Somebody's own program before Codex: it dies with the sandbox like everything else.
        return Path(os.path.realpath(start))
    raise EnvironmentFault(
        f"No native Codex program belongs to {str(start)!r}.",
        rule="codex.missing",
        hint=f"Set {VARIABLE} to the native program itself.",
    )


def _on_path(environ: Mapping[str, str]) -> Path | None:
    for entry in environ.get("PATH", environment.DEFAULT_PATH).split(":"):
        # An entry that is not absolute would let the tree bring its own program.
        if entry.startswith("/") and os.access(found := Path(entry, "codex"), os.X_OK):
            return found
    return None


def _candidates(start: Path) -> Iterator[Path]:
    if start.is_dir():
        yield start / "bin" / "codex"
        yield start / "codex"
        yield from _below(start / "node_modules" / "@openai")
        yield from _below(start / "lib" / "node_modules" / "@openai")
        for bundled in sorted(start.glob("lib/python*/site-packages/codex_cli_bin")):
            yield bundled / "bin" / "codex"
        return
    yield start
    real = Path(os.path.realpath(start))
    for parent in list(real.parents)[:_MAX_PARENTS]:
        if parent.name == "@openai":
            yield from _below(parent)
        elif parent.name == "codex":
            yield from _below(parent / "node_modules" / "@openai")


def _below(scope: Path) -> Iterator[Path]:
    for pattern in _NATIVE:
        yield from sorted(scope.glob(pattern))


def _is_packaged(path: Path) -> bool:
    """Whether it is the script of the package, whose native program is missing."""
    return "@openai" in Path(os.path.realpath(path)).parts


def _is_native(path: Path) -> bool:
    if not (path.is_file() and os.access(path, os.X_OK)):
        return False
    with path.open("rb") as file:
        return file.read(len(_SCRIPT_START)) != _SCRIPT_START
