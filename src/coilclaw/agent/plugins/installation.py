"""Install, remove, enable and approve plugins, without running any of their code.

An installation is staged beside its final directory and moved there at the end. Its pin is written
before the move and has no effect until the directory exists, so a kill leaves all or nothing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import signal
import stat
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import TYPE_CHECKING, Final

from coilclaw.agent.plugins import manifest, pins
from coilclaw.agent.plugins.archive import read_archive
from coilclaw.agent.plugins.files import (
    MANIFEST,
    MAX_FILE_BYTES,
    check_files,
    look_at,
    read_directory,
)
from coilclaw.agent.plugins.pins import Pin, pin_files
from coilclaw.agent.plugins.store import differences, missing
from coilclaw.kernel import (
    DeniedError,
    FileLock,
    UsageError,
    digest_bytes,
    explain_os_errors,
    quote_text,
    sync_directory,
    write_all,
    write_atomic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from coilclaw.agent.plugins.files import FolderState, PluginFile
    from coilclaw.agent.plugins.manifest import Manifest
    from coilclaw.agent.plugins.pins import PinnedFile
    from coilclaw.agent.plugins.store import Difference, PluginStore
    from coilclaw.kernel import Json, ToolResult

_log = logging.getLogger(__name__)

STAGED: Final = ".staged-"
REMOVED: Final = ".removed-"
RUNNING: Final = ".running-"
WRITE_RULE: Final = "plugin.write"
CALL_LOCK: Final = "lock"
SETTLE_S: Final = 5.0
SETTLE_LOOK_S: Final = 0.001

_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def fresh(folder: Path, prefix: str) -> Path:
    """Return an unused path with a random name."""
    return folder / f"{prefix}{os.urandom(8).hex()}"


def stage(folder: Path, files: Iterable[PluginFile]) -> Path:
    """Write files into a new directory, and sync them to disk."""
    staged = fresh(folder, STAGED)
    with explain_os_errors(f"write {staged}", rule=WRITE_RULE):
        os.mkdir(staged, 0o700)
        write(staged, files, sync=True)
    return staged


def write(folder: Path, files: Iterable[PluginFile], *, sync: bool) -> None:
    """Write files with checked names below a directory that no other process writes to."""
    made = {folder}
    for file in files:
        path = folder / file.path
        for parent in reversed(path.relative_to(folder).parents):
            directory = folder / parent
            if directory not in made:
                os.mkdir(directory, 0o755)
                made.add(directory)
        descriptor = os.open(path, _NEW, 0o600)
        try:
            write_all(descriptor, file.content)
            os.fchmod(descriptor, file.mode & 0o777)
            if sync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for directory in made if sync else ():
        sync_directory(directory)


def settle(path: Path) -> None:
    """Wait until no process has a file open for writing, because the kernel would not run it.

    A process that another thread starts during a write inherits the descriptor for a moment. The
    kernel grants a read lease only without a writer. Return at once if the file system has no
    leases.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    deadline = time.monotonic() + SETTLE_S
    try:
        # The default signal for a broken lease would end this process.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        while time.monotonic() < deadline:
            try:
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
            except BlockingIOError:
                time.sleep(SETTLE_LOOK_S)
            except OSError:
                return
            else:
                return
    finally:
        os.close(descriptor)


@contextmanager
def running(folder: Path) -> Iterator[Path]:
    """Create a directory for one call and remove it after the block.

    The caller holds the lock of the store on entry, so that no ``sweep`` comes in between.
    """
    path = fresh(folder, RUNNING)
    os.mkdir(path, 0o700)
    # While the lock is held, ``sweep`` knows that the call runs; a kill releases it.
    with FileLock(path / CALL_LOCK):
        try:
            yield path
        finally:
            discard(path)


def sweep(folder: Path) -> None:
    """Remove what killed processes left behind; the caller holds the exclusive lock."""
    for name in os.listdir(folder):
        path = folder / name
        left = name.startswith((STAGED, REMOVED))
        if name.startswith(RUNNING):
            left = FileLock(path / CALL_LOCK, timeout_s=0).is_free()
        if left:
            discard(path)


