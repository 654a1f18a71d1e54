"""The verification of a home's receipts, with everything that is known of them elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from coilclaw.agent import Memory, ReceiptBook
from coilclaw.app.home import key_path, open_config, signing_key_path
from coilclaw.kernel import UsageError, VerificationFailed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coilclaw.agent import CheckpointWriter, ReceiptVerification
    from coilclaw.app.config.values import Config
    from coilclaw.kernel import Checkpoint, PublicKey, SignedCheckpoint, SigningKey, Trust


@dataclass(frozen=True, slots=True)
class CheckedReceipts:
    """What verification found, and what was compared."""

    found: ReceiptVerification
    checkpoints: Mapping[Trust, int] = field(default_factory=dict)
    """How many checkpoints were compared, by what is known of their signatures."""
    lag: CheckpointLag | None = None


def verify_home(
    home: Path,
    environ: Mapping[str, str] = os.environ,
    *,
    checkpoints: Sequence[SignedCheckpoint] | None = None,
    key: PublicKey | None = None,
) -> CheckedReceipts:
    """Verify the receipts that the configuration of a home names, also against checkpoints.

    With a ``key`` each checkpoint must be signed by it; without, the key of this home is tried.
    """
    config = open_config(home, environ)
    with ReceiptBook(config.receipts.path, key_path=key_path(home), marked=True) as book:
        found = verify_receipts(book, home, config.memory.path)
        trust: Mapping[Trust, int] = {}
        if checkpoints is not None:
            problems, trust = _compare(book, home, checkpoints, key)
            found = replace(found, problems=(*found.problems, *problems))
        return CheckedReceipts(found, trust, find_lag(config, home, book, found.receipts))


def verify_receipts(book: ReceiptBook, home: Path, memory: Path) -> ReceiptVerification:
    """Replay the logs; where they are empty, ask the marks and the memory whether they always were.

    They have at least as many receipts as the last checkpoint that was written. Nothing is written
    here: a memory that is not there is not made either.
    """
    from coilclaw.agent import read_checkpoint_state, read_origin, verify
    from coilclaw.workspace import is_alive

    state = read_checkpoint_state(home)

    def remembered() -> bool:
        if not memory.exists():
            return False
        with Memory(memory) as opened:
            return opened.tells_of_receipts()

    found = verify(book, is_alive, remembered)
    if state.size > found.receipts and state.origin == read_origin(book):
        problem = (
            f"there are {found.receipts} receipts, and a checkpoint of {state.size} was written "
            f"at {state.time}: the log was rolled back"
        )
        return replace(found, problems=(*found.problems, problem))
    return found


def take_home_checkpoint(
    home: Path, environ: Mapping[str, str] = os.environ
) -> tuple[Checkpoint, ReceiptVerification]:
    """State how far the receipts are; receipts that do not hold are not vouched for."""
    from coilclaw.agent import take_checkpoint
    from coilclaw.workspace import format_time

    config = open_config(home, environ)
    with ReceiptBook(config.receipts.path, key_path=key_path(home), marked=True) as book:
        found = verify_receipts(book, home, config.memory.path)
        if found.problems:
            raise VerificationFailed(
                f"the receipts do not hold: {found.problems[0]}",
                rule="checkpoint.refused",
                hint="see 'coilclaw receipt verify'",
            )
        return take_checkpoint(book, format_time(datetime.now(UTC))), found


def _compare(
    book: ReceiptBook,
    home: Path,
    checkpoints: Sequence[SignedCheckpoint],
    key: PublicKey | None,
) -> tuple[list[str], Mapping[Trust, int]]:
    from coilclaw.agent import find_departures, is_of_receipts

    own = [one for one in checkpoints if is_of_receipts(one.checkpoint)]
    if not own:
        raise VerificationFailed(
            "none of the checkpoints is about receipts",
            rule="checkpoint.absent",
            hint="'coilclaw receipt checkpoint' prints one; 'runs verify' takes those of runs",
        )
    signer = find_signing_key(home) if key is None else None
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
        """Say it all, for a person."""
        last = f"after {self.size} receipts" if self.size else "none yet"
        since = f"receipts since: {self.behind}" if self.size else f"receipts: {self.behind}"
        why = f"; {self.problem}" if self.problem else ""
        return f"last checkpoint: {last}, {since}{why}"


def checkpoint_writer(
    config: Config, home: Path, environ: Mapping[str, str]
) -> CheckpointWriter | None:
    """Return what writes checkpoints; ``None`` where the configuration names no place."""
    place = config.receipts.checkpoint
    if place is None:
        return None
    from coilclaw.agent import CheckpointWriter

    return CheckpointWriter(
        place,
        config.receipts.checkpoint_every,
        home=home,
        environ=environ,
        signing_key=lambda: find_signing_key(home),
        now=lambda: datetime.now(UTC),
    )


def find_signing_key(home: Path) -> SigningKey | None:
    """Return the key of this home; ``None`` where none was made."""
    from coilclaw.kernel import checkpoint

    return checkpoint.find_key(signing_key_path(home))


def find_lag(config: Config, home: Path, book: ReceiptBook, receipts: int) -> CheckpointLag | None:
    """Say how far the last checkpoint is behind; ``None`` where none are written."""
    place = config.receipts.checkpoint
    if place is None:
        return None
    from coilclaw.agent import read_checkpoint_state, read_origin

    state = read_checkpoint_state(home)
    size = state.size if state.origin == read_origin(book) else 0
    behind = max(0, receipts - size)
    return CheckpointLag(
        str(place),
        size,
        state.time if size else "",
        behind,
        behind >= config.receipts.checkpoint_every,
        state.problem,
    )


def examine_lag(home: Path, environ: Mapping[str, str] = os.environ) -> CheckpointLag | None:
    """Look by the anchor alone; a configuration that cannot be read is another matter."""
    from coilclaw.agent import ReceiptBook
    from coilclaw.app.home import key_path, open_config
    from coilclaw.kernel import read_head

    if not (home / "config.toml").exists():
        return None
    try:
        config = open_config(home, environ)
    except UsageError:
        return None
    if config.receipts.checkpoint is None:
        return None
    with ReceiptBook(config.receipts.path, key_path=key_path(home)) as book:
        head = read_head(book.path, key_path=book.key_path)
        return find_lag(config, home, book, 0 if head is None else head[0])
