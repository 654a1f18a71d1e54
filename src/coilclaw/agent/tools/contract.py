"""``Tool``: the interface of all tools, their context, their schemas and their results."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from coilclaw.kernel import CoilClawError, DeniedError, ToolResult, UsageError, quote_text
from coilclaw.workspace import SandboxView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from jsonschema_rs import ValidationError
    from jsonschema_rs import Validator as _Compiled

    from coilclaw.kernel import Effect, Json, Locate, Recollection, Risk
    from coilclaw.policy import Judgement, SecuritySettings
    from coilclaw.workspace import Cancellation, Kind, Mount, Root, SandboxSupport, TreeState

Arguments: TypeAlias = "Mapping[str, Json]"

DEFAULT_OUTPUT_BYTES: Final = 64 * 2**10


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """The named bounds of every tool call."""

    tool_timeout_s: float = 30.0
    shell_timeout_s: float = 15.0
    http_timeout_s: float = 20.0
    output_bytes: int = DEFAULT_OUTPUT_BYTES
    """Bytes of a result that the model is given; a longer result is cut, with a notice."""
    shell_timeout_max_s: float = 600.0
    """The longest timeout that a model may request for one command."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The place and the terms of a call."""

    root: Root
    """The workspace, open."""
    state: TreeState
    home: Path
    security: SecuritySettings
    locate: Locate
    judge: Callable[[tuple[Effect, ...]], Judgement]
    conversation_id: str
    turn_id: str
    cancel: Cancellation
    now: Callable[[], datetime]
    """The current time, with its zone."""
    environ: Mapping[str, str]
    """The environment of this process; a child gets only the variables that it needs."""
    recall: Callable[[str, int], tuple[Recollection, ...]]
    """Searches the memory for a query, with a limit on the number of results."""
    ask: Callable[[str], str | None]
    """Asks the user a question; ``None`` if no user can be asked."""
    sandbox: Kind = "auto"
    mounts: tuple[Mount, ...] = ()
    """Paths that commands see at another place than on this machine."""
    support: Callable[[], SandboxSupport] | None = None
    limits: ToolLimits = field(default_factory=ToolLimits)
    view: SandboxView = field(default_factory=SandboxView)
    """The paths that the user lets every child see."""
    shared_home: Path | None = None
    """The home that all commands read; by default each has a private one that it may write."""
    starting: Callable[[], None] = field(default=lambda: None)
    """Called by a tool just before it starts a process or sends the call to a server."""
    asking: Callable[[], None] = field(default=lambda: None)
    """Called before the user is asked, because the program may end before the answer."""

    def probe_sandboxes(self) -> SandboxSupport:
        """Return the sandboxes that this machine supports."""
        from coilclaw.workspace import sandbox

        return sandbox.probe_sandboxes() if self.support is None else self.support()


class Tool(ABC):
    """One tool that an agent can call."""

    name: str
    description: str
    parameters_schema: Mapping[str, Json]
    owner: str = "coilclaw"
    """The owner: ``coilclaw``, ``plugin:NAME`` or ``mcp:SERVER``."""

    @abstractmethod
    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        """Return the effects of a call; raise ``UsageError`` for invalid arguments."""

    @abstractmethod
    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        """Prepare a call without any effect; raise a ``CoilClawError`` if it cannot be made."""

    def risk(self, args: Arguments, context: ToolContext) -> Risk:
        """Return the risk of a call, which the policy decides."""
        return context.judge(self.effects(args)).verdict.risk

    def invoke(self, args: Arguments, context: ToolContext) -> ToolResult:
        """Prepare and perform a call without an approval."""
        return self.prepare(args, context).perform()


