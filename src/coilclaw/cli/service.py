"""``coilclaw service``: run the gateway as a service of yours, now and whenever you log in."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.service.systemd import ServiceStatus, Systemd


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    installing = actions.add_parser(
        "install", help="write and enable the systemd user unit", allow_abbrev=False
    )
    _add_force(installing)
    installing.add_argument(
        "--offline", action="store_true", help="do not ask the service manager, only write"
    )
    installing.add_argument(
        "--allow-jit",
        action="store_true",
        help="let programs make code while they run, as node and java do",
    )
    for name, words in (("start", "start it now"), ("stop", "stop it now")):
        actions.add_parser(name, help=words, allow_abbrev=False)
    telling = actions.add_parser("status", help="say whether it runs", allow_abbrev=False)
    add_json(telling)
    removing = actions.add_parser(
        "uninstall", help="stop it and remove the unit", allow_abbrev=False
    )
    _add_force(removing)
    reading = actions.add_parser("logs", help="what it wrote", allow_abbrev=False)
    reading.add_argument(
        "-n", "--lines", type=int, default=100, metavar="N", help="the last N (default: 100)"
    )
    reading.add_argument("-f", "--follow", action="store_true", help="and whatever comes")


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--force", action="store_true", help="even if somebody changed the unit by hand"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    """Do what is asked to the service."""
    from pathlib import Path

    from coilclaw.cli.dispatch import DONE
    from coilclaw.service.systemd import Systemd

    systemd = Systemd(Path.home(), os.environ)
    match args.action:
        case "install":
            _install(systemd, args, console)
        case "start":
            systemd.start()
            console.note("started", "green")
        case "stop":
            systemd.stop()
            console.note("stopped", "green")
        case "uninstall":
            was = systemd.uninstall(force=args.force)
            console.note(f"removed {systemd.path}" if was else "it was not installed", "green")
        case "logs":
            return _logs(systemd, args)
        case _:
            return _status(systemd, console)
    return DONE


def _install(systemd: Systemd, args: argparse.Namespace, console: Console) -> None:
    from coilclaw.app.agentwiring import open_config
    from coilclaw.app.home import home
    from coilclaw.service.program import program
    from coilclaw.service.unit import Unit

    place = home()
    config = open_config(place, os.environ)
    unit = Unit(
        (*program(sys.argv[0], sys.executable), "serve"),
        place,
        config.workspace_dir,
        jit=args.allow_jit,
    )
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    config.workspace_dir.mkdir(parents=True, exist_ok=True)
    written = systemd.install(unit, force=args.force, offline=args.offline)
    console.note(f"{'wrote' if written else 'unchanged:'} {systemd.path}", "green")
    console.note("start it with: coilclaw service start")
    console.note("it runs while you are logged in; 'loginctl enable-linger' keeps it running")


def _logs(systemd: Systemd, args: argparse.Namespace) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.errors import UsageError

    if args.lines < 1:
        raise UsageError("--lines is at least 1", rule="usage.lines")

    def show(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    systemd.logs(args.lines, follow=args.follow, show=show)
    return DONE


def _status(systemd: Systemd, console: Console) -> int:
    from coilclaw.cli.dispatch import DENIED, DONE

    status = systemd.status()
    if console.as_json:
        console.data(
            {
                "path": str(status.path),
                "installed": status.installed,
                "edited": status.edited,
                "reachable": status.reachable,
                "running": status.running,
                "load": status.load,
                "active": status.active,
                "sub": status.sub,
                "enabled": status.enabled,
                "pid": status.pid,
                "restarts": status.restarts,
                "result": status.result,
            }
        )
    else:
        for line in _told(status):
            console.print(line, "green" if status.running else "yellow")
    return DONE if status.running else DENIED


def _told(status: ServiceStatus) -> list[str]:
    if not status.installed:
        return ["not installed"]
    lines = [f"{status.path}{' (changed by hand)' if status.edited else ''}"]
    if not status.reachable:
        return [*lines, "no service manager of this user answers"]
    lines.append(f"{status.active} ({status.sub}), {status.enabled or 'not enabled'}")
    if status.pid:
        lines.append(f"process {status.pid}, restarted {status.restarts} times")
    if status.result not in {"", "success"}:
        lines.append(f"it ended with: {status.result}")
    return lines
