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
from coilclaw.plugins import archive, folder, manifest, pins, staging
from coilclaw.plugins.fields import Problem
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
    """What was approved: what the plugin is now, and how that differs from before."""

    manifest: Manifest
    differences: tuple[Difference, ...]
    first: bool
    """Whether nothing of it had been approved before."""


def install(store: Store, source: Path, reserved: Iterable[str]) -> Manifest:
    """Install a directory or an archive; ``reserved`` are names of tools that are taken."""
    files = folder.read(source) if source.is_dir() else archive.read(source)
    found, text = _examined(files)
    _make_folder(store)
    with store.lock():
        staging.sweep(store.folder)
        known = _present(store)
        if found.name in store.names():
            raise DeniedError(
                f"the plugin {shown(found.name)} is installed already",
                rule="plugin.exists",
                hint=_REINSTALL,
            )
        _refuse_taken(found, known, reserved)
        staged = staging.stage(store.folder, files)
        pin = Pin(found.name, found.version, True, text, pinned(files))
        pins.save(store.home, {**known, found.name: pin})
        _move(staged, store.place(found.name))
    return found


def remove(store: Store, name: str) -> None:
    """Take a plugin away, approved or not."""
    _known(store, name)
    with store.lock():
        _known(store, name)
        trash = staging.fresh(store.folder, staging.REMOVED)
        _move(store.place(name), trash)
        pins.save(store.home, _present(store))
        staging.sweep(store.folder)


def enable(store: Store, name: str, *, enabled: bool) -> None:
    """Let a plugin run, or keep it from running."""
    _known(store, name)
    with store.lock():
        known = _present(store)
        pin = store.pin(name, known)
        pins.save(store.home, {**known, name: replace(pin, enabled=enabled)})


def approve(store: Store, name: str, reserved: Iterable[str]) -> Approval:
    """Take a plugin as it is now for approved, if it could be installed like that."""
    _known(store, name)
    with store.lock():
        known = _present(store)
        seen = folder.look(store.place(name))
        before = known.get(name)
        pin = Pin(name, "", True, "", {}) if before is None else before
        found = differences(pin, seen)
        # What is read here is what is pinned, with the same rules as for an installation.
        files = folder.checked(seen)
        described, text = _examined(files)
        if described.name != name:
            problem = Problem(
                "name", f"is {shown(described.name)}, and the directory {shown(name)}"
            )
            raise manifest.invalid((problem,))
        _refuse_taken(described, {n: p for n, p in known.items() if n != name}, reserved)
        now = replace(pin, version=described.version, manifest=text, files=pinned(files))
        pins.save(store.home, {**known, name: now})
    return Approval(described, found, before is None)


def _examined(files: tuple[PluginFile, ...]) -> tuple[Manifest, str]:
    """Return the manifest among some files, if everything about it is right."""
    by_path = {file.path: file for file in files}
    if MANIFEST not in by_path:
        raise UsageError(f"there is no {MANIFEST}", rule="plugin.manifest")
    try:
        text = by_path[MANIFEST].content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise UsageError(f"{MANIFEST} is not UTF-8", rule="plugin.manifest") from problem
    found = manifest.examine(text)
    if not isinstance(found, manifest.Manifest):
        raise manifest.invalid(found)
    absent = manifest.missing_files(found, by_path)
    if absent:
        raise manifest.invalid(absent)
    return found, text


def _refuse_taken(found: Manifest, known: Mapping[str, Pin], reserved: Iterable[str]) -> None:
    owners = dict.fromkeys(reserved, "a tool of CoilClaw")
    for pin in known.values():
        other = manifest.examine(pin.manifest)
        # One that cannot be read any more is offered to nobody, and takes no name.
        for tool in other.tools if isinstance(other, manifest.Manifest) else ():
            owners[tool.name] = f"a tool of the plugin {shown(pin.name)}"
    problems = tuple(
        Problem(f"tools[{index}].name", f"'{tool.name}' is {owners[tool.name]}")
        for index, tool in enumerate(found.tools)
        if tool.name in owners
    )
    if problems:
        raise manifest.invalid(problems)


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
