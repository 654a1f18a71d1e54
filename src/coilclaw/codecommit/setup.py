"""Setting a project up for code-commit; nothing that is there is overwritten."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from coilclaw.codecommit.project import BUILD, QUERY, missing_lines
from coilclaw.security.protected import KEY_FILES

if TYPE_CHECKING:
    from pathlib import Path

BUILD_SAMPLE: Final = """\
#!/bin/sh
# Builds and tests the project. Exit code 0 is a pass, whatever is on stderr.
set -eu

echo "Write your build and tests into build.sh."
exit 1
"""
QUERY_SAMPLE: Final = "Describe here what the model should change.\n"


def set_up(directory: Path) -> list[str]:
    """Make what is missing and say what was made."""
    done: list[str] = []
    lines = missing_lines(directory, KEY_FILES)
    wanted = [*lines, *([] if _has(directory, "/logs/") else ["/logs/"])]
    if wanted:
        ignore = directory / ".gitignore"
        old = ignore.read_bytes() if ignore.exists() else b""
        gap = b"" if not old or old.endswith(b"\n") else b"\n"
        with ignore.open("ab") as file:
            file.write(gap + "".join(f"{line}\n" for line in wanted).encode())
        done.append(f".gitignore: {', '.join(wanted)}")
    for name, text, mode in ((BUILD, BUILD_SAMPLE, 0o755), (QUERY, QUERY_SAMPLE, 0o644)):
        path = directory / name
        if not os.path.lexists(path):
            path.write_text(text)
            path.chmod(mode)
            done.append(name)
    return done


def _has(directory: Path, line: str) -> bool:
    ignore = directory / ".gitignore"
    return ignore.exists() and line in ignore.read_text(errors="replace").splitlines()
