"""Starting the program of a foreign server: its environment, its sandbox, and its end."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.agent.tools import command_environment
from coilclaw.kernel import UsageError
from coilclaw.policy import Terms
from coilclaw.workspace import command, private_home
from coilclaw.workspace import sandbox as sandboxes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.agent.mcp.settings import McpServer
    from coilclaw.agent.tools.contract import ToolContext
    from coilclaw.workspace import LiveProcess

LIFE_S: Final = 24 * 3600.0
"""After this a program is ended, and started again when it is next needed."""
STDERR_BYTES: Final = 16 * 2**10


@dataclass(frozen=True, slots=True)
class Launched:
    """A program that runs, and everything that goes with it."""

    process: LiveProcess
    sandbox: str
    """What is really enforced, for the receipt."""
    stack: ExitStack

    def close(self, grace_s: float) -> str:
        """End it with all that it started, and return the end of what it complained about."""
        with self.stack:
            result = self.process.close(grace_s)
        return (result.stderr.head + result.stderr.tail).decode("utf-8", "replace")


def launch(server: McpServer, context: ToolContext) -> Launched:
    """Start the program in the workspace, contained as a command of the agent would be."""
    assert server.command is not None, "only a command can be started"
    support = sandboxes.probe_sandboxes() if context.support is None else context.support()
    env = environment(server, context)
    box = command_environment.command_sandbox(Terms(writable=True, network=server.network), context)
    box = replace(box, writable=(*box.writable, *server.writable))
    # The user named the program and its files, so that they are there wherever they lie.
    box = box.showing(*server.command)
    enforced = sandboxes.choose_sandbox(box, support).enforced
    with ExitStack() as stack:
        if enforced.kind != "none":
            home = stack.enter_context(private_home.open_home(context.environ))
            named = {name: env[name] for name in server.env}
            env = {**command_environment.at_home(env, home, enforced.kind, context), **named}
            box = command_environment.with_home(box, home, context, support, enforced.kind)
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
    """Return the environment of the program: what every command gets, and what it names."""
    kept_out = (str(context.root.path), str(context.home), *context.security.own_paths)
    env = command_environment.command_environment(
        context.environ, kept_out=kept_out, only_reading=False
    )
    return env | {name: value_of(server, name, context.environ) for name in server.env}


def value_of(server: McpServer, variable: str, environ: Mapping[str, str]) -> str:
    """Return what a variable holds that the settings name; it is not there, or it is something."""
    value = environ.get(variable, "")
    if not value:
        raise UsageError(
            f"the MCP server {server.name} needs the variable {variable}, and it is not set",
            rule="mcp.variable",
            hint=f"set {variable}, or take it out of mcp.servers.{server.name}",
        )
    return value
