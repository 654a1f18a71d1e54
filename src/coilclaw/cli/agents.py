"""``coilclaw agents``: which coding agents are there, and installing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser(
        "list", help="the agents that are known, and where they are", allow_abbrev=False
    )
    checking = actions.add_parser(
        "doctor", help="start each agent that is there and ask for its version", allow_abbrev=False
    )
    installing = actions.add_parser(
        "install", help="install one below our home, from the npm registry", allow_abbrev=False
    )
    installing.add_argument("name", metavar="NAME", help="codex, opencode, claude or gemini")
    installing.add_argument(
        "--missing", action="store_true", help="only if it is not there in the version that we know"
    )
    for each in (listing, checking, installing):
        add_json(each)


def run(args: argparse.Namespace, console: Console) -> int:
    """List, check or install."""
    if args.action == "install":
        return _install(args.name, console, missing=args.missing)
    return _list(console, ask=args.action == "doctor")


def _list(console: Console, *, ask: bool) -> int:
    import os

    from coilclaw.agents import finding
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE, FAILED
    from coilclaw.errors import EnvironmentFault

    rows: list[dict[str, object]] = []
    for agent, program in finding.look(os.environ, home()):
        row: dict[str, object] = {"name": agent.name, "title": agent.title, "runner": agent.runner}
        if isinstance(program, EnvironmentFault):
            rows.append({**row, "program": None, "problem": program.message, "hint": program.hint})
            continue
        version = finding.version_of(program, os.environ) if ask else ""
        works = bool(version) if ask else None
        version = version or finding.told_version(agent, program)
        rows.append({**row, "program": str(program), "version": version, "works": works})
    broken = [row for row in rows if row.get("works") is False]
    if console.as_json:
        console.data(rows)
    else:
        for row in rows:
            _show(row, console)
    return FAILED if broken else DONE


def _show(row: dict[str, object], console: Console) -> None:
    if row["program"] is None:
        console.print(f"{row['name']}  not found", "yellow")
        console.print(f"  {row['hint']}")
        return
    works = row["works"]
    state = "" if works is None else "  works" if works else "  does not start"
    style = None if works is None else "green" if works else "red"
    console.print(f"{row['name']}  {row['version'] or 'version unknown'}{state}", style)
    console.print(f"  {row['program']}")
    console.print(f"  use it as: {row['runner']}")


def _install(name: str, console: Console, *, missing: bool) -> int:
    import os

    from coilclaw.agents import finding, installing
    from coilclaw.app.home import home
    from coilclaw.cli.dispatch import DONE

    agent = finding.known(name)
    place = finding.installed_at(home(), agent.name)
    made = installing.present(agent, home()) if missing else None
    done = "is there already" if made is not None else "installed"
    if made is None:
        console.note(f"installing {' and '.join(agent.packages)} to {place}")
        made = installing.install(agent, home(), os.environ)
    version = finding.told_version(agent, made.program)
    if console.as_json:
        told = {"name": agent.name, "place": str(made.place), "program": str(made.program)}
        console.data({**told, "version": version, "runner": agent.runner})
        return DONE
    console.print(f"{agent.name}  {version}  {done}", "green")
    console.print(f"  {made.program}")
    console.print(f"  use it as: {agent.runner}")
    return DONE
