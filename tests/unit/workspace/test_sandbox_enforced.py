"""What holds for a child in each sandbox of this machine, tried from the inside."""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from coilclaw.workspace.process import command, supervision
from coilclaw.workspace.process.confinement import SYSTEM_PATHS, Kind, Sandbox, SandboxSupport
from coilclaw.workspace.process.launch import ProcessResult
from tests.support.children import (
    PATIENCE_S,
    PYTHON,
    given_time,
    marker,
    open_fds,
    running,
    zombies,
)
from tests.support.sandboxes import bubblewrap_packages, supported


@pytest.fixture(params=["bubblewrap", "landlock"], scope="module")
def offered(request: pytest.FixtureRequest) -> tuple[Kind, SandboxSupport]:
    return cast("Kind", request.param), supported(request.param)


class Place:
    """A tree to work in, another one beside it, and secrets."""

    def __init__(self, root: Path, offered: tuple[Kind, SandboxSupport]) -> None:
        self.kind, self.support = offered
        self.root = root
        self.tree = root / "tree"
        self.outside = root / "outside"
        self.secrets = root / "secrets"
        for path in (self.tree, self.outside, self.secrets):
            path.mkdir()
            path.chmod(0o755)
        (self.outside / "file").write_text("outside")
        (self.secrets / "key").write_text("canary")

    def sandbox(self, **fields: Any) -> Sandbox:
        fields.setdefault("writable", (self.tree,))
        return Sandbox(self.kind, **fields)

    def sh(self, text: str, sandbox: Sandbox | None = None, **kwargs: Any) -> ProcessResult:
        return self.run(["sh", "-c", text], sandbox, **kwargs)

    def run(self, argv: list[str], sandbox: Sandbox | None = None, **kwargs: Any) -> ProcessResult:
        kwargs = {"cwd": self.tree, "timeout_s": PATIENCE_S, **kwargs}
        return command.run(argv, sandbox=sandbox or self.sandbox(), support=self.support, **kwargs)


@pytest.fixture
def place(offered: tuple[Kind, SandboxSupport]) -> Iterator[Place]:
    # Not below /tmp, which a private one would cover.
    root = Path("/var/tmp") / f"coilclaw-test-{marker()}"
    root.mkdir(mode=0o755)
    yield Place(root, offered)
    shutil.rmtree(root)


def test_writing_outside_is_denied_and_inside_allowed(place: Place) -> None:
    out = place.outside
    attempts = [
        f"echo x > {out}/new",
        f"echo x >> {out}/file",
        f": > {out}/file",
        f"truncate -s 0 {out}/file",
        f"rm {out}/file",
        f"mkdir {out}/dir",
        f"ln -s x {out}/link",
        f"ln {out}/file {place.tree}/hard",
        f"mv {out}/file {place.tree}/moved",
        f"mv {place.tree}/mine {out}/moved",
        f"mkfifo {out}/fifo",
        f"chmod -R 777 {place.tree}/../outside/new",
        "echo x > /dev/../etc/coilclaw-canary",
        "echo x > /proc/sys/kernel/hostname",
    ]
    allowed = (
        "echo x > mine && mkdir -p a/b && mv mine a/b/c && ln a/b/c d && rm d && echo y > mine"
    )
    tries = "; ".join(
        f"({attempt}) 2>/dev/null && echo '{n}'" for n, attempt in enumerate(attempts)
    )
    result = place.sh(f"{allowed} && echo allowed; {tries}; exit 0")
    assert (result.stdout.text(), result.exit_code) == ("allowed\n", 0)
    assert sorted(os.listdir(out)) == ["file"]
    assert (out / "file").read_text() == "outside"
    assert (place.tree / "a" / "b" / "c").read_text() == "x\n"


def test_a_link_does_not_lead_out(place: Place) -> None:
    (place.tree / "way").symlink_to(place.outside)
    shown = place.sandbox(readable=(*SYSTEM_PATHS, place.outside))
    result = place.sh("echo x > way/new; echo x > way/file; cat way/file", shown)
    assert result.stdout.text() == "outside"
    assert place.sh("cat way/file").stdout.text() == ""
    assert sorted(os.listdir(place.outside)) == ["file"]


def test_nothing_is_writable_unless_listed(place: Place) -> None:
    result = place.sh("echo x > new", place.sandbox(writable=()))
    assert result.exit_code != 0
    assert list(place.tree.iterdir()) == []


