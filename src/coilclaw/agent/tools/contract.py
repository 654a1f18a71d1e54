"""What all built-in tools have in common: policy grades them, and all is ready before the deed."""

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
    """How much of what a tool found the model is given; the rest is cut, and said so."""
    shell_timeout_max_s: float = 600.0
    """The most that a model may ask for one command."""


@dataclass(frozen=True, slots=True)
class ToolContext:
    """Where and on what terms a call takes place."""

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
    """Ours; a child gets only what it needs of it."""
    recall: Callable[[str, int], tuple[Recollection, ...]]
    """Searches the memory for a query, for at most so many."""
    ask: Callable[[str], str | None]
    """Asks the user a question; ``None`` when nobody can be asked."""
    sandbox: Kind = "auto"
    mounts: tuple[Mount, ...] = ()
    """What commands find at another path than it has on this machine."""
    support: Callable[[], SandboxSupport] | None = None
    limits: ToolLimits = field(default_factory=ToolLimits)
    view: SandboxView = field(default_factory=SandboxView)
    """What the user lets every child see."""
    shared_home: Path | None = None
    """The home that all commands read; without one each has a private one that it may write."""
    starting: Callable[[], None] = field(default=lambda: None)
    """Called by a tool just before it starts a process or hands the call to a server."""
    asking: Callable[[], None] = field(default=lambda: None)
    """Called before a person is asked: the program may end while the answer is awaited."""


class Tool(ABC):
    """One thing an agent can call."""

    name: str
    description: str
    parameters_schema: Mapping[str, Json]
    owner: str = "coilclaw"
    """Whose it is: ``coilclaw``, ``plugin:NAME`` or ``mcp:SERVER``."""

    @abstractmethod
    def effects(self, args: Arguments) -> tuple[Effect, ...]:
        """Say what a call would touch; ``UsageError`` for arguments that make no sense."""

    @abstractmethod
    def prepare(self, args: Arguments, context: ToolContext) -> ReadyCall:
        """Get everything ready without any effect; a ``CoilClawError`` says why it cannot be."""

    def risk(self, args: Arguments, context: ToolContext) -> Risk:
        """Return what policy says: nothing grades itself."""
        return context.judge(self.effects(args)).verdict.risk

    def invoke(self, args: Arguments, context: ToolContext) -> ToolResult:
        """Prepare and perform, without asking in between."""
        return self.prepare(args, context).perform()


@dataclass(frozen=True, slots=True)
class ReadyCall:
    """A call that is ready, with no effect yet; ``work`` does exactly what ``detail`` says."""

    detail: tuple[str, ...]
    """What would happen, for a person: the argv, or the diff."""
    work: Callable[[], ToolResult]
    timeout_s: float = field(default=0.0, kw_only=True)
    """How long it may take, where that is more than ``limits.tool_timeout_s``."""
    lookup: str = field(default="", kw_only=True)
    """Where to see after a crash whether it happened: ``start``, ``change TREE/ID`` or empty.

    ``start`` means that the tool calls ``ToolContext.starting`` before its effect.
    """

    def perform(self) -> ToolResult:
        """Do it; what goes wrong in a known way is a failure, not an exception.

        Only a rule that says no at the last moment, before any effect, raises ``DeniedError``.
        """
        try:
            return self.work()
        except DeniedError:
            raise
        except CoilClawError as problem:
            hint = f" ({problem.hint})" if problem.hint else ""
            return ToolResult(False, "", f"{problem.message}{hint}", {"rule": problem.rule})
        except OSError as problem:  # a file that is gone since, a full disk, no more descriptors
            what = (
                f" about {quote_text(str(problem.filename))}"
                if problem.filename is not None
                else ""
            )
            error = f"the operating system says{what}: {problem.strerror or problem}"
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
    """Return the result of a call that came to nothing."""
    return ToolResult(False, output, error, metadata)


def success(output: str, metadata: Mapping[str, Json] | None = None) -> ToolResult:
    """Return the result of a call that did what was asked."""
    return ToolResult(True, output, None, metadata or {})


MAX_PROBLEMS: Final = 20
MAX_MESSAGE: Final = 300
_MASK: Final = "the value"


class Validators:
    """Compiled schemas, each made when it is first asked for and kept as long as this object."""

    def __init__(self) -> None:
        self._compiled: dict[int, tuple[Mapping[str, Json], _Compiled]] = {}

    def check(self, schema: Mapping[str, Json], args: Arguments) -> tuple[str, ...]:
        """Return everything that is wrong with some arguments, each with its JSON pointer."""
        try:
            json.dumps(dict(args), ensure_ascii=False, allow_nan=False).encode("utf-8")
        except UnicodeEncodeError:
            return ("/: holds text that is not valid Unicode",)
        except (ValueError, TypeError, RecursionError):
            return ("/: holds what JSON cannot say",)  # and no record could tell what was asked
        try:
            errors = self._validator(schema).iter_errors(dict(args))
            found = [_sentence(error) for error, _ in zip(errors, range(MAX_PROBLEMS + 1))]  # noqa: B905 - the range is the bound
        except ValueError as problem:  # nested too deeply to be walked
            return (f"/: {problem}",)
        if len(found) > MAX_PROBLEMS:
            return (*found[:MAX_PROBLEMS], "… and more")
        return tuple(found)

    def _validator(self, schema: Mapping[str, Json]) -> _Compiled:
        kept = self._compiled.get(id(schema))
        # The schema is kept with it: an id means an object only as long as that lives.
        if kept is None or kept[0] is not schema:
            kept = (schema, _compile(schema))
            self._compiled[id(schema)] = kept
        return kept[1]


def check(schema: Mapping[str, Json], args: Arguments) -> tuple[str, ...]:
    """As ``Validators.check``, for one time."""
    return Validators().check(schema, args)


def _compile(schema: Mapping[str, Json]) -> _Compiled:
    import jsonschema_rs

    try:
        # A schema that refers to elsewhere must not make us fetch it.
        return jsonschema_rs.validator_for(dict(schema), mask=_MASK, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as problem:
        raise UsageError(
            f"the schema of a tool is malformed: {str(problem)[:MAX_MESSAGE]}", rule="tool.schema"
        ) from problem


def _sentence(error: ValidationError) -> str:
    """One problem; what was given is not repeated, for it may be large or secret."""
    pointer = "/".join(
        ["", *(str(part).replace("~", "~0").replace("/", "~1") for part in error.instance_path)]
    )
    kind = error.kind
    unexpected = getattr(kind, "unexpected", None)
    if isinstance(unexpected, list):
        names = ", ".join(quote_text(str(name)) for name in unexpected[:MAX_PROBLEMS])
        message = f"there is no argument {names}"
    else:
        message = error.message
    return f"{quote_text(pointer)[1:-1] or '/'}: {message}"[:MAX_MESSAGE]
