"""Everything that is wrong with a SOP, before anything of it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.sop import conditions, references
from coilclaw.sop.document import FROM, ITEM
from coilclaw.sop.inputs import TABLE
from coilclaw.sop.parse import parse
from coilclaw.sop.problem import Noted, closest, located

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.sop.document import Sop, Stage
    from coilclaw.sop.inputs import InputSpec
    from coilclaw.sop.problem import Lines, Place, Problem
    from coilclaw.tools.contract import Tool
    from coilclaw.tools.schema import Validators

_STANDS_FOR_OUTPUT: Final = "x"
_STAND_INS: Final[Mapping[str, Json]] = {
    "string": _STANDS_FOR_OUTPUT,
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "list": ["x"],
}


class Checker:
    """Checks SOPs against the tools that there are."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        allowed: frozenset[str],
        validators: Validators,
        lines: Lines,
    ) -> None:
        self._tools = tools
        self._allowed = allowed
        self._validators = validators
        self._lines = lines

    def check(self, data: bytes, name: str) -> tuple[Sop | None, tuple[Problem, ...]]:
        """Read the bytes of the SOP ``name``; the SOP is there when nothing is wrong with it."""
        sop, problems = parse(data, name, self._lines)
        if sop is None:
            return None, problems
        noted = [note for index in range(len(sop.stages)) for note in self._stage(sop, index)]
        if noted:
            more = located(noted, self._lines(sop.text))
            problems = tuple(sorted((*problems, *more), key=lambda problem: problem.line or 0))
        return (None if problems else sop), problems

    def _stage(self, sop: Sop, index: int) -> Iterator[Noted]:
        stage = sop.stages[index]
        names = _Names.of(sop, stage)
        if stage.when is not None:
            for name in conditions.stages(stage.when):
                yield from names.check_stage((*stage.place, "when"), name)
            for name in conditions.inputs_named(stage.when):
                yield from names.check_input((*stage.place, "when"), name)
        if isinstance(stage.for_each, str):
            yield from names.check((*stage.place, "for_each"), stage.for_each, item=False)
        yield from _prompt(stage, names)
        if stage.kind == "tool" and stage.tool:
            yield from self._tool(stage, names)

    def _tool(self, stage: Stage, names: _Names) -> Iterator[Noted]:
        tool = self._tools.get(stage.tool)
        if tool is None:
            said = f"there is no tool {stage.tool!r}{closest(stage.tool, self._tools)}"
            yield Noted((*stage.place, "tool"), said)
        elif stage.tool not in self._allowed:
            yield Noted((*stage.place, "tool"), f"{stage.tool} is not in channels.cli.tools_allow")
        schema = {} if tool is None else tool.parameters_schema
        taken = references.filled(stage.args, schema)
        for name, source in taken.items():
            where = (*stage.place, "args", f"{name}{FROM}")
            yield from names.check(where, source, item=stage.for_each is not None)
            if name in stage.args:
                yield Noted(where, f"{name} is given as well")
        if tool is not None:
            yield from self._arguments(stage, schema, taken, names)

    def _arguments(
        self,
        stage: Stage,
        schema: Mapping[str, Json],
        taken: Mapping[str, str],
        names: _Names,
    ) -> Iterator[Noted]:
        """Check against the schema; what an earlier stage puts out is some text."""
        given = {
            name: value
            for name, value in stage.args.items()
            if not (name.endswith(FROM) and name.removesuffix(FROM) in taken)
        }
        stand_ins = {name: names.stand_in(source, stage) for name, source in taken.items()}
        for sentence in self._validators.check(schema, {**given, **stand_ins}):
            pointer, _, _ = sentence.partition(":")
            name = pointer.removeprefix("/")
            if name in taken and names.is_text(taken[name]) and _takes_text(schema, name):
                continue  # which text it will be is not known yet; the guard checks it then
            key = (name,) if pointer.startswith("/") and name in given else ()
            yield Noted((*stage.place, "args", *key), sentence)


@dataclass(frozen=True, slots=True)
class _Names:
    """What a stage may speak of."""

    earlier: frozenset[str]
    every: frozenset[str]
    inputs: Mapping[str, InputSpec]

    @classmethod
    def of(cls, sop: Sop, stage: Stage) -> _Names:
        return cls(
            frozenset(one.id for one in sop.before(stage)),
            frozenset(one.id for one in sop.stages),
            sop.inputs,
        )

    def check(self, where: Place, source: str, *, item: bool) -> Iterator[Noted]:
        """Note what is wrong with a name that is taken from; ``item`` is known in loops only."""
        found = references.INPUT.fullmatch(source)
        if source == ITEM and ITEM not in self.every:
            if not item:
                yield Noted(where, f"there is an {ITEM!r} only in a stage with for_each")
        elif found and TABLE not in self.every:
            yield from self.check_input(where, found[1])
        else:
            yield from self.check_stage(where, source)

    def check_stage(self, where: Place, name: str) -> Iterator[Noted]:
        if name in self.earlier:
            return
        if name in self.every:
            yield Noted(where, f"{name!r} does not come before this stage")
        else:
            said = closest(name, self.earlier)
            yield Noted(where, f"there is no earlier stage {name!r}{said}")

    def check_input(self, where: Place, name: str) -> Iterator[Noted]:
        if name not in self.inputs:
            yield Noted(where, f"there is no input {name!r}{closest(name, self.inputs)}")

    def is_text(self, source: str) -> bool:
        """Whether a name stands for a text that is not known yet."""
        found = references.INPUT.fullmatch(source)
        spec = self.inputs.get(found[1]) if found else None
        return spec is None or spec.type == "string"

    def stand_in(self, source: str, stage: Stage) -> Json:
        """Return a value of the kind that a name will stand for."""
        found = references.INPUT.fullmatch(source)
        spec = self.inputs.get(found[1]) if found else None
        if spec is not None:
            return spec.default if spec.default is not None else _STAND_INS[spec.type]
        if source == ITEM and isinstance(stage.for_each, tuple) and stage.for_each:
            return stage.for_each[0]
        return _STANDS_FOR_OUTPUT


def _prompt(stage: Stage, names: _Names) -> Iterator[Noted]:
    where = (*stage.place, "prompt")
    for name in references.named(stage.prompt):
        found = references.OUTPUT.fullmatch(name)
        if found:
            yield from names.check_stage(where, found[1])
        elif name == ITEM or references.INPUT.fullmatch(name):
            yield from names.check(where, name, item=stage.for_each is not None)
        else:
            yield Noted(where, f"{{{{{name}}}}} is not understood; write {{{{STAGE.output}}}}")


def _takes_text(schema: Mapping[str, Json], name: str) -> bool:
    properties = schema.get("properties")
    own = properties.get(name) if isinstance(properties, dict) else None
    kind = own.get("type") if isinstance(own, dict) else None
    return kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)