def discard(path: Path) -> None:
    """Remove a directory, whatever its permissions, and log a warning if that fails.

    Links are not followed. Unlike ``remove_tree`` it moves nothing aside, so that repeated kills
    cannot nest what they leave.
    """
    for directory, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(directory, name)
            if stat.S_ISDIR(os.lstat(inner).st_mode):
                os.chmod(inner, 0o700)
    try:
        shutil.rmtree(path)
    except OSError as problem:
        _log.warning("%s could not be deleted: %s", path, problem.strerror)


@dataclass(frozen=True, slots=True)
class PluginTrial:
    """One call and its expected result."""

    tool: str
    arguments: Mapping[str, Json]
    success: bool = True
    output: str | None = None

    def shortfall(self, result: ToolResult) -> str | None:
        """Return how a result differs from the expected one, or ``None``."""
        if result.metadata.get("status") not in {"allowed", "failed"}:
            return result.error or "it was denied"
        if result.success != self.success:
            return result.error or "the call succeeded, but a failure is expected"
        if self.output is not None and result.output != self.output:
            return (
                f"the output is {quote_text(result.output)}, but {quote_text(self.output)} "
                "is expected"
            )
        return None


def list_trials(
    store: PluginStore,
    name: str,
    tool: str | None = None,
    arguments: Mapping[str, Json] | None = None,
) -> tuple[PluginTrial, ...]:
    """Return the given call, or the examples of one tool or of all tools of a plugin."""
    tools = manifest.parse(store.pin(name, pins.load(store.home)).manifest).tools
    if tool is not None:
        known = [each.name for each in tools]
        tools = tuple(each for each in tools if each.name == tool)
        if not tools:
            raise UsageError(
                f"the plugin {quote_text(name)} has no tool {quote_text(tool)}",
                rule="plugin.tool",
                hint=f"it has {', '.join(known)}",
            )
        if arguments is not None:
            return (PluginTrial(tool, arguments),)
    found = tuple(
        PluginTrial(each.name, example.arguments, example.success, example.output)
        for each in tools
        for example in each.examples
    )
    if not found:
        raise UsageError(
            f"the manifest of {quote_text(name)} has no examples to try",
            rule="plugin.examples",
            hint=f"give a call: coilclaw plugin test {name} {tools[0].name} --json '{{}}'",
        )
    return found


NAME: Final = "plugin_files"
MAX_LINES: Final = 2000
"""Lines of one file that are compared; for a longer file, sizes and hashes are shown."""
MAX_SHOWN: Final = 600
"""Lines of all differences together."""
MAX_LINE_CHARS: Final = 300


def keep_contents(home: Path, files: Iterable[PluginFile]) -> None:
    """Keep the contents of files that are about to be approved, for later comparison."""
    folder = home / NAME
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in files:
        path = folder / file.sha256
        if not path.exists():
            write_atomic(path, file.content, mode=0o600)


def prune_contents(home: Path, pins: Mapping[str, Pin]) -> None:
    """Remove the kept contents that no approved plugin uses."""
    wanted = {file.sha256 for pin in pins.values() for file in pin.files.values()}
    folder = home / NAME
    for name in os.listdir(folder) if folder.is_dir() else ():
        if name not in wanted:
            with suppress(FileNotFoundError):
                os.unlink(folder / name)


def _recall(home: Path, sha256: str) -> bytes | None:
    """Return the kept content with this hash; ``None`` if it is missing or was changed."""
    try:
        with (home / NAME / sha256).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError:
        return None
    return content if digest_bytes(content) == sha256 else None


def describe_changes(
    home: Path, pin: Pin, seen: FolderState, differences: tuple[Difference, ...]
) -> tuple[str, ...]:
    """Return the differences as untrusted lines, with all file names before any content."""
    lines = [line for one in differences for line in _of_file(home, pin, seen, one)]
    names = tuple(map(str, differences)) if len(differences) > 1 else ()
    cut = [line if len(line) <= MAX_LINE_CHARS else f"{line[:MAX_LINE_CHARS]}…" for line in lines]
    if len(cut) <= MAX_SHOWN:
        return (*names, *cut)
    return (*names, *cut[:MAX_SHOWN], f"… {len(cut) - MAX_SHOWN} more lines are not shown")


