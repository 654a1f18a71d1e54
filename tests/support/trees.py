"""Small trees on disk for tests: made from a dict, and looked at as one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeAlias

Content: TypeAlias = bytes | tuple[bytes, int]


def make(root: Path, files: dict[str, Content]) -> Path:
    """Write files, plain or with a mode, and the directories they are in; return the root."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        data, mode = content if isinstance(content, tuple) else (content, 0o644)
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
    return root


def picture(root: Path) -> dict[str, tuple[str, bytes, int]]:
    """Return everything below a directory: its kind, its bytes, and the mode of files."""
    found: dict[str, tuple[str, bytes, int]] = {}
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            path = Path(directory, name)
            relative = str(path.relative_to(root))
            if path.is_symlink():
                found[relative] = ("link", os.fsencode(os.readlink(path)), 0)
            elif path.is_dir():
                found[relative] = ("directory", b"", 0)
            else:
                found[relative] = ("file", path.read_bytes(), path.stat().st_mode & 0o7777)
    return found
