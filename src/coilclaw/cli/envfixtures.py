"""``coilclaw env fixtures``: which files of others the tests need, and getting them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.console import visible
from coilclaw.cli.parser import add_json

if TYPE_CHECKING:
    import argparse

    from coilclaw.cli.console import Console
    from coilclaw.domain.messages import Json
    from coilclaw.environments.catalogue import EnvironmentPlace
    from coilclaw.environments.fixtures import FixtureSet, Found

_COLOURS: Final = {"pinned": "green", "other": "yellow", "missing": "red"}
_WORDS: Final = {"pinned": "as pinned", "other": "another version", "missing": "missing"}
_DIRECTORY: Final = "where fixtures are (default: /opt/tests if it is there, else ours)"


def declare(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", metavar="FILE", help="the environment: its name, directory or file")
    actions = parser.add_subparsers(dest="fixtures_action", metavar="ACTION", required=True)
    status = actions.add_parser(
        "status",
        help="what is there and what is missing; exit code 1 unless all is there as pinned",
        allow_abbrev=False,
    )
    install = actions.add_parser(
        "install", help="find or fetch what is missing, and check it by hash", allow_abbrev=False
    )
    install.add_argument("sets", nargs="*", metavar="SET", help="which (default: all)")
    install.add_argument(
        "--from",
        dest="origins",
        action="append",
        default=[],
        metavar="SET=PATH",
        help="take a set from a directory, clone, tar archive or Debian package (repeatable)",
    )
    install.add_argument(
        "--force",
        action="store_true",
        help="also install another version than the pinned one, and over another version",
    )
    for action in (status, install):
        action.add_argument("--fixtures", type=Path, metavar="DIR", help=_DIRECTORY)
        add_json(action)


def run(args: argparse.Namespace, console: Console) -> int:
    """Tell or install."""
    from coilclaw.environments import catalogue, fixtures
    from coilclaw.errors import UsageError

    place = catalogue.find(args.file)
    sets = fixtures.declared(place.directory) if place.file.name == catalogue.MAIN else ()
    if not sets:
        raise UsageError(f"the environment {place.name} needs no fixtures", rule="fixtures.none")
    if args.fixtures_action == "status":
        return _status(args, place, sets, console)
    return _install(args, place, sets, console)


def _root(given: Path | None, *, to_write: bool = False) -> Path:
    from coilclaw.app.home import home
    from coilclaw.environments import fixtures

    if given is not None:
        return given.absolute()
    return fixtures.default_root(home(), to_write=to_write)


def _status(
    args: argparse.Namespace,
    place: EnvironmentPlace,
    sets: tuple[FixtureSet, ...],
    console: Console,
) -> int:
    from coilclaw.cli.dispatch import DONE, FAILED
    from coilclaw.environments import fixtures

    root = _root(args.fixtures)
    found = [fixtures.find(one, root) for one in sets]
    programs = _programs(place, root, found)
    if console.as_json:
        told: list[Json] = [_json(one, place.name, programs.get(one.wanted.suite)) for one in found]
        console.data({"fixtures": str(root), "sets": told})
    else:
        console.print(visible(f"fixtures in {root}"))
        for one in found:
            _tell(one, place.name, programs.get(one.wanted.suite), console)
    right = all(
        one.state == "pinned" and programs.get(one.wanted.suite) == one.wanted.programs
        for one in found
    )
    return DONE if right else FAILED


def _programs(place: EnvironmentPlace, root: Path, found: list[Found]) -> dict[str, int | str]:
    """How many cases each suite has, or why nobody can tell."""
    from coilclaw.app.environments import judge_of
    from coilclaw.app.home import home
    from coilclaw.environments.selfchecking import FIXTURES
    from coilclaw.errors import UsageError

    counted: dict[str, int | str] = {}
    for one in found:
        if one.state == "missing":
            continue
        judge = judge_of(str(place.file), home(), jobs=1)
        try:
            cases = judge.cases(one.wanted.suite, params={FIXTURES: str(root)})
        except UsageError as problem:
            counted[one.wanted.suite] = problem.message
        else:
            counted[one.wanted.suite] = len(cases)
    return counted


def _todo(found: Found, environment: str) -> str:
    from coilclaw.environments.installing import by_hand

    name = found.wanted.name
    if found.state == "missing":
        install = f"coilclaw env fixtures {environment} install {name}"
        return f"{install}; by hand: {by_hand(found.wanted, environment)}"
    if found.state == "other":
        return (
            "figures will differ from those that are known; "
            f"coilclaw env fixtures {environment} install {name} --force puts the pinned one there"
        )
    return ""


def _json(found: Found, environment: str, programs: int | str | None) -> dict[str, Json]:
    wanted = found.wanted
    return {
        "name": wanted.name,
        "suite": wanted.suite,
        "purpose": wanted.purpose,
        "licence": wanted.licence,
        "state": found.state,
        "place": None if found.place is None else str(found.place),
        "sha256": found.sha256,
        "pinned_sha256": wanted.sha256,
        "files": found.files,
        "programs": programs if isinstance(programs, int) else None,
        "pinned_programs": wanted.programs,
        "problem": programs if isinstance(programs, str) else None,
        "todo": _todo(found, environment),
    }


def _tell(found: Found, environment: str, programs: int | str | None, console: Console) -> None:
    wanted = found.wanted
    console.print(visible(f"{wanted.name:<16} {_WORDS[found.state]}"), _COLOURS[found.state])
    lines = [f"for {wanted.suite}: {wanted.purpose} ({wanted.licence})"]
    if found.place is not None:
        lines.append(f"in {found.place}, {found.files} files")
        counted = f"{programs} programs" if isinstance(programs, int) else str(programs)
        lines.append(f"{counted} (pinned: {wanted.programs})")
    if found.state == "other":
        lines += [f"its hash is {found.sha256}", f"pinned is   {wanted.sha256}"]
    todo = _todo(found, environment)
    for line in [*lines, *([todo] if todo else [])]:
        console.print(visible(f"    {line}"), "dim")


def _install(
    args: argparse.Namespace,
    place: EnvironmentPlace,
    sets: tuple[FixtureSet, ...],
    console: Console,
) -> int:
    from coilclaw.cli.dispatch import DONE, FAILED
    from coilclaw.environments import fixtures, installing
    from coilclaw.errors import CoilClawError

    origins = _origins(args.origins)
    fixtures.chosen(sets, list(origins))
    root = _root(args.fixtures, to_write=True)
    done: list[Json] = []
    problems = 0
    for wanted in fixtures.chosen(sets, [*args.sets, *(origins if args.sets else ())]):
        if not args.sets and origins and wanted.name not in origins:
            continue
        try:
            made = installing.install(
                wanted,
                root,
                origin=origins.get(wanted.name),
                force=args.force,
                tell=partial(_progress, console, wanted.name),
            )
        except CoilClawError as problem:
            problems += 1
            hint = problem.hint or installing.by_hand(wanted, place.name)
            console.error(f"{wanted.name}: {problem.message}", rule=problem.rule, hint=hint)
            done.append({"name": wanted.name, "installed": False, "problem": problem.message})
            continue
        what = f"installed from {made.source}" if made.done else "was there already"
        if not console.as_json:
            console.print(visible(f"{wanted.name:<16} {what}: {made.found.place}"), "green")
        done.append(
            {
                "name": wanted.name,
                "installed": made.done,
                "state": made.found.state,
                "place": str(made.found.place),
                "sha256": made.found.sha256,
            }
        )
    if console.as_json:
        console.data({"fixtures": str(root), "sets": done})
    return FAILED if problems else DONE


def _progress(console: Console, name: str, line: str) -> None:
    console.note(visible(f"{name}: {line}"))


def _origins(given: list[str]) -> dict[str, Path]:
    from coilclaw.errors import UsageError

    origins: dict[str, Path] = {}
    for text in given:
        name, equals, path = text.partition("=")
        if not equals or not name or not path or name in origins:
            raise UsageError(
                f"{text!r} says not where a set comes from, or its name is given twice",
                rule="usage.from",
                hint="give --from SET=PATH",
            )
        origins[name] = Path(path)
    return origins
