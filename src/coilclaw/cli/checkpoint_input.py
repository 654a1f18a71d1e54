"""``--checkpoint FILE|-``: statements that were kept elsewhere, to be compared with."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from coilclaw.errors import UsageError, VerificationFailed

if TYPE_CHECKING:
    import argparse

    from coilclaw.storage.checkpoint import SignedCheckpoint
    from coilclaw.storage.signing import PublicKey


def add_checkpoint(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--checkpoint",
        metavar="FILE",
        help="also compare with the checkpoints that this file holds (-: standard input)",
    )


def read_checkpoints(name: str | None) -> tuple[SignedCheckpoint, ...] | None:
    """Read what the option names; ``None`` where it is not given."""
    if name is None:
        return None
    from coilclaw.storage.checkpoint import MAX_CHECKPOINTS_BYTES, parse

    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_CHECKPOINTS_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_CHECKPOINTS_BYTES + 1)
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
    return parse(text)


def read_public_key(name: str | None) -> PublicKey | None:
    """Read the public key that ``--key`` names; ``None`` where it is not given."""
    if name is None:
        return None
    from coilclaw.storage import signing

    try:
        with Path(name).open("rb") as file:
            return signing.parse_public(file.read(signing.MAX_PEM_BYTES))
    except OSError as problem:
        raise UsageError(f"cannot read {name}: {problem.strerror}", rule="key.io") from None