def test_one_file_can_be_made_writable(place: Place) -> None:
    sandbox = place.sandbox(writable=(place.outside / "file",))
    place.sh(f"echo changed > {place.outside}/file; echo x > {place.outside}/new", sandbox)
    assert sorted(os.listdir(place.outside)) == ["file"]
    assert (place.outside / "file").read_text() == "changed\n"


def test_what_nothing_names_is_not_there(place: Place) -> None:
    text = f"cat {place.outside}/file; ls {place.outside}; ls /usr >/dev/null && echo system"
    assert place.sh(text).stdout.text() == "system\n"
    named = place.sandbox(readable=(*SYSTEM_PATHS, place.outside))
    assert place.sh(text, named).stdout.text() == "outsidefile\nsystem\n"


def test_a_hidden_directory_cannot_be_read_and_its_neighbour_can(place: Place) -> None:
    sandbox = place.sandbox(
        readable=(*SYSTEM_PATHS, place.outside, place.root), hidden=(place.secrets,)
    )
    result = place.sh(
        f"cat {place.secrets}/key; ls {place.secrets}; cat {place.outside}/file; "
        f"echo x > {place.secrets}/new",
        sandbox,
    )
    assert result.stdout.text() == "outside"
    assert result.exit_code != 0
    assert sorted(os.listdir(place.secrets)) == ["key"]


def test_a_hidden_file_cannot_be_read_and_its_neighbour_can(place: Place) -> None:
    (place.secrets / "public").write_text("public")
    shown = (*SYSTEM_PATHS, place.secrets)
    sandbox = place.sandbox(readable=shown, hidden=(place.secrets / "key",))
    result = place.sh(f"cat {place.secrets}/key; cat {place.secrets}/public", sandbox)
    assert result.stdout.text() == "public"
    assert (place.secrets / "key").read_text() == "canary"


def test_a_link_to_what_is_hidden_does_not_show_it(place: Place) -> None:
    (place.outside / "link").symlink_to(place.secrets / "key")
    (place.tree / "link").symlink_to(place.secrets)
    sandbox = place.sandbox(readable=(*SYSTEM_PATHS, place.root), hidden=(place.secrets,))
    result = place.sh(f"cat {place.outside}/link link/key /proc/self/cwd/link/key", sandbox)
    assert result.stdout.text() == ""


def test_a_writable_place_inside_a_hidden_one_shows_again(place: Place) -> None:
    inner = place.secrets / "inner"
    inner.mkdir()
    sandbox = place.sandbox(writable=(inner,), hidden=(place.secrets,))
    result = place.sh(f"cat {place.secrets}/key; echo x > {inner}/new", sandbox, cwd=inner)
    assert (result.stdout.text(), result.exit_code) == ("", 0)
    assert (inner / "new").read_text() == "x\n"


def test_only_what_is_named_readable_is(place: Place) -> None:
    sandbox = place.sandbox(readable=SYSTEM_PATHS, hidden=(Path("/etc/passwd"),))
    result = place.sh(
        f"cat {place.outside}/file; cat /etc/passwd; ls /var/lib; echo x > mine; cat mine; "
        "head -c1 /dev/zero >/dev/null && echo devices",
        sandbox,
    )
    assert result.stdout.text() == "x\ndevices\n"
    result = place.sh(
        f"cat {place.outside}/file", place.sandbox(readable=(*SYSTEM_PATHS, place.outside))
    )
    assert result.stdout.text() == "outside"


def test_harmless_devices_stay_usable(place: Place) -> None:
    text = (
        "echo x > /dev/null && head -c3 /dev/zero | wc -c && "
        "head -c3 /dev/urandom | wc -c && ! echo x > /dev/full"
    )
    result = place.sh(text)
    assert (result.stdout.text(), result.exit_code) == ("3\n3\n", 0)


CONNECT = """
import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) as connection:
        print("connected", connection.recv(5).decode())
except OSError as error:
    print(type(error).__name__)
"""
LISTEN = """
import socket
try:
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    print("bound")
except OSError as error:
    print(type(error).__name__)
"""


