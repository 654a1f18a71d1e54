"""The repository itself, as the architecture tests look at it."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "coilclaw"

# What .gitignore names, for a checkout without git.
_MADE_BY_TOOLS = frozenset(
    {".git", ".venv", "build", "dist", "__pycache__", ".pytest_cache", ".mypy_cache"}
    | {".ruff_cache", ".hypothesis", ".import_linter_cache", ".coilclaw", ".runtime-cache"}
)


@dataclass(frozen=True, slots=True)
class Module:
    """One module of the product; ``name`` is dotted, a package goes by its own name."""

    name: str
    path: Path
    is_package: bool
    tree: ast.Module

    @property
    def package(self) -> str:
        """The first name below ``coilclaw``; the package itself has the empty one."""
        return self.name.split(".")[1] if "." in self.name else ""


def git_lists(*options: str) -> tuple[str, ...] | None:
    """Return what ``git ls-files`` lists, or None where there is no repository or no git."""
    if not (ROOT / ".git").exists():
        return None
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    # A checkout that belongs to another user is still ours to read.
    argv = ["git", "-c", "safe.directory=*", "ls-files", "-z", *options]
    try:
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None
    return tuple(os.fsdecode(name) for name in done.stdout.split(b"\0") if name)


def _walk() -> Iterator[str]:
    for directory, names, files in os.walk(ROOT):
        names[:] = [name for name in names if name not in _MADE_BY_TOOLS]
        for name in files:
            if name != "uv.lock" and not name.endswith((".pyc", ".pyo")):
                yield os.path.relpath(os.path.join(directory, name), ROOT)


@cache
def files() -> tuple[str, ...]:
    """Return every file of the repository, as sorted paths from its root."""
    listed = git_lists("--cached", "--others", "--exclude-standard")
    names = _walk() if listed is None else listed
    return tuple(sorted({name for name in names if (ROOT / name).is_file()}))


def text(name: str) -> str:
    """Return the text of a file; what is not UTF-8 shows as replacement characters."""
    return (ROOT / name).read_text(encoding="utf-8", errors="replace")


@cache
def modules() -> tuple[Module, ...]:
    """Return every module of the product, parsed."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        found.append(Module(name=name, path=path, is_package=is_package, tree=tree))
    return tuple(found)
