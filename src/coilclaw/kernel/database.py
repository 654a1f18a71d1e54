"""``Database``: SQLite as we use it; nothing else opens a database.

Write-ahead log, every commit synced, every writing transaction ``BEGIN IMMEDIATE`` (a transaction
that reads first and writes then fails under load, whatever the busy timeout), deleted content
overwritten. Reading transactions never write, and so neither wait for a writer nor hold one up.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Self
from weakref import WeakSet

from coilclaw.kernel.atomic_file import sync_directory
from coilclaw.kernel.errors import EnvironmentFault, LockTimeout, explain_os_errors

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator
    from pathlib import Path

BUSY_S: Final = 30.0
"""How long a transaction waits for those of other connections."""

_PAUSE_S: Final = 5e-3
_PRIVATE: Final = 0o600
_SETTINGS: Final = (
    "PRAGMA synchronous = FULL",
    "PRAGMA secure_delete = ON",
    "PRAGMA trusted_schema = OFF",
    f"PRAGMA journal_size_limit = {16 * 2**20}",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """What a kind of database holds, and how each version of it comes from the one before."""

    noun: str
    application_id: int
    """Marks the file as ours, in its header."""
    migrations: tuple[tuple[str, ...], ...]
    """The statements that lead to version 1, to version 2, and so on."""


class Database:
    """One database file, opened at the first use; threads take turns.

    A forked child has a connection of its own, opened at its first use.
    """

    def __init__(self, path: Path, layout: Layout, *, busy_s: float = BUSY_S) -> None:
        self.path = path.absolute()  # the process may change its directory
        self._layout = layout
        self._busy_s = busy_s
        self._guard = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inherited: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Open the file, made and brought to the newest version where needed."""
        with self._guard, _explain_errors(self.path):
            self._open_connection()

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._guard, _explain_errors(self.path):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """Run one writing transaction: durable when the block has ended, undone if it raises."""
        with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """Show one state of the database, whatever others write meanwhile."""
        with self._transaction("BEGIN") as connection:
            connection.execute("PRAGMA query_only = ON")
            try:
                yield connection
            finally:
                connection.execute("PRAGMA query_only = OFF")

    def scrub(self) -> None:
        """Rebuild the file, and empty the log beside it: nothing deleted stays in either."""
        with self._guard, _explain_errors(self.path):
            connection = self._open_connection()
            connection.execute("VACUUM")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise LockTimeout(
                    f"another process is reading {self.path}, so that deleted data stays in its "
                    "write-ahead log",
                    rule="database.busy",
                    hint="try again when that process has ended",
                )

    def before_fork(self) -> None:
        """Close, unless the forking thread is inside a transaction; keep everybody else out.

        SQLite remembers for a whole process which locks it holds on a file. A child inherits that
        memory and not the locks, so that even a connection of its own would trust locks which
        no one holds.
        """
        self._guard.acquire()
        if self._connection is not None and not self._connection.in_transaction:
            self.close()

    def after_fork(self, *, child: bool) -> None:
        if child and self._connection is not None:
            # To close it would write to the file; to forget it would close it.
            self._inherited, self._connection = self._connection, None
        self._guard.release()

    @contextmanager
    def _transaction(self, begin: str) -> Iterator[sqlite3.Connection]:
        with self._guard, _explain_errors(self.path):
            connection = self._open_connection()
            with _commit_block(connection, begin):
                yield connection

    def _open_connection(self) -> sqlite3.Connection:
        if self._inherited is not None:
            raise EnvironmentFault(
                f"{self.path} cannot be used: this process was forked during a transaction on it",
                rule="database.forked",
            )
        if self._connection is None:
            _Forks().databases.add(self)
            with explain_os_errors(f"make or open {self.path}", rule="database.io"):
                _ensure_file(self.path)
                self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        import sqlite3

        connection = sqlite3.connect(
            self.path, timeout=self._busy_s, isolation_level=None, check_same_thread=False
        )
        try:
            with _commit_block(connection, "BEGIN"):
                version = _version(connection, self.path, self._layout)
            _repeat_while_busy(lambda: _make_ours(connection, self.path), self._busy_s)
            for setting in _SETTINGS:
                connection.execute(setting)
            if version < len(self._layout.migrations):
                _bring_up(connection, self.path, self._layout)
        except BaseException:
            connection.close()
            raise
        return connection