@pytest.fixture
def port() -> Iterator[int]:
    server = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        while not stop.is_set():
            connection, _ = server.accept()
            with connection:
                connection.send(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    yield server.getsockname()[1]
    stop.set()
    socket.create_connection(server.getsockname()).close()
    thread.join()
    server.close()


def test_the_network_is_denied_and_allowed_as_asked(place: Place, port: int) -> None:
    argv = [*PYTHON, CONNECT, str(port)]
    denied = place.run(argv, place.sandbox(network=False))
    refusal = {"bubblewrap": "ConnectionRefusedError", "landlock": "PermissionError"}
    assert denied.stdout.text() == refusal[place.kind] + "\n"
    whole = place.kind == "bubblewrap" or place.support.seccomp
    assert denied.enforced.network == ("blocked" if whole else "tcp-blocked")
    allowed = place.run(argv, place.sandbox(network=True))
    assert allowed.stdout.text() == "connected hello\n"
    assert allowed.enforced.network == "open"


SOCKETS = """
import socket
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
    try:
        found = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET:
            found.sendto(b"x", ("127.0.0.1", 9))
        print(family.name, "sent")
    except OSError as problem:
        print(family.name, type(problem).__name__)
"""


def test_landlock_with_a_filter_refuses_datagrams_too(place: Place) -> None:
    if place.kind != "landlock" or not place.support.seccomp:
        pytest.skip("bubblewrap has a network of its own; without filters there is nothing to see")
    argv = [*PYTHON, SOCKETS]
    told = place.run(argv, place.sandbox(network=False)).stdout.text().splitlines()
    assert told == [f"{name} PermissionError" for name in ("AF_INET", "AF_INET6", "AF_UNIX")]
    free = place.run(argv, place.sandbox(network=True)).stdout.text().splitlines()
    assert (free[0], free[2]) == ("AF_INET sent", "AF_UNIX sent")


INSIDE = """
import ctypes, os, socket, sys
def attempt(name, act):
    try:
        act()
        print(name, "done")
    except OSError as problem:
        print(name, type(problem).__name__)
def inspect(pid):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(16, pid, 0, 0):
        raise OSError(ctypes.get_errno(), "ptrace")
attempt("pair", socket.socketpair)
attempt("mode", lambda: os.chmod("own", 0o600))
attempt("owner", lambda: os.chown("own", os.getuid(), os.getgid()))
attempt("attribute", lambda: os.setxattr("own", "user.x", b"1"))
child = os.fork()
if not child:
    os.execv("/bin/sleep", ["sleep", "60"])
attempt("trace", lambda: inspect(child))
os.kill(child, 9)
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")])
"""


def test_landlock_has_no_capabilities_and_a_filter_for_what_it_cannot_withhold(
    place: Place,
) -> None:
    if place.kind != "landlock" or not place.support.seccomp:
        pytest.skip("bubblewrap shows nothing else; without filters there is nothing to see")
    (place.tree / "own").touch()
    told = place.run([*PYTHON, INSIDE], place.sandbox(writable=(place.tree,)))
    assert told.stdout.text().splitlines() == [
        "pair done",
        "mode done",
        "owner PermissionError",
        "attribute PermissionError",
        "trace PermissionError",
        "['0000000000000000']",
    ], told.stderr.text()


@pytest.mark.parametrize("network", [False, True])
def test_our_environment_cannot_be_read(place: Place, *, network: bool) -> None:
    """Root's commands had root's capabilities once, and read the keys of who started them."""
    result = place.run(["cat", f"/proc/{os.getpid()}/environ"], place.sandbox(network=network))
    assert (result.exit_code, result.stdout.text()) == (1, "")


def test_an_abstract_socket_of_ours_is_out_of_reach(place: Place) -> None:
    if place.support.landlock_abi < 6:
        pytest.skip("where the network is shared, Landlock keeps abstract sockets away")
    name = f"\0coilclaw-{marker()}"
    connect = (
        "import socket, sys\n"
        "try: socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[1]); print('connected')\n"
        "except OSError as error: print(type(error).__name__)\n"
    )
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        argv = [*PYTHON, connect, name[1:]]
        for network in (False, True):
            denied = place.run(argv, place.sandbox(network=network))
            assert denied.stdout.text() in {"ConnectionRefusedError\n", "PermissionError\n"}
        assert (
            command.run(argv, cwd=place.tree, timeout_s=PATIENCE_S).stdout.text() == "connected\n"
        )


def test_listening_is_possible_only_where_nobody_can_connect(place: Place) -> None:
    found = place.run([*PYTHON, LISTEN], place.sandbox(network=False)).stdout.text()
    assert found == {"bubblewrap": "bound\n", "landlock": "PermissionError\n"}[place.kind]
    assert place.run([*PYTHON, LISTEN], place.sandbox(network=True)).stdout.text() == "bound\n"


def test_our_processes_cannot_be_signalled(place: Place) -> None:
    if place.kind == "landlock" and place.support.landlock_abi < 6:
        pytest.skip("Landlock scopes signals from version 6")
    mark = marker()
    with command.open(["sleep", mark], cwd=place.tree, timeout_s=600) as other:
        result = place.sh(
            f"kill -9 {other.pid} || echo denied; kill -0 {os.getpid()} || echo denied"
        )
        assert result.stdout.text() == "denied\ndenied\n"
        assert running(mark) == [other.pid]


def test_what_the_child_is_held_to_does_not_hold_us(place: Place) -> None:
    def privileges() -> list[str]:
        status = Path("/proc/thread-self/status").read_text().splitlines()
        return [line for line in status if line.startswith(("NoNewPrivs", "Seccomp:", "Cap"))]

    def act() -> str:
        """Everything that the child below is denied, done by us."""
        (place.outside / f"ours-{threading.get_ident()}").write_text("x")
        with socket.create_server(("127.0.0.1", 0)):
            return (place.secrets / "key").read_text()

    before, threads = privileges(), threading.active_count()
    sandbox = place.sandbox(hidden=(place.secrets,), network=False)
    with ThreadPoolExecutor(2) as pool:
        # One of the threads exists before, so that it could have been caught up in it.
        assert pool.submit(act).result() == "canary"
        for _ in range(3):
            assert (
                place.sh(
                    f"cat {place.secrets}/key; echo x > {place.outside}/new", sandbox
                ).stdout.total
                == 0
            )
        assert pool.submit(act).result() == "canary"
        assert pool.submit(privileges).result() == before
    assert act() == "canary"
    assert privileges() == before
    assert threading.active_count() == threads
    assert not (place.outside / "new").exists()
    assert command.run(["touch", str(place.outside / "free")], cwd="/", timeout_s=PATIENCE_S).ok


def test_the_exit_code_passes_through(place: Place) -> None:
    for code in (0, 1, 2, 127, 255):
        result = place.sh(f"exit {code}")
        assert (result.outcome, result.exit_code) == ("exited", code)


def test_environment_and_input_pass_through(place: Place) -> None:
    result = place.sh(
        "cat; env -0", env={"ONLY": "this", "EMPTY": "", "LINES": "a\nb=c"}, stdin=b"fed:"
    )
    fed, _, rest = result.stdout.text().partition(":")
    found = dict(pair.partition("=")[::2] for pair in rest.split("\0") if pair)
    found.pop("PWD")
    assert len(found.pop("COILCLAW_PROCESS")) >= 32
    assert (fed, found) == ("fed", {"ONLY": "this", "EMPTY": "", "LINES": "a\nb=c"})


def test_no_file_descriptor_leaks_into_it(place: Place) -> None:
    fd = os.open(place.secrets / "key", os.O_RDONLY)
    os.set_inheritable(fd, True)
    try:
        assert place.run(["ls", "/proc/self/fd"]).stdout.text().split() == ["0", "1", "2", "3"]
    finally:
        os.close(fd)


def test_the_time_limit_ends_everything_in_it(place: Place) -> None:
    mark, before = marker(), open_fds()
    text = (
        f"trap '' TERM; setsid sleep {mark} & env -i setsid sleep {mark} & echo up; "
        f"sleep {mark}; sleep {mark}"
    )
    result = given_time(
        0.5,
        lambda timeout_s: place.sh(text, timeout_s=timeout_s),
        lambda result: result.stdout.data,
    )
    assert (result.outcome, result.stdout.text(), result.unkillable) == ("timed_out", "up\n", ())
    assert (running(mark), zombies(), open_fds()) == ([], [], before)


def test_a_child_that_ends_on_sigterm_may_say_goodbye_in_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "TERMINATE_GRACE_S", PATIENCE_S)
    text = "trap 'echo bye; exit 9' TERM; sleep 1000 & echo up; wait"
    result = given_time(
        0.5,
        lambda timeout_s: place.sh(text, timeout_s=timeout_s),
        lambda result: result.stdout.data,
    )
    assert (result.outcome, result.stdout.text()) == ("timed_out", "up\nbye\n")


