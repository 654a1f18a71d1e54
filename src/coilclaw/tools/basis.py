"""What all built-in tools have in common: policy grades them, and all is ready before the deed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coilclaw.domain.toolcalls import ToolResult
from coilclaw.domain.treepath import shown
from coilclaw.errors import CoilClawError, DeniedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.domain.effects import Effect
    from coilclaw.domain.messages import Json
    from coilclaw.domain.verdict import Risk
    from coilclaw.tools.contract import Arguments, Prepared, ToolContext


class Basis(ABC):
    """A tool, but for its name, its schema, its effects and how it gets ready."""

    @property
    def owner(self) -> str:
        return "coilclaw"

    @abstractmethod
    def effects(self, args: Arguments) -> tuple[Effect, ...]: ...

    @abstractmethod
    def prepare(self, args: Arguments, context: ToolContext) -> Prepared: ...

    def risk(self, args: Arguments, context: ToolContext) -> Risk:
        """Return what policy says: nothing grades itself."""
        return context.judge(self.effects(args)).verdict.risk

    def invoke(self, args: Arguments, context: ToolContext) -> ToolResult:
        """Prepare and perform, with nobody asked in between."""
        return self.prepare(args, context).perform()


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that is ready; ``work`` does exactly what ``detail`` says."""

    detail: tuple[str, ...]
    work: Callable[[], ToolResult]
    timeout_s: float = field(default=0.0, kw_only=True)
    lookup: str = field(default="", kw_only=True)

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
            return ToolResult(False, "", _said(problem), {"rule": "tool.system"})


def _said(problem: OSError) -> str:
    what = f" about {shown(str(problem.filename))}" if problem.filename is not None else ""
    return f"the operating system says{what}: {problem.strerror or problem}"


def closed(properties: dict[str, Json], *required: str) -> dict[str, Json]:
    """Return the schema of an object with these properties and no others."""
    names: list[Json] = list(required)
    return {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    }


def text(args: Arguments, name: str, default: str | None = None) -> str:
    """Return an argument that is text."""
    value = args.get(name, default)
    if not isinstance(value, str):
        raise _wrong(name, "text")
    return value


def whole(args: Arguments, name: str, default: int) -> int:
    """Return an argument that is a whole number."""
    value = args.get(name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong(name, "a whole number")
    return value


def flag(args: Arguments, name: str) -> bool:
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
