"""Checkpoints: a short statement of how far a log is, in the text form of transparency logs.

    ORIGIN                which log
    SIZE                  how many records it has, in decimal
    HASH                  the hash that stands for all of them, 32 bytes in base64
    …                     more lines, if any
                          (an empty line)
    — NAME SIGNATURE      one line a signature; none where no one signed

It is the checkpoint of https://c2sp.org/tlog-checkpoint in the signed note of
https://c2sp.org/signed-note, with Ed25519. Our logs are chains, not trees: the hash is that of the
last record, which names the one before it. A file may hold several, one after the other.
"""

from __future__ import annotations

import os
import re
import stat
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from coilclaw.kernel.atomic_file import create_private, read_private
from coilclaw.kernel.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
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

    def is_signature_of(self, signature: bytes, data: bytes) -> bool:
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


def create_key(path: Path) -> SigningKey:
    """Make a key that only its owner may read; one that is there is never replaced."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

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


def load_key(path: Path) -> SigningKey:
    """Read a key that ``create`` made; one that others may read is refused."""
    key = find_key(path)
    if key is None:
        hint = "run 'coilclaw keys new'"
        raise UsageError(f"the signing key {path} does not exist", rule="key.missing", hint=hint)
    return key


def find_key(path: Path) -> SigningKey | None:
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


def parse_public_key(pem: bytes) -> PublicKey:
    """Read a public key in PEM form."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem[:MAX_PEM_BYTES])
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError("this is not a public key in PEM form", rule="key.form") from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError("this is not an Ed25519 key", rule="key.form")
    return PublicKey(key)


Trust: TypeAlias = Literal["unsigned", "unknown key", "valid", "invalid"]

HASH_BYTES: Final = 32
MAX_CHECKPOINTS_BYTES: Final = 16 * 2**20
MAX_LINE_CHARS: Final = 1000
MAX_LINES: Final = 32

_DASH: Final = "\u2014 "
_ED25519: Final = b"\x01"
_KEY_HASH_BYTES: Final = 4
_SIZE: Final = re.compile(r"0|[1-9][0-9]{0,15}")
_SIGNATURE: Final = re.compile(r"\u2014 ([^\s+]+) ([A-Za-z0-9+/]+={0,2})")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What is said about a log."""

    origin: str
    size: int
    root: str
    """The hash, in hexadecimal."""
    extensions: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What is signed."""
        lines = (self.origin, str(self.size), to_base64(self.root), *self.extensions)
        return "".join(f"{line}\n" for line in lines)

    def find(self, name: str) -> str | None:
        """Return the rest of the line that begins with a word, or ``None``."""
        start = f"{name} "
        return next((x.removeprefix(start) for x in self.extensions if x.startswith(start)), None)


@dataclass(frozen=True, slots=True)
class SignedCheckpoint:
    """A checkpoint with the lines below it: whose key is meant, and what that key made."""

    checkpoint: Checkpoint
    signatures: tuple[tuple[str, bytes], ...] = ()

    def judge(self, key: PublicKey | None) -> Trust:
        """Say what a key that is known says about this."""
        if not self.signatures:
            return "unsigned"
        if key is None:
            return "unknown key"
        data = self.checkpoint.text.encode("utf-8")
        own = [
            made[_KEY_HASH_BYTES:]
            for name, made in self.signatures
            if made[:_KEY_HASH_BYTES] == key_hash(name, key)
        ]
        if not own:
            return "unknown key"
        return "valid" if all(key.is_signature_of(made, data) for made in own) else "invalid"


def render_checkpoint(checkpoint: Checkpoint, key: SigningKey | None) -> str:
    """Return the whole text; the key signs under the name of the log, as the format advises."""
    if key is None:
        return f"{checkpoint.text}\n"
    made = key_hash(checkpoint.origin, key.public) + key.sign(checkpoint.text.encode("utf-8"))
    encoded = b64encode(made).decode("ascii")
    return f"{checkpoint.text}\n{_DASH}{checkpoint.origin} {encoded}\n"


def key_hash(name: str, key: PublicKey) -> bytes:
    """Return the four bytes that name a key in a signature."""
    return sha256(name.encode("utf-8") + b"\n" + _ED25519 + key.raw).digest()[:_KEY_HASH_BYTES]


def verifier_key(name: str, key: PublicKey) -> str:
    """Return a public key in the form in which programs for signed notes take it."""
    encoded = b64encode(_ED25519 + key.raw).decode("ascii")
    return f"{name}+{key_hash(name, key).hex()}+{encoded}"


def parse_checkpoints(text: str) -> tuple[SignedCheckpoint, ...]:
    """Read the checkpoints of a file; anything else in it is a ``UsageError`` with its line."""
    return tuple(_parse_note(number, lines) for number, lines in _split_notes(text))


def to_base64(hexadecimal: str) -> str:
    """Return a hash as a checkpoint writes it."""
    return b64encode(bytes.fromhex(hexadecimal)).decode("ascii")


def from_base64(text: str) -> str | None:
    """Return the hexadecimal form of a hash; ``None`` where a text is not the one form of one."""
    try:
        data = b64decode(text, validate=True)
    except ValueError:
        return None
    good = len(data) == HASH_BYTES and b64encode(data).decode("ascii") == text
    return data.hex() if good else None


def _split_notes(text: str) -> Iterator[tuple[int, list[str]]]:
    """Split into notes, each with the number of its first line: a body, then its signatures."""
    note: list[str] = []
    begun = 0
    ended = False
    for number, line in enumerate(text.split("\n"), 1):
        if not line:
            ended = bool(note)
            continue
        if note and ended and not line.startswith(_DASH):
            yield begun, note
            note, ended = [], False
        begun = begun if note else number
        if len(line) > MAX_LINE_CHARS or len(note) >= MAX_LINES or not line.isprintable():
            raise _malformed_error(number)
        note.append(line)
    if note:
        yield begun, note


def _parse_note(number: int, lines: list[str]) -> SignedCheckpoint:
    body = [line for line in lines if not line.startswith(_DASH)]
    if len(body) < 3 or lines[: len(body)] != body or not _SIZE.fullmatch(body[1]):
        raise _malformed_error(number)
    root = from_base64(body[2])
    found = [_SIGNATURE.fullmatch(line) for line in lines[len(body) :]]
    if root is None or None in found:
        raise _malformed_error(number)
    try:
        signatures = [(match[1], b64decode(match[2], validate=True)) for match in found if match]
    except ValueError:
        raise _malformed_error(number) from None
    checkpoint = Checkpoint(body[0], int(body[1]), root, tuple(body[3:]))
    return SignedCheckpoint(checkpoint, tuple(signatures))


def _malformed_error(number: int) -> UsageError:
    return UsageError(
        f"line {number} of the checkpoints does not begin a checkpoint",
        rule="checkpoint.form",
        hint="it has lines for origin, size and hash, an empty line, and then signatures",
    )
