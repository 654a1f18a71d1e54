"""Undo the changes of a turn, including those of shell commands, with two snapshots per turn.

The first snapshot is taken before the first call that may change something, the second at the end
of the turn. For a turn that died in between, the current tree takes the place of the second.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from coilclaw.agent.handle import UndoneTurn
from coilclaw.kernel import CoilClawError, UndoRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.kernel import Journal, TreeDiff
    from coilclaw.workspace import Root, SnapshotStore, TreeState

_log = logging.getLogger(__name__)

TURN_HASH_FIELD: Final = "turn_hash"
TURNS_FILE: Final = "turns.jsonl"


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """A turn that changed something, or may have."""

    turn_id: str
    before: str
    after: str | None


class TurnUndo:
    """Records the changes of turns in one workspace, and undoes them."""

    def __init__(self, tree: Callable[[], tuple[Root, TreeState]]) -> None:
        self._tree = tree
        """Opens the workspace at the first use."""
        self._open: set[tuple[str, str]] = set()
        """The conversations and turns with a first snapshot."""
        self._guard = threading.Lock()

    @cached_property
    def _store(self) -> SnapshotStore:
        # Most turns change nothing and do not need the import.
        from coilclaw.workspace import SnapshotStore

        return SnapshotStore(self._tree()[1].snapshots)

    def before(self, conversation_id: str, turn_id: str) -> None:
        """Take the first snapshot of a turn, once; log a warning if that fails."""
        with self._guard:
            if (conversation_id, turn_id) in self._open:
                return
            self._open.add((conversation_id, turn_id))
            self._note("before", conversation_id, turn_id)

    def after(self, conversation_id: str, turn_id: str) -> None:
        """Take the second snapshot of a turn that has a first one."""
        if (conversation_id, turn_id) not in self._open:
            return
        with self._guard:
            self._open.discard((conversation_id, turn_id))
            self._note("after", conversation_id, turn_id)

    def undo(self, conversation_id: str) -> UndoneTurn:
        """Undo the last turn of a conversation that changed files and was not undone yet.

        Raise ``UndoRefused`` without such a turn, or if its files were changed since.
        """
        from coilclaw.workspace import Purpose, restore_snapshot

        span = self._last(conversation_id)
        root, state = self._tree()
        now = self._store.take(root.path).id
        after = span.after or now
        changed = self._store.diff(span.before, after)
        paths = _paths(changed)
        since = _paths(self._store.diff(after, now)) & paths
        if since:
            raise UndoRefused(
                f"{len(since)} of the files that turn {span.turn_id} changed were changed since: "
                + ", ".join(sorted(since)[:10]),
                paths=tuple(sorted(since)),
                rule="undo.changed",
                hint="'coilclaw snapshot restore' restores the whole tree",
            )
        restored = restore_snapshot(
            root,
            state,
            self._store,
            span.before,
            only=paths,
            purpose=Purpose("undo-turn", span.turn_id),
        )
        self._append("undone", conversation_id, span.turn_id, span.before)
        left = [(path, "its content is not kept in snapshots") for path in restored.left]
        left += [(f".git/{name}", "git's own state is not kept") for name in changed.git_changes]
        taken = tuple(str(item.path) for item in restored.plan.changes)
        return UndoneTurn(span.turn_id, taken, tuple(left))

    def _last(self, conversation_id: str) -> TurnSpan:
        spans: dict[str, TurnSpan] = {}
        journal = self._journal()
        for record in journal.read() if journal.path.exists() else ():
            if record.get("conversation_id") != conversation_id:
                continue
            turn, snapshot = str(record.get("turn_id")), str(record.get("snapshot"))
            if record.get("kind") == "before":
                # A resumed turn has a first snapshot for each of its parts: the oldest counts.
                first = spans[turn].before if turn in spans else snapshot
                spans[turn] = TurnSpan(turn, first, None)
            elif record.get("kind") == "after" and turn in spans:
                spans[turn] = TurnSpan(turn, spans[turn].before, snapshot)
            elif record.get("kind") == "undone":
                spans.pop(turn, None)
        for span in reversed(spans.values()):
            if span.before != span.after:
                return span
        raise UndoRefused(
            "no turn of this conversation changed a file that could be restored",
            rule="undo.nothing",
        )

    def _note(self, kind: str, conversation_id: str, turn_id: str) -> None:
        try:
            snapshot = self._store.take(self._tree()[0].path).id
        except CoilClawError as problem:
            _log.warning(
                "this turn cannot be undone as a whole: %s",
                problem.message,
                extra={"event": "snapshot_failed"},
            )
            return
        self._append(kind, conversation_id, turn_id, snapshot)

    def _append(self, kind: str, conversation_id: str, turn_id: str, snapshot: str) -> None:
        self._tree()[1].create()
        record = {"kind": kind, "conversation_id": conversation_id, "turn_id": turn_id}
        with self._journal() as journal:
            journal.append({**record, "snapshot": snapshot})

    def _journal(self) -> Journal:
        from coilclaw.kernel import Journal

        _, state = self._tree()
        path = state.directory / TURNS_FILE
        return Journal(path, hash_field=TURN_HASH_FIELD, key_path=state.key)


def _paths(difference: TreeDiff) -> frozenset[str]:
    return frozenset(path for change in difference.changes for path in change.paths)
