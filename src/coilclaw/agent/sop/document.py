"""``Sop``: the stages of a SOP, read from its file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from coilclaw.agent.sop import conditions
from coilclaw.agent.sop.inputs import MAX_ITEMS, TABLE, read_inputs
from coilclaw.kernel import Document, UsageError, digest_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.agent.sop.conditions import Condition
    from coilclaw.agent.sop.inputs import InputSpec
    from coilclaw.kernel import DocumentPlace, Json, Table

StageKind: TypeAlias = Literal["tool", "agent", "approval"]

KINDS: Final[tuple[StageKind, ...]] = ("tool", "agent", "approval")
MAX_RETRIES: Final = 10
MAX_RETRY_DELAY_S: Final = 3600
ITEM: Final = "item"
"""The name of the current item in a stage with ``for_each``."""
FROM: Final = "_from"
"""``content_from = "stage"`` fills ``content`` with the output of that stage."""


@dataclass(frozen=True, slots=True)
class OnFailure:
    """The action after a failed stage; when the last retry fails, the run aborts."""

    what: Literal["abort", "continue", "retry"] = "abort"
    times: int = 0

    def __str__(self) -> str:
        return f"retry({self.times})" if self.what == "retry" else self.what


@dataclass(frozen=True, slots=True)
class SopStage:
    """One stage; ``place`` is its location in the file."""

    id: str
    kind: StageKind
    place: DocumentPlace
    tool: str = ""
    args: Mapping[str, Json] = field(default_factory=dict)
    prompt: str = ""
    when: Condition | None = None
    on_failure: OnFailure = field(default_factory=OnFailure)
    retries: int = 0
    """Attempts after a failed first one."""
    retry_delay_s: float = 0.0
    for_each: tuple[Json, ...] | str | None = None
    """The items of a loop: a list, or the stage or input that provides them."""
    parallel: bool = False
    """Whether it runs at the same time as its parallel neighbours."""
    item: tuple[Json, ...] = ()
    """The one item of this round, if the stage is a round of a loop."""

    def round(self, index: int, item: Json) -> SopStage:
        """Return one round of this loop as a stage of its own."""
        return replace(self, id=f"{self.id}.{index}", for_each=None, item=(item,))


@dataclass(frozen=True, slots=True)
class Sop:
    """A SOP and the text of its file."""

    name: str
    description: str
    stages: tuple[SopStage, ...]
    text: str
    hash: str
    """SHA-256 of the bytes of the file."""
    inputs: Mapping[str, InputSpec] = field(default_factory=dict)

    @property
    def groups(self) -> tuple[tuple[SopStage, ...], ...]:
        """The stages in order, with parallel neighbours grouped."""
        found: list[tuple[SopStage, ...]] = []
        for stage in self.stages:
            if stage.parallel and found and found[-1][-1].parallel:
                found[-1] = (*found[-1], stage)
            else:
                found.append((stage,))
        return tuple(found)

    def before(self, stage: SopStage) -> tuple[SopStage, ...]:
        """Return the stages that have ended when a stage begins."""
        earlier: list[SopStage] = []
        for group in self.groups:
            if stage.id.partition(".")[0] in [one.id for one in group]:
                break
            earlier += group
        return tuple(earlier)


Status: TypeAlias = Literal["done", "failed", "denied", "rejected", "skipped"]


@dataclass(frozen=True, slots=True)
class StageOutcome:
    """The end of a stage, or of one attempt at it."""

    stage: str
    status: Status
    attempt: int = 1
    output: str = ""
    output_known: bool = True
    """False if the program died after the effect and before the output was stored."""
    error: str = ""
    rule: str = ""
    receipt: str = ""
    approval: str = ""

    @property
    def success(self) -> bool:
        return self.status == "done"

    @property
    def failure(self) -> bool:
        return self.status in {"failed", "denied", "rejected"}


MAX_BYTES: Final = 256 * 2**10
MAX_STAGES: Final = 200
MAX_DOTS: Final = 1000
"""Dots of one key, because the parser needs memory proportional to their square."""
MAX_PROMPT_CHARS: Final = 64 * 2**10
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
ID: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
TABLES: Final = "st" + "eps"
"""The name of the stages in the file format."""

_RETRY: Final = re.compile(r"retry\(\s*(\d{1,3})\s*\)")
_EVERY: Final = ("id", "kind", "when", "for_each", "parallel")
_ACTING: Final = ("on_failure", "retry", "retry_delay_s")
_KEYS: Final[dict[StageKind, tuple[str, ...]]] = {
    "tool": (*_EVERY, *_ACTING, "tool", "args"),
    "agent": (*_EVERY, *_ACTING, "prompt"),
    "approval": (*_EVERY, "prompt"),
}
_ALL_KEYS: Final = (*_EVERY, *_ACTING, "tool", "args", "prompt")


def parse(data: bytes, name: str) -> tuple[Sop | None, Document]:
    """Return the SOP in the folder ``name`` and the document with its problems."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = data.count(b"\n", 0, problem.start) + 1
        return None, _unreadable(f"is not valid UTF-8 (line {line})")
    for line_text in text.split("\n"):
        if any(part.count(".") > MAX_DOTS for part in line_text.split("=")):
            return None, _unreadable(f"has a line with more than {MAX_DOTS} dots")
    document = Document(text)
    top = document.read_toml()
    said = top.text("name", required=True)
    if said and said != name:
        top.note("name", f"is {said!r}, but its folder is named {name!r}")
    description = top.text("description", blank=True)
    default = _read_on_failure(top, OnFailure())
    inputs = read_inputs(top)
    stages = _read_stages(top, default)
    top.refuse_unknown()
    loops = any(stage.for_each is not None for stage in stages)
    for stage in stages:
        if stage.id == TABLE and inputs:
            document.note((*stage.place, "id"), f"{TABLE!r} is reserved for the inputs")
        if stage.id == ITEM and loops:
            document.note((*stage.place, "id"), f"{ITEM!r} is reserved for the item of a loop")
    return Sop(name, description, stages, text, digest_bytes(data), inputs), document


