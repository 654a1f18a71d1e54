"""``shell``: real processes in real sandboxes, and the process attacks on it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coilclaw.agent.tools import command_environment
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.agent.tools.shell import Shell
from coilclaw.kernel.errors import DeniedError, EnvironmentFault, UsageError
from coilclaw.kernel.messages import ToolResult
from coilclaw.policy.judgement import Terms
from coilclaw.policy.settings import SecretFiles
from coilclaw.workspace.process.cancellation import Cancellation
from coilclaw.workspace.process.confinement import SandboxSupport
from tests.support.children import PATIENCE_S, marker, running
from tests.support.sandboxes import supported
from tests.support.toolworld import WRITING, World, judging, world

KINDS = ("bubblewrap", "landlock")
CANARY = "sk-canary-0123456789"


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return supported("bubblewrap")


@pytest.fixture
def here(tmp_path: Path, support: SandboxSupport) -> Iterator[World]:
    environ = {**os.environ, "OPENAI_API_KEY": CANARY, "BASH_ENV": "/tmp/evil", "HOME": "/root"}
    with world(tmp_path.resolve(), environ) as made:
        (made.workspace / "a.txt").write_text("one\n")
        yield made.using(support=lambda: support)


@pytest.fixture
def writing(here: World) -> World:
    return here.using(judge=judging(WRITING))


def sandboxed(here: World, kind: str, given: SandboxSupport | None = None) -> World:
    support = given or supported(kind)
    return here.using(sandbox=kind, support=lambda: support)


def test_a_command_line_and_an_argv_run_in_the_workspace(here: World) -> None:
    told = here.call(Shell(), command="pwd; cat a.txt | wc -l")
    assert (told.success, told.output) == (True, f"{here.workspace}\n1\n")
    told = here.call(Shell(), argv=["echo", "$HOME", "*", "a  b"])
    assert told == ToolResult(
        True,
        "$HOME * a  b\n",
        None,
        {
            "exit_code": 0,
            "signal": None,
            "outcome": "exited",
            "duration_ms": told.metadata["duration_ms"],
            "sandbox": "bubblewrap fs=read-only net=blocked",
            "leftovers": 0,
            "cut": False,
        },
    )


def test_what_is_shown_is_the_argv_and_what_holds(here: World, writing: World) -> None:
    detail = Shell().prepare({"command": "ls\n-l", "timeout_s": 2}, here.context).detail
    assert detail == (
        'argv: ["bash", "--noprofile", "--norc", "-c", "ls\\n-l"]',
        f"in: {here.workspace}",
        "sandbox: bubblewrap fs=read-only net=blocked",
        "network: no",
        "at most: 2 s",
    )
    detail = Shell().prepare({"argv": ["true"], "timeout_s": 99}, writing.context).detail
    assert detail[2:] == (
        "sandbox: bubblewrap fs=workspace net=blocked",
        "network: no",
        "at most: 99 s",
    )


def test_the_network_is_shown_with_its_reason(writing: World) -> None:
    asked = Terms(True, network=True, contained=True, asked_for="`pip install` downloads")
    given = writing.using(judge=judging(asked))
    detail = Shell().prepare({"command": "pip install x"}, given.context).detail
    assert detail[2:4] == (
        "sandbox: bubblewrap fs=workspace net=open",
        "network: yes, because `pip install` downloads",
    )
    detail = Shell().prepare({"command": "ls", "network": True}, writing.context).detail
    assert detail[3] == "network: no, although it was requested"


def test_a_longer_time_is_granted_up_to_the_bound(writing: World) -> None:
    ready = Shell().prepare({"command": "true", "timeout_s": 600}, writing.context)
    assert (ready.detail[4], ready.timeout_s > 600) == ("at most: 600 s", True)
    with pytest.raises(DeniedError, match="shell_timeout_max_s permits at most 600 s") as refused:
        Shell().prepare({"command": "true", "timeout_s": 601}, writing.context)
    assert refused.value.rule == "shell.timeout"
    small = writing.using(limits=ToolLimits(shell_timeout_max_s=20))
    with pytest.raises(DeniedError, match="permits at most 20 s"):
        Shell().prepare({"command": "true", "timeout_s": 21}, small.context)
    assert Shell().prepare({"command": "true"}, small.context).detail[4] == "at most: 15 s"


def test_a_contained_command_leaves_what_git_runs_alone(writing: World) -> None:
    hooks = writing.workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (writing.workspace / ".git" / "config").write_text("[core]\n")
    script = "touch .git/hooks/x; echo y >> .git/config; echo new > made; cat .git/config"
    held = writing.using(judge=judging(Terms(True, network=False, contained=True)))
    told = held.call(Shell(), command=script)
    assert told.output.startswith("[core]\n[stderr]\n"), told
    assert (list(hooks.iterdir()), (writing.workspace / "made").exists()) == ([], True)
    # git's own subcommands that set something still can.
    git = writing.using(judge=judging(Terms(True, False, contained=True, sets_git=True)))
    git.call(Shell(), command=script)
    assert (writing.workspace / ".git" / "config").read_text() == "[core]\ny\n"
    assert list(hooks.iterdir()) == []


def test_every_command_under_bubblewrap_leaves_what_git_runs_alone(writing: World) -> None:
    """At full autonomy commands run that are on no list, and nobody is asked."""
    (writing.workspace / ".git").mkdir()
    script = "mkdir -p .git/hooks; touch .git/hooks/x; echo new > made"
    held = writing.using(support=lambda: supported("bubblewrap"))
    held.call(Shell(), command=script)
    assert list((writing.workspace / ".git" / "hooks").iterdir()) == []
    assert (writing.workspace / "made").exists()


@pytest.mark.parametrize(
    "script",
    [
        "mv .git old; cp -r old .git; echo evil > .git/config",
        "cp -r .git other; echo ../other > .git/commondir",
        "echo evil > .git/config.worktree",
        "echo evil > .git/modules/sub/config",
        "mv .git/modules/sub x; cp -r x .git/modules/sub; echo evil > .git/modules/sub/config",
    ],
)
def test_no_command_leads_git_to_other_settings(writing: World, script: str) -> None:
    own = writing.workspace / ".git"
    for folder in (own, own / "modules" / "sub"):
        (folder / "hooks").mkdir(parents=True)
        (folder / "HEAD").write_text("ref: refs/heads/main\n")
        (folder / "config").write_text("[core]\n")
    held = writing.using(support=lambda: supported("bubblewrap"))
    held.call(Shell(), command=f"{script}; echo new > .git/index; echo new > made")
    assert (own / "config").read_text() == "[core]\n"
    assert (own / "modules" / "sub" / "config").read_text() == "[core]\n"
    assert not (own / "commondir").exists()
    assert not (own / "config.worktree").exists()
    assert (own / "index").read_text() == "new\n"
    assert (writing.workspace / "made").exists()


def test_a_link_in_place_of_git_settings_shows_nothing_outside(
    writing: World, tmp_path: Path
) -> None:
    """A command may have made the repository itself, before the one that reads."""
    outside = tmp_path / "elsewhere"
    (outside / "repo").mkdir(parents=True)
    for name in ("secret", "repo/HEAD"):
        (outside / name).write_text("not for commands")
    own = writing.workspace / ".git"
    own.mkdir()
    for name, target in (("hooks", outside), ("config", outside / "secret"), ("modules", outside)):
        (own / name).symlink_to(target)
    held = writing.using(support=lambda: supported("bubblewrap"))
    script = f"cat {outside}/secret {own}/config; echo evil > {outside}/repo/HEAD; echo told"
    told = held.call(Shell(), command=script)
    assert "not for commands" not in told.output
    assert "told" in told.output
    assert (outside / "repo" / "HEAD").read_text() == "not for commands"


def test_what_a_contained_command_leaves_running_ends_with_it(writing: World) -> None:
    held = writing.using(judge=judging(Terms(True, network=False, contained=True)))
    told = held.call(Shell(), command="(sleep 600; echo late > late) & echo started")
    assert (told.success, told.output) == (True, "started\n")
    assert not (writing.workspace / "late").exists()


def test_harmless_commands_do_not_see_files_with_secrets(here: World) -> None:
    (here.workspace / "sub").mkdir()
    for name in (".env", "sub/server.pem", ".env.example"):
        (here.workspace / name).write_text("KEY=word\n")
    told = here.call(Shell(), command="grep -rn KEY . | sort")
    assert told.output.count("word") == 1
    assert told.output.startswith("./.env.example:1:KEY=word\n[stderr]\n")
    assert "./.env: Permission denied" in told.output
    allowed = replace(here.context.security, secrets=SecretFiles(read="allow"))
    told = replace(here, context=replace(here.context, security=allowed)).call(
        Shell(), command="grep -rn KEY . | sort"
    )
    assert len(told.output.splitlines()) == 3


def test_git_searches_no_files_with_secrets_either(here: World) -> None:
    subprocess.run(["git", "init", "-q"], cwd=here.workspace, check=True)
    for name in (".env", "plain"):
        (here.workspace / name).write_text("KEY=word\n")
    told = here.call(Shell(), command="git grep --untracked KEY")
    assert told.output.startswith("plain:KEY=word\n")
    assert ".env:KEY" not in told.output


@pytest.mark.parametrize("kind", KINDS)
def test_a_harmless_command_can_write_nothing(here: World, kind: str) -> None:
    held = sandboxed(here, kind)
    told = held.call(Shell(), command="echo x > new || echo y > a.txt || touch /etc/x")
    assert not told.success
    assert str(told.error).startswith("exit code")
    assert sorted(os.listdir(here.workspace)) == ["a.txt"]
    assert (here.workspace / "a.txt").read_text() == "one\n"
    assert str(told.metadata["sandbox"]).startswith(f"{kind} fs=read-only net=")


def test_a_harmless_command_does_not_run_where_only_tcp_is_blocked(
    here: World, writing: World
) -> None:
    plain = replace(supported("landlock"), seccomp=False)
    for each, allowed in ((here, False), (writing, True)):
        held = sandboxed(each, "landlock", plain)
        if allowed:
            assert held.call(Shell(), command="pwd").success
        else:
            with pytest.raises(DeniedError) as denied:
                held.call(Shell(), command="pwd")
            assert denied.value.rule == "sandbox.network"
    assert sandboxed(here, "bubblewrap").call(Shell(), command="pwd").success


@pytest.mark.parametrize("kind", KINDS)
def test_a_harmless_command_sees_the_system_and_the_workspace_only(here: World, kind: str) -> None:
    secret = here.workspace.parent / "secret"
    secret.write_text("the secret")
    (here.home / "memory").write_text("the secret")
    (here.workspace / "link").symlink_to(secret)
    held = sandboxed(here, kind).using(forbidden_paths=("/etc",))
    for path in (secret, here.home / "memory", "link", "/etc/passwd", "/root/.profile"):
        told = held.call(Shell(), argv=["cat", str(path)])
        assert not told.success, path
        assert "secret" not in told.output.replace(str(secret), "").replace("No such", "")
        assert "root:" not in told.output
    assert held.call(Shell(), argv=["cat", "a.txt"]).output == "one\n"


def test_a_harmless_command_needs_a_sandbox_that_holds(here: World) -> None:
    with pytest.raises(DeniedError) as denied:
        here.using(sandbox="none").call(Shell(), command="pwd")
    assert denied.value.rule == "sandbox.none"
    for kind in ("auto", "bubblewrap", "landlock"):
        bare = here.using(sandbox=kind, support=SandboxSupport)
        with pytest.raises(EnvironmentFault) as fault:
            bare.call(Shell(), command="pwd")
        assert fault.value.rule == "sandbox.unavailable"


def test_without_a_sandbox_a_command_that_was_approved_runs_and_says_so(writing: World) -> None:
    told = writing.using(sandbox="none").call(Shell(), command="echo x > new; cat new")
    assert (told.output, told.metadata["sandbox"]) == ("x\n", "none")


@pytest.mark.parametrize("kind", KINDS)
def test_another_command_writes_in_the_workspace_only(writing: World, kind: str) -> None:
    held = sandboxed(writing, kind)
    outside = writing.workspace.parent / "outside"
    outside.mkdir()
    told = held.call(Shell(), command=f"echo x > new; echo y > {outside}/z")
    assert not told.success
    assert (writing.workspace / "new").read_text() == "x\n"
    assert list(outside.iterdir()) == []
    assert str(told.metadata["sandbox"]).startswith(f"{kind} fs=workspace net=")
    told = held.call(Shell(), command='t=$(mktemp) && echo ok > "$t" && cat "$t" && rm "$t"')
    assert told.output == "ok\n"


@pytest.mark.parametrize("kind", KINDS)
def test_our_state_and_forbidden_places_are_hidden(writing: World, kind: str) -> None:
    (writing.home / "keys").mkdir()
    (writing.home / "keys" / "k").write_text("SECRET-1")
    ssh = writing.workspace.parent / "ssh"
    ssh.mkdir()
    (ssh / "id").write_text("SECRET-2")
    held = sandboxed(writing, kind).using(forbidden_paths=("/etc", "/sys", str(ssh), "/no/such"))
    told = held.call(Shell(), command=f"cat {writing.home}/keys/k; cat {ssh}/id; ls {ssh}")
    assert "SECRET" not in told.output
    assert held.call(Shell(), command="cat /etc/hostname >/dev/null; cat a.txt").output == "one\n"


def test_our_state_inside_the_workspace_is_hidden_too(here: World, writing: World) -> None:
    inner = writing.workspace / "keys"
    inner.mkdir()
    (inner / "k").write_text("SECRET")
    for case in (here, writing):
        told = case.using(own_paths=(str(inner),)).call(
            Shell(), command="cat keys/k; ls keys; cat a.txt; echo x > keys/new"
        )
        assert "SECRET" not in told.output
        assert "one" in told.output
    assert sorted(os.listdir(inner)) == ["k"]


def test_there_is_no_network_unless_the_terms_say_so(here: World, writing: World) -> None:
    connected = writing.using(judge=judging(Terms(writable=True, network=True)))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        command = f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo connected"
        for case, held in ((here, "read-only net=blocked"), (writing, "workspace net=blocked")):
            told = case.call(Shell(), command=command)
            assert (told.success, told.metadata["sandbox"]) == (False, f"bubblewrap fs={held}")
        told = connected.call(Shell(), command=command)
    assert (told.output, told.metadata["sandbox"]) == (
        "connected\n",
        "bubblewrap fs=workspace net=open",
    )


def test_the_environment_is_made_from_nothing(here: World, writing: World) -> None:
    for case in (here, writing):
        told = case.call(Shell(), argv=["env"])
        assert told.success
        assert CANARY not in told.output
        names = {line.partition("=")[0] for line in told.output.splitlines()}
        assert not names & {"BASH_ENV", "ENV", "LD_PRELOAD", "OPENAI_API_KEY", "PYTHONPATH"}
        assert {"TERM=dumb", "PAGER=cat", "GIT_PAGER=cat", "LANG=C.UTF-8"} <= set(
            told.output.splitlines()
        )
    assert "GIT_CONFIG_GLOBAL=/dev/null" in here.call(Shell(), argv=["env"]).output
    assert "GIT_CONFIG_GLOBAL" not in writing.call(Shell(), argv=["env"]).output


def test_start_up_files_and_functions_of_a_shell_do_nothing(here: World) -> None:
    (here.workspace / ".bashrc").write_text("echo EVIL")
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(here.workspace),
        "BASH_ENV": f"{here.workspace}/.bashrc",
        "ENV": f"{here.workspace}/.bashrc",
        "BASH_FUNC_ls%%": "() { echo EVIL; }",
        "SHELLOPTS": "xtrace",
    }
    told = here.using(environ=environ).call(Shell(), command="ls")
    assert told.output == "a.txt\n"


def test_path_hijack_by_a_file_with_the_name_of_a_binary(here: World, tmp_path: Path) -> None:
    evil = "#!/bin/sh\necho EVIL\n"
    open_to_all = tmp_path / "open"
    for folder in (here.workspace, here.workspace / "bin", here.home / "bin", open_to_all):
        folder.mkdir(exist_ok=True)
        (folder / "ls").write_text(evil)
        (folder / "ls").chmod(0o755)
    open_to_all.chmod(0o777)
    (tmp_path / "alias").symlink_to(here.workspace / "bin")
    path = (
        f"{here.workspace}/bin:.::bin:{here.home}/bin:{open_to_all}:{tmp_path}/alias:/usr/bin:/bin"
    )
    for judge in (here.context.judge, judging(WRITING)):
        case = here.using(environ={"PATH": path, "HOME": "/root"}, judge=judge)
        for args in ({"command": "ls a.txt"}, {"argv": ["ls", "a.txt"]}):
            told = case.call(Shell(), **args)
            assert told.output == "a.txt\n"


def test_the_search_path_keeps_what_is_safe(tmp_path: Path) -> None:
    mine, barred = tmp_path / "mine", tmp_path / "barred"
    for folder in (mine, barred):
        folder.mkdir(mode=0o755)
    path = f"{mine}:{barred}:/usr/bin:/no/such:/usr/bin"
    found = command_environment.search_path(path, kept_out=(str(barred),), system_only=False)
    assert found == f"{mine}:/usr/bin"
    assert command_environment.search_path(path, kept_out=(), system_only=True) == "/usr/bin"
    assert (
        command_environment.search_path("", kept_out=(), system_only=True)
        == command_environment.FIXED_PATH
    )
    assert (
        command_environment.search_path(".:", kept_out=(), system_only=False)
        == command_environment.FIXED_PATH
    )
    above = tmp_path / "above"
    (above / "bin").mkdir(parents=True)
    above.chmod(0o777)
    assert command_environment.search_path(f"{above}/bin", kept_out=(), system_only=False) == (
        command_environment.FIXED_PATH
    )


def test_git_reads_without_running_what_the_repository_names(here: World) -> None:
    git = ["git", "-C", str(here.workspace), "-c", "user.name=n", "-c", "user.email=e@x"]
    hook = here.workspace / "evil.sh"
    hook.write_text("#!/bin/sh\necho EVIL >&2\necho EVIL\n")
    hook.chmod(0o755)
    for args in (
        ["init", "-q"],
        ["add", "a.txt"],
        ["commit", "-q", "-m", "first"],
        *(["config", key, str(hook)] for key in ("core.fsmonitor", "core.pager", "gpg.program")),
        ["config", "log.showSignature", "true"],
        ["config", "core.sshCommand", str(hook)],
    ):
        subprocess.run([*git, *args], check=True, capture_output=True)
    plain = subprocess.run([*git, "cat-file", "commit", "HEAD"], check=True, capture_output=True)
    mark = b"gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n\n"
    argv = [*git, "hash-object", "-t", "commit", "-w", "--stdin"]
    signed = subprocess.run(
        argv, check=True, capture_output=True, input=plain.stdout.replace(b"\n\n", b"\n" + mark, 1)
    )
    argv = [*git, "update-ref", "HEAD", signed.stdout.decode().strip()]
    subprocess.run(argv, check=True)
    (here.workspace / "a.txt").write_text("two\n")
    for command in ("git status --short", "git log", "git diff", "git show", "git blame a.txt"):
        told = here.call(Shell(), command=command)
        assert told.success, told
        assert "EVIL" not in told.output, command
    assert "+two" in here.call(Shell(), command="git diff").output


def test_drivers_that_a_repository_names_are_not_run(here: World) -> None:
    git = ["git", "-C", str(here.workspace), "-c", "user.name=n", "-c", "user.email=e@x"]
    (here.workspace / ".gitattributes").write_text("*.txt diff=odd filter=odd\n")
    for args in (
        ["init", "-q"],
        ["add", "a.txt"],
        ["commit", "-q", "-m", "first"],
        ["config", "diff.odd.textconv", "echo EVIL;:"],
        ["config", "filter.odd.clean", "echo EVIL;:"],
    ):
        subprocess.run([*git, *args], check=True, capture_output=True)
    (here.workspace / "a.txt").write_text("two\n")
    for command in ("git diff", "git log -p", "git blame a.txt"):
        told = here.call(Shell(), command=command)
        assert told.success, told
        assert "EVIL" not in told.output, command
    assert "+two" in here.call(Shell(), command="git diff").output
    subprocess.run([*git, "config", "diff.external", "echo EVIL;:"], check=True)
    told = here.call(Shell(), command="git diff")
    assert (told.success, "diff.external" in str(told.error)) == (False, True)
    assert here.call(Shell(), command="git status --short").success


def test_git_enters_no_bare_repository_that_lies_in_the_workspace(here: World) -> None:
    bare = here.workspace / "data"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    told = here.call(Shell(), command="git -C data rev-parse --is-bare-repository")
    assert not told.success
    assert "safe.bareRepository" in told.output
    subprocess.run(["git", "init", "-q", str(here.workspace / "plain")], check=True)
    told = here.call(Shell(), command="git -C plain rev-parse --is-bare-repository")
    assert (told.success, told.output) == (True, "false\n")


def test_exit_codes_and_signals_are_told(here: World, writing: World) -> None:
    told = here.call(Shell(), command="echo out; echo err >&2; exit 3")
    assert (told.success, told.error) == (False, "exit code 3")
    assert told.output == "out\n[stderr]\nerr\n"
    killed = sandboxed(writing, "landlock").call(Shell(), command="kill -9 $$")
    assert (killed.error, killed.metadata["signal"]) == ("ended by signal 9", signal.SIGKILL)


def test_a_program_that_is_not_there_is_a_failure(here: World) -> None:
    told = here.call(Shell(), argv=["no-such-program-here"])
    assert (told.success, told.metadata) == (False, {"rule": "process.not_found"})
    assert here.call(Shell(), command="no-such-program-here").error == "exit code 127"


def test_stdin_is_empty(here: World) -> None:
    assert here.call(Shell(), argv=["cat"]).output == ""
    assert here.call(Shell(), command="read x; echo got:$x").output == "got:\n"


@pytest.mark.parametrize("kind", [*KINDS, "none"])
@pytest.mark.parametrize(
    "script",
    [
        "trap '' TERM INT HUP; sleep {mark}",
        "setsid sleep {mark} & sleep {mark}",
        "(sleep {mark} &) ; sleep {mark}",
    ],
    ids=["ignores SIGTERM", "setsid", "double fork"],
)
def test_a_time_limit_ends_all_of_it(writing: World, kind: str, script: str) -> None:
    mark = marker()
    held = writing.using(sandbox=kind) if kind == "none" else sandboxed(writing, kind)
    began = time.monotonic()
    told = held.call(Shell(), command=script.format(mark=mark), timeout_s=0.4)
    assert (told.success, told.error) == (False, "ended after the limit of 0.4 s")
    assert time.monotonic() - began < PATIENCE_S
    assert running(mark) == []


def test_a_background_job_does_not_outlive_the_call(writing: World) -> None:
    mark = marker()
    told = writing.call(Shell(), command=f"sleep {mark} >/dev/null 2>&1 & echo done")
    assert (told.success, told.output) == (True, "done\n")
    assert running(mark) == []
    mark = marker()
    held = sandboxed(writing, "landlock").call(Shell(), command=f"setsid sleep {mark} & echo done")
    assert held.metadata["leftovers"] == 1
    assert running(mark) == []


def sleeping(mark: str) -> bool:
    """Whether the ``sleep`` itself runs, not only the shell that is told of it."""
    for pid in running(mark):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
                return True
    return False


def test_a_cancellation_stops_it(here: World) -> None:
    mark, cancel = marker(), Cancellation()
    prepared = Shell().prepare(
        {"command": f"echo begun; sleep {mark}"}, here.using(cancel=cancel).context
    )
    seen: list[float] = []

    def stop() -> None:
        until = time.monotonic() + PATIENCE_S
        while not sleeping(mark) and time.monotonic() < until:
            time.sleep(0.01)
        seen.append(time.monotonic())
        cancel.cancel("the emergency stop is on")

    thread = threading.Thread(target=stop)
    thread.start()
    told = prepared.perform()
    ended = time.monotonic()
    thread.join()
    assert ended - seen[0] < PATIENCE_S
    assert (told.error, told.output) == ("stopped: the emergency stop is on", "begun\n")
    assert running(mark) == []
    again = here.using(cancel=cancel).call(Shell(), command="echo never")
    assert (again.success, again.output) == (False, "")


def test_endless_output_is_bounded_with_head_and_tail(here: World) -> None:
    small = here.using(limits=ToolLimits(output_bytes=2000))
    told = small.call(Shell(), command="yes | head -c 100000; echo END")
    assert told.success
    assert len(told.output.encode()) <= 2000
    assert told.output.startswith("y\ny\n")
    assert told.output.endswith("y\nEND\n")
    assert re.search(r"\[… \d+ bytes are cut here …\]", told.output)
    assert told.metadata["cut"] is True
    told = small.call(Shell(), command="yes", timeout_s=0.3)
    assert len(told.output.encode()) <= 2000
    assert told.error == "ended after the limit of 0.3 s"


def test_neither_stream_crowds_the_other_out(here: World) -> None:
    small = here.using(limits=ToolLimits(output_bytes=2000))
    told = small.call(
        Shell(), command="yes out | head -c 50000; yes err | head -c 50000 >&2; echo OUT; echo E>&2"
    )
    assert len(told.output.encode()) <= 2000
    out, _, err = told.output.partition("[stderr]\n")
    assert out.startswith("out\n")
    assert out.endswith("OUT\n")
    assert err.startswith("err\n")
    assert err.endswith("E\n")
    told = small.call(Shell(), command="printf '\\377%.0s' {1..3000}")
    assert len(told.output.encode()) <= 2000


def test_a_fork_bomb_is_ended(writing: World) -> None:
    mark = marker()
    # Eight at once instead of without end: what is tested is that none is left.
    script = f"b() {{ for i in 1 2 3 4 5 6 7 8; do sleep {mark} & done; }}; b; b & wait"
    told = writing.call(Shell(), command=script, timeout_s=0.5)
    assert not told.success
    assert running(mark) == []


def test_the_scratch_directory_is_gone_afterwards(writing: World, tmp_path: Path) -> None:
    held = sandboxed(writing, "landlock")
    told = held.call(Shell(), command='echo "$TMPDIR"; touch "$TMPDIR/x"')
    assert told.success
    assert not Path(told.output.strip()).exists()


def test_a_wrong_time_limit_is_refused(here: World) -> None:
    bad: list[Any] = [0, -1, True, "x", float("nan")]
    for value in bad:
        with pytest.raises(UsageError, match="timeout_s"):
            here.call(Shell(), command="pwd", timeout_s=value)
