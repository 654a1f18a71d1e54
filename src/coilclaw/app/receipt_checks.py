"""The verification of a home's receipts, with everything that is known of them elsewhere."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from coilclaw.app.agentwiring import key_path, open_config
from coilclaw.app.checkpoints import find_lag, find_signing_key
from coilclaw.errors import VerificationFailed
from coilclaw.memory.store import Memory
from coilclaw.receipts.book import ReceiptBook

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coilclaw.app.checkpoints import CheckpointLag
    from coilclaw.receipts.verification import Verification
    from coilclaw.storage.checkpoint import Checkpoint, SignedCheckpoint, Trust
    from coilclaw.storage.signing import PublicKey


@dataclass(frozen=True, slots=True)
class CheckedReceipts:
    """What verification found, and what was compared."""

    found: Verification
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


def verify_receipts(book: ReceiptBook, home: Path, memory: Path) -> Verification:
    """Replay the logs; where they are empty, ask the marks and the memory whether they always were.

    They have at least as many receipts as the last checkpoint that was written. Nothing is written
    here: a memory that is not there is not made either.
    """
    from coilclaw.receipts.log_checkpoint import read_origin
    from coilclaw.receipts.verification import verify
    from coilclaw.runtime.checkpoint_writer import read_state
    from coilclaw.runtime.identity import alive

    state = read_state(home)
    found = verify(book, alive, lambda: _tells_of_receipts(memory))
    if state.size > found.receipts and state.origin == read_origin(book):
        problem = (
            f"there are {found.receipts} receipts, and a checkpoint of {state.size} was written "
            f"at {state.time}: the log was rolled back"
        )
        return replace(found, problems=(*found.problems, problem))
    return found


def take_home_checkpoint(
    home: Path, environ: Mapping[str, str] = os.environ
) -> tuple[Checkpoint, Verification]:
    """State how far the receipts are; receipts that do not hold are not vouched for."""
    from datetime import UTC, datetime

    from coilclaw.receipts.log_checkpoint import take_checkpoint
    from coilclaw.runtime.identity import stamp

    config = open_config(home, environ)
    with ReceiptBook(config.receipts.path, key_path=key_path(home), marked=True) as book:
        found = verify_receipts(book, home, config.memory.path)
        if found.problems:
            raise VerificationFailed(
                f"the receipts do not hold: {found.problems[0]}",
                rule="checkpoint.refused",
                hint="see 'coilclaw receipt verify'",
            )
        return take_checkpoint(book, stamp(datetime.now(UTC))), found


def _compare(
    book: ReceiptBook,
    home: Path,
    checkpoints: Sequence[SignedCheckpoint],
    key: PublicKey | None,
) -> tuple[list[str], Mapping[Trust, int]]:
    from coilclaw.receipts.log_checkpoint import find_departures, is_of_receipts

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


def _tells_of_receipts(memory: Path) -> bool:
    if not memory.exists():
        return False
    with Memory(memory) as opened:
        return opened.tells_of_receipts()
