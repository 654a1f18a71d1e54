"""A trial: a call that shows whether a plugin works, and what should come of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError
from coilclaw.plugins import manifest, pins

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.domain.toolcalls import ToolResult
    from coilclaw.plugins.store import Store


@dataclass(frozen=True, slots=True)
class Trial:
    """One call, and what is expected of it."""

    tool: str
    arguments: Mapping[str, Json]
    success: bool = True
    output: str | None = None

    def shortfall(self, result: ToolResult) -> str | None:
        """Say in what a result is not as expected."""
        if result.metadata.get("status") not in {"allowed", "failed"}:
            return result.error or "it was denied"
        if result.success != self.success:
            return result.error or "it succeeded, and should not have"
        if self.output is not None and result.output != self.output:
            return f"the output is {shown(result.output)}, and should be {shown(self.output)}"
        return None


def trials(
    store: Store, name: str, tool: str | None = None, arguments: Mapping[str, Json] | None = None
) -> tuple[Trial, ...]:
    """Return the call that is given, or the examples of a plugin's tools, or of one of them."""
    tools = manifest.parse(store.pin(name, pins.load(store.home)).manifest).tools
    if tool is not None:
        known = [each.name for each in tools]
        tools = tuple(each for each in tools if each.name == tool)
        if not tools:
            raise UsageError(
                f"the plugin {shown(name)} has no tool {shown(tool)}",
                rule="plugin.tool",
                hint=f"it has {', '.join(known)}",
            )
        if arguments is not None:
            return (Trial(tool, arguments),)
    found = tuple(
        Trial(each.name, example.arguments, example.success, example.output)
        for each in tools
        for example in each.examples
    )
    if not found:
        raise UsageError(
            f"the manifest of {shown(name)} has no examples to try",
            rule="plugin.examples",
            hint=f"give a call: coilclaw plugin test {name} {tools[0].name} --json '{{}}'",
        )
    return found