def test_what_it_leaves_behind_ends(place: Place) -> None:
    mark = marker()
    result = place.sh(f"sleep {mark} & setsid sleep {mark} & echo left; exit 4")
    assert (result.outcome, result.exit_code, result.stdout.text()) == ("exited", 4, "left\n")
    assert running(mark) == []


def test_it_is_cancelled_at_once(place: Place) -> None:
    cancel, mark = command.Cancellation(), marker()
    timer = threading.Timer(0.3, cancel.cancel, ["enough"])
    timer.start()
    result = place.run(["sleep", mark], timeout_s=600, cancel=cancel)
    assert result.outcome == "cancelled"
    assert result.duration_s < PATIENCE_S
    assert running(mark) == []


def test_it_can_be_spoken_with(place: Place) -> None:
    before = open_fds()
    with command.open(
        ["sh", "-c", f"read line; echo $line > mine; echo x > {place.outside}/new; cat mine"],
        cwd=place.tree,
        timeout_s=PATIENCE_S,
        sandbox=place.sandbox(),
        support=place.support,
    ) as live:
        live.stdin.write(b"hello\n")
        assert live.stdout.read() == b"hello\n"
    assert live.result is not None
    assert (live.result.exit_code, live.result.enforced.kind) == (0, place.kind)
    assert not (place.outside / "new").exists()
    assert (open_fds(), zombies()) == (before, [])


