"""Report all problems of a SOP before any of its stages runs."""

from __future__ import annotations

from dataclasses import replace
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
    from coilclaw.kernel import Document, DocumentPlace, Json, Problem


def invalid(name: str, file: str, problems: tuple[Problem, ...]) -> UsageError:
    """Return the error that lists all problems of a SOP."""
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
    """Checks SOPs against the known tools."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        allowed: frozenset[str],
        validators: Validators,
    ) -> None:
        self._tools = tools
        self._allowed = allowed
        self._validators = validators

    def check(self, data: bytes, name: str) -> tuple[Sop | None, tuple[Problem, ...]]:
        """Return the SOP ``name`` if it has no problems, and otherwise all of its problems."""
        sop, document = parse(data, name)
        if sop is not None:
            for stage in sop.stages:
                _StageCheck(sop, stage, document).run(self._tools, self._allowed, self._validators)
        problems = tuple(map(_include_allowed, document.problems))
        return (None if problems else sop), problems


def _include_allowed(problem: Problem) -> Problem:
    """Return a problem with the allowed values in its message, as records of SOPs show it."""
    if not problem.allowed:
        return problem
    message = f"{problem.message} (allowed: {', '.join(problem.allowed)})"
    return replace(problem, message=message, allowed=())


class _StageCheck:
    """Checks the references and the tool arguments of one stage."""

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
        for name, is_input in conditions.list_sources(stage.when) if stage.when else ():
            check = self._check_input if is_input else self._check_stage
            check(("when",), name)
        if isinstance(stage.for_each, str):
            self._check_source(("for_each",), stage.for_each, item=False)
        for name in references.find_names(stage.prompt):
            found = references.OUTPUT.fullmatch(name)
            if found:
                self._check_stage(("prompt",), found[1])
            elif name == ITEM or references.INPUT.fullmatch(name):
                self._check_source(("prompt",), name, item=stage.for_each is not None)
            else:
                message = f"{{{{{name}}}}} is not a known reference; write {{{{STAGE.output}}}}"
                self._note(("prompt",), message)
        if stage.kind != "tool" or not stage.tool:
            return
        tool = tools.get(stage.tool)
        if tool is None:
            message = f"unknown tool {stage.tool!r}{suggest(stage.tool, tools)}"
            self._note(("tool",), message)
        elif stage.tool not in allowed:
            self._note(("tool",), f"{stage.tool} is not in channels.cli.tools_allow")
        self._check_arguments(None if tool is None else tool.parameters_schema, validators)

    def _note(self, place: DocumentPlace, message: str) -> None:
        self._document.note((*self._stage.place, *place), message)

    def _check_arguments(self, schema: Mapping[str, Json] | None, validators: Validators) -> None:
        """Check the arguments against the schema; the output of a stage counts as any text."""
        stage = self._stage
        taken = references.find_sources(stage.args, schema or {})
        for name, source in taken.items():
            place = ("args", f"{name}{FROM}")
            self._check_source(place, source, item=stage.for_each is not None)
            if name in stage.args:
                self._note(place, f"conflicts with {name}")
        if schema is None:
            return
        given = references.literal_arguments(stage.args, taken)
        stand_ins = {name: self._stand_in(source) for name, source in taken.items()}
        for sentence in validators.check(schema, {**given, **stand_ins}):
            pointer, _, _ = sentence.partition(":")
            name = pointer.removeprefix("/")
            spec = self._spec(taken[name]) if name in taken else None
            is_text = name in taken and (spec is None or spec.type == "string")
            if is_text and _takes_text(schema, name):
                continue  # the text is not known yet; the guard checks it later
            key = (name,) if pointer.startswith("/") and name in given else ()
            self._note(("args", *key), sentence)

    def _check_source(self, place: DocumentPlace, source: str, *, item: bool) -> None:
        """Note an invalid source of a reference; ``item`` is valid only in loops."""
        found = references.INPUT.fullmatch(source)
        if source == ITEM and ITEM not in self._every:
            if not item:
                self._note(place, f"{ITEM!r} is available only in a stage with for_each")
        elif found and TABLE not in self._every:
            self._check_input(place, found[1])
        else:
            self._check_stage(place, source)

    def _check_stage(self, place: DocumentPlace, name: str) -> None:
        if name in self._every - self._earlier:
            self._note(place, f"{name!r} does not come before this stage")
        elif name not in self._earlier:
            self._note(place, f"unknown earlier stage {name!r}{suggest(name, self._earlier)}")

    def _check_input(self, place: DocumentPlace, name: str) -> None:
        if name not in self._inputs:
            self._note(place, f"unknown input {name!r}{suggest(name, self._inputs)}")

    def _spec(self, source: str) -> InputSpec | None:
        found = references.INPUT.fullmatch(source)
        return self._inputs.get(found[1]) if found else None

    def _stand_in(self, source: str) -> Json:
        """Return a sample value of the type that a reference will have."""
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
