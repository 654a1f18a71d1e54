"""Start the program of an MCP server in its environment and sandbox, and end it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agent.tools import command_environment
from coilclaw.kernel import UsageError
from coilclaw.policy import Terms
from coilclaw.workspace import command
from coilclaw.workspace import sandbox as sandboxes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.agent.mcp.settings import McpServer
    from coilclaw.agent.tools.contract import ToolContext
    from coilclaw.workspace import LiveProcess

LIFE_S: Final = 24 * 3600.0
"""Lifetime of a program; after that it is ended and started again on demand."""
STDERR_BYTES: Final = 16 * 2**10


@dataclass(frozen=True, slots=True)
class Launched:
    """A running program and its resources."""

    process: LiveProcess
    sandbox: str
    """The enforced sandbox, for the receipt."""
    stack: ExitStack

    def close(self, grace_s: float) -> str:
        """End the program and its children, and return its last messages on standard error."""
        with self.stack:
            result = self.process.close(grace_s)
        return (result.stderr.head + result.stderr.tail).decode("utf-8", "replace")


def launch(server: McpServer, context: ToolContext) -> Launched:
    """Start the program in the workspace, in the sandbox of an agent's command."""
    assert server.command is not None, "only a command can be started"
    support = context.probe_sandboxes()
    env = environment(server, context)
    box = command_environment.command_sandbox(Terms(writable=True, network=server.network), context)
    box = replace(box, writable=(*box.writable, *server.writable))
    # The user named the program and its files, so they are visible wherever they are.
    box = box.showing(*server.command)
    enforced = sandboxes.choose_sandbox(box, support).enforced
    with ExitStack() as stack:
        if enforced.kind != "none":
            named = {name: env[name] for name in server.env}
            housed = command_environment.open_home(env, box, enforced.kind, context, support)
            env, box = stack.enter_context(housed)
            env |= named
        child = command.open(
            server.command,
            cwd=context.root.path,
            timeout_s=LIFE_S,
            env=env,
            limit_bytes=STDERR_BYTES,
            sandbox=box,
            support=support,
        )
        kept = stack.pop_all()
    return Launched(child, command_environment.describe_sandbox(enforced, writable=True), kept)


def environment(server: McpServer, context: ToolContext) -> dict[str, str]:
    """Return the environment of the program: that of a command, and the configured variables."""
    env = command_environment.tool_environment(context, only_reading=False)
    return env | {name: value_of(server, name, context.environ) for name in server.env}


def value_of(server: McpServer, variable: str, environ: Mapping[str, str]) -> str:
    """Return the value of a configured variable; raise ``UsageError`` if it is not set."""
    value = environ.get(variable, "")
    if not value:
        raise UsageError(
            f"the MCP server {server.name} needs the variable {variable}, but it is not set",
            rule="mcp.variable",
            hint=f"set {variable}, or remove it from mcp.servers.{server.name}",
        )
    return value
