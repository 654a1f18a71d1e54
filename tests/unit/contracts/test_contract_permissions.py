"""Permissions have one order, and whoever asks for more is told so, never given less."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import pytest

from coilclaw.kernel.schemas import SchemaProblem
from coilclaw.runs.contracts import permissions
from coilclaw.runs.contracts.policy_files import ApprovalPolicy, RegisteredAgent, Sandbox
from coilclaw.runs.contracts.task_contract import Filesystem, Network, Shell, ToolPermissions


def _asked(**changes: Any) -> ToolPermissions:
    base: dict[str, Any] = {
        "filesystem": "workspace-write",
        "shell": "never",
        "network": "deny",
        "mcp_tools": ["coilclaw"],
    }
    base.update(changes)
    return ToolPermissions.of({key: value for key, value in base.items() if value is not None})


def _agent(**changes: Any) -> RegisteredAgent:
    defaults = {"sandbox": "workspace-write", "approval_policy": "never", "network": "deny"}
    return RegisteredAgent.of(
        {
            "agent_id": "worker",
            "role": "WORKER",
            "codex_home": "h",
            "defaults": {**defaults, **changes},
            "capabilities": {"mcp_tools": ["coilclaw"]},
        }
    )


@pytest.mark.parametrize(
    ("change", "where", "message"),
    [
        ({"shell": "on-request"}, "shell", "asks for on-request, and worker as WORKER has never"),
        ({"shell": "untrusted"}, "shell", "asks for untrusted, and worker as WORKER has never"),
        ({"network": "allow"}, "network", "asks for allow, and worker as WORKER has deny"),
        (
            {"network": "on-request"},
            "network",
            "asks for on-request, and worker as WORKER has deny",
        ),
        ({"mcp_tools": ["coilclaw", "x"]}, "mcp_tools/1", "worker as WORKER has no tool 'x'"),
    ],
)
def test_more_than_the_registry_gives_is_a_problem(
    change: dict[str, Any], where: str, message: str
) -> None:
    found = permissions.find_over_asked(_asked(**change), _agent())
    assert found == (SchemaProblem(f"/tool_permissions/{where}", message),)


def test_writing_in_a_reading_role_is_a_problem() -> None:
    found = permissions.find_over_asked(_asked(), _agent(sandbox="read-only"))
    assert [problem.path for problem in found] == ["/tool_permissions/filesystem"]


@pytest.mark.parametrize(
    "change",
    [{}, {"shell": None}, {"shell": "deny"}, {"filesystem": "read-only"}, {"mcp_tools": []}],
)
def test_as_much_or_less_is_none(change: dict[str, Any]) -> None:
    assert permissions.find_over_asked(_asked(**change), _agent()) == ()


def test_an_omitted_shell_is_denied() -> None:
    assert permissions.effective(_asked(shell=None)).shell == "deny"
    assert _asked(shell=None).effective_shell == "deny"
    assert _asked().effective_shell == "never"


def test_asking_for_every_command_is_less_than_asking_for_some() -> None:
    assert permissions.ORDER["shell"] == ("deny", "never", "untrusted", "on-request")
    assert (
        permissions.find_over_asked(_asked(shell="untrusted"), _agent(approval_policy="on-request"))
        == ()
    )
    assert permissions.find_over_asked(
        _asked(shell="on-request"), _agent(approval_policy="untrusted")
    )


def test_every_word_of_the_schemas_has_its_place() -> None:
    assert set(permissions.ORDER["filesystem"]) == set(get_args(Filesystem)) | set(
        get_args(Sandbox)
    )
    assert set(permissions.ORDER["shell"]) == set(get_args(Shell)) | set(get_args(ApprovalPolicy))
    assert set(permissions.ORDER["network"]) == set(get_args(Network))


@pytest.mark.parametrize("kind", sorted(permissions.ORDER))
def test_the_order_is_total_and_an_unknown_word_is_too_much(kind: str) -> None:
    words = permissions.ORDER[kind]
    for one, other in product(words, words):
        assert permissions.exceeds(kind, one, other) is (words.index(one) > words.index(other))
    assert permissions.exceeds(kind, "unheard-of", words[-1])
    assert permissions.exceeds(kind, words[0], "unheard-of")


def test_a_sub_contract_stays_within_its_parent() -> None:
    parent = _asked()
    granted = permissions.effective(parent), parent.mcp_tools, "the parent contract"
    assert permissions.find_exceeding(_asked(), *granted) == ()
    assert permissions.find_exceeding(_asked(shell="deny", mcp_tools=[]), *granted) == ()
    found = permissions.find_exceeding(_asked(network="allow", mcp_tools=["codex"]), *granted)
    assert [p.path for p in found] == ["/tool_permissions/network", "/tool_permissions/mcp_tools/0"]
