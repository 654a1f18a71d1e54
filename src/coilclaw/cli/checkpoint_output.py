"""A checkpoint on standard output, exactly as it is to be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from coilclaw.cli.console import Console
    from coilclaw.storage.checkpoint import Checkpoint


def print_checkpoint(checkpoint: Checkpoint, console: Console, home: Path, *, sign: bool) -> int:
    """Print it; signed, the public key goes along in the form that signed notes use."""
    from coilclaw.app.home import signing_key_path
    from coilclaw.cli.dispatch import DONE
    from coilclaw.storage import checkpoint as notes
    from coilclaw.storage import signing

    key = signing.load(signing_key_path(home)) if sign else None
    text = notes.render(checkpoint, key)
    verifier = None if key is None else notes.verifier_key(checkpoint.origin, key.public)
    if console.as_json:
        console.data(
            {
                "origin": checkpoint.origin,
                "size": checkpoint.size,
                "root_hash": checkpoint.root,
                "text": text,
                "verifier_key": verifier,
            }
        )
        return DONE
    raw = getattr(console.out, "buffer", None)
    if raw is None:
        console.out.write(text)
    else:  # the format is UTF-8, whatever the terminal's encoding is
        console.out.flush()
        raw.write(text.encode("utf-8"))
        raw.flush()
    if verifier is not None:
        console.note(f"verifier key: {verifier}", "dim")
    return DONE
