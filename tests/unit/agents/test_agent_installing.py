"""Installing agents with a look-alike of npm, and the command that does it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.runners import agent_install, agent_program
from coilclaw.runners.agent_program import KNOWN
from coilclaw.workspace.process.cancellation import Cancellation

GEMINI = KNOWN["gemini"]
NPM = """#!/bin/sh
printf '%s\\n' "$@" > "{seen}/argv"
env > "{seen}/env"
prefix="$3"
{work}
"""
MAKES = """
mkdir -p "$prefix/node_modules/.bin" "$prefix/node_modules/@google/gemini-cli"
printf '#!/bin/sh\\necho 0.61.0\\n' > "$prefix/node_modules/.bin/gemini"
chmod +x "$prefix/node_modules/.bin/gemini"
echo '{"version": "0.61.0"}' > "$prefix/node_modules/@google/gemini-cli/package.json"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return agent_program.installed_at(tmp_path / "home", "gemini")


def environ(tmp_path: Path, work: str) -> dict[str, str]:
    npm = tmp_path / "bin" / "npm"
    npm.parent.mkdir(exist_ok=True)
    npm.write_text(NPM.replace("{seen}", str(tmp_path)).replace("{work}", work))
    npm.chmod(0o755)
    return {
        "PATH": f"{npm.parent}:/usr/bin:/bin",
        "HOME": "/h",
        "npm_config_registry": "https://r.example",
        "https_proxy": "http://p",
        "SECRET_KEY": "s",
    }


def test_without_npm_nothing_is_begun(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        agent_install.install(GEMINI, tmp_path / "home", {"PATH": "/nowhere"})
    assert caught.value.rule == "agent.npm"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("work", "rule", "words"),
    [
        ("echo 'npm error 404' >&2; exit 1", "agent.install", "npm error 404"),
        ("mkdir $prefix/node_modules", "agent.missing", "Gemini CLI was not found"),
    ],
)
def test_what_was_there_stays_if_anything_goes_wrong(
    tmp_path: Path, place: Path, work: str, rule: str, words: str
) -> None:
    place.mkdir(parents=True)
    (place / "old").write_text("x")
    with pytest.raises(EnvironmentFault) as caught:
        agent_install.install(GEMINI, tmp_path / "home", environ(tmp_path, work))
    assert caught.value.rule == rule
    assert words in caught.value.message
    assert [path.name for path in place.parent.iterdir()] == ["gemini"]
    assert [path.name for path in place.iterdir()] == ["old"]


def test_it_can_be_cancelled(tmp_path: Path, place: Path) -> None:
    cancel = Cancellation()
    cancel.cancel("enough")
    with pytest.raises(EnvironmentFault) as caught:
        agent_install.install(GEMINI, tmp_path / "home", environ(tmp_path, MAKES), cancel=cancel)
    assert caught.value.rule == "agent.install"
    assert not place.exists()


def test_it_is_installed_in_its_version_and_without_its_scripts(
    tmp_path: Path, place: Path
) -> None:
    (place / "old").mkdir(parents=True)
    made = agent_install.install(GEMINI, tmp_path / "home", environ(tmp_path, MAKES))
    program = place / "node_modules" / ".bin" / "gemini"
    assert made == agent_install.InstalledAgent(place, program)
    assert [path.name for path in place.iterdir()] == ["node_modules"]
    assert [path.name for path in place.parent.iterdir()] == ["gemini"]
    command, prefix, _, *options, package = (tmp_path / "argv").read_text().split()
    assert (command, prefix, package) == ("install", "--prefix", "@google/gemini-cli@0.61.0")
    assert "--ignore-scripts" in options
    seen = dict(line.partition("=")[::2] for line in (tmp_path / "env").read_text().splitlines())
    assert {"HOME", "npm_config_registry", "https_proxy"} < set(seen)
    assert "SECRET_KEY" not in seen
    assert agent_program.find(GEMINI, {"PATH": ""}, tmp_path / "home") == program
    assert agent_program.told_version(GEMINI, program) == "0.61.0"


@pytest.mark.parametrize("agent", KNOWN.values(), ids=list(KNOWN))
def test_every_package_has_its_version(agent: agent_program.KnownAgent) -> None:
    for package in agent.packages:
        name, at, version = package.rpartition("@")
        assert name
        assert at
        assert version[0].isdigit()


# --- the command ---------------------------------------------------------------------------------


def run(*words: str) -> int:
    import sys

    from coilclaw.cli.console import Console
    from coilclaw.cli.dispatch import run_action
    from coilclaw.cli.parser import Parser
    from coilclaw.cli.setup import agents

    parser = Parser()
    agents.declare(parser)
    args = parser.parse_args(words)
    console = Console.of(sys.stdout, sys.stderr, os.environ, as_json=args.json)
    return run_action(args, console)


def test_the_command_installs_lists_and_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in environ(tmp_path, MAKES).items():
        monkeypatch.setenv(name, value)
    for agent in KNOWN.values():
        monkeypatch.delenv(agent.variable, raising=False)
    monkeypatch.setenv("COILCLAW_HOME", str(tmp_path / "home"))
    assert run("install", "gemini", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["version"], made["runner"]) == ("0.61.0", 'acp:"gemini --acp --skip-trust"')
    argv = tmp_path / "argv"
    argv.unlink()
    assert run("install", "gemini", "--missing", "--json") == 0
    assert json.loads(capsys.readouterr().out) == made
    assert run("install", "--missing", "gemini") == 0
    assert "gemini  0.61.0  is already installed\n" in capsys.readouterr().out
    assert not argv.exists()
    package = Path(made["place"], "node_modules/@google/gemini-cli/package.json")
    for torn in ('{"version": "0.60.0"}', "{", "[]"):
        package.write_text(torn)
        assert run("install", "--missing", "gemini") == 0
        assert "gemini  0.61.0  installed\n" in capsys.readouterr().out
    Path(made["program"]).unlink()
    assert run("install", "--missing", "gemini") == 0
    assert "gemini  0.61.0  installed\n" in capsys.readouterr().out
    assert run("list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(KNOWN)
    assert rows["gemini"] == {
        "name": "gemini",
        "title": "Gemini CLI",
        "runner": 'acp:"gemini --acp --skip-trust"',
        "program": made["program"],
        "version": "0.61.0",
        "works": None,
    }
    assert rows["codex"]["program"] is None
    assert run("doctor") == 0
    assert "gemini  0.61.0  works\n" in capsys.readouterr().out
    Path(made["program"]).write_text("#!/bin/sh\nexit 1\n")
    assert run("doctor") == 1
    assert "gemini  0.61.0  does not start\n" in capsys.readouterr().out