@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A prepared call without effect so far; ``work`` does exactly what ``detail`` describes."""

    detail: tuple[str, ...]
    """A description for the user, such as the argv or the diff."""
    work: Callable[[], ToolResult]
    timeout_s: float = field(default=0.0, kw_only=True)
    """Its time limit, if that is longer than ``limits.tool_timeout_s``."""
    lookup: str = field(default="", kw_only=True)
    """Where to find out after a crash if it happened: ``start``, ``change TREE/ID`` or empty.

    ``start`` means that the tool calls ``ToolContext.starting`` before its effect.
    """

    def perform(self) -> ToolResult:
        """Make the call; return known failures as results.

        Raise ``DeniedError`` if a rule denies it at the last moment, before any effect.
        """
        try:
            return self.work()
        except DeniedError:
            raise
        except CoilClawError as problem:
            hint = f" ({problem.hint})" if problem.hint else ""
            return ToolResult(False, "", f"{problem.message}{hint}", {"rule": problem.rule})
        except OSError as problem:  # a missing file, a full disk, no more descriptors
            what = "" if problem.filename is None else f" for {quote_text(str(problem.filename))}"
            error = f"the operating system reports an error{what}: {problem.strerror or problem}"
            return ToolResult(False, "", error, {"rule": "tool.system"})


def object_schema(properties: dict[str, Json], *required: str) -> dict[str, Json]:
    """Return the schema of an object with these properties and no others."""
    head: dict[str, Json] = {"type": "object", "properties": properties}
    return {**head, "required": list(required), "additionalProperties": False}


def text_schema(most: int, description: str) -> dict[str, Json]:
    """Return the schema of a text that is not empty."""
    return {"type": "string", "minLength": 1, "maxLength": most, "description": description}


def count_schema(most: int, description: str) -> dict[str, Json]:
    """Return the schema of a whole number from 1."""
    return {"type": "integer", "minimum": 1, "maximum": most, "description": description}


def text_argument(args: Arguments, name: str, default: str | None = None) -> str:
    """Return an argument that is text."""
    value = args.get(name, default)
    if not isinstance(value, str):
        raise _wrong(name, "text")
    return value


def integer_argument(args: Arguments, name: str, default: int) -> int:
    """Return an argument that is a whole number."""
    value = args.get(name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, "a whole number")
    return value


def flag_argument(args: Arguments, name: str) -> bool:
    """Return an argument that is true or false; it is false unless given."""
    value = args.get(name, False)
    if not isinstance(value, bool):
        raise _wrong(name, "true or false")
    return value


def _wrong(name: str, wanted: str) -> UsageError:
    return UsageError(f"the argument '{name}' is not {wanted}", rule="tool.arguments")


def failure(error: str, output: str = "", **metadata: Json) -> ToolResult:
    """Return the result of a failed call."""
    return ToolResult(False, output, error, metadata)


def success(output: str, metadata: Mapping[str, Json] | None = None) -> ToolResult:
    """Return the result of a successful call."""
    return ToolResult(True, output, None, metadata or {})


MAX_PROBLEMS: Final = 20
MAX_MESSAGE: Final = 300
_MASK: Final = "the value"


class Validators:
    """Compiled schemas, each compiled at its first use and kept as long as this object."""

    def __init__(self) -> None:
        self._compiled: dict[int, tuple[Mapping[str, Json], _Compiled]] = {}

    def check(self, schema: Mapping[str, Json], args: Arguments) -> tuple[str, ...]:
        """Return all problems of some arguments, each with its JSON pointer."""
        try:
            json.dumps(dict(args), ensure_ascii=False, allow_nan=False).encode("utf-8")
        except UnicodeEncodeError:
            return ("/: holds text that is not valid Unicode",)
        except (ValueError, TypeError, RecursionError):
            return ("/: holds a value that JSON cannot express",)  # no record could hold it
        kept = self._compiled.get(id(schema))
        # The schema is kept as well: an id is unique only while its object lives.
        if kept is None or kept[0] is not schema:
            kept = self._compiled[id(schema)] = (schema, _compile(schema))
        try:
            errors = kept[1].iter_errors(dict(args))
            found = [_sentence(error) for error, _ in zip(errors, range(MAX_PROBLEMS + 1))]  # noqa: B905 - the range is the bound
        except ValueError as problem:  # nested too deeply
            return (f"/: {problem}",)
        if len(found) > MAX_PROBLEMS:
            return (*found[:MAX_PROBLEMS], "… and more")
        return tuple(found)


def check(schema: Mapping[str, Json], args: Arguments) -> tuple[str, ...]:
    """Return all problems of some arguments, for a schema that is used once."""
    return Validators().check(schema, args)


def _compile(schema: Mapping[str, Json]) -> _Compiled:
    import jsonschema_rs

    try:
        # A schema must not cause a download by a reference to another place.
        return jsonschema_rs.validator_for(dict(schema), mask=_MASK, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as problem:
        raise UsageError(
            f"the schema of a tool is malformed: {str(problem)[:MAX_MESSAGE]}", rule="tool.schema"
        ) from problem


def _sentence(error: ValidationError) -> str:
    """Return one problem, without the given value, which may be large or secret."""
    pointer = "/".join(
        ["", *(str(part).replace("~", "~0").replace("/", "~1") for part in error.instance_path)]
    )
    kind = error.kind
    unexpected = getattr(kind, "unexpected", None)
    if isinstance(unexpected, list):
        names = ", ".join(quote_text(str(name)) for name in unexpected[:MAX_PROBLEMS])
        message = f"unknown argument: {names}"
    else:
        message = error.message
    return f"{quote_text(pointer)[1:-1] or '/'}: {message}"[:MAX_MESSAGE]
