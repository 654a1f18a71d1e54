"""``TaskChain``: several contracts in the order in which they depend on each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from coilclaw.contracts.record import Record
from coilclaw.contracts.roles import Role
from coilclaw.contracts.taskcontract import Agent
from coilclaw.domain.messages import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainLifecycle(Record):
    SCHEMA: ClassVar[str] = "task_chain.v1#ChainLifecycle"

    enforce: bool | None = None
    required_path: tuple[Role, ...] | None = None
    min_workers: int | None = None
    min_reviewers: int | None = None
    reviewer_quorum: int | None = None
    require_test_stage: bool | None = None
    require_return_to_pm: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStrategy(Record):
    SCHEMA: ClassVar[str] = "task_chain.v1#ChainStrategy"

    continue_on_fail: bool | None = None
    lifecycle: ChainLifecycle | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainStage(Record):
    SCHEMA: ClassVar[str] = "task_chain.v1#ChainStage"

    name: str
    kind: Literal["plan", "contract", "handoff"]
    payload: Mapping[str, Json]
    labels: tuple[str, ...] | None = None
    depends_on: tuple[str, ...] | None = None
    parallel_group: str | None = None
    context_policy: Mapping[str, Json] | None = None
    exclusive_paths: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskChain(Record):
    SCHEMA: ClassVar[str] = "task_chain.v1"

    chain_id: str
    owner_agent: Agent
    stages: tuple[ChainStage, ...]
    strategy: ChainStrategy | None = None