def _of_file(home: Path, pin: Pin, seen: FolderState, one: Difference) -> Iterator[str]:
    yield str(one)
    was, now = pin.files.get(one.path), seen.files.get(one.path)
    if one.what == "mode" and was is not None and now is not None:
        yield f"  permissions {was.mode:04o} -> {now.mode:04o}"
    if one.what not in {"added", "removed", "changed"}:
        return
    before = None if was is None else _read_approved(home, pin, one.path)
    after = None if now is None else now.content
    old, new = _lines(before), _lines(after)
    if old is None or new is None or (was is not None and before is None):
        yield f"  {_describe_size(was, before)} -> {_describe_size(now, after)}"
        return
    yield from unified_diff(old, new, f"approved/{one.path}", f"now/{one.path}", lineterm="")


def _read_approved(home: Path, pin: Pin, path: str) -> bytes | None:
    """Return the approved content of a file; the manifest may be taken from the pin itself."""
    sha256 = pin.files[path].sha256
    text = pin.manifest.encode("utf-8", "surrogatepass")
    if path == MANIFEST and digest_bytes(text) == sha256:
        return text
    return _recall(home, sha256)


def _lines(content: bytes | None) -> list[str] | None:
    """Return the lines of a text; ``None`` if it is binary or too long to compare."""
    if content is None:
        return []
    if b"\0" in content:
        return None
    try:
        lines = content.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return None
    if lines and not lines[-1]:
        lines.pop()
    return lines if len(lines) <= MAX_LINES else None


def _describe_size(file: PinnedFile | PluginFile | None, content: bytes | None) -> str:
    if file is None:
        return "nothing"
    size = "content not kept" if content is None else f"{len(content)} bytes"
    return f"{size}, sha256 {file.sha256}"


@dataclass(frozen=True, slots=True)
class PluginApproval:
    """The current state of a plugin, and its differences from the approved state."""

    manifest: Manifest
    differences: tuple[Difference, ...]
    first: bool
    """Whether no version of it was ever approved."""
    lines: tuple[str, ...]
    """The differences of contents; the text comes from the plugin and is untrusted."""
    digest: str
    """The digest that identifies exactly these files."""


def install_plugin(store: PluginStore, source: Path, reserved: Iterable[str]) -> Manifest:
    """Install a directory or an archive; ``reserved`` are tool names that it may not use.

    Raise ``DeniedError`` or ``UsageError`` if it cannot be installed.
    """
    files = read_directory(source) if source.is_dir() else read_archive(source)
    with explain_os_errors(f"create {store.folder}", rule=WRITE_RULE):
        store.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with store.lock():
        sweep(store.folder)
        known = _present(store)
        found, text = _read_manifest(files, known, reserved)
        if found.name in store.names():
            raise DeniedError(
                f"the plugin {quote_text(found.name)} is already installed",
                rule="plugin.exists",
                hint="remove it first to install another version",
            )
        staged = stage(store.folder, files)
        pin = Pin(found.name, found.version, True, text, pin_files(files))
        _save(store, {**known, found.name: pin}, files)
        _move(staged, store.place(found.name))
    return found


def remove_plugin(store: PluginStore, name: str) -> None:
    """Remove a plugin, approved or not."""
    _require_installed(store, name)
    with store.lock():
        _require_installed(store, name)
        trash = fresh(store.folder, REMOVED)
        _move(store.place(name), trash)
        left = _present(store)
        pins.save(store.home, left)
        prune_contents(store.home, left)
        sweep(store.folder)


def enable_plugin(store: PluginStore, name: str, *, enabled: bool) -> None:
    """Enable or disable an approved plugin."""
    _require_installed(store, name)
    with store.lock():
        known = _present(store)
        pin = store.pin(name, known)
        pins.save(store.home, {**known, name: replace(pin, enabled=enabled)})


