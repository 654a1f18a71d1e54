"""Installing, removing, enabling and approving plugins: nothing of them is run.

What is installed is staged beside its place and moved there at the end. Its pin is written before
that, and means nothing until the directory is there: a kill leaves all of it or nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import DeniedError, EnvironmentFault, UsageError
from coilclaw.plugins import archive, folder, kept_files, manifest, pins, staging
from coilclaw.plugins.content_diff import describe_changes
from coilclaw.plugins.fields import Problem, located
from coilclaw.plugins.files import MANIFEST
from coilclaw.plugins.pins import Pin, pinned
from coilclaw.plugins.store import differences, missing
from coilclaw.storage.atomic import sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.plugins.files import PluginFile
    from coilclaw.plugins.manifest import Manifest
    from coilclaw.plugins.store import Difference, Store

_REINSTALL: Final = "remove it first to install another version"


@dataclass(frozen=True, slots=True)
class Approval:
    """A plugin as it is now, and how that differs from what was approved."""

    manifest: Manifest
    differences: tuple[Difference, ...]
    first: bool
    """Whether nothing of it was ever approved."""
    lines: tuple[str, ...]
    """The differences of contents; the text is the plugin's own, and hostile."""
    digest: str
    """Names exactly these files."""


def install(store: Store, source: Path, reserved: Iterable[str]) -> Manifest:
    """Install a directory or an archive; ``reserved`` are names of tools that are taken."""
    files = folder.read(source) if source.is_dir() else archive.read(source)
    _make_folder(store)
    with store.lock():
        staging.sweep(store.folder)
        known = _present(store)
        found, text = _examined(store, files, known, reserved)
        if found.name in store.names():
            raise DeniedError(
                f"the plugin {shown(found.name)} is installed already",
                rule="plugin.exists",
                hint=_REINSTALL,
            )
        staged = staging.stage(store.folder, files)
        pin = Pin(found.name, found.version, True, text, pinned(files))
        _save(store, {**known, found.name: pin}, files)
        _move(staged, store.place(found.name))
    return found


def remove(store: Store, name: str) -> None:
    """Take a plugin away, approved or not."""
    _known(store, name)
    with store.lock():
        _known(store, name)
        trash = staging.fresh(store.folder, staging.REMOVED)
        _move(store.place(name), trash)
        left = _present(store)
        pins.save(store.home, left)
        kept_files.prune(store.home, left)
        staging.sweep(store.folder)


def enable(store: Store, name: str, *, enabled: bool) -> None:
    """Let a plugin run, or keep it from running."""
    _known(store, name)
    with store.lock():
        known = _present(store)
        pin = store.pin(name, known)
        pins.save(store.home, {**known, name: replace(pin, enabled=enabled)})


def review(store: Store, name: str, reserved: Iterable[str]) -> Approval:
    """Say how a plugin differs from what was approved, if it could be installed like that."""
    _known(store, name)
    with store.lock(shared=True):
        return _reviewed(store, name, reserved)[0]


def approve(
    store: Store, name: str, reserved: Iterable[str], *, seen: str | None = None
) -> Approval:
    """Take a plugin as it is now for approved, if it could be installed like that.

    ``seen`` is the digest that a person agreed to: other files are refused.
    """
    _known(store, name)
    with store.lock():
        approval, now, files = _reviewed(store, name, reserved)
        if seen is not None and approval.digest != seen:
            raise DeniedError(
                f"the files of the plugin {shown(name)} changed while they were looked at",
                rule="plugin.changed",
                hint=f"'coilclaw plugin approve {name}' shows them again",
            )
        _save(store, {**_present(store), name: now}, files)
    return approval


def _reviewed(
    store: Store, name: str, reserved: Iterable[str]
) -> tuple[Approval, Pin, tuple[PluginFile, ...]]:
    known = _present(store)
    seen = folder.look(store.place(name))
    before = known.get(name)
    pin = Pin(name, "", True, "", {}) if before is None else before
    found = differences(pin, seen)
    # What is read here is what is pinned, with the same rules as for an installation.
    files = folder.checked(seen)
    described, text = _examined(store, files, known, reserved, directory=name)
    now = replace(pin, version=described.version, manifest=text, files=pinned(files))
    lines = describe_changes(store.home, pin, seen, found)
    return Approval(described, found, before is None, lines, now.digest), now, files


def _save(store: Store, known: Mapping[str, Pin], files: tuple[PluginFile, ...]) -> None:
    """Write the pins, and keep the contents that they are about."""
    kept_files.keep(store.home, files)
    pins.save(store.home, known)
    kept_files.prune(store.home, known)


def _examined(
    store: Store,
    files: tuple[PluginFile, ...],
    known: Mapping[str, Pin],
    reserved: Iterable[str],
    directory: str | None = None,
) -> tuple[Manifest, str]:
    """Return the manifest among some files, if everything about it is right."""
    by_path = {file.path: file for file in files}
    if MANIFEST not in by_path:
        raise UsageError(f"there is no {MANIFEST}", rule="plugin.manifest")
    content = by_path[MANIFEST].content
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise UsageError(
            f"{MANIFEST} is not UTF-8 in line {line}", rule="plugin.manifest"
        ) from problem
    found, problems = manifest.inspect(text)
    problems = (
        *problems,
        *manifest.missing_files(found, by_path),
        *_taken(found, known, reserved),
    )
    if directory is not None and found.name and found.name != directory:
        said = f"is {shown(found.name)}, and the directory {shown(directory)}"
        problems = (*problems, Problem("name", said))
    if problems:
        raise manifest.invalid(located(problems, store.lines(text)))
    return found, text


def _taken(
    found: Manifest, known: Mapping[str, Pin], reserved: Iterable[str]
) -> tuple[Problem, ...]:
    """Say which tools are called like one of another plugin, or of ours."""
    owners = dict.fromkeys(reserved, "a tool of CoilClaw")
    for pin in known.values():
        if pin.name == found.name:
            continue
        other = manifest.examine(pin.manifest)
        # One that cannot be read any more is offered to nobody, and takes no name.
        for tool in other.tools if isinstance(other, manifest.Manifest) else ():
            owners[tool.name] = f"a tool of the plugin {shown(pin.name)}"
    return tuple(
        Problem(f"tools[{index}].name", f"'{tool.name}' is {owners[tool.name]}")
        for index, tool in enumerate(found.tools)
        if tool.name in owners
    )


def _present(store: Store) -> dict[str, Pin]:
    """Return the pins of what is there; the others are left from what never came to its end."""
    names = store.names()
    return {name: pin for name, pin in pins.load(store.home).items() if name in names}


def _known(store: Store, name: str) -> None:
    names = store.names()
    if name not in names:
        raise missing(name, names)


def _make_folder(store: Store) -> None:
    try:
        store.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot make {store.folder}: {problem.strerror}", rule="plugin.write"
        ) from problem


def _move(source: Path, target: Path) -> None:
    try:
        os.rename(source, target)
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot move {source} to {target}: {problem.strerror}", rule="plugin.write"
        ) from problem
    sync_directory(target.parent)
