"""The receipts of one home: verify them against everything else that is known of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from coilclaw.agent.checkpoints import CheckpointWriter, read_checkpoint_state
from coilclaw.agent.receipts.book import ReceiptBook
from coilclaw.kernel import VerificationFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from coilclaw.agent.checkpoints import CheckpointPlace
    from coilclaw.agent.receipts.verification import ReceiptVerification
    from coilclaw.kernel import Checkpoint, PublicKey, SignedCheckpoint, SigningKey, Trust


@dataclass(frozen=True, slots=True)
class CheckpointLag:
    """Where checkpoints go, which one was the last, and how many receipts came since."""

    place: str
    size: int
    time: str
    behind: int
    late: bool
    """Whether one should have been written since."""
    problem: str
    """What kept the last one from being written; empty where nothing did."""

    @property
    def sentence(self) -> str:
        """Describe the last checkpoint and the receipts written since, for display."""
        last = f"after {self.size} receipts" if self.size else "none yet"
        since = f"receipts since: {self.behind}" if self.size else f"receipts: {self.behind}"
        why = f"; {self.problem}" if self.problem else ""
        return f"last checkpoint: {last}, {since}{why}"


@dataclass(frozen=True, slots=True)
class CheckedReceipts:
    """What verification found, and what was compared."""

    found: ReceiptVerification
    checkpoints: Mapping[Trust, int] = field(default_factory=dict)
    """How many checkpoints were compared, by what is known of their signatures."""
    lag: CheckpointLag | None = None


@dataclass(frozen=True, slots=True)
class HomeReceipts:
    """Where a home keeps its receipts, its memory and its checkpoints."""

    home: Path
    path: Path
    memory: Path
    place: CheckpointPlace | None
    """Where checkpoints are written; ``None`` writes none."""
    every: int
    """How many receipts there are from one checkpoint to the next."""

    def open_book(self, after: Callable[[ReceiptBook], None] | None = None) -> ReceiptBook:
        """Return the book; ``after`` is called with it after each receipt."""
        key = self.home / "keys" / "journal.key"
        return ReceiptBook(self.path, key_path=key, marked=True, after=after)

    def checkpoint_writer(self, environ: Mapping[str, str]) -> CheckpointWriter | None:
        """Return what writes checkpoints; ``None`` where the configuration names no place."""
        if self.place is None:
            return None
        return CheckpointWriter(
            self.place,
            self.every,
            home=self.home,
            environ=environ,
            signing_key=lambda: find_signing_key(self.home),
            now=lambda: datetime.now(UTC),
        )

    def verify(self, book: ReceiptBook) -> ReceiptVerification:
        """Replay the logs, and compare them with the marks, the memory and the last checkpoint.

        Nothing is written: a memory that does not exist is not created either.
        """
        from coilclaw.agent.memory.store import Memory
        from coilclaw.agent.receipts.verification import read_origin, verify
        from coilclaw.workspace import is_alive

        state = read_checkpoint_state(self.home)

        def has_memory() -> bool:
            if not self.memory.exists():
                return False
            with Memory(self.memory) as opened:
                return opened.tells_of_receipts()

        found = verify(book, is_alive, has_memory)
        if state.size > found.receipts and state.origin == read_origin(book):
            problem = (
                f"there are {found.receipts} receipts, and a checkpoint of {state.size} was "
                f"written at {state.time}: the log was rolled back"
            )
            return replace(found, problems=(*found.problems, problem))
        return found

    def check(
        self,
        checkpoints: Sequence[SignedCheckpoint] | None = None,
        key: PublicKey | None = None,
    ) -> CheckedReceipts:
        """Verify the receipts, also against checkpoints.

        With a ``key`` each checkpoint must be signed by it; without, the key of this home is tried.
        """
        with self.open_book() as book:
            found = self.verify(book)
            trust: Mapping[Trust, int] = {}
            if checkpoints is not None:
                problems, trust = self._compare(book, checkpoints, key)
                found = replace(found, problems=(*found.problems, *problems))
            return CheckedReceipts(found, trust, self._find_lag(book, found.receipts))

    def take_checkpoint(self) -> Checkpoint:
        """Return a checkpoint of the receipts; raise where they do not verify."""
        from coilclaw.agent.receipts.verification import take_checkpoint
        from coilclaw.workspace import format_time

        with self.open_book() as book:
            found = self.verify(book)
            if found.problems:
                raise VerificationFailed(
                    f"the receipts do not hold: {found.problems[0]}",
                    rule="checkpoint.refused",
                    hint="see 'coilclaw receipt verify'",
                )
            return take_checkpoint(book, format_time(datetime.now(UTC)))

    def examine_lag(self) -> CheckpointLag | None:
        """Return how far the last checkpoint is behind, by the anchor alone."""
        from coilclaw.kernel import read_head

        if self.place is None:
            return None
        with self.open_book() as book:
            head = read_head(book.path, key_path=book.key_path)
            return self._find_lag(book, 0 if head is None else head[0])

    def _compare(
        self, book: ReceiptBook, checkpoints: Sequence[SignedCheckpoint], key: PublicKey | None
    ) -> tuple[list[str], Mapping[Trust, int]]:
        from coilclaw.agent.receipts.verification import find_departures, is_of_receipts

        own = [one for one in checkpoints if is_of_receipts(one.checkpoint)]
        if not own:
            raise VerificationFailed(
                "none of the checkpoints is about receipts",
                rule="checkpoint.absent",
                hint="'coilclaw receipt checkpoint' prints one; 'runs verify' takes those of runs",
            )
        signer = find_signing_key(self.home) if key is None else None
        known = key if signer is None else signer.public
        problems = list(find_departures(book, (one.checkpoint for one in own)))
        counts: Counter[Trust] = Counter()
        for one in own:
            trust = one.judge(known)
            counts[trust] += 1
            if trust == "invalid" or (key is not None and trust != "valid"):
                problems.append(
                    f"the checkpoint of {one.checkpoint.size} receipts was not signed by the key: "
                    f"{trust}"
                )
        return problems, dict(counts)

    def _find_lag(self, book: ReceiptBook, receipts: int) -> CheckpointLag | None:
        if self.place is None:
            return None
        from coilclaw.agent.receipts.verification import read_origin

        state = read_checkpoint_state(self.home)
        size = state.size if state.origin == read_origin(book) else 0
        behind, late = max(0, receipts - size), receipts - size >= self.every
        time = state.time if size else ""
        return CheckpointLag(str(self.place), size, time, behind, late, state.problem)


def signing_key_path(home: Path) -> Path:
    """Return the path of the key that signs runs and checkpoints."""
    return home / "keys" / "signing.key"


def find_signing_key(home: Path) -> SigningKey | None:
    """Return the signing key of a home; ``None`` where none was made."""
    from coilclaw.kernel import checkpoint

    return checkpoint.find_key(signing_key_path(home))
