"""The anchor: every changed byte shows, and its signature is HMAC-SHA256."""

from __future__ import annotations

import hmac
import json

import pytest

from coilclaw.kernel.canonical_json import encode_record
from coilclaw.kernel.journal_format import (
    ANCHOR_BYTES,
    FORMAT,
    JournalHead,
    Signer,
    Statement,
    parse_anchor,
)

HEAD = JournalHead(17, 5321, "ab" * 32)
KEY = bytes(range(32))


def test_no_changed_byte_is_believed() -> None:
    signer = Signer(KEY)
    raw = signer.render(HEAD)
    for place in range(ANCHOR_BYTES):
        for value in range(256):
            if value != raw[place]:
                changed = raw[:place] + bytes([value]) + raw[place + 1 :]
                statement = parse_anchor(changed)
                believed = (
                    statement is not None
                    and statement.key_id == signer.key_id
                    and signer.render(statement.head) == changed
                )
                assert not believed, (place, value)


@pytest.mark.parametrize(
    "change",
    [
        {"count": 18},
        {"count": -1},
        {"count": True},
        {"count": "17"},
        {"count": 2**60},
        {"bytes": 5320},
        {"last_hash": "cd" * 32},
        {"last_hash": None},
        {"last_hash": 'x"'},
        {"mac": "ef" * 32},
        {"mac": "ß"},
        {"key_id": 5},
        {"format": "coilclaw.journal.anchor.v2"},
        {"more": 1},
    ],
)
def test_no_other_statement_is_believed(change: dict[str, object]) -> None:
    signer = Signer(KEY)
    record = json.loads(signer.render(HEAD)) | change
    raw = json.dumps(record, sort_keys=True, separators=(",", ":")).encode().ljust(511) + b"\n"
    statement = parse_anchor(raw)
    assert statement is None or signer.render(statement.head) != raw


@pytest.mark.parametrize(
    "raw",
    [b"", b"\n", b"{}".ljust(511) + b"\n", b"[" * 512, b"\xff" * 512, b"null".ljust(511) + b"\n"],
)
def test_what_is_no_anchor_is_not_read(raw: bytes) -> None:
    assert parse_anchor(raw) is None


def test_one_byte_more_or_less_is_no_anchor() -> None:
    raw = Signer(KEY).render(HEAD)
    assert parse_anchor(raw[:-1]) is None
    assert parse_anchor(raw + b"\n") is None
    assert parse_anchor(raw) is not None


def test_another_key_does_not_sign_alike() -> None:
    raw = Signer(KEY).render(HEAD)
    statement = parse_anchor(raw)
    assert statement is not None
    assert Signer(b"another").render(statement.head) != raw
    assert Signer(KEY).render(statement.head) == raw


@pytest.mark.parametrize("key", [b"", b"k", KEY, b"k" * 64, b"k" * 65, b"k" * 1000])
def test_an_anchor_is_canonical_json_signed_with_hmac_sha256(key: bytes) -> None:
    signer = Signer(key)
    raw = signer.render(HEAD)
    body: dict[str, object] = {
        "bytes": 5321,
        "count": 17,
        "format": FORMAT,
        "key_id": signer.key_id,
        "last_hash": "ab" * 32,
    }
    mac = hmac.digest(key, encode_record(body), "sha256").hex()
    assert raw == encode_record({**body, "mac": mac}).ljust(511) + b"\n"
    assert parse_anchor(raw) == Statement(HEAD, signer.key_id)


def test_the_largest_journal_still_fits() -> None:
    head = JournalHead(2**53 - 1, 2**53 - 1, "f" * 64)
    raw = Signer(KEY).render(head)
    assert len(raw) == ANCHOR_BYTES
    statement = parse_anchor(raw)
    assert statement is not None
    assert statement.head == head