def review_plugin(store: PluginStore, name: str, reserved: Iterable[str]) -> PluginApproval:
    """Return how a plugin differs from its approved state.

    Raise an error if its current files could not be installed.
    """
    _require_installed(store, name)
    with store.lock(shared=True):
        return _review_plugin(store, name, reserved)[0]


def approve_plugin(
    store: PluginStore, name: str, reserved: Iterable[str], *, seen: str | None = None
) -> PluginApproval:
    """Approve the current files of a plugin, if they could be installed.

    ``seen`` is the digest that the user agreed to: any other files are refused.
    """
    _require_installed(store, name)
    with store.lock():
        approval, now, files = _review_plugin(store, name, reserved)
        if seen is not None and approval.digest != seen:
            raise DeniedError(
                f"the files of the plugin {quote_text(name)} changed during the review",
                rule="plugin.changed",
                hint=f"'coilclaw plugin approve {name}' shows them again",
            )
        _save(store, {**_present(store), name: now}, files)
    return approval


def _review_plugin(
    store: PluginStore, name: str, reserved: Iterable[str]
) -> tuple[PluginApproval, Pin, tuple[PluginFile, ...]]:
    known = _present(store)
    seen = look_at(store.place(name))
    before = known.get(name)
    pin = Pin(name, "", True, "", {}) if before is None else before
    found = differences(pin, seen)
    # The bytes that were read here are pinned, under the same rules as for an installation.
    files = check_files(seen)
    described, text = _read_manifest(files, known, reserved, directory=name)
    now = replace(pin, version=described.version, manifest=text, files=pin_files(files))
    lines = describe_changes(store.home, pin, seen, found)
    return PluginApproval(described, found, before is None, lines, now.digest), now, files


def _save(store: PluginStore, known: Mapping[str, Pin], files: tuple[PluginFile, ...]) -> None:
    """Write the pins, and keep the contents of the pinned files."""
    keep_contents(store.home, files)
    pins.save(store.home, known)
    prune_contents(store.home, known)


def _read_manifest(
    files: tuple[PluginFile, ...],
    known: Mapping[str, Pin],
    reserved: Iterable[str],
    directory: str | None = None,
) -> tuple[Manifest, str]:
    """Return the manifest of some files and its text; raise ``UsageError`` if it is invalid."""
    by_path = {file.path: file for file in files}
    if MANIFEST not in by_path:
        raise UsageError(f"{MANIFEST} is missing", rule="plugin.manifest")
    content = by_path[MANIFEST].content
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        message = f"{MANIFEST} is not UTF-8 in line {line}"
        raise UsageError(message, rule="plugin.manifest") from problem
    found, document = manifest.inspect(text)
    manifest.check_files(document, found, by_path)
    owners = dict.fromkeys(reserved, "a tool of CoilClaw")
    for pin in known.values():
        other, flaws = manifest.inspect(pin.manifest)
        # A manifest that became invalid offers no tools and reserves no names.
        if pin.name != found.name and not flaws.problems:
            owner = f"a tool of the plugin {quote_text(pin.name)}"
            owners |= dict.fromkeys((tool.name for tool in other.tools), owner)
    for index, tool in enumerate(found.tools):
        if tool.name in owners:
            document.note(("tools", index, "name"), f"'{tool.name}' is {owners[tool.name]}")
    if directory is not None and found.name and found.name != directory:
        message = f"is {quote_text(found.name)}, but the directory is {quote_text(directory)}"
        document.note(("name",), message)
    if document.problems:
        raise manifest.invalid(document.problems)
    return found, text


def _present(store: PluginStore) -> dict[str, Pin]:
    """Return the pins of the installed plugins, without those of unfinished installations."""
    names = store.names()
    return {name: pin for name, pin in pins.load(store.home).items() if name in names}


def _require_installed(store: PluginStore, name: str) -> None:
    names = store.names()
    if name not in names:
        raise missing(name, names)


def _move(source: Path, target: Path) -> None:
    with explain_os_errors(f"move {source} to {target}", rule=WRITE_RULE):
        os.rename(source, target)
    sync_directory(target.parent)
