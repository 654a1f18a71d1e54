"""Ed25519 keys: who signs what a run leaves behind, for people who do not have our journal key.

``cryptography`` is loaded where a key is used, and nowhere else.
"""

from __future__ import annotations

import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.errors import EnvironmentFault, UsageError
from coilclaw.storage.atomic import create_private, read_private

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

MAX_PEM_BYTES: Final = 16 * 2**10


class PublicKey:
    """Recognises what the private key signed."""

    __slots__ = ("_key", "key_id")

    def __init__(self, key: Ed25519PublicKey) -> None:
        self._key = key
        self.key_id: Final = sha256(key.public_bytes_raw()).hexdigest()

    def made(self, signature: bytes, data: bytes) -> bool:
        """Whether the key signed these bytes."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    @property
    def raw(self) -> bytes:
        """The key's 32 bytes."""
        return self._key.public_bytes_raw()

    def pem(self) -> bytes:
        """The key as everybody may have it."""
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        return self._key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


class SigningKey:
    """Signs. It shows nothing of itself."""

    __slots__ = ("_key", "public")

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public: Final = PublicKey(key.public_key())

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id[:16]})"

    @property
    def key_id(self) -> str:
        """SHA-256 of the public key's 32 bytes."""
        return self.public.key_id

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)


def create(path: Path) -> SigningKey:
    """Make a key that only its owner may read; one that is there is never replaced."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    key = Ed25519PrivateKey.generate()
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    if os.path.lexists(path) or create_private(path, pem) != pem:
        raise UsageError(
            f"there is a key at {path} already",
            rule="key.exists",
            hint="signatures made with it stay verifiable only as long as its public part is known;"
            " move it aside to make a new one",
        )
    return SigningKey(key)


def load(path: Path) -> SigningKey:
    """Read a key that ``create`` made; one that others may read is refused."""
    key = find(path)
    if key is None:
        raise UsageError(
            f"there is no signing key at {path}", rule="key.missing", hint="run 'coilclaw keys new'"
        )
    return key


def find(path: Path) -> SigningKey | None:
    """Read a key, or return ``None`` where there is none."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    data = read_private(path)
    if data is None:
        return None
    if stat.S_IMODE(os.lstat(path).st_mode) & 0o077:
        raise EnvironmentFault(
            f"others may read the signing key {path}", rule="key.mode", hint=f"chmod 600 {path}"
        )
    try:
        key = load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # What the library says may quote the file.
        raise UsageError(f"{path} holds no private key", rule="key.form") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} holds no Ed25519 key", rule="key.form")
    return SigningKey(key)


def public_pem(path: Path) -> bytes:
    """The public part of the key at a path, as PEM."""
    return load(path).public.pem()


def parse_public(pem: bytes) -> PublicKey:
    """Read a public key that somebody gave."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem[:MAX_PEM_BYTES])
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError("this is no public key in PEM form", rule="key.form") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError("this is no Ed25519 key", rule="key.form")
    return PublicKey(key)
