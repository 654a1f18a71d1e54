"""``S3Store``: artifacts in a bucket of any server that honours conditional writes."""

from __future__ import annotations

import hashlib
import logging
import re
from typing import TYPE_CHECKING, Final

from coilclaw.artifacts import keys
from coilclaw.artifacts.content import CHUNK_BYTES, Content, Hasher, mapped_errors, steady
from coilclaw.artifacts.local import downloading
from coilclaw.artifacts.s3faults import fault, mapped
from coilclaw.artifacts.s3place import S3Place, client_options, configuration
from coilclaw.artifacts.store import (
    CONFLICT,
    MAX_GET_BYTES,
    MAX_LISTED,
    MAX_OBJECT_BYTES,
    MISSING,
    UNTAGGED,
    Entry,
    Version,
    conflict,
    damaged,
    too_large,
    too_many,
)
from coilclaw.errors import EnvironmentFault
from coilclaw.storage.atomic import write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from obstore import GetResult, ObjectMeta, PutMode, PutResult
    from obstore.store import S3Store as Client

_log = logging.getLogger(__name__)

MAX_RETRIES: Final = 3
RETRY_S: Final = 60.0
"""How often, and for how long, one request is repeated before it counts as failed."""

LISTED_AT_ONCE: Final = 1000

_SHA256: Final = "sha256"
"""The name under which the hash of the bytes is kept beside the object."""

_MD5: Final = re.compile(r"[0-9a-f]{32}")


