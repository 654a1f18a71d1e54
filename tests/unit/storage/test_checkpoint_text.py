"""The text form of checkpoints, against what others write and read."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path

import pytest

from coilclaw.kernel import checkpoint
from coilclaw.kernel.checkpoint import (
    Checkpoint,
    SignedCheckpoint,
    key_hash,
    parse_checkpoints,
    render_checkpoint,
    verifier_key,
)
from coilclaw.kernel.errors import UsageError

ONE = Checkpoint("coilclaw/receipts/ab", 3, "0f" * 32, ("time 2026-01-01T00:00:00.000000Z",))
TWO = Checkpoint("coilclaw/runs/run_1", 70, "1e" * 32)

# From the documentation of golang.org/x/mod/sumdb/note.
FOREIGN_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
FOREIGN_TEXT = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
)
FOREIGN_SIGNATURE = (
    "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
)


@pytest.fixture
def key(tmp_path: Path) -> checkpoint.SigningKey:
    return checkpoint.create_key(tmp_path / "key")


def test_the_text_is_that_of_the_format() -> None:
    assert render_checkpoint(ONE, None) == (
        "coilclaw/receipts/ab\n"
        "3\n"
        "Dw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=\n"
        "time 2026-01-01T00:00:00.000000Z\n"
        "\n"
    )


def test_keys_and_signatures_are_those_of_another_program() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    name, short, encoded = FOREIGN_KEY.split("+", 2)
    public = checkpoint.PublicKey(Ed25519PublicKey.from_public_bytes(b64decode(encoded)[1:]))
    made = b64decode(FOREIGN_SIGNATURE)
    assert key_hash(name, public).hex() == short
    assert verifier_key(name, public) == FOREIGN_KEY
    assert made[:4] == key_hash(name, public)
    assert public.is_signature_of(made[4:], FOREIGN_TEXT.encode())


def test_what_is_signed_is_recognised(key: checkpoint.SigningKey, tmp_path: Path) -> None:
    (one,) = parse_checkpoints(render_checkpoint(ONE, key))
    assert one.checkpoint == ONE
    assert one.judge(key.public) == "valid"
    assert one.judge(None) == "unknown key"
    assert one.judge(checkpoint.create_key(tmp_path / "other").public) == "unknown key"
    edited = SignedCheckpoint(Checkpoint(ONE.origin, 4, ONE.root, ONE.extensions), one.signatures)
    assert edited.judge(key.public) == "invalid"


def test_one_file_holds_several(key: checkpoint.SigningKey) -> None:
    text = (
        render_checkpoint(ONE, None)
        + render_checkpoint(TWO, key)
        + render_checkpoint(ONE, key)
        + "\n"
        + render_checkpoint(TWO, None)
    )
    found = parse_checkpoints(text)
    assert [one.checkpoint for one in found] == [ONE, TWO, ONE, TWO]
    assert [one.judge(key.public) for one in found] == ["unsigned", "valid", "valid", "unsigned"]
    assert parse_checkpoints("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "origin\n",
        "origin\n3\n",
        "origin\n03\nDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=\n\n",
        "origin\n-3\nDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=\n\n",
        "origin\n3\nDw8=\n\n",
        "origin\n3\nnonsense\n\n",
        "origin\n3\nDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=\n\n\u2014 name\n",
        "origin\n3\nDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=\n\n\u2014 name a\n",
        "\u2014 name AAAA\n",
        "ori\x1bgin\n3\nDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=\n\n",
        "x" * 2000 + "\n3\nDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=\n\n",
        "origin\n3\nDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=\n" + "x\n" * 100,
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_checkpoints(text)
    assert caught.value.rule == "checkpoint.form"
