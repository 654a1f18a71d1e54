"""Where agents are found, and that they can be read in the sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.runners import agent_program, runner
from coilclaw.runners.agent_program import KNOWN
from coilclaw.workspace.process import command
from coilclaw.workspace.process.confinement import Sandbox
from tests.support.sandboxes import supported

OPENCODE, GEMINI = KNOWN["opencode"], KNOWN["gemini"]
CPU = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def program(path: Path, content: bytes = b"\x7fELF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755)
    return path


def package(root: Path) -> tuple[Path, Path]:
    """An installation of opencode as npm makes it: the script before the native program."""
    modules = root / "node_modules"
    script = program(modules / "opencode-ai" / "bin" / "opencode", b"#!/usr/bin/env node\n")
    shim = modules / ".bin" / "opencode"
    shim.parent.mkdir()
    shim.symlink_to(script)
    return shim, modules / f"opencode-linux-{CPU}" / "bin" / "opencode"


def missing(
    agent: agent_program.KnownAgent, environ: dict[str, str], home: Path | None = None
) -> str:
    with pytest.raises(EnvironmentFault) as caught:
        agent_program.find(agent, environ, home)
    assert caught.value.rule == "agent.missing"
    assert f"coilclaw agents install {agent.name}" in str(caught.value.hint)
    return caught.value.message


def test_an_agent_that_nobody_knows_is_answered_with_the_list() -> None:
    with pytest.raises(UsageError) as caught:
        agent_program.find_known_agent("emacs")
    assert caught.value.rule == "agent.unknown"
    assert caught.value.hint == "use codex, opencode, claude, gemini"
    assert agent_program.find_known_agent("codex").runner == "codex"


def test_the_script_before_a_native_program_is_never_taken(tmp_path: Path) -> None:
    shim, native = package(tmp_path)
    baseline = native.parent.parent.with_name(f"{native.parent.parent.name}-baseline")
    for environ in (
        {"COILCLAW_OPENCODE": str(shim)},
        {"COILCLAW_OPENCODE": str(tmp_path)},
        {"PATH": str(shim.parent)},
    ):
        missing(OPENCODE, environ)
        program(baseline / "bin" / "opencode")
        assert agent_program.find(OPENCODE, environ) == baseline / "bin" / "opencode"
        program(native)
        assert agent_program.find(OPENCODE, environ) == native
        native.unlink()
        (baseline / "bin" / "opencode").unlink()


def test_the_variable_wins_over_the_path_and_that_over_our_own(tmp_path: Path) -> None:
    one = program(tmp_path / "1" / "opencode")
    two = program(tmp_path / "2" / "opencode")
    _, three = package(agent_program.installed_at(tmp_path, "opencode"))
    program(three)
    environ = {"COILCLAW_OPENCODE": str(one), "PATH": f".:relative:{two.parent}"}
    assert agent_program.find(OPENCODE, environ, tmp_path) == one
    del environ["COILCLAW_OPENCODE"]
    assert agent_program.find(OPENCODE, environ, tmp_path) == two
    assert agent_program.find(OPENCODE, {"PATH": ""}, tmp_path) == three
    assert missing(OPENCODE, {"PATH": ""}).endswith("among the programs that coilclaw installed.")


def test_what_is_named_and_not_there_is_not_looked_for_elsewhere(tmp_path: Path) -> None:
    two = program(tmp_path / "2" / "opencode")
    environ = {"COILCLAW_OPENCODE": str(tmp_path / "none"), "PATH": str(two.parent)}
    assert missing(OPENCODE, environ) == f"opencode was not found at {str(tmp_path / 'none')!r}."
    two.chmod(0o644)
    missing(OPENCODE, {"PATH": str(two.parent)})


def test_the_tree_does_not_bring_its_own_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "gemini")
    monkeypatch.chdir(tmp_path)
    missing(GEMINI, {"PATH": ".:"})
    assert agent_program.on_path("gemini", {"PATH": str(tmp_path)}) == tmp_path / "gemini"


def test_a_script_without_a_native_program_is_one(tmp_path: Path) -> None:
    place = agent_program.installed_at(tmp_path, "gemini")
    script = program(place / "node_modules" / ".bin" / "gemini", b"#!/usr/bin/env node\n")
    assert agent_program.find(GEMINI, {"PATH": ""}, tmp_path) == script


def test_a_version_is_what_the_program_says(tmp_path: Path) -> None:
    said = program(tmp_path / "a", b'#!/bin/sh\necho "agent $1 v1.2.3-beta.4 (x)"\n')
    assert agent_program.version_of(said, os.environ) == "1.2.3-beta.4"
    makes = program(tmp_path / "d", b"#!/bin/sh\nmkdir $TMPDIR/d && mkdir ~/e && echo 1.2.4\n")
    assert agent_program.version_of(makes, os.environ) == "1.2.4"
    fails = program(tmp_path / "b", b"#!/bin/sh\necho 1.2.3; exit 1\n")
    assert agent_program.version_of(fails, os.environ) == ""
    silent = program(tmp_path / "c", b"#!/bin/sh\n")
    assert agent_program.version_of(silent, os.environ) == ""


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('{"version": "1.18.33"}', "1.18.33"),
        ('{"version": "x; rm"}', ""),
        ('{"version": 7}', ""),
        ("[]", ""),
        ("{", ""),
        (None, ""),
    ],
)
def test_a_version_can_be_read_without_running_anything(
    tmp_path: Path, text: str | None, version: str
) -> None:
    _, native = package(tmp_path)
    program(native)
    if text is not None:
        (tmp_path / "node_modules" / "opencode-ai" / "package.json").write_text(text)
    assert agent_program.told_version(OPENCODE, native) == version


# --- in the sandbox ------------------------------------------------------------------------------


def test_what_is_hidden_is_shown_again_and_nothing_else(tmp_path: Path) -> None:
    support = supported("bubblewrap")
    secret = tmp_path / "home" / "keys"
    secret.mkdir(parents=True)
    (secret / "key").write_text("s")
    place = agent_program.installed_at(tmp_path / "home", "gemini")
    script = program(
        place / "node_modules" / ".bin" / "gemini",
        f"#!/bin/sh\nls {secret}; ls -AI current-system /run | wc -l; cat {place}/more\n".encode(),
    )
    (place / "more").write_text("more\n")
    box = Sandbox("bubblewrap", hidden=(tmp_path / "home",), private_tmp=False)
    result = command.run(
        [str(script)],
        cwd="/",
        timeout_s=30,
        sandbox=box.showing(script),
        support=support,
    )
    assert "No such file" in result.stderr.text()
    assert result.stdout.text() == "0\nmore\n"


def test_what_a_runner_needs_is_asked_for_before_anything_begins(tmp_path: Path) -> None:
    nothing = {"PATH": str(tmp_path)}
    for name, agent, rule in (
        ("codex", "codex", "agent.missing"),
        ("codex-exec", "codex", "agent.missing"),
        ("opencode", "opencode", "agent.missing"),
        ('acp:"gemini --acp"', "gemini", "agent.missing"),
    ):
        with pytest.raises(UsageError) as caught:
            agent_program.require(runner.parse(name.replace('"', "")), nothing, tmp_path)
        assert caught.value.rule == rule
        assert f"coilclaw agents install {agent}" in str(caught.value.hint)
    for name in ("acp:./mine", "acp:mine", "acp:/nowhere/mine"):
        with pytest.raises(UsageError) as caught:
            agent_program.require(runner.parse(name), nothing, tmp_path, tmp_path)
        assert caught.value.rule == "acp.missing"
    mine = program(tmp_path / "mine")
    for name in ("acp:./mine", "acp:mine", f"acp:{mine} --acp"):
        assert agent_program.require(runner.parse(name), nothing, tmp_path, tmp_path) == mine
    _, native = package(agent_program.installed_at(tmp_path, "opencode"))
    program(native)
    assert agent_program.require(runner.parse("opencode"), nothing, tmp_path) == native
    for name in ("builtin", "scripted:x.json", "process:nothing"):
        assert agent_program.require(runner.parse(name), nothing, tmp_path) is None


def test_codex_is_found_in_each_of_its_packages(tmp_path: Path) -> None:
    environ = {"COILCLAW_CODEX": str(tmp_path)}
    wheel = tmp_path / "lib" / "python3.11" / "site-packages" / "codex_cli_bin" / "bin" / "codex"
    for place in (wheel, tmp_path / "node_modules/@openai/codex-linux-x64/vendor/any/bin/codex"):
        with pytest.raises(UsageError, match="Codex was not found at"):
            agent_program.require(runner.parse("codex"), environ, tmp_path)
        native = program(place)
        for name in ("codex", "codex-exec"):
            assert agent_program.require(runner.parse(name), environ, tmp_path) == native
        native.unlink()