class S3Store:
    """One bucket below one prefix.

    Bytes are sent with their checksum, so that the server can refuse what was damaged on the way;
    what it answers is compared with what was sent, and read back where it does not say.
    """

    def __init__(self, place: S3Place, environ: Mapping[str, str]) -> None:
        self.place = place
        self._sender = _client(place, environ, patient=True)
        self._client = _client(place, environ, patient=False)

    def put(self, key: str, source: bytes | Path, *, previous: Version | None) -> Version:
        keys.check(key)
        with steady(source) as content:
            if content.digest.size > MAX_OBJECT_BYTES:
                raise too_large(self.uri(key), MAX_OBJECT_BYTES)
            if previous is not None and _tells(previous, content) and self.head(key) == previous:
                return previous  # nothing new, and nothing to send
            version = self._put(key, content, previous)
            if self._holds(key, version, content):
                return version
            # Damaged on the way, and kept so: that version is ours to replace.
            version = self._put(key, content, version)
            if self._holds(key, version, content):
                return version
        raise damaged(self.uri(key))

    def head(self, key: str) -> Version | None:
        import obstore

        try:
            with mapped(self.uri(key)):
                return self._seen(key, obstore.head(self._client, keys.check(key)))
        except EnvironmentFault as problem:
            if problem.rule == MISSING:
                return None
            raise

    def exists(self, key: str) -> bool:
        return self.head(key) is not None

    def get(self, key: str, *, limit: int = MAX_GET_BYTES) -> bytes:
        pieces: list[bytes] = []
        self._read(key, pieces.append, limit)
        return b"".join(pieces)

    def download(self, key: str, path: Path) -> Version:
        with downloading(path) as descriptor:

            def write(piece: bytes) -> None:
                with mapped_errors(path):  # trouble with our disk, not with the server
                    write_all(descriptor, piece)

            return self._read(key, write, MAX_OBJECT_BYTES)

    def list(self, prefix: str = "") -> tuple[Entry, ...]:
        import obstore

        found: list[Entry] = []
        left_out = 0
        with mapped(self.uri(keys.check_prefix(prefix))):
            for batch in obstore.list(self._client, prefix or None, chunk_size=LISTED_AT_ONCE):
                safe = [meta for meta in batch if keys.safe(meta["path"])]
                left_out += len(batch) - len(safe)
                found += [Entry(meta["path"], meta["size"]) for meta in safe]
                if len(found) > MAX_LISTED:
                    raise too_many(self.uri(prefix))
        if left_out:
            _log.warning(
                "objects with other names left out: %d",
                left_out,
                extra={"event": "artifacts_left_out", "fields": {"count": left_out}},
            )
        return tuple(sorted(found))

    def uri(self, key: str) -> str:
        return self.place.uri(key)

    def _put(self, key: str, content: Content, previous: Version | None) -> Version:
        import obstore
        from obstore.exceptions import BaseError

        mode: PutMode = "create" if previous is None else {"e_tag": previous.token}
        try:
            result = obstore.put(
                self._sender,
                key,
                content.buffer,
                mode=mode,
                use_multipart=False,
                attributes={_SHA256: content.digest.sha256},
            )
        except (BaseError, OSError) as problem:
            found = fault(problem, self.uri(key))
            if found.rule not in {CONFLICT, MISSING}:
                raise found from None
            return self._ours(key, content)
        return _version(self.uri(key), result, content.digest.size)

    def _ours(self, key: str, content: Content) -> Version:
        """Return what is there if it is what we sent: the answer to an earlier try got lost."""
        current = self.head(key)
        if current is not None and self._holds(key, current, content):
            return current
        raise conflict(self.uri(key))

    def _holds(self, key: str, version: Version, content: Content) -> bool:
        """Tell whether the object has our bytes: by its tag, or by reading it."""
        if version.size != content.digest.size:
            return False
        if _tells(version, content):
            return True
        hasher = Hasher()
        found = self._stream(key, hasher.take, content.digest.size)
        if found.token != version.token:
            raise conflict(self.uri(key))
        return hasher.digest() == content.digest

    def _read(self, key: str, sink: Callable[[bytes], object], limit: int) -> Version:
        """Pass the bytes of an object on, compared with the hash that was kept with it."""
        sha256 = hashlib.sha256()
        md5 = hashlib.md5(usedforsecurity=False)
        kept: list[str] = []

        def take(piece: bytes) -> None:
            sha256.update(piece)
            md5.update(piece)
            sink(piece)

        version = self._stream(key, take, limit, kept.append)
        if kept and kept[0] != sha256.hexdigest():
            raise damaged(self.uri(key))
        tag = _tag(version.token)
        if not kept and _MD5.fullmatch(tag) and tag != md5.hexdigest():
            raise damaged(self.uri(key))
        return version

    def _stream(
        self,
        key: str,
        sink: Callable[[bytes], object],
        limit: int,
        kept: Callable[[str], object] | None = None,
    ) -> Version:
        import obstore

        where = self.uri(keys.check(key))
        with mapped(where):
            result: GetResult = obstore.get(self._client, key)
            version = self._seen(key, result.meta)
            if version.size > limit:
                raise too_large(where, limit)
            value = result.attributes.get(_SHA256)
            if kept is not None and value is not None:
                kept(value)
            size = 0
            for piece in result.stream(min_chunk_size=CHUNK_BYTES):
                size += len(piece)
                if size > version.size:
                    break
                sink(bytes(piece))
        if size != version.size:
            raise damaged(where)
        return version

    def _seen(self, key: str, meta: ObjectMeta) -> Version:
        return _version(self.uri(key), meta, meta["size"])


def _client(place: S3Place, environ: Mapping[str, str], *, patient: bool) -> Client:
    from datetime import timedelta

    from obstore.exceptions import BaseError
    from obstore.store import S3Store as Client

    options, settings = client_options(environ, patient=patient), configuration(environ)
    try:
        return Client(
            place.bucket,
            prefix=place.prefix or None,
            config=settings,
            client_options=options,
            retry_config={"max_retries": MAX_RETRIES, "retry_timeout": timedelta(seconds=RETRY_S)},
        )
    except (BaseError, ValueError) as problem:
        raise fault(problem, place.uri("")) from None


def _version(where: str, result: PutResult | ObjectMeta, size: int) -> Version:
    tag = result["e_tag"]
    if not tag:
        raise EnvironmentFault(
            f"the server of {where} gives no tags to tell versions by",
            rule=UNTAGGED,
            hint="use a server that honours conditional writes",
        )
    return Version(tag, size)


def _tells(version: Version, content: Content) -> bool:
    """Tell whether a version says by itself that it is of these bytes."""
    digest = content.digest
    return version.size == digest.size and _tag(version.token) == digest.md5


def _tag(token: str) -> str:
    return token.removeprefix("W/").strip('"').lower()