@cache
class _Forks:
    """Sees to it that no database is open while this process forks; one, made at first use."""

    def __init__(self) -> None:
        self.databases: WeakSet[Database] = WeakSet()
        self._held: list[Database] = []
        os.register_at_fork(
            before=self._before,
            after_in_parent=lambda: self._after(child=False),
            after_in_child=lambda: self._after(child=True),
        )

    def _before(self) -> None:
        held = sorted(self.databases, key=id)
        for database in held:
            database.before_fork()
        self._held = held

    def _after(self, *, child: bool) -> None:
        held, self._held = self._held, []
        for database in held:
            database.after_fork(child=child)


@contextmanager
def _commit_block(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _make_ours(connection: sqlite3.Connection, path: Path) -> None:
    """Change the file's mode and journal, once it is known to be one of ours."""
    if os.stat(path).st_mode & 0o077:
        for name in (path, f"{path}-wal", f"{path}-shm"):
            with suppress(FileNotFoundError):
                os.chmod(name, _PRIVATE)
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise EnvironmentFault(
            f"the file system of {path} cannot hold a database with a write-ahead log",
            rule="database.wal",
            hint="keep it on a local disk",
        )


def _repeat_while_busy(work: Callable[[], None], seconds: float) -> None:
    """Repeat what SQLite's own busy timeout does not cover: becoming WAL while others do too."""
    import sqlite3

    deadline = time.monotonic() + seconds
    while True:
        try:
            return work()
        except sqlite3.OperationalError as problem:
            if not _is_busy(problem) or time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


def _bring_up(connection: sqlite3.Connection, path: Path, layout: Layout) -> None:
    """Bring a database to the newest version, in one transaction."""
    with _commit_block(connection, "BEGIN IMMEDIATE"):
        # Another process may have done it while we waited.
        for statements in layout.migrations[_version(connection, path, layout) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {layout.application_id}")
        connection.execute(f"PRAGMA user_version = {len(layout.migrations)}")


def _version(connection: sqlite3.Connection, path: Path, layout: Layout) -> int:
    """Return the version, inside a transaction: what is read here must belong together."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application != layout.application_id:
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application or version or objects:
            raise EnvironmentFault(
                f"{path} is a database, but not a {layout.noun} database of CoilClaw",
                rule="database.foreign",
                hint="name another file, or move that one away",
            )
    if version > len(layout.migrations):
        raise EnvironmentFault(
            f"{path} has version {version}, and this CoilClaw knows versions up to "
            f"{len(layout.migrations)}",
            rule="database.newer",
            hint="use the newer CoilClaw that wrote it",
        )
    assert isinstance(version, int)
    return version


def _ensure_file(path: Path) -> None:
    """See that there is a regular file; a new one, and the log beside it, only we may read.

    An empty file is made without ever closing it under its own name: closing any descriptor of a
    file drops all locks that this process holds on it, those of other connections included.
    """
    if not path.exists():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".coilclaw-{os.urandom(8).hex()}.tmp")
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE))
        try:
            with suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
        sync_directory(path.parent)
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise EnvironmentFault(f"{path} is not a regular file", rule="database.io")


@contextmanager
def _explain_errors(path: Path) -> Iterator[None]:
    import sqlite3

    try:
        yield
    except sqlite3.Error as problem:
        if _is_busy(problem):
            raise LockTimeout(
                f"the database {path} was not free in time",
                rule="database.busy",
                hint="wait for the process that uses it to finish, or end it",
            ) from problem
        if _error_code(problem) in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
            raise EnvironmentFault(
                f"{path} is damaged, or not a database: {problem}",
                rule="database.damaged",
                hint="move the file away, or put a copy in its place",
            ) from problem
        raise EnvironmentFault(
            f"cannot use the database {path}: {problem}", rule="database.io"
        ) from problem


def _is_busy(problem: sqlite3.Error) -> bool:
    import sqlite3

    return _error_code(problem) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


def _error_code(problem: sqlite3.Error) -> int:
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF
