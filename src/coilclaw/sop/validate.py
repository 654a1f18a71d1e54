"""Everything that is wrong with a SOP, before anything of it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.sop import conditions, references
from coilclaw.sop.document import FROM
from coilclaw.sop.parse import parse
from coilclaw.sop.problem import Noted, closest, located

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.sop.document import Sop, Stage
    from coilclaw.sop.problem import Lines, Problem
    from coilclaw.tools.contract import Tool
    from coilclaw.tools.schema import Validators

_STANDS_FOR_OUTPUT: Final = "x"


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
        earlier = {one.id for one in sop.stages[:index]}
        every = {one.id for one in sop.stages}
        if stage.when is not None:
            for name in conditions.stages(stage.when):
                if name not in earlier:
                    yield Noted((*stage.place, "when"), _not_earlier(name, earlier, every))
        yield from _prompt(stage, earlier, every)
        if stage.kind == "tool" and stage.tool:
            yield from self._tool(stage, earlier, every)

    def _tool(self, stage: Stage, earlier: set[str], every: set[str]) -> Iterator[Noted]:
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
            if source not in earlier:
                yield Noted(where, _not_earlier(source, earlier, every))
            if name in stage.args:
                yield Noted(where, f"{name} is given as well")
        if tool is not None:
            yield from self._arguments(stage, schema, taken)

    def _arguments(
        self, stage: Stage, schema: Mapping[str, Json], taken: Mapping[str, str]
    ) -> Iterator[Noted]:
        """Check against the schema; what an earlier stage puts out is some text."""
        given = {
            name: value
            for name, value in stage.args.items()
            if not (name.endswith(FROM) and name.removesuffix(FROM) in taken)
        }
        stand_ins: dict[str, Json] = dict.fromkeys(taken, _STANDS_FOR_OUTPUT)
        for sentence in self._validators.check(schema, {**given, **stand_ins}):
            pointer, _, _ = sentence.partition(":")
            name = pointer.removeprefix("/")
            if name in taken and _takes_text(schema, name):
                continue  # which text it will be is not known yet; the guard checks it then
            key = (name,) if pointer.startswith("/") and name in given else ()
            yield Noted((*stage.place, "args", *key), sentence)


def _prompt(stage: Stage, earlier: set[str], every: set[str]) -> Iterator[Noted]:
    where = (*stage.place, "prompt")
    for name in references.named(stage.prompt):
        found = references.OUTPUT.fullmatch(name)
        if found is None:
            yield Noted(where, f"{{{{{name}}}}} is not understood; write {{{{STAGE.output}}}}")
        elif found[1] not in earlier:
            yield Noted(where, _not_earlier(found[1], earlier, every))


def _not_earlier(name: str, earlier: set[str], every: set[str]) -> str:
    if name in every:
        return f"{name!r} does not come before this stage"
    return f"there is no earlier stage {name!r}{closest(name, earlier)}"


def _takes_text(schema: Mapping[str, Json], name: str) -> bool:
    properties = schema.get("properties")
    own = properties.get(name) if isinstance(properties, dict) else None
    kind = own.get("type") if isinstance(own, dict) else None
    return kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)