def _unreadable(message: str) -> Document:
    document = Document()
    document.note((), message)
    return document


def _read_stages(top: Table, default: OnFailure) -> tuple[SopStage, ...]:
    given = top.take(TABLES)
    if not isinstance(given, list) or not given:
        top.note(TABLES, f"the SOP has no stages; each begins with [[{TABLES}]]")
        return ()
    if len(given) > MAX_STAGES:
        top.note(TABLES, f"the SOP has {len(given)} stages; the maximum is {MAX_STAGES}")
        return ()
    first: dict[str, int] = {}
    stages = []
    for index, table in enumerate(top.tables(TABLES)):
        stage = _read_stage(table, default)
        if stage.id and first.setdefault(stage.id, index) != index:
            table.note("id", f"{stage.id!r} is already the id of stage {first[stage.id] + 1}")
        stages.append(stage)
    return tuple(stages)


def _read_stage(table: Table, default: OnFailure) -> SopStage:
    name = table.text("id", required=True)
    if name and not ID.fullmatch(name):
        table.note("id", f"{name!r} is not an id: a letter, then letters, digits, '_' and '-'")
    kind = cast("StageKind | None", table.choice("kind", None, KINDS, required=True))
    for key in table.values:
        if kind is not None and key in _ALL_KEYS and key not in _KEYS[kind]:
            table.note(key, f"does not belong to the kind {kind!r}")
    table.refuse_unknown(_ALL_KEYS)
    on_failure = _read_on_failure(table, default)
    if "retry_delay_s" in table and "retry" not in table and on_failure.what != "retry":
        table.note("retry_delay_s", "nothing is retried here; add 'retry'")
    if "retry" in table and "on_failure" in table and on_failure.what == "retry":
        table.note("retry", f"conflicts with on_failure = {on_failure}")
    has_prompt = kind in {"agent", "approval"}
    return SopStage(
        name,
        kind or "tool",
        table.place,
        tool=table.text("tool", required=True) if kind == "tool" else "",
        args=cast("dict[str, Json]", table.table("args").values) if kind == "tool" else {},
        prompt=table.text("prompt", required=True, most=MAX_PROMPT_CHARS) if has_prompt else "",
        when=_read_condition(table),
        on_failure=on_failure,
        retries=table.integer("retry", on_failure.times, least=1, most=MAX_RETRIES),
        retry_delay_s=table.number("retry_delay_s", 0.0, least=0, most=MAX_RETRY_DELAY_S),
        for_each=_read_items(table),
        parallel=table.flag("parallel"),
    )


def _read_condition(table: Table) -> Condition | None:
    text = table.text("when", None)
    if text is None:
        return None
    try:
        return conditions.parse(text)
    except UsageError as problem:
        table.note("when", problem.message)
        return None


def _read_on_failure(table: Table, default: OnFailure) -> OnFailure:
    said = table.text("on_failure")
    if said in {"abort", "continue"}:
        return OnFailure("abort" if said == "abort" else "continue")
    found = _RETRY.fullmatch(said)
    if found and 1 <= int(found[1]) <= MAX_RETRIES:
        return OnFailure("retry", int(found[1]))
    if said:
        allowed = f"abort, continue, retry(1) … retry({MAX_RETRIES})"
        table.note("on_failure", f"{said!r} is none of {allowed}")
    return default


def _read_items(table: Table) -> tuple[Json, ...] | str | None:
    given = table.take("for_each")
    if given is None or (isinstance(given, str) and given.strip()):
        return given
    if not isinstance(given, list) or not all(isinstance(one, str | int | float) for one in given):
        table.note("for_each", "is neither a list of texts and numbers nor the name of a stage")
        return ()
    if len(given) > MAX_ITEMS:
        table.note("for_each", f"has {len(given)} items; the maximum is {MAX_ITEMS}")
    return tuple(given)
