"""The keyed head anchor: a statement beside a journal of where it ends, which nobody can forge.

It is one line of canonical JSON, padded to one disk sector and rewritten in place by a single
write under the journal's lock: a reader that holds the lock, a kill at any instant and a power cut
all leave one whole statement. Whoever has the key can make one; whoever lacks it cannot, and cannot
shorten the journal unseen either. It is no defence against somebody who puts back an old journal
together with its old anchor.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from typing import Final

from coilclaw.domain.canonical import MAX_INTEGER
from coilclaw.storage.chain import Head

ANCHOR_BYTES: Final = 512
KEY_BYTES: Final = 32
FORMAT: Final = "coilclaw.journal.anchor.v1"
_BLOCK_BYTES: Final = 64
_INNER: Final = bytes(byte ^ 0x36 for byte in range(256))
_OUTER: Final = bytes(byte ^ 0x5C for byte in range(256))
_FIELDS: Final = {"bytes", "count", "format", "key_id", "last_hash", "mac"}


@dataclass(frozen=True, slots=True)
class Statement:
    """What an anchor says, believed or not."""

    head: Head
    key_id: str
    mac: str


class Signer:
    """Makes and recognises the anchors of one key, by HMAC-SHA256."""

    def __init__(self, key: bytes) -> None:
        self.key_id: Final = sha256(key).hexdigest()[:16]
        """Names the key without giving it away."""
        block = (key if len(key) <= _BLOCK_BYTES else sha256(key).digest()).ljust(
            _BLOCK_BYTES, b"\0"
        )
        self._inner = sha256(block.translate(_INNER))
        self._outer = sha256(block.translate(_OUTER))

    def render(self, head: Head) -> bytes:
        """Return the exact bytes of the anchor for a head."""
        body = _body(head, self.key_id)
        return _signed(body, self._mac(body))

    def made(self, statement: Statement) -> bool:
        """Whether this key signed a statement."""
        return compare_digest(statement.mac, self._mac(_body(statement.head, self.key_id)))

    def _mac(self, body: str) -> str:
        # RFC 2104, with both keyed blocks hashed once: an append signs one short line.
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(body.encode("ascii"))
        outer.update(inner.digest())
        return outer.hexdigest()


def parse(raw: bytes) -> Statement | None:
    """Read an anchor's bytes; ``None`` where they are not exactly what a ``Signer`` renders."""
    if len(raw) != ANCHOR_BYTES or not raw.isascii():
        return None
    try:
        record = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    if type(record) is not dict or set(record) != _FIELDS or record["format"] != FORMAT:
        return None
    count, size = record["count"], record["bytes"]
    last_hash, name, mac = texts = (record["last_hash"], record["key_id"], record["mac"])
    if any(type(number) is not int or not 0 <= number <= MAX_INTEGER for number in (count, size)):
        return None
    if any(type(text) is not str or not text.isascii() or not text.isalnum() for text in texts):
        return None
    head = Head(count, size, last_hash)
    return Statement(head, name, mac) if _signed(_body(head, name), mac) == raw else None


def covers_records(raw: bytes | None) -> bool:
    """Whether there is an anchor for records, or one that cannot be read."""
    if raw is None:
        return False
    statement = parse(raw)
    return statement is None or statement.head.count > 0


def _body(head: Head, name: str) -> str:
    # Hexadecimal and integers need no escaping, so that this is canonical JSON already. An encoder
    # would take a good part of the time of an append.
    return (
        f'{{"bytes":{head.size},"count":{head.count},"format":"{FORMAT}",'
        f'"key_id":"{name}","last_hash":"{head.last_hash}"}}'
    )


def _signed(body: str, mac: str) -> bytes:
    """Return the signed text with its signature as the last member, as long as a sector."""
    return f'{body[:-1]},"mac":"{mac}"}}'.ljust(ANCHOR_BYTES - 1).encode("ascii") + b"\n"
