"""Hostile plugins: memory, processes and output have bounds, at which the program is ended."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.agent.settings import PluginSettings
from coilclaw.kernel.messages import ToolResult
from tests.support.children import running
from tests.support.pluginworld import installed, make, manifest
from tests.support.sandboxes import supported
from tests.support.toolworld import world

PYTHON = "#!/usr/bin/env python3\nimport os, sys, time\nsys.stdin.read()\n"
OK = """print('{"success": true, "output": "ok"}')\n"""
SMALL = PluginSettings(memory_mb=128, processes=8)
SLEEP_S = "97.531"
"""So that nobody else's sleep is taken for one of ours."""


def called(tmp_path: Path, program: str, more: str = "", kind: str = "bubblewrap") -> ToolResult:
    support = supported(kind)
    with world(tmp_path.resolve(), {"PATH": os.environ["PATH"]}) as made:
        here = made.using(sandbox=kind, support=lambda: support)
        source = make(tmp_path / "source", program, text=manifest(more=more))
        return here.call(installed(here.home, source, SMALL))


FORKS = (
    "for _ in range(6):\n    os.fork() or (time.sleep(0.2), os._exit(0))\n"
    "for _ in range(6):\n    os.wait()\n"
)


@pytest.mark.parametrize(
    "program",
    [
        "x = bytearray(64 * 2**20)\n",
        FORKS,
        "sys.stdout.write(' ' * 3000)\n",
    ],
    ids=["memory", "processes", "output"],
)
def test_what_stays_within_the_bounds_is_let_be(tmp_path: Path, program: str) -> None:
    result = called(tmp_path, PYTHON + program + OK, "output_bytes = 4000")
    assert (result.success, result.output) == (True, "ok"), result.error


def test_endless_output_is_not_read_to_its_end(tmp_path: Path) -> None:
    endless = "while True:\n    os.write(1, b'x' * 65536)\n"
    result = called(tmp_path, PYTHON + endless, "output_bytes = 4000")
    assert not result.success
    assert "wrote more than 4000 bytes and was ended" in str(result.error)
    assert (result.metadata["rule"], result.metadata["outcome"]) == (
        "plugin.bounds",
        "too_much_output",
    )


def test_endless_output_beside_the_answer_is_bounded_too(tmp_path: Path) -> None:
    endless = "while True:\n    os.write(2, b'x' * 65536)\n"
    result = called(tmp_path, PYTHON + endless, "output_bytes = 4000")
    assert result.metadata["outcome"] == "too_much_output"


def test_output_that_is_too_much_at_its_very_end_is_no_answer(tmp_path: Path) -> None:
    late = f"#!/bin/sh\ncat > /dev/null\nhead -c 5000 /dev/zero\n{SAYS_OK}"
    result = called(tmp_path, late, "output_bytes = 4000")
    assert result.metadata["outcome"] == "too_much_output"


SAYS_OK = """echo '{"success": true}'\n"""


def test_a_process_gets_no_more_memory_than_its_bound(tmp_path: Path) -> None:
    result = called(tmp_path, PYTHON + "x = bytearray(400 * 2**20)\n" + OK)
    assert not result.success
    assert "it was refused more than 128 MiB (plugins.sample.memory_mb)" in str(result.error)


def test_processes_get_no_more_memory_together(tmp_path: Path) -> None:
    # Each by itself stays below: 4 times 60 MiB.
    program = (
        "for _ in range(4):\n"
        "    if not os.fork():\n"
        "        x = bytearray(b'x') * (60 * 2**20)\n"
        "        time.sleep(60)\n"
        "time.sleep(60)\n"
    )
    result = called(tmp_path, PYTHON + program)
    assert "used more than 128 MiB (plugins.sample.memory_mb) and was ended" in str(result.error)


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
def test_a_fork_bomb_is_ended_with_all_of_its_processes(tmp_path: Path, kind: str) -> None:
    # It stops by itself at 100, lest a fault of ours take the machine down.
    bomb = (
        "for _ in range(100):\n"
        "    if not os.fork():\n"
        f"        os.execvp('sleep', ['sleep', '{SLEEP_S}'])\n"
        f"time.sleep({SLEEP_S})\n"
    )
    result = called(tmp_path, PYTHON + bomb, kind=kind)
    assert not result.success
    if os.geteuid() == 0 or kind == "landlock":
        # The kernel holds only others than root, and only in a user namespace of their own.
        assert "had more than 8 processes at once" in str(result.error)
    else:
        assert "BlockingIOError" in str(result.error)
    assert not running(SLEEP_S)
