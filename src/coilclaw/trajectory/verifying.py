"""``verify``: whether a trajectory is what was recorded, and whether all of its code is there.

The journal holds, the document says the same, every part's commit is in the bundle with all its
files, and every result is the one that was recorded. It changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coilclaw.domain.canonical import digest
from coilclaw.errors import CoilClawError, EnvironmentFault, GitFailed
from coilclaw.storage import verify as journals
from coilclaw.trajectory import bundles, plan
from coilclaw.trajectory.document import exactly, line_of
from coilclaw.trajectory.history import HASH_FIELD, History, part_of
from coilclaw.trajectory.recording import MAX_PROMPT_BYTES
from coilclaw.trajectory.texts import bounded
from coilclaw.workspace.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.trajectory.places import Places

REDACTED: Final = "[redacted"
"""What stands where something was left out of a record, so that the two cannot be the same."""
UNWRITABLE: Final = "file.io"
MAX_PROBLEMS: Final = 100
MAX_RESULT_BYTES: Final = 2**30


@dataclass(frozen=True, slots=True)
class Verification:
    """What was looked at, and everything that is wrong."""

    trajectory_id: str
    parts: int
    commits: int
    """Different commits that parts name."""
    results: int
    ended: bool
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


@dataclass(slots=True)
class _Looking:
    """What is being put together."""

    places: Places
    history: History
    wanted: dict[str, str]
    """Each commit that is named, with who names it."""
    results: dict[str, str | None]
    problems: list[str]
    parts: list[dict[str, Any]]


def verify(places: Places, *, scratch: Path | None = None) -> Verification:
    """Look at everything; ``scratch`` is where the bundle is unpacked, and removed afterwards."""
    looking = _Looking(places, History(), {}, {}, [], [])
    _journal(looking)
    _document(looking)
    looking.parts.clear()
    _session(looking)
    _bundle(looking, scratch or places.directory / "verifying.git")
    _results(looking)
    history = looking.history
    return Verification(
        places.trajectory_id,
        history.parts,
        len(looking.wanted),
        len(looking.results),
        history.end is not None,
        tuple(looking.problems[:MAX_PROBLEMS]),
    )


def _journal(looking: _Looking) -> None:
    places = looking.places

    def observe(number: int, record: dict[str, object]) -> None:
        if number == 1:  # it may begin again
            looking.history = History()
            looking.parts.clear()
            looking.wanted.clear()
            looking.results.clear()
        _take(looking, record)

    try:
        report = journals.verify(
            places.journal, hash_field=HASH_FIELD, key_path=places.key, observe=observe
        )
    except (CoilClawError, KeyError, TypeError) as problem:
        looking.problems.append(f"journal: {problem}")
        return
    if report.break_ is not None:
        looking.problems.append(f"journal: {report.break_.sentence}")


def _take(looking: _Looking, record: dict[str, Any]) -> None:
    looking.history.apply(record)
    kind = record["type"]
    if kind == "part":
        looking.parts.append(part_of(record))
    who = f"part {record['part']}" if kind == "part" else kind
    for name in ("initial_commit", "git_commit", "final_git_commit"):
        if name in record:
            looking.wanted.setdefault(record[name], who)
    for call in record.get("envoi_calls", ()):
        looking.results[call["call_id"]] = call.get("result_sha256")


def _document(looking: _Looking) -> None:
    if not looking.history.begun:
        return
    expected = {**looking.history.head().json(), "parts": looking.parts}
    looking.problems += differences(looking.places.document, expected)


def differences(path: Path, expected: Mapping[str, Any]) -> Iterator[str]:
    """Say in what a document is not the one that a journal tells."""
    try:
        found = exactly(path.read_bytes())
    except (OSError, ValueError, RecursionError) as problem:
        yield f"document: {path.name} cannot be read: {problem}"
        return
    parts = found.get("parts") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(parts, list):
        yield "document: it is no trace"
        return
    told = expected["parts"]
    for number, part in enumerate(told, 1):
        if number > len(parts) or not _same(parts[number - 1], part):
            yield f"document: part {number} is not the one in the journal"
            return
    if len(parts) > len(told):
        yield f"document: part {len(told) + 1} is not in the journal"
        return
    names = [
        name
        for name in sorted({*found, *expected} - {"parts"})
        if name not in found or name not in expected or not _same(found[name], expected[name])
    ]
    if names:
        yield f"document: {', '.join(names)} differ from the journal"


def _same(one: Any, other: Any) -> bool:
    """Whether two values are written alike: 1 is neither 1.0 nor true."""
    return bool(one == other) and line_of(one) == line_of(other)


def _session(looking: _Looking) -> None:
    """What it would be gone on with is what was recorded."""
    history = looking.history
    if not history.begun:
        return
    try:
        asked = plan.load(looking.places.session)
    except CoilClawError as problem:
        looking.problems.append(f"session: {problem.message}")
        return
    recorded = history.session
    pairs = {
        "trajectory_id": (asked.trajectory_id, recorded["trajectory_id"]),
        "agent": (asked.agent, recorded["agent"]),
        "model": (asked.model, recorded["agent_model"]),
        "environment_version": (asked.environment_version, recorded["environment_version"]),
    }
    if history.turns:
        pairs["prompt"] = (bounded(asked.prompt, MAX_PROMPT_BYTES), history.turns[0].prompt)
    looking.problems += [
        f"session: {looking.places.session.name} has another {name} than the journal"
        for name, (one, other) in pairs.items()
        if one != other and REDACTED not in other
    ]


def _bundle(looking: _Looking, scratch: Path) -> None:
    places = looking.places
    ended = looking.history.end is not None
    remove_tree(scratch)
    try:
        chosen = (places.bundle,) if ended else bundles.pieces(places.bundles)
        present = bundles.commits(bundles.assemble(chosen, scratch))
    except (GitFailed, EnvironmentFault) as problem:
        if problem.rule == UNWRITABLE:
            raise  # there is no room to look into it, which says nothing about it
        looking.problems.append(f"bundle: {'; '.join(problem.message.splitlines())}")
        return
    finally:
        remove_tree(scratch)
    looking.problems += [
        f"bundle: commit {commit} of {who} is not in it"
        for commit, who in looking.wanted.items()
        if commit not in present
    ]


def _results(looking: _Looking) -> None:
    looking.problems += _wrong_results(looking)


def _wrong_results(looking: _Looking) -> Iterator[str]:
    for call_id, expected in looking.results.items():
        if expected is None:
            continue
        path = looking.places.results / f"{call_id}.json"
        try:
            with path.open("rb") as file:
                data = file.read(MAX_RESULT_BYTES)
        except OSError as problem:
            yield f"results: {path.name} cannot be read: {problem.strerror}"
            continue
        if digest(data) != expected:
            yield f"results: {path.name} is not the one that was recorded"
