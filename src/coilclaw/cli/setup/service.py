"""``coilclaw service``: run the gateway as a systemd user service."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from coilclaw.cli.command import DENIED, DONE, find_home, load_config, pick
from coilclaw.kernel import UsageError

if TYPE_CHECKING:
    from coilclaw.cli.command import Console, Namespace, Parser
    from coilclaw.gateway import ServiceStatus, Systemd


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    force = "even if the unit was changed by hand"
    installing = action("install", "write and enable the systemd user unit")
    installing.flag("--force", force)
    installing.flag("--offline", "write the unit without contacting the service manager")
    installing.flag("--allow-jit", "allow programs that generate code, such as node and java")
    action("start", "start it now")
    action("stop", "stop it now")
    action("status", "show whether it runs").json()
    action("uninstall", "stop it and remove the unit").flag("--force", force)
    reading = action("logs", "print its logs")
    summary = "the last N lines (default: 100)"
    reading.add_argument("-n", "--lines", type=int, default=100, metavar="N", help=summary)
    reading.add_argument("-f", "--follow", action="store_true", help="print new lines, too")


def run(args: Namespace, console: Console) -> int:
    """Perform an action on the service."""
    from pathlib import Path

    from coilclaw.gateway import Systemd

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
            if args.lines < 1:
                raise UsageError("--lines must be at least 1", rule="usage.lines")
            systemd.logs(args.lines, follow=args.follow, show=console.write_bytes)
        case _:
            return _show_status(systemd, console)
    return DONE


def _install(systemd: Systemd, args: Namespace, console: Console) -> None:
    from coilclaw.gateway import Unit, program

    place = find_home()
    config = load_config()
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


def _show_status(systemd: Systemd, console: Console) -> int:
    status = systemd.status()
    names = ("path", "installed", "edited", "reachable", "running", "load", "active", "sub")
    record = pick(status, *names, "enabled", "pid", "restarts", "result")
    if not console.emit(record):
        for line in _describe(status):
            console.print(line, "green" if status.running else "yellow")
    return DONE if status.running else DENIED


def _describe(status: ServiceStatus) -> list[str]:
    if not status.installed:
        return ["not installed"]
    lines = [f"{status.path}{' (changed by hand)' if status.edited else ''}"]
    if not status.reachable:
        return [*lines, "the service manager of this user does not answer"]
    lines.append(f"{status.active} ({status.sub}), {status.enabled or 'not enabled'}")
    if status.pid:
        lines.append(f"process {status.pid}, restarted {status.restarts} times")
    if status.result not in {"", "success"}:
        lines.append(f"last result: {status.result}")
    return lines
