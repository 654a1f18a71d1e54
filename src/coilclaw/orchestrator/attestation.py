"""An in-toto statement about a run, in a DSSE envelope. Pure: bytes in, bytes out."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final

from coilclaw.domain.freeform import text as canonical_text
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.storage.signing import PublicKey, SigningKey

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE: Final = "urn:coilclaw:run:v1"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"


def statement(subjects: Mapping[str, str], predicate: Mapping[str, Json]) -> bytes:
    """Say that these files, by name and SHA-256, are what the predicate tells of."""
    return canonical_text(
        {
            "_type": STATEMENT_TYPE,
            "subject": [
                {"name": name, "digest": {"sha256": digest}}
                for name, digest in sorted(subjects.items())
            ],
            "predicateType": PREDICATE_TYPE,
            "predicate": dict(predicate),
        }
    ).encode("utf-8")


def pre_authentication(payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
    """The bytes that are signed: type and payload, each with its length, so that none can shift."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def enveloped(payload: bytes, key: SigningKey) -> bytes:
    """Sign a payload, and put both into an envelope."""
    signature = b64encode(key.sign(pre_authentication(payload))).decode("ascii")
    return (
        canonical_text(
            {
                "payload": b64encode(payload).decode("ascii"),
                "payloadType": PAYLOAD_TYPE,
                "signatures": [{"keyid": key.key_id, "sig": signature}],
            }
        ).encode("utf-8")
        + b"\n"
    )


def opened(envelope: bytes, key: PublicKey) -> dict[str, Json]:
    """Return the statement in an envelope that the key signed; anything else raises."""
    try:
        value = json.loads(envelope)
        kind, payload = value["payloadType"], b64decode(value["payload"], validate=True)
        made = [b64decode(item["sig"], validate=True) for item in value["signatures"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise UsageError("this is no DSSE envelope", rule="attestation.form") from None
    signed = pre_authentication(payload, str(kind))
    if kind != PAYLOAD_TYPE or not any(key.made(signature, signed) for signature in made):
        raise UsageError("the envelope was not signed with this key", rule="attestation.signature")
    found = json.loads(payload)
    if not isinstance(found, dict):
        raise UsageError("the envelope holds no statement", rule="attestation.form")
    return found
