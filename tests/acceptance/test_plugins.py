"""Plugins as a user and an agent meet them: the commands, and the guard before every call."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from coilclaw.agent.estop import Estop
from coilclaw.agent.plugins.installation import PluginTrial, install_plugin, list_trials
from coilclaw.agent.settings import PluginSettings
from coilclaw.app.agent_runtime import Runtime
from coilclaw.app.tools import builtin_names, open_plugins, plugin_tools
from coilclaw.cli.console import Console
from coilclaw.cli.parser import COMMANDS, Parser
from coilclaw.cli.runtime import plugin
from coilclaw.kernel.effects import Risk
from coilclaw.kernel.errors import CoilClawError, DeniedError, UsageError
from coilclaw.kernel.messages import ApprovalReply, Json, ToolCall, ToolResult
from tests.support.agents import AgentHome, Person
from tests.support.command import Command
from tests.support.pluginworld import entries, make, manifest, zipped

ECHO = Path(__file__).parents[2] / "contrib" / "echo-plugin"
TRUSTED = {"echo-plugin": PluginSettings(risk=Risk.LOW)}


@pytest.fixture
def home(tmp_path: Path) -> AgentHome:
    return AgentHome.make(tmp_path)


@contextmanager
def opened(
    home: AgentHome,
    settings: Mapping[str, PluginSettings],
    person: Person | None = None,
) -> Iterator[Runtime]:
    """A runtime that offers the plugins with these settings."""
    with home.runtime(person) as runtime:
        tools = {tool.name: tool for tool in plugin_tools(home.home, settings, builtin_names())}
        runtime.guard.tools = {**runtime.guard.tools, **tools}
        runtime.guard.allowed = runtime.guard.allowed | set(tools)
        yield runtime


def call(name: str, **arguments: Json) -> ToolCall:
    return ToolCall("call-1", name, arguments)


def told(result: ToolResult) -> tuple[object, object]:
    return result.metadata.get("status"), result.metadata.get("rule")


class Cli:
    """The command, in this process."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.out, self.err = io.StringIO(), io.StringIO()

    def __call__(self, *arguments: str) -> str:
        parser = Parser()
        plugin.declare(parser)
        args = parser.parse_args(arguments)
        self.out, self.err = io.StringIO(), io.StringIO()
        console = Console.of(self.out, self.err, {}, as_json=getattr(args, "json", False))
        assert plugin.run(args, console) == 0
        return self.out.getvalue()


@pytest.fixture
def cli(home: AgentHome, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("COILCLAW_HOME", str(home.home))
    return Cli(home.home)


def test_a_plugin_is_high_risk_unless_the_user_lowers_it(home: AgentHome) -> None:
    install_plugin(open_plugins(home.home), ECHO, builtin_names())
    with opened(home, {}) as runtime:
        assert told(runtime.call(call("echo", text="x"))) == ("denied", "autonomy.supervised")
    person = Person([ApprovalReply.NO, ApprovalReply.YES])
    medium = {"echo-plugin": PluginSettings(risk=Risk.MEDIUM)}
    with opened(home, medium, person) as runtime:
        assert told(runtime.call(call("echo", text="x"))) == ("denied", "approval.denied")
        result = runtime.call(call("echo", text="x"))
    assert (result.success, result.output) == (True, "x")
    assert person.asked[1].detail[0].startswith("plugin: echo-plugin 0.1.0, files ")
    with opened(home, TRUSTED) as runtime:
        assert runtime.call(call("echo", text="y")).output == "y"


def test_a_call_leaves_a_receipt_with_its_sandbox_like_any_other(home: AgentHome) -> None:
    install_plugin(open_plugins(home.home), ECHO, builtin_names())
    with opened(home, TRUSTED) as runtime:
        result = runtime.call(call("echo", text="x"))
    (receipt,) = home.records()
    assert receipt["id"] == result.receipt_id
    assert (receipt["tool"], receipt["status"], receipt["risk"]) == ("echo", "allowed", "low")
    assert str(receipt["sandbox"]) == result.metadata["sandbox"] != "none"
    assert receipt["intent_hash"]


def test_arguments_are_checked_against_the_schema_of_the_manifest(home: AgentHome) -> None:
    install_plugin(open_plugins(home.home), ECHO, builtin_names())
    with opened(home, TRUSTED) as runtime:
        bad: tuple[dict[str, Json], ...] = ({}, {"text": 7}, {"text": "", "x": 1}, {"times": 11})
        for wrong in bad:
            result = runtime.call(ToolCall("call-1", "echo", wrong))
            assert told(result) == ("denied", "arguments.schema")
        assert runtime.call(call("echo", text="x", times=2)).output == "x\nx"


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("/etc/passwd", "path.forbidden"),
        ("../outside", "path.outside"),
        ("link", "path.outside"),
        (".git/config", "path.git"),
    ],
)
def test_declared_paths_are_judged_like_everybodys(home: AgentHome, path: str, rule: str) -> None:
    (home.workspace / "a.txt").write_text("1\n2\n3\n")
    (home.workspace / "link").symlink_to(home.workspace.parent)
    install_plugin(open_plugins(home.home), ECHO, builtin_names())
    with opened(home, TRUSTED) as runtime:
        assert told(runtime.call(call("count_lines", path=path))) == ("denied", rule)
        assert runtime.call(call("count_lines", path="a.txt")).output == "3"


def test_declared_writes_and_hosts_are_judged_too(home: AgentHome, tmp_path: Path) -> None:
    schema = '{ type = "object", properties = { p = { type = "string" } } }'
    for name, effects in (("one", 'writes = ["$p"]'), ("two", 'fetches = ["$p"]')):
        more = f"network = true\neffects = {{ {effects} }}"
        text = manifest(f"tool_{name}", more, schema).replace('"sample"', f'"{name}"')
        install_plugin(open_plugins(home.home), make(tmp_path / name, text=text), ())
    trust = PluginSettings(risk=Risk.LOW, network=True)
    with opened(home, {"one": trust, "two": trust}) as runtime:
        assert told(runtime.call(call("tool_one", p=".git/hooks/x"))) == ("denied", "path.git")
        # A write in the workspace is asked for, and nobody answers.
        assert told(runtime.call(call("tool_one", p="a.txt"))) == ("denied", "approval.denied")
        assert runtime.call(call("tool_one")).success
        assert told(runtime.call(call("tool_two", p="example.com"))) == ("denied", "http.domain")


def test_a_changed_plugin_refuses_to_run_until_it_is_approved_again(
    home: AgentHome, cli: Cli
) -> None:
    cli("install", str(ECHO))
    program = home.home / "plugins" / "echo-plugin" / "echo-plugin"
    program.write_text(program.read_text().replace('["text"]', '["text"].upper()'))
    with opened(home, TRUSTED) as runtime:
        result = runtime.call(call("echo", text="x"))
    assert told(result) == ("denied", "plugin.changed")
    assert "'echo-plugin' changed" in str(result.error)
    assert "changed" in cli("list")
    with pytest.raises(DeniedError) as denied:
        cli("approve", "echo-plugin")
    assert denied.value.rule == "plugin.unattended"
    assert "+++ now/echo-plugin" in cli.out.getvalue()
    assert "changed" in cli("list")
    said = cli("approve", "echo-plugin", "--yes")
    assert said.startswith("  'echo-plugin' changed\n  --- approved/echo-plugin\n")
    assert "approved echo-plugin 0.1.0 as it is now\n" in said
    with opened(home, TRUSTED) as runtime:
        assert runtime.call(call("echo", text="x")).output == "X"


