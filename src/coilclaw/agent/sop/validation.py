"""Everything that is wrong with a SOP, before anything of it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agent.sop import conditions, references
from coilclaw.agent.sop.document import FROM, ITEM, parse
from coilclaw.agent.sop.inputs import TABLE
from coilclaw.kernel import UsageError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.agent.sop.document import Sop, SopStage
    from coilclaw.agent.sop.inputs import InputSpec
    from coilclaw.agent.tools.contract import Tool, Validators
    from coilclaw.kernel import Document, DocumentPlace, Json


@dataclass(frozen=True, slots=True)
class SopProblem:
    """One thing that is wrong; ``key`` is empty when it is the file itself."""

    key: str
    line: int | None
    message: str

    def sentence(self, file: str) -> str:
        """Say it on one line, beginning with the file's name as editors understand it."""
        where = file if self.line is None else f"{file}:{self.line}"
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


def invalid(name: str, file: str, problems: tuple[SopProblem, ...]) -> UsageError:
    """Return the error that lists all of them."""
    count = "a problem: " if len(problems) == 1 else f"{len(problems)} problems:\n"
    said = "\n".join(problem.sentence(file) for problem in problems)
    return UsageError(
        f"the SOP {name} has {count}{said}",
        rule="sop.invalid",
        hint=f"'coilclaw sop validate {name}' lists them one by one",
    )


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
    ) -> None:
        self._tools = tools
        self._allowed = allowed
        self._validators = validators

    def check(self, data: bytes, name: str) -> tuple[Sop | None, tuple[SopProblem, ...]]:
        """Read the bytes of the SOP ``name``; the SOP is there when nothing is wrong with it."""
        sop, document = parse(data, name)
        if sop is not None:
            for stage in sop.stages:
                _StageCheck(sop, stage, document).run(self._tools, self._allowed, self._validators)
        problems = []
        for one in document.problems:
            known = f" (allowed: {', '.join(one.allowed)})" if one.allowed else ""
            problems.append(SopProblem(one.key, one.line, f"{one.message}{known}"))
        return (None if problems else sop), tuple(problems)


class _StageCheck:
    """Checks one stage: what it may speak of, and the arguments of its tool."""

    def __init__(self, sop: Sop, stage: SopStage, document: Document) -> None:
        self._stage = stage
        self._document = document
        self._earlier = frozenset(one.id for one in sop.before(stage))
        self._every = frozenset(one.id for one in sop.stages)
        self._inputs = sop.inputs

    def run(
        self, tools: Mapping[str, Tool], allowed: frozenset[str], validators: Validators
    ) -> None:
        stage = self._stage
        if stage.when is not None:
            for name in conditions.stages(stage.when):
                self._check_stage(("when",), name)
            for name in conditions.inputs_named(stage.when):
                self._check_input(("when",), name)
        if isinstance(stage.for_each, str):
            self._check_source(("for_each",), stage.for_each, item=False)
        for name in references.named(stage.prompt):
            found = references.OUTPUT.fullmatch(name)
            if found:
                self._check_stage(("prompt",), found[1])
            elif name == ITEM or references.INPUT.fullmatch(name):
                self._check_source(("prompt",), name, item=stage.for_each is not None)
            else:
                message = f"{{{{{name}}}}} is not understood; write {{{{STAGE.output}}}}"
                self._note(("prompt",), message)
        if stage.kind != "tool" or not stage.tool:
            return
        tool = tools.get(stage.tool)
        if tool is None:
            message = f"there is no tool {stage.tool!r}{suggest(stage.tool, tools)}"
            self._note(("tool",), message)
        elif stage.tool not in allowed:
            self._note(("tool",), f"{stage.tool} is not in channels.cli.tools_allow")
        self._check_arguments(None if tool is None else tool.parameters_schema, validators)

    def _note(self, place: DocumentPlace, message: str) -> None:
        self._document.note((*self._stage.place, *place), message)

    def _check_arguments(self, schema: Mapping[str, Json] | None, validators: Validators) -> None:
        """Check against the schema; what an earlier stage puts out is some text."""
        stage = self._stage
        taken = references.filled(stage.args, schema or {})
        for name, source in taken.items():
            place = ("args", f"{name}{FROM}")
            self._check_source(place, source, item=stage.for_each is not None)
            if name in stage.args:
                self._note(place, f"{name} is given as well")
        if schema is None:
            return
        given = references.given(stage.args, taken)
        stand_ins = {name: self._stand_in(source) for name, source in taken.items()}
        for sentence in validators.check(schema, {**given, **stand_ins}):
            pointer, _, _ = sentence.partition(":")
            name = pointer.removeprefix("/")
            spec = self._spec(taken[name]) if name in taken else None
            is_text = name in taken and (spec is None or spec.type == "string")
            if is_text and _takes_text(schema, name):
                continue  # which text it will be is not known yet; the guard checks it then
            key = (name,) if pointer.startswith("/") and name in given else ()
            self._note(("args", *key), sentence)

    def _check_source(self, place: DocumentPlace, source: str, *, item: bool) -> None:
        """Note what is wrong with a name that is taken from; ``item`` is known in loops only."""
        found = references.INPUT.fullmatch(source)
        if source == ITEM and ITEM not in self._every:
            if not item:
                self._note(place, f"there is an {ITEM!r} only in a stage with for_each")
        elif found and TABLE not in self._every:
            self._check_input(place, found[1])
        else:
            self._check_stage(place, source)

    def _check_stage(self, place: DocumentPlace, name: str) -> None:
        if name in self._every - self._earlier:
            self._note(place, f"{name!r} does not come before this stage")
        elif name not in self._earlier:
            self._note(place, f"there is no earlier stage {name!r}{suggest(name, self._earlier)}")

    def _check_input(self, place: DocumentPlace, name: str) -> None:
        if name not in self._inputs:
            self._note(place, f"there is no input {name!r}{suggest(name, self._inputs)}")

    def _spec(self, source: str) -> InputSpec | None:
        found = references.INPUT.fullmatch(source)
        return self._inputs.get(found[1]) if found else None

    def _stand_in(self, source: str) -> Json:
        """Return a value of the kind that a name will stand for."""
        spec, items = self._spec(source), self._stage.for_each
        if spec is not None:
            return spec.default if spec.default is not None else _STAND_INS[spec.type]
        if source == ITEM and isinstance(items, tuple) and items:
            return items[0]
        return _STANDS_FOR_OUTPUT


def _takes_text(schema: Mapping[str, Json], name: str) -> bool:
    properties = schema.get("properties")
    own = properties.get(name) if isinstance(properties, dict) else None
    kind = own.get("type") if isinstance(own, dict) else None
    return kind is None or kind == "string" or (isinstance(kind, list) and "string" in kind)
