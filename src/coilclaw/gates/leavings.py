"""What work leaves behind without being part of it: caches and build outputs.

They are dropped from the tree before it is judged, tested or merged, and listed in the evidence.
"""

from __future__ import annotations

from typing import Final

from coilclaw.gates.scope import Places

CACHES: Final = frozenset(
    {
        "__pycache__",
        ".pytest_cache",
        ".mypy_cache",
        ".ruff_cache",
        ".hypothesis",
        ".tox",
        ".nox",
        ".gradle",
    }
)
"""Directories that tools fill by themselves."""
CACHES_BELOW: Final = {".cache": "node_modules"}
"""Directories that are caches below another one only."""
FILES: Final = frozenset({".coverage"})
_METADATA: Final = ".egg-info"
"""What an install writes beside the sources ends like this."""


def cache_above(path: str, *, directory: bool) -> str:
    """Return the outermost well-known cache that a path is or lies in; empty if there is none.

    ``directory`` is whether a directory stands at the path.
    """
    names = path.split("/")
    folders = len(names) if directory else len(names) - 1
    for count, name in enumerate(names, 1):
        below = CACHES_BELOW.get(name)
        known = name in CACHES or (below is not None and names[count - 2 : count - 1] == [below])
        if count <= folders and (known or name.endswith(_METADATA)):
            return "/".join(names[:count])
    return path if not directory and names[-1] in FILES else ""


def is_named(cache: str, allowed_paths: tuple[str, ...]) -> bool:
    """Whether a contract names a cache, or something in it; a directory above is not enough."""
    return named_places(cache, allowed_paths).cover(cache, directory=True)


def named_places(place: str, allowed_paths: tuple[str, ...]) -> Places:
    """Return what a contract names of a place: the place itself, or something in it."""
    return Places.of(
        entry for entry in allowed_paths if f"{entry.rstrip('/')}/".startswith(f"{place}/")
    )
