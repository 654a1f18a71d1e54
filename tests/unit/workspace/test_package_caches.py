"""Caches of package managers are used by commands, and those of the user never change."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.agent.tools.shell import Shell
from coilclaw.policy.judgement import Terms
from coilclaw.workspace.process import bubblewrap
from coilclaw.workspace.process.confinement import SandboxSupport
from tests.support.children import PATIENCE_S
from tests.support.sandboxes import packaged_bubblewrap, supported
from tests.support.toolworld import World, judging, world

READS = "cat ~/.cache/pip/x ~/.cargo/registry/x 2>/dev/null; "
WRITES = "echo new > ~/.cache/pip/y; echo new > ~/.cargo/registry/y; "
LISTS = "ls -A ~/.cache/pip ~/.cargo/registry"


@dataclass
class Machine:
    user: Path
    world: World

    def sh(self, text: str, kind: str, support: SandboxSupport, *, network: bool = False) -> str:
        case = self.world.using(
            sandbox=kind,
            support=lambda: support,
            judge=judging(Terms(writable=True, network=network)),
            limits=ToolLimits(shell_timeout_s=PATIENCE_S),
        )
        return case.call(Shell(), command=text).output

    def untouched(self) -> bool:
        folders = (self.user / ".cache/pip", self.user / ".cargo/registry")
        return [os.listdir(folder) for folder in folders] == [["x"], ["x"]]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    user = tmp_path.resolve() / "user"
    for name in (".cache/pip/x", ".cargo/registry/x"):
        (user / name).parent.mkdir(parents=True)
        (user / name).write_text(f"{name}\n")
    (user / ".cargo/credentials.toml").write_text("secret")
    place = tmp_path.resolve() / "place"
    place.mkdir()
    with world(place, {"PATH": "/usr/bin:/bin", "HOME": str(user)}) as made:
        yield Machine(user, made)


def test_a_layer_is_read_and_written_and_the_user_s_own_stays(machine: Machine) -> None:
    program = str(packaged_bubblewrap())
    if not bubblewrap.can_layer(program):
        pytest.skip("this kernel puts no layers up for a user")
    support = replace(supported("bubblewrap"), bubblewrap=program, layers=True)
    said = machine.sh(READS + WRITES + LISTS, "bubblewrap", support)
    assert said.split() == [
        *(".cache/pip/x", ".cargo/registry/x"),
        *(f"{said.split()[2]}", "x", "y", f"{said.split()[5]}", "x", "y"),
    ]
    assert machine.untouched()
    assert "secret" not in machine.sh("cat ~/.cargo/credentials.toml", "bubblewrap", support)


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_without_layers_what_need_not_be_written_is_read(machine: Machine, kind: str) -> None:
    support = replace(supported(kind), layers=False)
    said = machine.sh(READS + "echo new > ~/.cargo/registry/y && echo written", kind, support)
    assert said.split("\n[stderr]")[0] == ".cargo/registry/x"
    said = machine.sh("echo new > ~/.cache/pip/y && echo written", kind, support)
    assert said == "written\n"
    assert machine.untouched()


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_what_was_fetched_is_there_for_the_next_command(machine: Machine, kind: str) -> None:
    support = replace(supported(kind), layers=False)
    assert machine.sh(WRITES, kind, support, network=True) == ""
    said = machine.sh("cat ~/.cache/pip/y ~/.cargo/registry/y", kind, support)
    assert said == "new\nnew\n"
    assert machine.untouched()


def test_a_bubblewrap_that_does_not_work_makes_no_layers() -> None:
    assert not bubblewrap.can_layer("/bin/false")
    assert not bubblewrap.can_layer("/nonexistent/bwrap")
