"""``export``: a trajectory for other programs: rows of parts, a database, or all of its files."""

from __future__ import annotations

import csv
import io
import json
import os
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from coilclaw.kernel import (
    EnvironmentFault,
    UsageError,
    explain_os_errors,
    sync_directory,
    write_atomic,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path
    from sqlite3 import Connection

    from coilclaw.traces.evaluation.graph import Graph
    from coilclaw.traces.trajectory.plan import TracePlaces
    from coilclaw.traces.trajectory.trace import PartRecord, Trace

Format: TypeAlias = Literal["jsonl", "csv", "sqlite", "tar"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)

COLUMNS: Final = (
    "trajectory_id",
    "part",
    "turn",
    "timestamp",
    "elapsed_ms",
    "duration_ms",
    "role",
    "part_type",
    "item_type",
    "tool_name",
    "tool_exit_code",
    "summary",
    "git_commit",
    "changed_files",
    "lines_added",
    "lines_removed",
    "input_tokens",
    "output_tokens",
    "test_calls",
    "solved_paths",
    "total_paths",
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_FILES: Final = ("agent_trace.json", "repo.bundle", "parts.jsonl", "bundles", "results")
_TABLES: Final = """
CREATE TABLE trajectories (
  trajectory_id TEXT PRIMARY KEY, agent TEXT, agent_model TEXT, environment TEXT,
  environment_version TEXT, started_at TEXT, reason TEXT, total_parts INTEGER, total_turns INTEGER,
  final_git_commit TEXT);
CREATE TABLE parts (
  trajectory_id TEXT, part INTEGER, turn INTEGER, timestamp TEXT, elapsed_ms INTEGER,
  duration_ms INTEGER, role TEXT, part_type TEXT, item_type TEXT, tool_name TEXT,
  tool_exit_code INTEGER, summary TEXT, git_commit TEXT, changed_files INTEGER,
  lines_added INTEGER, lines_removed INTEGER, input_tokens INTEGER, output_tokens INTEGER,
  test_calls INTEGER, solved_paths INTEGER, total_paths INTEGER, content TEXT, tool_input TEXT,
  tool_output TEXT, PRIMARY KEY (trajectory_id, part));
CREATE TABLE calls (
  trajectory_id TEXT, call_id TEXT, part INTEGER, turn INTEGER, path TEXT, timestamp TEXT,
  duration_ms INTEGER, status_code INTEGER, passed INTEGER, failed INTEGER, total INTEGER,
  error TEXT, tree TEXT, PRIMARY KEY (trajectory_id, call_id));
CREATE TABLE statuses (
  trajectory_id TEXT, part INTEGER, case_id TEXT, status TEXT,
  PRIMARY KEY (trajectory_id, part, case_id));
"""


def export(
    trace: Trace,
    path: Path,
    form: Format,
    *,
    graph: Graph | None = None,
    places: TracePlaces | None,
) -> None:
    """Write a trajectory to a file that is not there yet, whole or not at all.

    ``graph`` adds what the tests found, where there is room for it. ``places`` says where the
    files are that ``tar`` takes.
    """
    if path.exists() or path.is_symlink():
        raise UsageError(f"{path} already exists", rule="export.exists")
    if form == "jsonl":
        lines = (json.dumps(part.json(), ensure_ascii=True) + "\n" for part in trace.parts)
        write_atomic(path, "".join(lines).encode("ascii"))
    elif form == "csv":
        write_atomic(path, _render_csv(trace).encode("utf-8"))
    elif form == "sqlite":
        _write_whole(path, lambda temporary: _write_sqlite(trace, temporary, graph))
    else:
        if places is None:
            message = "only a trajectory that was recorded here can be exported with all its files"
            hint = "its trace and bundle are in the store of artifacts"
            raise UsageError(message, rule="export.files", hint=hint)
        _write_whole(path, lambda temporary: _write_tar(places, temporary))


def row(part: PartRecord) -> tuple[str | int | None, ...]:
    """Return a part as a row of ``COLUMNS``."""
    checkpoint, usage, state = part.repo_checkpoint, part.token_usage, part.testing_state
    numbers = checkpoint.numstat if checkpoint else ()
    counted = {
        "changed_files": 0,
        "lines_added": sum(one.added or 0 for one in numbers),
        "lines_removed": sum(one.removed or 0 for one in numbers),
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "test_calls": len(part.envoi_calls),
        "solved_paths": state.solved_paths if state else None,
        "total_paths": state.total_paths if state else None,
    }
    if checkpoint:
        counted["changed_files"] = len(checkpoint.changed_files) + (checkpoint.more_files or 0)
    return tuple(counted[name] if name in counted else getattr(part, name) for name in COLUMNS)


def _render_csv(trace: Trace) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([_escape_cell(value) for value in row(part)] for part in trace.parts)
    return text.getvalue()


def _escape_cell(value: str | int | None) -> str | int:
    """Return a cell; mark as text what a spreadsheet would read as a formula."""
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return "" if value is None else value


def _write_sqlite(trace: Trace, path: Path, graph: Graph | None) -> None:
    import sqlite3

    end = trace.session_end
    connection = None
    try:
        connection = sqlite3.connect(path)
        connection.executescript(_TABLES)
        whole = (
            *(trace.trajectory_id, trace.agent, trace.agent_model),
            *(trace.environment, trace.environment_version, trace.started_at),
            end.reason if end else None,
            *(len(trace.parts), len(trace.turns)),
            end.final_git_commit if end else None,
        )
        _insert(connection, "trajectories", [whole])
        rows = [
            (*row(part), part.content, part.tool_input, part.tool_output) for part in trace.parts
        ]
        _insert(connection, "parts", rows)
        _insert(connection, "calls", list(_list_calls(trace)))
        if graph is not None:
            _insert(connection, "statuses", list(_list_statuses(graph)))
        connection.commit()
    except sqlite3.Error as problem:
        raise EnvironmentFault(f"cannot write {path}: {problem}", rule="export.write") from problem
    finally:
        if connection is not None:
            connection.close()


def _insert(connection: Connection, table: str, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        places = ", ".join("?" * len(rows[0]))
        connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)  # noqa: S608 - our own names


def _list_calls(trace: Trace) -> Iterable[tuple[object, ...]]:
    calls = [(call, part.part, part.turn) for part in trace.parts for call in part.envoi_calls]
    ends = [(call, turn.part_end, turn.turn) for turn in trace.turns for call in turn.envoi_calls]
    for call, part, turn in (*calls, *ends):
        result = call.result
        yield (
            *(trace.trajectory_id, call.call_id, part, turn),
            *(call.path, call.timestamp, call.duration_ms, call.status_code),
            *((result.passed, result.failed, result.total) if result else (None, None, None)),
            *(call.error, call.tree),
        )


def _list_statuses(graph: Graph) -> Iterable[tuple[object, ...]]:
    for name, statuses in zip(graph.cases, graph.statuses, strict=True):
        for point, status in zip(graph.points, statuses, strict=True):
            if status is not None:
                yield (graph.trajectory_id, point.part, name, status)


def _write_tar(places: TracePlaces, path: Path) -> None:
    """Pack all but the workspace and the agent's home; equal files give equal bytes."""
    import tarfile

    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in _FILES:
            for file in _list_files(places.directory / name):
                inside = file.relative_to(places.directory).as_posix()
                info = tarfile.TarInfo(f"{places.trajectory_id}/{inside}")
                with file.open("rb") as source:
                    info.size = os.fstat(source.fileno()).st_size
                    info.mode = 0o644
                    archive.addfile(info, source)


def _list_files(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(one for one in path.iterdir() if one.is_file() and not one.is_symlink())
    return [path] if path.is_file() and not path.is_symlink() else []


def _write_whole(path: Path, write: Callable[[Path], None]) -> None:
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    try:
        with explain_os_errors(f"write {path}", rule="export.write"):
            write(temporary)
            os.link(temporary, path)
            sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
