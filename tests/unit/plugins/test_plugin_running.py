"""Running a plugin: real processes in real sandboxes, and everything a plugin can do wrong."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coilclaw.agent.plugins.installation import approve_plugin, enable_plugin, remove_plugin
from coilclaw.agent.plugins.plugin_tool import ExternalTool, offer_tools
from coilclaw.agent.plugins.store import PluginStore
from coilclaw.agent.settings import PluginSettings
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.kernel.effects import External, Risk, Writes
from coilclaw.kernel.errors import CoilClawError, DeniedError, EnvironmentFault, UsageError
from coilclaw.kernel.messages import ToolResult
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.confinement import SandboxSupport
from tests.support.children import PATIENCE_S, marker, running
from tests.support.pluginworld import SAYS_OK, installed, make, manifest
from tests.support.sandboxes import supported
from tests.support.toolworld import HARMLESS, WRITING, World, judging, world

KINDS = ("bubblewrap", "landlock")
CANARY = "sk-canary-0123456789"
PATH_SCHEMA = '{ type = "object", properties = { path = { type = "string" } } }'
READING = manifest(more="effects = { reads = ['$path'] }", schema=PATH_SCHEMA)
CHANGING = manifest(more="effects = { writes = ['$path'] }", schema=PATH_SCHEMA)
NETWORK = manifest(more="network = true")


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return supported("bubblewrap")


@pytest.fixture
def here(tmp_path: Path, support: SandboxSupport) -> Iterator[World]:
    environ = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": CANARY, "HOME": "/root"}
    with world(tmp_path.resolve(), environ) as made:
        (made.workspace / "a.txt").write_text("one\n")
        yield made.using(support=lambda: support)


def held(here: World, kind: str) -> World:
    support = supported(kind)
    return here.using(sandbox=kind, support=lambda: support)


def tool(
    here: World,
    program: str = SAYS_OK,
    *,
    text: str | None = None,
    files: dict[str, str] | None = None,
    settings: PluginSettings | None = None,
) -> ExternalTool:
    source = make(here.home.parent / "source", program, text=text, files=files)
    return installed(here.home, source, settings)


def says(shell: str) -> str:
    """A program whose output is what some shell lines write."""
    return (
        "#!/bin/sh\ncat > /dev/null\n"
        f"text=$( {{ {shell}\n}} 2>&1 | tr -d '\"\\\\' | tr '\\n' '|')\n"
        'printf \'{"success": true, "output": "%s"}\' "$text"\n'
    )


def denied(here: World, plugin: ExternalTool) -> str:
    with pytest.raises(CoilClawError) as problem:
        here.call(plugin)
    return problem.value.rule


def test_a_plugin_that_is_not_what_was_approved_is_denied(here: World) -> None:
    plugin = tool(here, files={"data.txt": "1"})
    assert here.call(plugin).success
    (PluginStore(here.home).place("sample") / "data.txt").write_text("2")
    with pytest.raises(DeniedError) as problem:
        plugin.prepare({}, here.context)
    assert problem.value.rule == "plugin.changed"
    assert "'data.txt' changed" in problem.value.message
    (PluginStore(here.home).place("sample") / "data.txt").write_text("1")
    assert here.call(plugin).success


def test_a_change_between_the_approval_and_the_deed_is_denied(here: World) -> None:
    plugin = tool(here)
    prepared = plugin.prepare({}, here.context)
    (PluginStore(here.home).place("sample") / "run").write_text("#!/bin/sh\ntouch /tmp/evil\n")
    with pytest.raises(DeniedError) as problem:
        prepared.perform()
    assert problem.value.rule == "plugin.changed"


def test_what_runs_is_what_was_checked(here: World) -> None:
    """Files that change while the plugin runs are not those that it sees."""
    program = (
        "#!/bin/sh\ncat > /dev/null\n"
        f"touch {here.workspace}/started\n"
        f"while [ ! -e {here.workspace}/go ]; do sleep 0.01; done\n"
        'printf \'{"success": true, "output": "%s"}\' "$(cat data.txt)"\n'
    )
    plugin = tool(here, program, text=CHANGING, files={"data.txt": "checked"})

    def swap() -> None:
        until = time.monotonic() + PATIENCE_S
        while not (here.workspace / "started").exists() and time.monotonic() < until:
            time.sleep(0.01)
        place = PluginStore(here.home).place("sample")
        (place / "data.txt").write_text("swapped")
        (place / "run").unlink()
        (here.workspace / "go").touch()

    other = threading.Thread(target=swap)
    other.start()
    told = here.using(judge=judging(WRITING)).call(plugin, path="started")
    other.join()
    assert (told.success, told.output, told.error) == (True, "checked", None)


def test_a_disabled_removed_or_newly_approved_plugin_is_denied(here: World) -> None:
    plugin, store = tool(here), PluginStore(here.home)
    enable_plugin(store, "sample", enabled=False)
    assert denied(here, plugin) == "plugin.disabled"
    enable_plugin(store, "sample", enabled=True)
    assert here.call(plugin).success
    (store.place("sample") / "run").write_text(SAYS_OK + "# new\n")
    approve_plugin(store, "sample", ())
    assert denied(here, plugin) == "plugin.changed"
    (again,) = offer_tools(store, {}, ())
    assert here.call(again).success
    remove_plugin(store, "sample")
    assert denied(here, again) == "plugin.missing"


def test_the_network_needs_the_word_of_the_user(here: World) -> None:
    plugin = tool(here, text=NETWORK)
    assert denied(here, plugin) == "plugin.network"
    (allowed,) = offer_tools(PluginStore(here.home), {"sample": PluginSettings(network=True)}, ())
    assert here.call(allowed).success


def test_without_a_sandbox_nothing_runs(here: World) -> None:
    plugin = tool(here)
    assert denied(here.using(sandbox="none"), plugin) == "sandbox.none"
    with pytest.raises(EnvironmentFault) as problem:
        here.using(support=SandboxSupport).call(plugin)
    assert problem.value.rule == "sandbox.unavailable"


def test_effects_are_the_plugin_itself_and_what_it_declares(here: World) -> None:
    plugin = tool(here, text=CHANGING)
    whole = External("plugin:sample", Risk.HIGH)
    assert plugin.effects({}) == (whole,)
    assert plugin.effects({"path": "x"}) == (whole, Writes("x"))
    with pytest.raises(UsageError):
        plugin.effects({"path": 7})
    store = PluginStore(here.home)
    (lowered,) = offer_tools(store, {"sample": PluginSettings(risk=Risk.MEDIUM)}, ())
    assert lowered.effects({}) == (External("plugin:sample", Risk.MEDIUM),)
    (other,) = offer_tools(store, {"else": PluginSettings(risk=Risk.LOW)}, ())
    assert other.effects({}) == (whole,)


def test_what_is_approved_names_the_exact_files(here: World) -> None:
    plugin = tool(here, text=READING)
    first = plugin.prepare({"path": "a.txt"}, here.context).detail
    assert first[1:] == (
        'argv: ["run"]',
        "declares: reads $path",
        "sandbox: bubblewrap fs=read-only net=blocked",
        "at most: 30 s, 1024 MiB, 64 processes, 262144 bytes of output",
    )
    store = PluginStore(here.home)
    (store.place("sample") / "run").write_text(SAYS_OK + "# new\n")
    approve_plugin(store, "sample", ())
    (again,) = offer_tools(store, {}, ())
    second = again.prepare({"path": "a.txt"}, here.context).detail
    assert first[0].startswith("plugin: sample 1.2.3, files ")
    assert second[0] != first[0]
    assert second[1:] == first[1:]


@pytest.mark.parametrize("kind", KINDS)
def test_the_question_and_the_answer(here: World, kind: str) -> None:
    program = (
        "#!/bin/sh\nread -r line\n"
        'printf \'%s\' "$line" > "$TMPDIR/copy"\n'
        'printf \'{"success": true, "output": "", "metadata": %s}\' "$(cat "$TMPDIR/copy")"\n'
    )
    plugin = tool(here, program)
    told = held(here, kind).call(plugin, text="ä\n\"'\\", deep={"x": [1, 2.5, None]})
    assert told == ToolResult(
        True,
        "",
        None,
        {
            "plugin": "sample",
            "version": "1.2.3",
            "exit_code": 0,
            "outcome": "exited",
            "duration_ms": told.metadata["duration_ms"],
            "sandbox": told.metadata["sandbox"],
            "leftovers": 0,
            "metadata": {
                "tool": "sample_tool",
                "arguments": {"text": "ä\n\"'\\", "deep": {"x": [1, 2.5, None]}},
                "conversation_id": "c-1",
                "workspace": str(here.workspace),
            },
        },
    )
    assert str(told.metadata["sandbox"]).startswith(f"{kind} fs=read-only net=")
    assert os.listdir(here.home / "plugins") == ["sample"]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("", "it wrote nothing"),
        ("hello", "what it wrote is not valid JSON: Expecting value at line 1, column 1"),
        ("[]", "what it wrote is not a JSON object"),
        ("{}", "its answer has no 'success' that is true or false"),
        ('{"success": 1}', "its answer has no 'success' that is true or false"),
        ('{"success": true, "output": 7}', "the 'output' of its answer is not a text"),
        ('{"success": true, "output": null}', "the 'output' of its answer is not a text"),
        ('{"success": false, "error": 7}', "the 'error' of its answer is not a text"),
        ('{"success": true, "metadata": []}', "the 'metadata' of its answer is not an object"),
        ('{"success": true, "extra": 1}', "its answer has unknown keys: 'extra'"),
        ('{"success": true, "error": "x"}', "its answer reports both success and an error"),
        (
            '{"success": true, "success": false}',
            "what it wrote has the key 'success' twice in one object",
        ),
        (
            '{"success": true} {}',
            "what it wrote is not valid JSON: Extra data at line 1, column 19",
        ),
        ('{"success": NaN}', "what it wrote has NaN, which is not valid JSON"),
        ("\\377", "what it wrote is not valid UTF-8 at byte 0"),
    ],
)
def test_what_is_no_answer_is_a_failure_that_says_so(here: World, answer: str, error: str) -> None:
    plugin = tool(here, f"#!/bin/sh\ncat >/dev/null\nprintf '{answer}'\necho trouble >&2\n")
    told = here.call(plugin)
    assert (told.success, told.output, told.error) == (
        False,
        "",
        f"sample: {error} [stderr: trouble]",
    )
    assert told.metadata["rule"] == "plugin.answer"


def test_deep_nesting_is_an_answer_like_any_other(here: World) -> None:
    program = "#!/bin/sh\nhead -c 200000 /dev/zero | tr '\\0' '['\n"
    told = here.call(tool(here, program))
    assert str(told.error).startswith("sample: what it wrote is ")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"success": true, "output": "x"}', (True, "x", None)),
        ('{"success": true}', (True, "", None)),
        ('{"success": true, "output": "x", "error": null}', (True, "x", None)),
        ('{"success": false, "output": "y", "error": "no"}', (False, "y", "no")),
        ('{"success": false, "output": "y"}', (False, "y", "it reports a failure")),
        ('{"success": true, "output": "\\\\ud800"}', (True, "?", None)),
    ],
)
def test_what_a_right_answer_means(
    here: World, answer: str, expected: tuple[bool, str, str | None]
) -> None:
    told = here.call(tool(here, f"#!/bin/sh\ncat >/dev/null\nprintf '{answer}'\n"))
    assert (told.success, told.output, told.error) == expected


def test_a_plugin_cannot_speak_for_us(here: World) -> None:
    answer = '{"success": true, "metadata": {"sandbox": "bubblewrap", "status": "allowed"}}'
    told = here.call(tool(here, f"#!/bin/sh\ncat >/dev/null\necho '{answer}'\n"))
    assert told.metadata["sandbox"] == "bubblewrap fs=read-only net=blocked"
    assert "status" not in told.metadata


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("exit 3", "sample: exit code 3 [stderr: sad]"),
        ("kill -9 $$", "sample: exit code 137 [stderr: sad]"),
        ("exec /no/such/thing", "sample: exit code 127"),
    ],
)
def test_a_crash_is_a_failure_whatever_was_answered(here: World, end: str, error: str) -> None:
    told = here.call(tool(here, SAYS_OK + f"echo sad >&2\n{end}\n"))
    assert (told.success, told.output, told.metadata["rule"]) == (False, "", "plugin.failed")
    assert str(told.error).startswith(error)


def test_a_failure_with_an_exit_code_says_both(here: World) -> None:
    program = '#!/bin/sh\ncat >/dev/null\necho \'{"success": false, "error": "no luck"}\'\nexit 1'
    assert here.call(tool(here, program)).error == "sample: exit code 1; no luck"


def test_a_program_that_cannot_be_started_is_a_failure(here: World) -> None:
    for kind in KINDS:
        plugin = tool(here, "#!/no/such/interpreter\n")
        told = held(here, kind).call(plugin)
        assert not told.success
        assert told.error
        remove_plugin(PluginStore(here.home), "sample")
        os.rename(here.home.parent / "source", here.home.parent / f"source-{kind}")


def test_too_much_output_is_a_failure(here: World) -> None:
    program = "#!/bin/sh\ncat >/dev/null\nhead -c 5000 /dev/zero | tr '\\0' x\n"
    told = here.call(tool(here, program, text=manifest(more="output_bytes = 1000")))
    assert str(told.error).startswith("sample: it wrote more than 1000 bytes and was ended")


def test_a_long_output_is_cut_to_what_the_model_is_given(here: World) -> None:
    program = (
        '#!/bin/sh\ncat >/dev/null\nprintf \'{"success": true, "output": "\'\n'
        "head -c 5000 /dev/zero | tr '\\0' x\nprintf '\"}'\n"
    )
    told = here.using(limits=ToolLimits(output_bytes=1000)).call(tool(here, program))
    assert told.success
    assert len(told.output) <= 1000
    assert "bytes are cut here" in told.output


def test_stderr_is_bounded_and_cannot_play_tricks(here: World) -> None:
    program = "#!/bin/sh\nprintf 'x%.0s' $(seq 3000) >&2\nprintf '\\033[2J\\ngone' >&2\nexit 1\n"
    told = here.call(tool(here, program))
    assert "\x1b" not in str(told.error)
    assert "\\u001b[2J | gone]" in str(told.error)
    assert len(str(told.error)) < 1200


def test_a_plugin_that_takes_too_long_is_ended_with_its_children(here: World) -> None:
    mark = marker()
    program = f"#!/bin/bash\n(exec -a {mark} sleep 600) &\nexec -a {mark} sleep 600\n"
    began = time.monotonic()
    told = here.call(tool(here, program, text=manifest(more="timeout_s = 0.5")))
    assert time.monotonic() - began < PATIENCE_S
    assert str(told.error).startswith("sample: ended after the limit of 0.5 s")
    assert told.metadata["outcome"] == "timed_out"
    assert running(mark) == []
    assert os.listdir(here.home / "plugins") == ["sample"]


def test_the_limit_of_the_user_is_the_most(here: World) -> None:
    plugin = tool(here, text=manifest(more="timeout_s = 3000"))
    prepared = plugin.prepare({}, here.using(limits=ToolLimits(tool_timeout_s=7)).context)
    assert prepared.detail[-1].startswith("at most: 7 s, ")


def test_a_stop_ends_a_plugin_at_once(here: World) -> None:
    mark = marker()
    plugin = tool(here, f"#!/bin/bash\nexec -a {mark} sleep 600\n")
    cancel = Cancellation()

    def stop() -> None:
        until = time.monotonic() + PATIENCE_S
        while not running(mark) and time.monotonic() < until:
            time.sleep(0.01)
        cancel.cancel("the emergency stop is set")

    other = threading.Thread(target=stop)
    other.start()
    told = here.using(cancel=cancel).call(plugin)
    other.join()
    assert told.error is not None
    assert told.error.startswith("sample: stopped: the emergency stop is set")
    assert running(mark) == []


def test_what_a_plugin_leaves_behind_is_ended(here: World) -> None:
    mark = marker()
    program = f"#!/bin/bash\ncat >/dev/null\n(exec -a {mark} setsid sleep 600 >/dev/null 2>&1) &\n"
    for kind in KINDS:
        plugin = tool(here, program + "echo '{\"success\": true}'\n")
        assert held(here, kind).call(plugin).success
        assert running(mark) == []
        remove_plugin(PluginStore(here.home), "sample")
        os.rename(here.home.parent / "source", here.home.parent / f"source-{kind}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_sees_neither_home_nor_workspace_unless_it_says_so(here: World, kind: str) -> None:
    secret = here.home.parent / "secret"
    secret.write_text("SECRET")
    (here.home / "memory.db").write_text("SECRET")
    (here.workspace / "a.txt").write_text("SECRET")
    looks = "\n".join(
        f"cat {path}; ls {Path(path).parent}"
        for path in (secret, here.home / "memory.db", here.workspace / "a.txt", "/root/.profile")
    )
    world = held(here, kind).using(forbidden_paths=("/etc",))
    told = world.call(tool(here, says(looks + "\ncat /etc/passwd; env; true")))
    assert told.success
    assert "SECRET" not in told.output
    assert "root:" not in told.output
    assert CANARY not in told.output
    assert "OPENAI" not in told.output


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_that_reads_sees_the_workspace_and_cannot_write_it(here: World, kind: str) -> None:
    looks = (
        f"cat {here.workspace}/a.txt; echo x > {here.workspace}/a.txt; echo x > {here.workspace}/b;"
        f"echo x > run; echo x > $TMPDIR/mine && cat $TMPDIR/mine"
    )
    told = held(here, kind).call(tool(here, says(looks), text=READING), path="a.txt")
    assert told.output.startswith("one|")
    assert told.output.endswith("|x|")
    assert (here.workspace / "a.txt").read_text() == "one\n"
    assert os.listdir(here.workspace) == ["a.txt"]
    assert PluginStore(here.home).list_installed()[0].state == "enabled"


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_that_writes_writes_the_workspace_and_nothing_else(here: World, kind: str) -> None:
    outside = here.home.parent / "outside"
    outside.mkdir()
    looks = f"echo x > {here.workspace}/new; echo x > {outside}/new; echo x > {here.home}/new"
    world = held(here, kind).using(judge=judging(HARMLESS))
    plugin = tool(here, says(looks), text=CHANGING)
    told = world.call(plugin, path="new")
    assert (here.workspace / "new").read_text() == "x\n"
    assert os.listdir(outside) == []
    assert not (here.home / "new").exists()
    assert str(told.metadata["sandbox"]).startswith(f"{kind} fs=workspace")
    # Without the argument that says so, nothing is written.
    (here.workspace / "new").unlink()
    told = world.call(plugin)
    assert not (here.workspace / "new").exists()
    assert str(told.metadata["sandbox"]).startswith(f"{kind} fs=read-only")


def test_what_git_would_run_later_stays_as_it_is(here: World) -> None:
    (here.workspace / ".git" / "hooks").mkdir(parents=True)
    program = says(f"echo x > {here.workspace}/.git/hooks/post-commit")
    here.call(tool(here, program, text=CHANGING), path="new")
    assert os.listdir(here.workspace / ".git" / "hooks") == []


def test_a_forbidden_place_in_the_workspace_is_hidden(here: World) -> None:
    (here.workspace / "private").mkdir()
    (here.workspace / "private" / "key").write_text("SECRET")
    plugin = tool(here, says(f"cat {here.workspace}/private/key; true"), text=READING)
    world = here.using(forbidden_paths=(str(here.workspace / "private"),))
    assert "SECRET" not in world.call(plugin, path="a.txt").output
    assert "SECRET" in here.call(plugin, path="a.txt").output


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("open_", [False, True])
def test_the_network_is_there_only_where_it_is_declared_and_allowed(
    here: World, kind: str, open_: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        program = (
            "#!/bin/bash\ncat >/dev/null\n"
            f"if (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; then t=through; else t=no; fi\n"
            'printf \'{"success": true, "output": "%s"}\' $t\n'
        )
        plugin = tool(
            here,
            program,
            text=NETWORK if open_ else None,
            settings=PluginSettings(network=True),
        )
        told = held(here, kind).call(plugin)
    assert told.output == ("through" if open_ else "no")
    if kind == "bubblewrap":
        expected = f"bubblewrap fs=read-only net={'open' if open_ else 'blocked'}"
        assert told.metadata["sandbox"] == expected


def test_fixed_arguments_are_passed_as_they_stand(here: World) -> None:
    text = manifest().replace('"./run"', '["./run", "a b", "$HOME", "*"]')
    program = (
        "#!/bin/sh\ncat >/dev/null\n"
        'printf \'{"success": true, "output": "%s|%s|%s|%s"}\' "$#" "$1" "$2" "$3"\n'
    )
    assert here.call(tool(here, program, text=text)).output == "3|a b|$HOME|*"


def test_what_cannot_be_offered_is_left_out_and_said(
    here: World, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = tool(here)
    store = PluginStore(here.home)
    assert [one.name for one in offer_tools(store, {}, ("shell",))] == [plugin.name]
    assert offer_tools(store, {}, (plugin.name,)) == ()
    assert "the name is taken" in caplog.text
    path = here.home / "plugins.json"
    value = json.loads(path.read_text())
    value["plugins"][0]["manifest"] = "nonsense"
    path.write_text(json.dumps(value))
    assert offer_tools(store, {}, ()) == ()
    assert "is not valid TOML" in caplog.text
    path.write_text("nonsense")
    assert offer_tools(store, {}, ()) == ()
    assert "is damaged" in caplog.text
    path.unlink()
    assert offer_tools(store, {}, ()) == ()


def test_a_disabled_plugin_offers_nothing(here: World) -> None:
    tool(here)
    store = PluginStore(here.home)
    enable_plugin(store, "sample", enabled=False)
    assert offer_tools(store, {}, ()) == ()


def test_many_calls_at_once_do_not_disturb_each_other(here: World) -> None:
    program = '#!/bin/sh\nread -r line\nprintf \'{"success": true, "metadata": %s}\' "$line"\n'
    plugin = tool(here, program, text=READING)
    told: dict[int, ToolResult] = {}

    def call(number: int) -> None:
        told[number] = here.call(plugin, number=number)

    threads = [threading.Thread(target=call, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in told.items():
        assert result.success, result.error
        inner = result.metadata["metadata"]
        assert isinstance(inner, dict)
        assert inner["arguments"] == {"number": number}
    assert os.listdir(here.home / "plugins") == ["sample"]
