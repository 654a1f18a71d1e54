"""``PolicySet``: all policies of a control root, read together, under one pack.

A file that is missing or malformed is an error. Less to read never allows more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import resources
from typing import TYPE_CHECKING, Final, Self, TypeVar, get_args

from coilclaw.kernel import UsageError, digest_bytes, hash_json, quote_text
from coilclaw.runs.contracts import task_contract
from coilclaw.runs.contracts.policy_files import (
    AgentRegistry,
    CommandAllowlist,
    ForbiddenActions,
    McpAllowlist,
    PolicyPack,
    ToolRegistry,
)
from coilclaw.runs.contracts.roles import ROLES
from coilclaw.runs.contracts.task_contract import PackName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.kernel import Record
    from coilclaw.runs.contracts.policy_files import CommandRule
    from coilclaw.runs.contracts.roles import Role
    from coilclaw.runs.contracts.task_contract import SetupCommand, TaskContract

    _R = TypeVar("_R", bound=Record)

FOLDER: Final = "policies"
"""Where they are in a repository; names of files are relative to it."""
REGISTRY_FILE: Final = "agent_registry.json"
PACKS: Final[tuple[PackName, ...]] = get_args(PackName)
"""From the loosest to the strictest."""
PROMPTS: Final = tuple(f"prompts/{role.lower()}.md" for role in ROLES)
REQUIRED: Final = (
    REGISTRY_FILE,
    "command_allowlist.json",
    "forbidden_actions.json",
    "mcp_allowlist.json",
    "tool_registry.json",
    *(f"packs/{pack}.json" for pack in PACKS),
)
SHIPPED: Final = (*REQUIRED, *PROMPTS)
MAX_FILES: Final = 200


@dataclass(frozen=True, slots=True)
class PolicySet:
    """What is allowed, forbidden and registered; everything in it was checked."""

    registry: AgentRegistry
    allowlist: CommandAllowlist
    forbidden: ForbiddenActions
    mcp: McpAllowlist
    tools: ToolRegistry
    packs: Mapping[PackName, PolicyPack]
    pack: PolicyPack
    """The one that was chosen."""
    contents: Mapping[str, bytes]
    """Every file that was read, prompts included."""

    @classmethod
    def of(cls, files: Mapping[str, bytes], pack: str | None = None, role: Role = "WORKER") -> Self:
        """Read the files of a ``policies`` folder; without a pack it is the default of the role."""
        if len(files) > MAX_FILES:
            raise UsageError(
                f"the policies have {len(files)} files, and {MAX_FILES} are the most",
                rule="policy.files",
            )
        packs = {name: _read(PolicyPack, files, f"packs/{name}.json") for name in PACKS}
        _check_packs(packs)
        return cls(
            registry=_read(AgentRegistry, files, REGISTRY_FILE),
            allowlist=_read(CommandAllowlist, files, "command_allowlist.json"),
            forbidden=_read(ForbiddenActions, files, "forbidden_actions.json"),
            mcp=_read(McpAllowlist, files, "mcp_allowlist.json"),
            tools=_read(ToolRegistry, files, "tool_registry.json"),
            packs=packs,
            pack=_choose_pack(packs, pack, role),
            contents=dict(files),
        )

    @classmethod
    def read_shipped(cls, pack: str | None = None, role: Role = "WORKER") -> Self:
        """The policies that CoilClaw comes with."""
        return cls.of(shipped_files(), pack, role)

    def under(self, pack: str | None, role: Role = "WORKER") -> Self:
        """The same policies under another pack."""
        return replace(self, pack=_choose_pack(self.packs, pack, role))

    def pack_for(self, contract: TaskContract) -> PackName:
        """The pack that a contract names, or the default of its role."""
        return contract.policy_pack or _default(self.packs, contract.assigned_agent.role).pack

    @property
    def files(self) -> dict[str, str]:
        """The SHA-256 of each file."""
        return {name: digest_bytes(data) for name, data in sorted(self.contents.items())}

    @property
    def sha256(self) -> str:
        """One hash over all files and the choice of the pack."""
        return hash_json({"files": dict(self.files), "pack": self.pack.pack})

    @property
    def commands(self) -> tuple[CommandRule, ...]:
        """The rules of the allowlist that the pack leaves, without those for a set-up."""
        return tuple(rule for rule in self.setup_commands if rule.kind != "setup")

    @property
    def setup_commands(self) -> tuple[CommandRule, ...]:
        """The rules that a set-up is judged by: all that the pack leaves."""
        kinds = self.pack.command_kinds
        return tuple(rule for rule in self.allowlist.allow if rule.kind in kinds)

    @property
    def setup(self) -> tuple[SetupCommand, ...]:
        """What prepares a worktree where a contract names no set-up of its own."""
        return self.allowlist.setup or ()

    def setup_for(self, contract: TaskContract) -> tuple[SetupCommand, ...]:
        """Return the set-up of a contract: its own, and that of the policies if it names none."""
        return self.setup if contract.setup is None else contract.setup

    @property
    def forbidden_actions(self) -> tuple[str, ...]:
        """What is forbidden always, and by the pack."""
        both = (*self.forbidden.forbidden_actions, *self.pack.forbidden_actions)
        return tuple(dict.fromkeys(both))

    @property
    def mcp_allowed(self) -> frozenset[str]:
        return frozenset(self.mcp.allow) - frozenset(self.mcp.deny)

    def is_stricter(self, pack: PackName) -> bool:
        """Whether the chosen pack is at least as strict as another."""
        return PACKS.index(self.pack.pack) >= PACKS.index(pack)


def shipped_files() -> dict[str, bytes]:
    """The files of ``policies`` that CoilClaw comes with; ``init`` copies them."""
    folder = resources.files("coilclaw.runs.contracts") / FOLDER
    return {name: folder.joinpath(*name.split("/")).read_bytes() for name in SHIPPED}


def _read(kind: type[_R], files: Mapping[str, bytes], name: str) -> _R:
    if name not in files:
        raise UsageError(
            f"the policy file {name} is missing",
            rule="policy.missing",
            hint="'coilclaw init --repo' writes the policies that CoilClaw comes with",
        )
    try:
        return kind.of(task_contract.parse_document(files[name]))
    except UsageError as problem:
        raise UsageError(f"the policy file {name}: {problem.message}", rule=problem.rule) from None


def _check_packs(packs: Mapping[PackName, PolicyPack]) -> None:
    for name, pack in packs.items():
        if pack.pack != name:
            raise UsageError(
                f"the policy file packs/{name}.json is of the pack {pack.pack}", rule="policy.pack"
            )
    for role in ROLES:
        _default(packs, role)


def _default(packs: Mapping[PackName, PolicyPack], role: Role) -> PolicyPack:
    found = [pack for pack in packs.values() if role in pack.default_for]
    if len(found) != 1:
        raise UsageError(
            f"the role {role} is in default_for of {len(found)} packs, and has to be in one",
            rule="policy.pack",
        )
    return found[0]


def _choose_pack(packs: Mapping[PackName, PolicyPack], pack: str | None, role: Role) -> PolicyPack:
    if pack is None:
        return _default(packs, role)
    for name, found in packs.items():
        if name == pack:
            return found
    raise UsageError(
        f"no policy pack is named {quote_text(pack)}",
        rule="policy.pack",
        hint=f"the packs are {', '.join(PACKS)}",
    )
