"""The checkpoint of a sealed run: a statement to be kept elsewhere, and its check.

Its size is the number of events, and its hash the root hash, which stands for the whole bundle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.orchestrator import layout
from coilclaw.orchestrator.codes import Code
from coilclaw.orchestrator.examination import part
from coilclaw.storage.checkpoint import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.contracts.manifest import RunManifest
    from coilclaw.orchestrator.examination import Examination
    from coilclaw.storage.checkpoint import SignedCheckpoint
    from coilclaw.storage.signing import PublicKey

ORIGIN: Final = "coilclaw/runs/"


def make_checkpoint(manifest: RunManifest) -> Checkpoint | None:
    """Return what stands for a sealed run; ``None`` where it is not sealed."""
    sealed = manifest.integrity
    if sealed is None:
        return None
    extensions = () if manifest.finished_at is None else (f"time {manifest.finished_at}",)
    return Checkpoint(
        f"{ORIGIN}{manifest.run_id}", sealed.events_count, sealed.root_hash, extensions
    )


def check_checkpoints(
    examination: Examination,
    run_id: str,
    checkpoints: Sequence[SignedCheckpoint],
    key: PublicKey | None,
) -> None:
    """Compare a bundle with every checkpoint that is about its run."""
    say = examination.say
    own = [one for one in checkpoints if one.checkpoint.origin == f"{ORIGIN}{run_id}"]
    if not own:
        say(Code.CHECKPOINT_MISSING, f"none of the checkpoints is about {run_id}")
    integrity = part(examination.manifest, "integrity")
    sealed = (part(integrity, "events_count"), part(integrity, "root_hash"))
    for one in own:
        stated = one.checkpoint
        if (stated.size, stated.root) != sealed:
            say(
                Code.CHECKPOINT_MISMATCH,
                f"a checkpoint says {stated.size} events and the root hash {stated.root}",
                layout.MANIFEST,
            )
        trust = one.judge(key)
        if trust == "invalid":
            say(Code.CHECKPOINT_SIGNATURE_INVALID, "a checkpoint was not signed by its key")
        elif trust != "valid":
            why = "is not signed" if trust == "unsigned" else "is signed by a key not known here"
            say(Code.CHECKPOINT_UNSIGNED, f"a checkpoint {why}")
