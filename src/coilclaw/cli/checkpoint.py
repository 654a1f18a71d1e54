"""Read checkpoints that were kept elsewhere, and print checkpoints to keep."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.cli.command import DONE, Console, Parser, read_input
from coilclaw.kernel import UsageError, VerificationFailed

if TYPE_CHECKING:
    from coilclaw.kernel import Checkpoint, PublicKey, SignedCheckpoint


def add_checkpoint(parser: Parser) -> None:
    """Declare the option."""
    summary = "also compare with the checkpoints in this file (-: standard input)"
    parser.value("--checkpoint", "FILE", summary)


def read_checkpoints(name: str | None) -> tuple[SignedCheckpoint, ...] | None:
    """Read the checkpoints that the option names; return ``None`` if it is not given."""
    if name is None:
        return None
    from coilclaw.kernel import MAX_CHECKPOINTS_BYTES, parse_checkpoints

    try:
        data = read_input(name, MAX_CHECKPOINTS_BYTES)
        text = data.decode("utf-8")
    except OSError as problem:
        raise UsageError(f"cannot read {name}: {problem.strerror}", rule="checkpoint.io") from None
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8", rule="checkpoint.form") from None
    if len(data) > MAX_CHECKPOINTS_BYTES:
        raise UsageError(
            f"{name} is larger than {MAX_CHECKPOINTS_BYTES} bytes", rule="checkpoint.form"
        )
    if not text.strip():
        raise VerificationFailed(
            f"{'standard input' if name == '-' else name} holds no checkpoint",
            rule="checkpoint.absent",
            hint="'coilclaw receipt checkpoint' prints one",
        )
    return parse_checkpoints(text)


def read_public_key(name: str | None) -> PublicKey | None:
    """Read the public key that ``--key`` names; return ``None`` if it is not given."""
    if name is None:
        return None
    from coilclaw.kernel import checkpoint as signing

    try:
        with Path(name).open("rb") as file:
            return signing.parse_public_key(file.read(signing.MAX_PEM_BYTES))
    except OSError as problem:
        raise UsageError(f"cannot read {name}: {problem.strerror}", rule="key.io") from None


def print_checkpoint(checkpoint: Checkpoint, console: Console, home: Path, *, sign: bool) -> int:
    """Print a checkpoint to keep; if it is signed, print its verifier key as well."""
    from coilclaw.agent import signing_key_path
    from coilclaw.kernel import checkpoint as notes

    key = notes.load_key(signing_key_path(home)) if sign else None
    text = notes.render_checkpoint(checkpoint, key)
    verifier = None if key is None else notes.verifier_key(checkpoint.origin, key.public)
    record = {"origin": checkpoint.origin, "size": checkpoint.size, "root_hash": checkpoint.root}
    if console.emit({**record, "text": text, "verifier_key": verifier}):
        return DONE
    if getattr(console.out, "buffer", None) is None:
        console.out.write(text)
    else:  # the format is UTF-8, whatever the terminal's encoding is
        console.write_bytes(text.encode("utf-8"))
    if verifier is not None:
        console.note(f"verifier key: {verifier}", "dim")
    return DONE
