"""Provide what all demos use: their stories, files and homes, titles and the conclusion."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import tomllib
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coilclaw.cli.command import DONE, FAILED, Console

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PLACE: Final = "/var/tmp"  # noqa: S108 - a directory of its own is made there; sandboxes cover /tmp


def load_story(name: str) -> dict[str, Any]:
    """Return the story of a demo."""
    file = files("coilclaw.cli").joinpath("stories", f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def write_files(directory: Path, texts: Mapping[str, str]) -> None:
    """Write the files that a story begins with."""
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


def write_mock_home(home: Path, answers: list[dict[str, Any]], settings: str = "") -> None:
    """Create a home whose model gives these answers."""
    home.mkdir(mode=0o700)
    fixture = home / "fixture.json"
    fixture.write_text(json.dumps(answers))
    model = f'[providers.models.local]\nkind = "mock"\nfixture = {json.dumps(str(fixture))}\n'
    (home / "config.toml").write_text(settings + model)


@contextmanager
def open_folder(*, keep: bool) -> Iterator[Path]:
    """Create a directory that sandboxes do not hide, and remove it unless it is kept."""
    place = PLACE if os.access(PLACE, os.W_OK | os.X_OK) else None
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="coilclaw-demo-", dir=place)))
    try:
        yield folder
    finally:
        if not keep:
            from coilclaw.workspace import remove_tree

            remove_tree(folder)


def minimal_environ(folder: Path) -> dict[str, str]:
    """Return an environment in which this Python is found, whatever the caller's PATH holds."""
    python = os.path.dirname(os.path.realpath(sys.executable))
    search = os.pathsep.join((python, os.environ.get("PATH", os.defpath)))
    return {"PATH": search, "HOME": str(folder / "user")}


def print_title(console: Console, text: str) -> None:
    """Print the title of the next part of a demo."""
    console.print()
    console.print(text, "bold")
    console.out.flush()


def conclude(console: Console, hint: str, *, good: bool) -> int:
    """Print what to do next, or that the demo failed; return the exit code."""
    if not good:
        console.error("the demo did not behave as expected", rule="demo.failed")
        return FAILED
    console.print()
    console.print(hint)
    return DONE
