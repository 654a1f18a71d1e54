"""Landlock: rights by version of the kernel, the rules as data, and the thread that wears them."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.workspace.process import command, landlock
from coilclaw.workspace.process.confinement import Confinement, Sandbox, SandboxSupport
from coilclaw.workspace.process.landlock import (
    IOCTL_DEV,
    MAX_GRANTS,
    REFER,
    TRUNCATE,
    WRITE_FILE,
    Grant,
)
from tests.support.children import PATIENCE_S, open_fds
from tests.support.sandboxes import supported


@pytest.mark.parametrize(
    ("abi", "rights"),
    [
        (1, 0x1FFF),
        (2, 0x1FFF | REFER),
        (3, 0x1FFF | REFER | TRUNCATE),
        (4, 0x1FFF | REFER | TRUNCATE),
        (5, 0xFFFF),
        (6, 0xFFFF),
        (7, 0xFFFF),
        (99, 0xFFFF),
    ],
)
def test_rights_grow_with_the_version(abi: int, rights: int) -> None:
    assert landlock.rights_of(abi) == rights


def granted(confinement: Confinement) -> list[Grant]:
    return [grant for grant in landlock.grants(confinement) if not grant.path.startswith("/dev/")]


def test_what_is_hidden_inside_what_is_writable_is_refused(tmp_path: Path) -> None:
    tree, inner = str(tmp_path), str(tmp_path / "inner")
    with pytest.raises(EnvironmentFault) as caught:
        landlock.grants(Confinement(writable=(tree,), hidden_directories=(inner,)))
    assert caught.value.rule == "sandbox.hidden"
    assert caught.value.hint is not None
    beside = Confinement(writable=(inner,), readable=(), hidden_directories=(tree,))
    assert granted(beside) == [Grant(inner, 0xFFFF)]


def test_nothing_is_granted_that_is_not_named() -> None:
    assert granted(Confinement()) == []
    assert granted(Confinement(processes=True)) == [Grant("/proc", 0b1101)]


def test_everything_around_what_is_hidden_is_granted(tmp_path: Path) -> None:
    for name in ("a", "b/secret", "b/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "b" / "file").touch()
    (tmp_path / "b" / "link").symlink_to("secret")
    root = str(tmp_path)
    confinement = Confinement(readable=(root,), hidden_directories=(f"{root}/b/secret",))
    assert [grant.path for grant in granted(confinement)] == [
        f"{root}/a",
        f"{root}/b/c",
        f"{root}/b/file",
        f"{root}/d",
    ]


def test_too_many_rules_are_refused(tmp_path: Path) -> None:
    for number in range(MAX_GRANTS + 1):
        (tmp_path / str(number)).touch()
    (tmp_path / "secret").touch()
    root = str(tmp_path)
    with pytest.raises(EnvironmentFault) as caught:
        landlock.grants(Confinement(readable=(root,), hidden_files=(f"{root}/secret",)))
    assert caught.value.rule == "sandbox.hidden"


def test_devices_are_granted_by_name_only() -> None:
    devices = {grant.path: grant.rights for grant in landlock.grants(Confinement(readable=()))}
    assert set(devices) == {
        f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")
    }
    assert set(devices.values()) == {WRITE_FILE | 0b100 | IOCTL_DEV}


def test_an_old_kernel_is_asked_for_what_it_knows(tmp_path: Path) -> None:
    """A newer kernel takes the rules of every older one."""
    support = supported("landlock")
    (tmp_path / "outside").write_text("outside")
    tree = tmp_path / "tree"
    tree.mkdir()
    for abi in range(1, support.landlock_abi + 1):
        sandbox = Sandbox("auto", writable=(tree,), network=True)
        result = command.run(
            ["sh", "-c", "echo x > mine; rm ../outside; cat ../outside; cat mine"],
            cwd=tree,
            timeout_s=PATIENCE_S,
            sandbox=sandbox,
            support=SandboxSupport(landlock_abi=abi),
        )
        assert (result.stdout.text(), result.enforced.kind) == ("x\n", "landlock"), abi
        assert result.enforced.filesystem == (abi >= 3)
        assert (tmp_path / "outside").read_text() == "outside"


def test_no_new_privileges_are_gained(tmp_path: Path) -> None:
    support = supported("landlock")
    result = command.run(
        ["grep", "NoNewPrivs", "/proc/self/status"],
        cwd=tmp_path,
        timeout_s=PATIENCE_S,
        sandbox=Sandbox("landlock"),
        support=support,
    )
    assert result.stdout.text() == "NoNewPrivs:\t1\n"


def test_no_rule_reaches_what_is_hidden_by_way_of_its_parents(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    above = {"/", *map(str, secret.parents), str(secret)}
    rules = granted(Confinement(readable=("/",), hidden_directories=(str(secret),)))
    assert [grant for grant in rules if grant.path in above] == []
    assert Grant("/usr", 0b1101) in rules


def test_only_the_thread_that_starts_the_child_is_restricted(tmp_path: Path) -> None:
    support = supported("landlock")
    confinement = Confinement(readable=("/usr",), network=False)
    target = tmp_path / "file"
    seen: list[str] = []

    def inside() -> int:
        seen.append(threading.current_thread().name)
        with pytest.raises(PermissionError):
            target.write_text("inside")
        with pytest.raises(PermissionError):
            os.listdir("/etc")
        return len(os.listdir("/usr"))

    rules = landlock.ruleset(confinement, support.landlock_abi)
    before = open_fds()
    assert landlock.start_restricted(rules, inside) > 0
    assert seen == ["coilclaw-landlock"]
    assert gc.isenabled()
    target.write_text("outside")
    assert os.listdir("/etc")
    assert len(open_fds()) == len(before) - 1


def test_an_error_in_the_thread_is_raised_here() -> None:
    support = supported("landlock")
    rules = landlock.ruleset(Confinement(), support.landlock_abi)

    def failing() -> None:
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        landlock.start_restricted(rules, failing)
    assert gc.isenabled()


def test_rules_that_cannot_be_worn_start_nothing(tmp_path: Path) -> None:
    supported("landlock")
    fd = os.open("/dev/null", os.O_RDONLY)
    with pytest.raises(EnvironmentFault) as caught:
        landlock.start_restricted(fd, (tmp_path / "started").touch)
    assert caught.value.rule == "sandbox.landlock"
    assert not (tmp_path / "started").exists()


def test_a_kernel_without_it_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_arguments: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(landlock, "_syscall", missing)
    assert landlock.abi() == 0
    with pytest.raises(EnvironmentFault):
        landlock.ruleset(Confinement(), 1)
