"""``coilclaw agents``: list, test and install coding agents."""

from __future__ import annotations

import os

from coilclaw.cli.command import DONE, FAILED, Console, Namespace, Parser, find_home, pick
from coilclaw.kernel import EnvironmentFault


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    action("list", "list the known agents, and where they are installed", _list).json()
    action("doctor", "start each installed agent and ask for its version", _list).json()
    installing = action("install", "install an agent from the npm registry", _install)
    installing.value("name", "NAME", "codex, opencode, claude or gemini")
    installing.flag("--missing", "only if the expected version is not installed").json()


def _list(args: Namespace, console: Console) -> int:
    from coilclaw.runners import agent_program

    ask = args.action == "doctor"
    rows: list[dict[str, object]] = []
    for agent, program in agent_program.look(os.environ, find_home()):
        row = pick(agent, "name", "title", "runner")
        if isinstance(program, EnvironmentFault):
            rows.append({**row, "program": None, "problem": program.message, "hint": program.hint})
            continue
        version = agent_program.version_of(program, os.environ) if ask else ""
        works = bool(version) if ask else None
        version = version or agent_program.told_version(agent, program)
        rows.append({**row, "program": str(program), "version": version, "works": works})
    if not console.emit(rows):
        for row in rows:
            _show(row, console)
    return FAILED if any(row.get("works") is False for row in rows) else DONE


def _show(row: dict[str, object], console: Console) -> None:
    if row["program"] is None:
        console.print(f"{row['name']}  not found", "yellow")
        console.print(f"  {row['hint']}")
        return
    works = row["works"]
    state, style = "", None
    if works is not None:
        state, style = ("  works", "green") if works else ("  does not start", "red")
    console.print(f"{row['name']}  {row['version'] or 'version unknown'}{state}", style)
    console.print(f"  {row['program']}")
    console.print(f"  use it as: {row['runner']}")


def _install(args: Namespace, console: Console) -> None:
    from coilclaw.runners import agent_install, agent_program

    agent = agent_program.find_known_agent(args.name)
    made = agent_install.present(agent, find_home()) if args.missing else None
    done = "is already installed" if made is not None else "installed"
    if made is None:
        place = agent_program.installed_at(find_home(), agent.name)
        console.note(f"installing {' and '.join(agent.packages)} to {place}")
        made = agent_install.install(agent, find_home(), os.environ)
    version = agent_program.told_version(agent, made.program)
    record = {"name": agent.name, "place": str(made.place), "program": str(made.program)}
    if not console.emit({**record, "version": version, "runner": agent.runner}):
        console.print(f"{agent.name}  {version}  {done}", "green")
        console.print(f"  {made.program}")
        console.print(f"  use it as: {agent.runner}")
