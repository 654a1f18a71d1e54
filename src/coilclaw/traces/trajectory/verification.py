"""``verify``: whether a trajectory is what was recorded, and whether all of its code is there.

The journal holds, the document says the same, every part's commit is in the bundle with all its
files, and every result is the one that was recorded. It changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from coilclaw.kernel import CoilClawError, EnvironmentFault, digest_bytes, read_json
from coilclaw.kernel import journal_verification as journals
from coilclaw.traces.trajectory import bundles, plan
from coilclaw.traces.trajectory.history import COMMITS, HASH_FIELD, History, part_of
from coilclaw.traces.trajectory.recorder import MAX_PROMPT_BYTES
from coilclaw.traces.trajectory.trace import bound_text
from coilclaw.traces.trajectory.trace_document import encode_part
from coilclaw.workspace import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.traces.trajectory.plan import TracePlaces

REDACTED: Final = "[redacted"
"""What stands where something was left out of a record, so that the two cannot be the same."""
UNWRITABLE: Final = "file.io"
MAX_PROBLEMS: Final = 100
MAX_RESULT_BYTES: Final = 2**30


@dataclass(frozen=True, slots=True)
class TraceVerification:
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


def verify_trajectory(places: TracePlaces, *, scratch: Path | None = None) -> TraceVerification:
    """Verify everything; the bundle is unpacked at ``scratch``, which is removed again."""
    look = _Look(places)
    problems = look.read_journal()
    if look.history.begun:
        expected = {**look.history.head().json(), "parts": look.parts}
        problems += differences(places.document, expected)
        look.parts.clear()
        problems += look.check_session()
    problems += look.check_bundle(scratch or places.directory / "verifying.git")
    problems += look.check_results()
    return TraceVerification(
        places.trajectory_id,
        look.history.parts,
        len(look.wanted),
        len(look.results),
        look.history.end is not None,
        tuple(problems[:MAX_PROBLEMS]),
    )


def differences(path: Path, expected: Mapping[str, Any]) -> Iterator[str]:
    """Yield how a document differs from the journal."""
    try:
        # No name stands twice in it, which other readers might read in another way.
        found = read_json(path.read_bytes())
    except (OSError, ValueError) as problem:
        why = str(problem).removeprefix("is not valid JSON: ")
        yield f"document: {path.name} cannot be read: {why}"
        return
    parts = found.get("parts") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(parts, list):
        yield "document: it is not a trace"
        return
    told = expected["parts"]
    for number, part in enumerate(told, 1):
        if number > len(parts) or not _is_same(parts[number - 1], part):
            yield f"document: part {number} is not the one in the journal"
            return
    if len(parts) > len(told):
        yield f"document: part {len(told) + 1} is not in the journal"
        return
    names = [
        name
        for name in sorted({*found, *expected} - {"parts"})
        if name not in found or name not in expected or not _is_same(found[name], expected[name])
    ]
    if names:
        yield f"document: {', '.join(names)} differ from the journal"


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are written alike: 1 is neither 1.0 nor true."""
    return bool(one == other) and encode_part(one) == encode_part(other)


@dataclass(slots=True)
class _Look:
    """What the journal says, and whether the rest fits it."""

    places: TracePlaces
    history: History = field(default_factory=History)
    wanted: dict[str, str] = field(default_factory=dict)
    """Each commit that is named, with who names it."""
    results: dict[str, str | None] = field(default_factory=dict)
    parts: list[dict[str, Any]] = field(default_factory=list)

    def read_journal(self) -> list[str]:
        try:
            report = journals.verify_journal(
                self.places.journal,
                hash_field=HASH_FIELD,
                key_path=self.places.key,
                observe=self._take,
            )
        except (CoilClawError, KeyError, TypeError) as problem:
            return [f"journal: {problem}"]
        return [] if report.break_ is None else [f"journal: {report.break_.sentence}"]

    def _take(self, number: int, record: dict[str, Any]) -> None:
        if number == 1:  # it may begin again
            self.history = History()
            for found in (self.parts, self.wanted, self.results):
                found.clear()
        self.history.apply(record)
        who = kind = record["type"]
        if kind == "part":
            self.parts.append(part_of(record))
            who = f"part {record['part']}"
        for name in COMMITS:
            if name in record:
                self.wanted.setdefault(record[name], who)
        for call in record.get("envoi_calls", ()):
            self.results[call["call_id"]] = call.get("result_sha256")

    def check_session(self) -> list[str]:
        """Check that what it would be resumed with is what was recorded."""
        try:
            asked = plan.load_plan(self.places.session)
        except CoilClawError as problem:
            return [f"session: {problem.message}"]
        recorded = self.history.session
        pairs = {
            "trajectory_id": (asked.trajectory_id, recorded["trajectory_id"]),
            "agent": (asked.agent, recorded["agent"]),
            "model": (asked.model, recorded["agent_model"]),
            "environment_version": (asked.environment_version, recorded["environment_version"]),
        }
        if self.history.turns:
            prompt = bound_text(asked.prompt, MAX_PROMPT_BYTES)
            pairs["prompt"] = (prompt, self.history.turns[0].prompt)
        return [
            f"session: {self.places.session.name} has another {name} than the journal"
            for name, (one, other) in pairs.items()
            if one != other and REDACTED not in other
        ]

    def check_bundle(self, scratch: Path) -> list[str]:
        ended = self.history.end is not None
        remove_tree(scratch)
        try:
            chosen = (self.places.bundle,) if ended else bundles.pieces(self.places.bundles)
            present = bundles.commits(bundles.assemble(chosen, scratch))
        except EnvironmentFault as problem:
            if problem.rule == UNWRITABLE:
                raise  # there is no room to look into it, which says nothing about it
            return [f"bundle: {'; '.join(problem.message.splitlines())}"]
        finally:
            remove_tree(scratch)
        return [
            f"bundle: commit {commit} of {who} is not in it"
            for commit, who in self.wanted.items()
            if commit not in present
        ]

    def check_results(self) -> Iterator[str]:
        for call_id, expected in self.results.items():
            if expected is None:
                continue
            path = self.places.results / f"{call_id}.json"
            try:
                with path.open("rb") as file:
                    data = file.read(MAX_RESULT_BYTES)
            except OSError as problem:
                yield f"results: {path.name} cannot be read: {problem.strerror}"
                continue
            if digest_bytes(data) != expected:
                yield f"results: {path.name} is not the one that was recorded"
