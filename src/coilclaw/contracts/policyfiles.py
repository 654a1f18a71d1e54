"""The files of ``policies/`` as records; ``PolicySet`` puts them together."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from coilclaw.contracts.record import Record
from coilclaw.contracts.roles import Role
from coilclaw.contracts.taskcontract import (
    Filesystem,
    Network,
    PackName,
    SetupCommand,
    Shell,
    TestPolicy,
)

CommandKind: TypeAlias = Literal["test", "check", "build", "script", "setup", "read"]
"""What a command is for; a pack says which kinds may be run. ``script``: whatever the project's
own files say under a name, such as a target or a package script. ``setup``: what prepares a
worktree, and is never run for anything else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRule(Record):
    """An argv is allowed that starts with ``exec`` and one of the prefixes, token by token.

    A token of a prefix matches exactly; one that ends in a slash means any file below that
    directory, as an ``exec`` does, and the empty prefix anything. A forbidden flag is forbidden in
    every spelling.
    """

    SCHEMA: ClassVar[str] = "command_allowlist.v1#CommandRule"

    exec: str
    kind: CommandKind
    prefixes: tuple[tuple[str, ...], ...]
    forbidden_flags: tuple[str, ...]
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandAllowlist(Record):
    SCHEMA: ClassVar[str] = "command_allowlist.v1"

    version: Literal["v1"]
    allow: tuple[CommandRule, ...]
    comment: str | None = None
    setup: tuple[SetupCommand, ...] | None = None
    """What prepares a worktree where a contract names no set-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForbiddenActions(Record):
    """An action is ``edit PATH``, or a command as tokens, such as ``rm -rf``."""

    SCHEMA: ClassVar[str] = "forbidden_actions.v1"

    version: Literal["v1"]
    forbidden_actions: tuple[str, ...]
    protected_paths: tuple[str, ...]
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class McpAllowlist(Record):
    SCHEMA: ClassVar[str] = "mcp_allowlist.v1"

    version: Literal["v1"]
    allow: tuple[str, ...]
    deny: tuple[str, ...]
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolRegistry(Record):
    SCHEMA: ClassVar[str] = "tool_registry.v1"

    version: Literal["v1"]
    installed: tuple[str, ...]
    integrated: tuple[str, ...]
    comment: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PackLimits(Record):
    SCHEMA: ClassVar[str] = "policy_pack.v1#PackLimits"

    max_timeout_sec: int
    max_retries: int
    max_allowed_paths: int
    max_changed_files: int
    max_patch_bytes: int
    broad_segments: int
    """A directory of at most so many segments is broad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackCeilings(Record):
    """What no contract may exceed under the pack, whatever its role may do."""

    SCHEMA: ClassVar[str] = "policy_pack.v1#PackCeilings"

    filesystem: Filesystem
    shell: Shell
    network: Network


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPack(Record):
    SCHEMA: ClassVar[str] = "policy_pack.v1"

    version: Literal["v1"]
    pack: PackName
    default_for: tuple[Role, ...]
    command_kinds: tuple[CommandKind, ...]
    forbidden_actions: tuple[str, ...]
    limits: PackLimits
    ceilings: PackCeilings
    test_policies: tuple[TestPolicy, ...]
    binary_changes: bool
    """Whether a contract may name ``binary_paths`` at all."""
    override_approvals: bool
    """Whether somebody may approve what is otherwise too broad."""
    strict_acceptance: bool
    """Whether trivial acceptance commands are refused also when the contract does not ask."""
    comment: str | None = None
