"""``coilclaw env fixtures``: show and install third-party files that tests need."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.cli.command import DONE, FAILED, find_home, pick
from coilclaw.kernel import CoilClawError, UsageError

if TYPE_CHECKING:
    from coilclaw.cli.command import Console, Namespace, Parser
    from coilclaw.traces import EnvironmentPlace, FixtureSet, FoundFixture

_STATES: Final = {
    "pinned": ("as pinned", "green"),
    "other": ("another version", "yellow"),
    "missing": ("missing", "red"),
}
"""The label of a state, and its colour."""


def declare(parser: Parser) -> None:
    """Declare the arguments."""
    parser.value("file", "FILE", "the environment: its name, directory or file")
    action = parser.actions("fixtures_action")
    summary = "show what is installed and what is missing; exit code 1 unless all match the pins"
    status = action("status", summary, _show_status)
    install = action("install", "find or fetch what is missing, and check its hash", _install)
    install.value("sets", "SET", "the sets to install (default: all)", nargs="*")
    summary = "install a set from a directory, clone, tar archive or Debian package (repeatable)"
    install.value("--from", "SET=PATH", summary, dest="origins", action="append", default=[])
    summary = "also install a version that is not pinned, and replace another version"
    install.flag("--force", summary)
    for each in (status, install):
        add_fixtures(each)
        each.json()


def add_fixtures(parser: Parser) -> None:
    """Declare ``--fixtures``."""
    summary = "where fixtures are (default: /opt/tests if it exists, else in the home)"
    parser.value("--fixtures", "DIR", summary, type=Path)


def find_root(given: Path | None, *, to_write: bool = False) -> Path:
    """Return where fixtures are: the given place, else the default one."""
    from coilclaw.traces import fixtures

    if given is not None:
        return given.absolute()
    return fixtures.default_root(find_home(), to_write=to_write)


def _find_sets(file: str) -> tuple[EnvironmentPlace, tuple[FixtureSet, ...]]:
    """Return an environment and the sets that it needs; raise if it needs none."""
    from coilclaw.traces import catalogue, fixtures

    place = catalogue.find_environment(file)
    sets = fixtures.read_declared(place.directory) if place.file.name == catalogue.MAIN else ()
    if not sets:
        raise UsageError(f"the environment {place.name} needs no fixtures", rule="fixtures.none")
    return place, sets


def _show_status(args: Namespace, console: Console) -> int:
    from coilclaw.traces import fixtures

    place, sets = _find_sets(args.file)
    root = find_root(args.fixtures)
    found = [fixtures.find(one, root) for one in sets]
    programs = _count_programs(place, root, found)
    counted = [(one, programs.get(one.wanted.suite)) for one in found]
    rows = [_record(one, place.name, number) for one, number in counted]
    if not console.emit({"fixtures": str(root), "sets": rows}):
        console.show(f"fixtures in {root}")
        for one, number in counted:
            _show(one, place.name, number, console)
    right = all(one.state == "pinned" and number == one.wanted.programs for one, number in counted)
    return DONE if right else FAILED


def _count_programs(
    place: EnvironmentPlace, root: Path, found: list[FoundFixture]
) -> dict[str, int | str]:
    """Return how many cases each suite has, or why they cannot be counted."""
    from coilclaw.traces import FIXTURES, open_judge

    counted: dict[str, int | str] = {}
    for suite in (one.wanted.suite for one in found if one.state != "missing"):
        judge = open_judge(str(place.file), find_home(), os.environ, jobs=1)
        try:
            counted[suite] = len(judge.cases(suite, params={FIXTURES: str(root)}))
        except UsageError as problem:
            counted[suite] = problem.message
    return counted


def _describe_todo(found: FoundFixture, environment: str) -> str:
    from coilclaw.traces import by_hand

    install = f"coilclaw env fixtures {environment} install {found.wanted.name}"
    if found.state == "missing":
        return f"{install}; by hand: {by_hand(found.wanted, environment)}"
    if found.state == "other":
        known = "results will differ from the known ones"
        return f"{known}; {install} --force installs the pinned version"
    return ""


def _record(found: FoundFixture, environment: str, programs: int | str | None) -> dict[str, object]:
    wanted = found.wanted
    return {
        **pick(wanted, "name", "suite", "purpose", "licence"),
        "state": found.state,
        "place": None if found.place is None else str(found.place),
        "sha256": found.sha256,
        "pinned_sha256": wanted.sha256,
        "files": found.files,
        "programs": programs if isinstance(programs, int) else None,
        "pinned_programs": wanted.programs,
        "problem": programs if isinstance(programs, str) else None,
        "todo": _describe_todo(found, environment),
    }


def _show(
    found: FoundFixture, environment: str, programs: int | str | None, console: Console
) -> None:
    wanted = found.wanted
    word, style = _STATES[found.state]
    console.show(f"{wanted.name:<16} {word}", style)
    lines = [f"for {wanted.suite}: {wanted.purpose} ({wanted.licence})"]
    if found.place is not None:
        lines.append(f"in {found.place}, {found.files} files")
        counted = f"{programs} programs" if isinstance(programs, int) else str(programs)
        lines.append(f"{counted} (pinned: {wanted.programs})")
    if found.state == "other":
        lines += [f"its hash is {found.sha256}", f"pinned is   {wanted.sha256}"]
    for line in (*lines, _describe_todo(found, environment)):
        if line:
            console.show(f"    {line}", "dim")


def _install(args: Namespace, console: Console) -> int:
    from coilclaw.traces import fixture_install, fixtures

    place, sets = _find_sets(args.file)
    origins = _parse_origins(args.origins)
    fixtures.choose_sets(sets, list(origins))
    root = find_root(args.fixtures, to_write=True)
    rows: list[dict[str, object]] = []
    problems = 0
    for wanted in fixtures.choose_sets(sets, [*args.sets, *(origins if args.sets else ())]):
        name = wanted.name
        if not args.sets and origins and name not in origins:
            continue
        try:
            made = fixture_install.install_fixtures(
                wanted,
                root,
                origin=origins.get(name),
                force=args.force,
                environ=os.environ,
                tell=partial(_note_progress, console, name),
            )
        except CoilClawError as problem:
            problems += 1
            hint = problem.hint or fixture_install.by_hand(wanted, place.name)
            console.error(f"{name}: {problem.message}", rule=problem.rule, hint=hint)
            rows.append({"name": name, "installed": False, "problem": problem.message})
            continue
        found = made.found
        what = f"installed from {made.source}" if made.done else "was already installed"
        if not console.as_json:
            console.show(f"{name:<16} {what}: {found.place}", "green")
        row = {"name": name, "installed": made.done, "state": found.state}
        rows.append({**row, "place": str(found.place), "sha256": found.sha256})
    console.emit({"fixtures": str(root), "sets": rows})
    return FAILED if problems else DONE


def _note_progress(console: Console, name: str, line: str) -> None:
    console.note(f"{name}: {line}")


def _parse_origins(given: list[str]) -> dict[str, Path]:
    origins: dict[str, Path] = {}
    for text in given:
        name, _, path = text.partition("=")
        if not name or not path or name in origins:
            said = f"{text!r} is not SET=PATH, or repeats a set"
            raise UsageError(said, rule="usage.from", hint="give --from SET=PATH")
        origins[name] = Path(path)
    return origins
