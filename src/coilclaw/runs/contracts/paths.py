"""Paths in contracts: which are valid, what contains what, and what is too broad.

They are compared segment by segment and exactly. Only overlap is judged without regard to case,
because two paths that some file system takes for one must not be written by two agents at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.kernel import PathRefused, TreePath, fold_name, quote_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

RUNTIME_ROOT: Final = (".runtime-cache", "cortexpilot")
GLOB: Final = "*?["


def find_path_flaw(text: str) -> str | None:
    """Say what is wrong with a path as written; ``None``: nothing is.

    A trailing slash marks a directory. Nothing is normalised before it is judged.
    """
    name = quote_text(text)
    if not text.strip():
        return "is empty"
    if any(char in text for char in GLOB):
        return f"{name} has a wildcard; name files or directories"
    body = text.removesuffix("/")
    if body in {"", "."}:
        return f"{name} is the whole tree"
    try:
        path = TreePath.parse(body)
    except PathRefused as refusal:
        return refusal.message.removeprefix("path ")
    if str(path) != body:
        return f"{name} has empty or '.' segments"
    if any(part != part.strip() for part in path.parts):
        return f"{name} has a name with a space at its end or beginning"
    if overlap(body, "/".join(RUNTIME_ROOT)):
        return f"{name} holds the runtime root, or lies in it"
    return None


def segments(path: str) -> tuple[str, ...]:
    """Return the segments of a valid path."""
    return tuple(path.removesuffix("/").split("/"))


def contains(scope: str, path: str) -> bool:
    """Whether a path is a scope, or lies below it."""
    outer = segments(scope)
    return segments(path)[: len(outer)] == outer


def is_within(path: str, scopes: Iterable[str]) -> bool:
    """Whether a path lies in one of some scopes."""
    return any(contains(scope, path) for scope in scopes)


def overlap(one: str, other: str) -> bool:
    """Whether a path contains the other, or could on a file system that ignores case."""
    return all(
        fold_name(left) == fold_name(right)
        for left, right in zip(segments(one), segments(other), strict=False)
    )


def overlaps(ones: Iterable[str], others: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs that overlap."""
    there = tuple(others)
    return tuple((one, other) for one in ones for other in there if overlap(one, other))


def broad_paths(
    allowed_paths: Iterable[str], *, directories: Collection[str], segments_at_most: int = 1
) -> tuple[str, ...]:
    """Return the paths that need an override approval.

    Those are directories of the baseline of few segments. What does not exist yet is not broad,
    and a file never is.
    """
    known = {tuple(map(fold_name, segments(directory))) for directory in directories}
    return tuple(
        path
        for path in allowed_paths
        if len(segments(path)) <= segments_at_most
        and tuple(map(fold_name, segments(path))) in known
    )
