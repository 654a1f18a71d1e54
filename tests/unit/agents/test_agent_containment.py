"""What an agent is held to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from coilclaw.runners import confinement, contract_policy
from coilclaw.runners.runner import AgentRequest
from coilclaw.workspace.process.confinement import Sandbox
from coilclaw.workspace.process.sandbox_view import find_private_files
from tests.support.performing import Overseer, Performance


def _places(tmp_path: Path) -> dict[str, Path]:
    made = {name: tmp_path / name for name in ("worktree", "gitdir", "home", "runs")}
    for path in made.values():
        path.mkdir()
    return made


def test_our_own_places_are_hidden_and_what_is_missing_is_not(tmp_path: Path) -> None:
    made = _places(tmp_path)
    sandbox = confinement.sandbox_of(
        (made["worktree"], made["gitdir"]),
        made["home"],
        filesystem="workspace-write",
        network="deny",
        hidden=(made["runs"], tmp_path / "missing", made["runs"]),
    )
    assert sandbox == Sandbox(
        "auto",
        writable=(made["home"], made["worktree"], made["gitdir"]),
        hidden=(made["runs"], *find_private_files()),
        required=True,
        shown=(made["worktree"], made["gitdir"]),
        programs=(Path(sys.executable).resolve(),),
    )


def test_read_only_leaves_the_home_writable_and_nothing_else(tmp_path: Path) -> None:
    made = _places(tmp_path)
    sandbox = confinement.sandbox_of(
        (made["worktree"],),
        made["home"],
        filesystem="read-only",
        network="allow",
    )
    assert (sandbox.writable, sandbox.network) == ((made["home"],), True)


@pytest.mark.parametrize(("network", "open_"), [("deny", False), ("on-request", False)])
def test_a_network_that_nobody_allowed_is_closed(tmp_path: Path, network: str, open_: bool) -> None:
    stage = Performance.make(tmp_path)
    assert stage.assignment(network=network).sandbox.network is open_


def test_only_a_chosen_none_does_without_a_sandbox(tmp_path: Path) -> None:
    assert not Performance.make(tmp_path, "none").assignment().sandbox.required


AMBIENT = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONPATH", "PYTHONSTARTUP", "NODE_OPTIONS")


def test_the_environment_is_made_from_nothing(tmp_path: Path) -> None:
    worktree, home = tmp_path / "worktree", tmp_path / "home"
    (worktree / "bin").mkdir(parents=True)
    made = confinement.environ_of(
        home,
        {
            "PATH": f"{worktree}/bin:/usr/bin:relative",
            "HOME": "/somebody",
            "TMPDIR": "/elsewhere",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "LD_PRELOAD": "/x.so",
            **dict.fromkeys(AMBIENT, "-p evil"),
        },
        kept_out=(worktree,),
    )
    assert made["PATH"] == "/usr/bin"
    assert (made["HOME"], made["TMPDIR"]) == (str(home), str(home / "tmp"))
    assert not {"AWS_SECRET_ACCESS_KEY", "LD_PRELOAD", *AMBIENT} & set(made)


@pytest.mark.parametrize(
    ("shell", "contained", "answers", "allowed", "asked"),
    [
        ("deny", True, [True], False, 0),
        ("deny", False, [True], False, 0),
        ("never", True, [], True, 0),
        ("never", False, [True], False, 0),
        ("on-request", True, [], True, 0),
        ("on-request", False, [True], True, 1),
        ("on-request", False, [], False, 1),
        ("untrusted", True, [True], True, 1),
        ("untrusted", True, [], False, 1),
        ("untrusted", False, [True], True, 1),
        ("yes please", True, [True], False, 0),
    ],
)
def test_the_table_of_the_shell(
    shell: str, contained: bool, answers: list[bool], allowed: bool, asked: int
) -> None:
    overseer = Overseer(list(answers))
    request = contract_policy.command_request("t", ("ls",), directory="/w")
    refusal = contract_policy.settle(
        shell,  # type: ignore[arg-type]  # also what is no word of the table
        request,
        overseer.approve,
        contained=contained,
    )
    assert (not refusal, len(overseer.asked)) == (allowed, asked)


def test_an_approval_is_bound_to_the_exact_command() -> None:
    def digest(*argv: str, directory: str = "/w") -> str:
        return contract_policy.command_request("t", argv, directory=directory).digest

    different = [
        digest("ls", "-l"),
        digest("ls -l"),
        digest("ls", "-l", directory="/x"),
        digest("ls", "-l", "\udc80"),
        contract_policy.request("t", "change", "", ('argv: ["ls", "-l"]', "in: /w")).digest,
    ]
    assert len(set(different)) == len(different)
    made = contract_policy.command_request("t", ("ls",), directory="/w")
    assert made == AgentRequest(
        "t", "command", 'run ["ls"]', ('argv: ["ls"]', "in: /w"), made.digest
    )
