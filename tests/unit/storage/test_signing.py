"""Ed25519 keys: private, never replaced, and checked against what they signed."""

from __future__ import annotations

import stat
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from coilclaw.kernel import checkpoint
from coilclaw.kernel.errors import EnvironmentFault, UsageError


def test_a_key_that_is_there_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    checkpoint.create_key(path)
    before = path.read_bytes()
    with pytest.raises(UsageError) as caught:
        checkpoint.create_key(path)
    assert caught.value.rule == "key.exists"
    assert path.read_bytes() == before


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "signing.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError) as caught:
        checkpoint.create_key(tmp_path / "signing.key")
    assert caught.value.rule == "key.exists"
    assert not (tmp_path / "elsewhere").exists()


def test_a_missing_key_is_said_to_be_missing(tmp_path: Path) -> None:
    assert checkpoint.find_key(tmp_path / "signing.key") is None
    with pytest.raises(UsageError) as caught:
        checkpoint.load_key(tmp_path / "signing.key")
    assert caught.value.rule == "key.missing"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o610])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "signing.key"
    checkpoint.create_key(path)
    path.chmod(mode)
    with pytest.raises(EnvironmentFault) as caught:
        checkpoint.load_key(path)
    assert caught.value.rule == "key.mode"


def _pem(key: Ed25519PrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@pytest.mark.parametrize("what", ["empty", "text", "rsa", "public"])
def test_what_is_no_private_key_of_ours_is_refused(tmp_path: Path, what: str) -> None:
    public = Ed25519PrivateKey.generate().public_key()
    content = {
        "empty": b"",
        "text": b"-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n",
        "rsa": _pem(rsa.generate_private_key(65537, 2048)),
        "public": public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    }[what]
    path = tmp_path / "signing.key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(UsageError) as caught:
        checkpoint.load_key(path)
    assert caught.value.rule == "key.form"
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("pem", [b"", b"text", b"-----BEGIN PUBLIC KEY-----\nAAAA\n"])
def test_what_is_no_public_key_is_refused(pem: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        checkpoint.parse_public_key(pem)
    assert caught.value.rule == "key.form"


def test_a_public_key_of_another_kind_is_refused() -> None:
    public = rsa.generate_private_key(65537, 2048).public_key()
    with pytest.raises(UsageError):
        checkpoint.parse_public_key(
            public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        )


def test_a_key_is_private_and_the_same_when_read_again(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    key = checkpoint.create_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = checkpoint.load_key(path)
    assert (again.key_id, again.sign(b"x")) == (key.key_id, key.sign(b"x"))
    assert checkpoint.load_key(path).public.pem() == key.public.pem()
    parsed = checkpoint.parse_public_key(key.public.pem())
    assert parsed.key_id == key.key_id
    loaded = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
    expected = sha256(loaded.public_key().public_bytes_raw()).hexdigest()
    assert checkpoint.SigningKey(loaded).key_id == expected


def test_only_what_was_signed_by_this_key_is_recognised(tmp_path: Path) -> None:
    key, other = checkpoint.create_key(tmp_path / "one"), checkpoint.create_key(tmp_path / "other")
    made = key.sign(b"text")
    assert key.public.is_signature_of(made, b"text")
    assert not key.public.is_signature_of(made, b"Text")
    assert not other.public.is_signature_of(made, b"text")
    assert not key.public.is_signature_of(made[:-1], b"text")
    assert not key.public.is_signature_of(b"", b"text")


def test_a_key_shows_nothing_of_itself(tmp_path: Path) -> None:
    key = checkpoint.create_key(tmp_path / "signing.key")
    assert repr(key) == f"SigningKey({key.key_id[:16]})"
