"""What children see: everything that is theirs, and nothing else of the machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coilclaw.agent.mcp.server_process import launch
from coilclaw.agent.mcp.settings import McpServer
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.agent.tools.shell import Shell
from coilclaw.kernel.effects import Risk
from coilclaw.kernel.messages import Budget
from coilclaw.policy.judgement import Terms
from coilclaw.runners.confinement import environ_of, make_home, sandbox_of
from coilclaw.runners.process import ProcessRunner
from coilclaw.runners.runner import Assignment
from coilclaw.workspace.process.confinement import Kind
from tests.support import pluginworld
from tests.support.children import PATIENCE_S
from tests.support.performing import Performance
from tests.support.sandboxes import supported
from tests.support.toolworld import World, judging, world
from tests.support.view_attacks import SECRET, Machine, machine

KINDS = ["bubblewrap", "landlock"]
LIMITS = ToolLimits(shell_timeout_s=PATIENCE_S, tool_timeout_s=PATIENCE_S)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path.resolve()) as made:
        yield made


@contextmanager
def working(here: Machine, kind: str, *, network: bool = False) -> Iterator[World]:
    """A workspace of the user, with a file in it."""
    support = supported(kind)
    place = here.user / "work"
    place.mkdir()
    with world(place, here.environ) as made:
        (made.workspace / "mine").write_text("mine")
        terms = judging(Terms(writable=True, network=network))
        yield made.using(
            support=lambda: support, sandbox=kind, judge=terms, view=here.view, limits=LIMITS
        )


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_command(here: Machine, kind: str, network: bool) -> None:
    with working(here, kind, network=network) as made:
        mine = made.workspace / "mine"
        told = made.call(Shell(), argv=[*here.argv(mine)])
    assert told.success, told
    assert SECRET not in told.output
    here.check(told.output, kind=kind, mine=mine)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_of_tools(here: Machine, kind: str) -> None:
    with working(here, kind) as made:
        mine = made.workspace / "mine"
        server = McpServer("one", command=tuple(here.argv(mine)), risk=Risk.LOW)
        child = launch(server, made.context)
        said = child.process.stdout.readline().decode()
        child.close(1)
    here.check(said, kind=kind, mine=mine)


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent(here: Machine, kind: Kind) -> None:
    stage = Performance.make(_made(here.base / "agent"), kind)
    supported(kind)
    mine = stage.worktree / "mine"
    mine.write_text("mine")
    home = stage.home.with_name("own")
    make_home(home, here.environ)
    script = stage.worktree / "agent.sh"
    words = " ".join(f"'{word}'" for word in here.argv(mine))
    script.write_text(f"#!/bin/sh\n{words} > found\necho '{{}}'\n")
    script.chmod(0o755)
    assignment = Assignment(
        task_id="t",
        instruction="do it",
        contract={},
        directory=stage.worktree,
        home=home,
        sandbox=sandbox_of(
            (stage.worktree,),
            home,
            filesystem="workspace-write",
            network="deny",
            kind=kind,
            view=here.view,
        ),
        environ=environ_of(home, here.environ),
        budget=Budget(wall_s=PATIENCE_S),
    )
    stage.perform(ProcessRunner((str(script),)), assignment)
    here.check((stage.worktree / "found").read_text(), kind=kind, mine=mine)


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin(here: Machine, kind: str) -> None:
    """It sees less than the others: its own files, and what it declares of the workspace."""
    files = " ".join(
        map(str, (*here.secret_files, here.named / "data", here.user / "work/workspace/mine"))
    )
    text = f"#!/bin/sh\ncat > /dev/null\nfound=$(cat {files} 2>/dev/null)\n"
    text += 'echo "{\\"success\\": true, \\"output\\": \\"$found\\"}"\n'
    with working(here, kind) as made:
        declared = pluginworld.manifest(more='effects = { reads = ["mine"] }')
        source = pluginworld.make(here.base / "plugin", text, text=declared)
        tool = pluginworld.installed(made.home, source)
        told = made.call(tool)
    assert (told.success, told.output) == (True, "namedmine"), told


def test_a_server_outside_runs_nothing_for_a_command(here: Machine) -> None:
    """A terminal multiplexer outside of the sandbox runs whatever its socket is told."""
    tmux = shutil.which("tmux")
    if tmux is None:
        pytest.skip("there is no tmux on this machine")
    address = Path(here.path_sockets[1]).with_name("tmux")
    marker = here.base / "ran"
    outside = [tmux, "-S", str(address), "-f", "/dev/null"]
    subprocess.run([*outside, "new-session", "-d", "sleep 600"], check=True, cwd="/")
    try:
        with working(here, "bubblewrap", network=True) as made:
            told = made.call(
                Shell(), argv=["tmux", "-S", str(address), "run-shell", f"touch {marker}"]
            )
            assert (told.success, marker.exists()) == (False, False)
            subprocess.run([*outside, "run-shell", f"touch {marker}"], check=True, cwd="/")
            assert marker.exists()
    finally:
        subprocess.run([*outside, "kill-server"], check=True, cwd="/")


def test_what_the_user_lets_children_write_is_written(here: Machine) -> None:
    from coilclaw.workspace.process.sandbox_view import SandboxView

    shared, beside = here.user / "shared", here.user / "beside"
    shared.mkdir()
    beside.mkdir()
    for kind in KINDS:
        folder = here.user / "work"
        shutil.rmtree(folder, ignore_errors=True)
        with working(here, kind) as made:
            case = made.using(view=SandboxView(write=(shared,)))
            case.call(Shell(), command=f"echo {kind} > {shared}/out; echo x > {beside}/out")
        assert (shared / "out").read_text() == f"{kind}\n"
        assert not (beside / "out").exists()


def test_temporary_files_and_the_home_are_gone_with_the_command(here: Machine) -> None:
    for kind in KINDS:
        shutil.rmtree(here.user / "work", ignore_errors=True)
        with working(here, kind) as made:
            text = 'echo x > ~/left && f=$(mktemp) && echo y > "$f" && echo ~'
            told = made.call(Shell(), command=text)
            assert told.success, told
            home = Path(told.output.strip())
            assert not home.exists()
            again = made.call(Shell(), command="ls ~/left")
            assert not again.success


def _made(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.skipif(os.geteuid() != 0, reason="others than root cannot read them anyway")
@pytest.mark.parametrize("kind", KINDS)
def test_a_child_of_root_cannot_read_what_is_roots_alone(here: Machine, kind: str) -> None:
    with working(here, kind) as made:
        told = made.call(Shell(), command="cat /etc/shadow; cat /etc/passwd")
    assert "root:x:0:0" in told.output
    assert "/etc/shadow: Permission denied" in told.output
