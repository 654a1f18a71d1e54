"""A sandbox in which others can be put up: what they can do, and what still holds."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault
from coilclaw.workspace.process import bubblewrap, command
from coilclaw.workspace.process.confinement import Confinement, Sandbox, SandboxSupport, resolve
from coilclaw.workspace.process.launch import ProcessResult
from coilclaw.workspace.process.sandbox import choose_sandbox
from tests.support.children import PATIENCE_S
from tests.support.sandboxes import supported

INNER = "--ro-bind / / --dev /dev --unshare-user --unshare-pid --unshare-net"
WIDE = "--bind / / --unshare-user --cap-add ALL"


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return supported("bubblewrap")


def sh(text: str, tree: Path, support: SandboxSupport, *, nested: bool) -> ProcessResult:
    # The inner bubblewrap may be the packaged one, with its libraries beside it.
    packages = Path(sysconfig.get_path("platlib"))
    sandbox = Sandbox(
        "bubblewrap", writable=(tree,), shown=(packages,), private_tmp=False, nested=nested
    )
    return command.run(
        ["sh", "-c", text], cwd=tree, timeout_s=PATIENCE_S, sandbox=sandbox, support=support
    )


def test_only_root_becomes_somebody_else_for_it() -> None:
    plain = bubblewrap.command(["x"], Confinement(), "/")
    nested = bubblewrap.command(["x"], Confinement(nested=True), "/")
    added = ["--uid", "65534", "--gid", "65534"] if os.geteuid() == 0 else []
    at = plain.index("ALL") + 1
    assert nested == [*plain[:at], *added, *plain[at:]]


def test_what_is_asked_for_is_resolved() -> None:
    assert resolve(Sandbox("auto", nested=True)).nested
    assert not resolve(Sandbox("auto")).nested


@pytest.mark.parametrize("kind", ["auto", "landlock"])
def test_under_landlock_there_can_be_none(kind: str) -> None:
    landlock = SandboxSupport(landlock_abi=7, seccomp=True)
    with pytest.raises(EnvironmentFault) as caught:
        choose_sandbox(Sandbox(kind, nested=True), landlock)  # type: ignore[arg-type]  # both are kinds
    assert caught.value.rule == "sandbox.nested"
    assert choose_sandbox(Sandbox(kind), landlock).enforced.kind == "landlock"  # type: ignore[arg-type]


def test_an_inner_sandbox_can_be_narrower(tmp_path: Path, support: SandboxSupport) -> None:
    (tmp_path / "in").mkdir()
    inner = (
        f"{support.bubblewrap} {INNER} --bind in {tmp_path}/in sh -c 'echo 1 > in/a; echo 2 > b'"
    )
    result = sh(inner, tmp_path, support, nested=True)
    assert "b: Read-only file system" in result.stderr.text()
    assert (tmp_path / "in" / "a").read_text() == "1\n"
    assert not (tmp_path / "b").exists()
    assert (tmp_path / "in" / "a").stat().st_uid == os.geteuid()


def test_an_inner_sandbox_cannot_be_wider(
    tmp_path: Path, support: SandboxSupport, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    wide = f"{support.bubblewrap} {WIDE}"
    tries = [
        f"{wide} sh -c 'echo x > {outside}/a'",
        f"{wide} --uid 0 sh -c 'mount -o remount,bind,rw /; echo x > {outside}/b'",
        f"unshare --user --map-root-user --mount sh -c 'umount -l /; echo x > {outside}/c'",
        f"echo x > {outside}/d",
    ]
    sh("; ".join(tries), tmp_path, support, nested=True)
    assert list(outside.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_root_without_it_can_put_up_none(tmp_path: Path, support: SandboxSupport) -> None:
    assert sh(f"{support.bubblewrap} {INNER} true", tmp_path, support, nested=False).exit_code != 0
    assert sh(f"{support.bubblewrap} {INNER} true", tmp_path, support, nested=True).exit_code == 0
