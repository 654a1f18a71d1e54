"""``coilclaw config``: validate, show, locate and change the configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coilclaw.cli.command import DONE, USAGE, Console, Namespace, Parser, find_home, pick

if TYPE_CHECKING:
    from pathlib import Path


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    action = parser.actions()
    action("validate", "list every problem of the configuration", _validate).json()
    action("show", "print the configuration in effect, without secrets", _show).json()
    action("path", "print the path of the file", _show_path).json()
    setting = action("set", "change one key; comments and layout are kept", _set)
    setting.value("key", "KEY", "the dotted key, such as security.autonomy")
    setting.value("value", "VALUE", "a TOML value, or a plain string")


def _find_file() -> Path:
    from coilclaw.app import FILE_NAME

    return find_home() / FILE_NAME


def _show_path(_: Namespace, console: Console) -> None:
    path = _find_file()
    if not console.emit({"path": str(path), "exists": path.exists()}):
        console.print(str(path))


def _validate(_: Namespace, console: Console) -> int:
    from coilclaw.app import examine_config

    path = _find_file()
    examined = examine_config(path, home=path.parent, environ=os.environ)
    problems = examined.problems
    for warning in examined.warnings:
        console.warn(warning)
    code = USAGE if problems else DONE
    found = [pick(problem, "key", "line", "message", "allowed") for problem in problems]
    record = {"ok": not problems, "path": str(path), "problems": found}
    if console.emit({**record, "warnings": list(examined.warnings)}):
        return code
    for problem in problems:
        console.print(problem.sentence(path.name), "red")
    if problems:
        said = "a problem" if len(problems) == 1 else f"{len(problems)} problems"
        console.error(f"{path} has {said}", rule="config.invalid")
    else:
        state = "" if path.exists() else " (the file does not exist: the defaults apply)"
        console.print(f"{path} is valid{state}", "green")
    return code


def _show(_: Namespace, console: Console) -> None:
    from coilclaw.app import load_config, show

    path = _find_file()
    config = load_config(path, home=path.parent, environ=os.environ)
    for warning in config.warnings:
        console.warn(warning)
    if not console.emit(show.record(config, os.environ)):
        for line in show.lines(config, os.environ):
            console.print(line, "bold" if line.startswith("[") else None)


def _set(args: Namespace, console: Console) -> None:
    from coilclaw.app import edit, sample

    path, key = _find_file(), args.key
    edit.parsed_key(key)
    planned = edit.plan(
        path,
        lambda text: edit.set_value(text, key, args.value),
        home=path.parent,
        environ=os.environ,
        initial=sample.text(path.parent, os.environ),
    )
    if planned.after == planned.before:
        console.note(f"{key} already has this value", "dim")
        return
    edit.write(planned, home=path.parent)
    for problem in planned.examined.problems:
        console.warn(f"still wrong: {problem.sentence(path.name)}")
    for warning in planned.examined.warnings:
        console.warn(warning)
    console.note(f"set {key} in {path}", "green")
