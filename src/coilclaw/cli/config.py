"""``coilclaw config``: check, show, find and change the configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from coilclaw.cli.console import Console


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    checking = actions.add_parser(
        "validate", help="say everything that is wrong with it", allow_abbrev=False
    )
    add_json(checking)
    showing = actions.add_parser(
        "show", help="print it as it is in effect, without secrets", allow_abbrev=False
    )
    add_json(showing)
    finding = actions.add_parser("path", help="say where it is", allow_abbrev=False)
    add_json(finding)
    setting = actions.add_parser(
        "set", help="change one key, comments and layout kept", allow_abbrev=False
    )
    setting.add_argument("key", metavar="KEY", help="the dotted key, such as security.autonomy")
    setting.add_argument("value", metavar="VALUE", help="a TOML value, or a plain string")


def run(args: argparse.Namespace, console: Console) -> int:
    """Do what the action says."""
    from coilclaw.app.home import home
    from coilclaw.config.load import FILE_NAME

    where = home()
    path = where / FILE_NAME
    if args.action == "validate":
        return _validate(path, where, console)
    if args.action == "show":
        return _show(path, where, console)
    if args.action == "set":
        return _set(path, where, args.key, args.value, console)
    return _path(path, console)


def _validate(path: Path, home: Path, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE, USAGE
    from coilclaw.config.load import examine

    examined = examine(path, home=home, environ=os.environ)
    for warning in examined.warnings:
        console.warn(warning)
    if console.as_json:
        console.data(
            {
                "ok": not examined.problems,
                "path": str(path),
                "problems": [
                    {
                        "key": problem.key,
                        "line": problem.line,
                        "message": problem.message,
                        "allowed": list(problem.allowed),
                    }
                    for problem in examined.problems
                ],
                "warnings": list(examined.warnings),
            }
        )
        return USAGE if examined.problems else DONE
    for problem in examined.problems:
        console.print(problem.sentence(path.name), "red")
    if examined.problems:
        count = len(examined.problems)
        said = "a problem" if count == 1 else f"{count} problems"
        console.error(f"{path} has {said}", rule="config.invalid")
        return USAGE
    state = "" if path.exists() else " (there is no such file: everything has its default)"
    console.print(f"{path} is valid{state}", "green")
    return DONE


def _show(path: Path, home: Path, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.config import show
    from coilclaw.config.load import load

    config = load(path, home=home, environ=os.environ)
    for warning in config.warnings:
        console.warn(warning)
    if console.as_json:
        console.data(show.record(config, os.environ))
        return DONE
    for line in show.lines(config, os.environ):
        console.print(line, "bold" if line.startswith("[") else None)
    return DONE


def _path(path: Path, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE

    if console.as_json:
        console.data({"path": str(path), "exists": path.exists()})
    else:
        console.print(str(path))
    return DONE


def _set(path: Path, home: Path, key: str, value: str, console: Console) -> int:
    from coilclaw.cli.dispatch import DONE
    from coilclaw.config import edit, sample, store

    edit.parsed_key(key)
    planned = store.plan(
        path,
        lambda text: edit.set_value(text, key, value),
        home=home,
        environ=os.environ,
        initial=sample.text(home, os.environ),
    )
    if planned.after == planned.before:
        console.note(f"{key} is that already", "dim")
        return DONE
    store.write(planned, home=home)
    for problem in planned.examined.problems:
        console.warn(f"still wrong: {problem.sentence(path.name)}")
    for warning in planned.examined.warnings:
        console.warn(warning)
    console.note(f"set {key} in {path}", "green")
    return DONE