def test_it_outlives_the_thread_that_opened_it(place: Place) -> None:
    """A sandbox that dies with its parent dies with the thread that started it."""
    with ThreadPoolExecutor(1) as pool:
        live = pool.submit(
            command.open,
            ["cat"],
            cwd=place.tree,
            timeout_s=600,
            sandbox=place.sandbox(),
            support=place.support,
        ).result()
    with live:
        for word in (b"one\n", b"two\n"):
            live.stdin.write(word)
            assert live.stdout.readline() == word


def test_many_threads_use_it_at_once(place: Place) -> None:
    before = open_fds()

    def one(number: int) -> tuple[str, int | None]:
        result = place.sh(f"echo {number} > n{number}; cat n{number}; echo x > {place.outside}/no")
        return result.stdout.text(), result.exit_code

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(one, range(24)))
    assert [text for text, _ in found] == [f"{number}\n" for number in range(24)]
    assert all(code != 0 for _, code in found)
    assert open_fds() == before


ORDINARY = """
import json, os, sys
from pathlib import Path
from coilclaw.workspace.process import command as process
from coilclaw.workspace.process.sandbox import Sandbox, probe_sandboxes as probe
kind, root = sys.argv[1], Path(sys.argv[2])
sandbox = Sandbox(kind, writable=(root / "tree",), hidden=(root / "secrets",))
text = f"id -u; echo x > mine && cat mine; echo x > {root}/outside/new; cat {root}/secrets/key"
result = process.run(
    ["sh", "-c", text], cwd=root / "tree", timeout_s=60, sandbox=sandbox, support=probe()
)
killed = process.run(
    ["sh", "-c", "trap '' TERM; setsid sleep 1000 & sleep 1000; sleep 1000"],
    cwd=root / "tree", timeout_s=0.3, sandbox=sandbox, support=probe(),
)
print(json.dumps([result.enforced.kind, result.stdout.text(), killed.outcome, killed.unkillable]))
"""


def test_it_holds_for_an_ordinary_user(place: Place) -> None:
    if os.geteuid() != 0:
        pytest.skip("every other test here was run as an ordinary user already")
    for path in (place.tree, place.outside, place.secrets):
        path.chmod(0o777)
    source = Path(command.__file__).parents[2]
    shutil.copytree(source, place.root / "coilclaw", ignore=shutil.ignore_patterns("__pycache__"))
    for package in bubblewrap_packages():
        shutil.copytree(package, place.root / package.name)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    result = command.run(
        [*user, "/usr/bin/python3", "-c", ORDINARY, place.kind, str(place.root)],
        cwd=place.root,
        timeout_s=PATIENCE_S,
        env={
            "PYTHONPATH": str(place.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PATH": "/usr/bin:/bin",
        },
    )
    assert result.exit_code == 0, result.stderr.text()
    assert json.loads(result.stdout.text()) == [place.kind, "65534\nx\n", "timed_out", []]
    assert os.listdir(place.outside) == ["file"]