@pytest.mark.parametrize(("answer", "approved"), [("y\n", True), ("\n", False), ("n\n", False)])
def test_a_person_is_shown_the_difference_and_asked(
    home: AgentHome, cli: Cli, monkeypatch: pytest.MonkeyPatch, answer: str, approved: bool
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    cli("install", str(ECHO))
    (home.home / "plugins" / "echo-plugin" / "more.txt").write_text("evil\x1b[2J\n")
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    if approved:
        cli("approve", "echo-plugin")
    else:
        with pytest.raises(DeniedError) as denied:
            cli("approve", "echo-plugin")
        assert denied.value.rule == "plugin.declined"
    shown = cli.out.getvalue()
    assert "  +evil\\x1b[2J" in shown
    assert "[y/N]" in cli.err.getvalue()
    assert ("changed" in cli("list")) != approved


def test_the_emergency_stop_holds_for_plugins(home: AgentHome) -> None:
    install_plugin(open_plugins(home.home), ECHO, builtin_names())
    Estop.of(home.home).trigger("test")
    with opened(home, TRUSTED) as runtime:
        assert told(runtime.call(call("echo", text="x"))) == ("denied", "estop")


def test_an_agent_without_plugins_looks_once(home: AgentHome) -> None:
    assert plugin_tools(home.home, {}, ()) == ()
    assert not (home.home / "plugins").exists()
    assert not (home.home / "plugins.lock").exists()


def test_a_plugin_cannot_take_the_name_of_a_tool(home: AgentHome, tmp_path: Path) -> None:
    for name in ("shell", "pdf_extract", "web_search"):
        with pytest.raises(UsageError) as problem:
            install_plugin(
                open_plugins(home.home),
                make(tmp_path / name, text=manifest(name)),
                builtin_names(),
            )
        assert f"'{name}' is a tool of CoilClaw" in problem.value.message


def test_the_commands_from_installation_to_removal(cli: Cli, tmp_path: Path) -> None:
    assert cli("list") == ""
    assert cli.err.getvalue() == "no plugin is installed\n"
    assert cli("install", str(zipped(tmp_path / "p.zip", entries()))) == (
        "installed sample 1.2.3\n  sample_tool        touches nothing but its own files\n"
    )
    assert "plugins.sample.risk" in cli.err.getvalue()
    assert cli("list").split() == ["sample", "1.2.3", "enabled", "sample_tool"]
    assert cli("disable", "sample") == "disabled sample\n"
    assert cli("list").split()[2] == "disabled"
    assert cli("enable", "sample") == "enabled sample\n"
    (cli.home / "plugins" / "sample" / "extra").write_text("")
    assert json.loads(cli("list", "--json")) == [
        {
            "name": "sample",
            "version": "1.2.3",
            "state": "changed",
            "tools": [
                {
                    "name": "sample_tool",
                    "description": "Does what a test wants",
                    "declares": "touches nothing but its own files",
                    "network": False,
                }
            ],
            "differences": [{"path": "extra", "what": "added"}],
            "problem": None,
        }
    ]
    assert cli("remove", "sample") == "removed sample\n"
    assert cli("list") == ""


def test_a_broken_or_unapproved_plugin_is_listed_as_such(cli: Cli, tmp_path: Path) -> None:
    cli("install", str(make(tmp_path / "source")))
    shutil.copytree(tmp_path / "source", cli.home / "plugins" / "stranger")
    pins = cli.home / "plugins.json"
    value = json.loads(pins.read_text())
    value["plugins"][0]["manifest"] = "nonsense"
    pins.write_text(json.dumps(value))
    lines = cli("list").splitlines()
    assert lines[0].split()[:3] == ["sample", "1.2.3", "broken"]
    assert "is not valid TOML" in lines[1]
    assert lines[2].split() == ["stranger", "unapproved", "-"]


def test_what_a_plugin_is_tried_with(home: AgentHome, tmp_path: Path) -> None:
    store = open_plugins(home.home)
    install_plugin(store, ECHO, builtin_names())
    examples = (
        PluginTrial("echo", {"text": "hello"}, output="hello"),
        PluginTrial("echo", {"text": "ho", "times": 3}, output="ho\nho\nho"),
    )
    assert list_trials(store, "echo-plugin") == examples
    assert list_trials(store, "echo-plugin", "echo") == examples
    given = list_trials(store, "echo-plugin", "count_lines", {"path": "x"})
    assert given == (PluginTrial("count_lines", {"path": "x"}),)
    for name, tool, rule in (
        ("echo-plugin", "count_lines", "plugin.examples"),
        ("echo-plugin", "absent", "plugin.tool"),
        ("absent", None, "plugin.missing"),
    ):
        with pytest.raises(CoilClawError) as problem:
            list_trials(store, name, tool)
        assert problem.value.rule == rule
    with opened(home, TRUSTED) as runtime:
        for trial in examples:
            assert trial.shortfall(runtime.call(call("echo", **trial.arguments))) is None
        other = runtime.call(call("echo", text="other"))
    assert examples[0].shortfall(other) == "the output is 'other', but 'hello' is expected"
    with opened(home, {}) as runtime:
        refused = runtime.call(call("echo", text="hello"))
    assert "denied by autonomy.supervised" in str(examples[0].shortfall(refused))
    failing = PluginTrial("echo", {}, success=False)
    assert failing.shortfall(other) == "the call succeeded, but a failure is expected"


@pytest.mark.skipif("plugin" not in COMMANDS, reason="the command is not registered yet")
def test_plugin_test_goes_through_the_guard(home: AgentHome) -> None:
    allow = '[channels.cli]\ntools_allow = ["plugin:echo-plugin"]\n'
    home.configure(allow)
    command = Command(home.home)
    assert command("plugin", "install", str(ECHO)).returncode == 0
    done = command("plugin", "test", "echo-plugin")
    assert done.returncode == 3
    assert b"autonomy.supervised" in done.stderr
    home.configure(f'{allow}[plugins.echo-plugin]\nrisk = "low"\n')
    done = command("plugin", "test", "echo-plugin")
    assert (done.returncode, done.stdout) == (0, b"")
    done = command("plugin", "test", "echo-plugin", "echo", "--json", '{"text": "hi"}')
    assert (done.returncode, done.stdout) == (0, b"hi\n")
    done = command("plugin", "test", "echo-plugin", "count_lines", "--json", '{"path": "none"}')
    assert done.returncode == 1
    assert b"cannot be read" in done.stderr
    assert len(home.records()) == 2 + 2 + 1 + 1
    assert os.listdir(home.home / "plugins") == ["echo-plugin"]
