"""``S3Store``: artifacts in a bucket of any server that honours conditional writes.

The client's own error texts hold addresses and whatever the server answered, which may repeat parts
of a signed request. None of that is passed on: only the status and the server's code, both of a
fixed form.
"""

from __future__ import annotations

import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from coilclaw.kernel import EnvironmentFault, PathRefused, UsageError, write_all
from coilclaw.traces.artifacts import store
from coilclaw.traces.artifacts.local_store import (
    CHUNK_BYTES,
    Content,
    Hasher,
    downloading,
    mapped_errors,
    steady,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from obstore import GetResult, ObjectMeta, PutMode, PutResult
    from obstore.store import ClientConfig, S3Config
    from obstore.store import S3Store as Client


SCHEME: Final = "s3://"

CONNECT_LIMIT: Final = "10s"
SILENCE_LIMIT: Final = "60s"
REQUEST_LIMIT: Final = "30min"
"""How long connecting, hearing nothing, and a whole request with the largest artifact may take."""

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_YES: Final = frozenset({"1", "true", "yes", "on"})
_NO: Final = frozenset({"0", "false", "no", "off"})


@dataclass(frozen=True, slots=True)
class S3Place:
    """A bucket, and what the keys in it begin with."""

    bucket: str
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> S3Place:
        """Read ``s3://bucket/prefix``; an address that could hold a secret is not repeated."""
        bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
        prefix = prefix.removesuffix("/")
        if not text.startswith(SCHEME) or not _BUCKET.fullmatch(bucket):
            message = "the address of an artifact store does not name a bucket"
            hint = "write s3://bucket or s3://bucket/prefix; keys come from AWS_* variables"
            raise UsageError(message, rule="artifact.address", hint=hint)
        try:
            store.check_key_prefix(prefix)
        except PathRefused as problem:
            message = f"the prefix of the artifact store is refused: {problem.message}"
            raise UsageError(message, rule="artifact.address", hint=problem.hint) from problem
        return cls(bucket, prefix)

    def uri(self, key: str) -> str:
        return SCHEME + "/".join(filter(None, (self.bucket, self.prefix, key)))


def configuration(environ: Mapping[str, str]) -> S3Config:
    """Return credentials and endpoint from the variables; raise if none are set."""
    found: S3Config = {
        "region": _find_first(environ, "AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1",
        "checksum_algorithm": "SHA256",
        "conditional_put": "etag",
    }
    if endpoint := _find_endpoint(environ):
        found["endpoint"] = endpoint
    key_id, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if key_id and secret:
        found["access_key_id"] = key_id
        found["secret_access_key"] = secret
        if token := environ.get("AWS_SESSION_TOKEN"):
            found["session_token"] = token
    elif _is_set_to(environ, "AWS_SKIP_SIGNATURE", _YES):
        found["skip_signature"] = True
    elif role := _find_role(environ):
        found.update(role)
    elif not _is_set_to(environ, "AWS_EC2_METADATA_DISABLED", _NO):
        raise UsageError(
            "credentials for the artifact store are missing",
            rule="artifact.credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; on a machine with a role, set "
            "AWS_EC2_METADATA_DISABLED=false; for a public bucket, AWS_SKIP_SIGNATURE=true",
        )
    return found


def client_options(environ: Mapping[str, str], *, patient: bool = False) -> ClientConfig:
    """Return the bounds of a request, and whether it may go unencrypted.

    Silence ends a request, but for a patient one: while bytes are being sent, nothing is heard.
    """
    endpoint = _find_endpoint(environ) or ""
    plain = _is_set_to(environ, "AWS_ALLOW_HTTP", _YES)
    if not plain and not (endpoint.startswith("https://") or not endpoint):
        message = "the endpoint of the artifact store is not an https address"
        hint = "set AWS_ALLOW_HTTP=true for a server that you trust the way to"
        raise UsageError(message, rule="artifact.endpoint", hint=hint)
    options: ClientConfig = {
        "allow_http": plain,
        "connect_timeout": CONNECT_LIMIT,
        "timeout": REQUEST_LIMIT,
    }
    if not patient:
        options["read_timeout"] = SILENCE_LIMIT
    return options


def _find_endpoint(environ: Mapping[str, str]) -> str | None:
    return _find_first(environ, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def _find_role(environ: Mapping[str, str]) -> S3Config:
    """Return where to get the credentials of a role, if the variables say so."""
    ways = (
        {
            "web_identity_token_file": "AWS_WEB_IDENTITY_TOKEN_FILE",
            "role_arn": "AWS_ROLE_ARN",
            "role_session_name": "AWS_ROLE_SESSION_NAME",
        },
        {"container_credentials_relative_uri": "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"},
        {
            "container_credentials_full_uri": "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            "container_authorization_token_file": "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        },
    )
    for way in ways:
        found = {key: environ[name] for key, name in way.items() if environ.get(name)}
        if next(iter(way)) in found:
            return cast("S3Config", found)
    return {}


def _find_first(environ: Mapping[str, str], *names: str) -> str | None:
    return next((value for name in names if (value := environ.get(name))), None)


def _is_set_to(environ: Mapping[str, str], name: str, values: frozenset[str]) -> bool:
    return environ.get(name, "").strip().lower() in values


_log = logging.getLogger(__name__)

MAX_RETRIES: Final = 3
RETRY_S: Final = 60.0
"""How often, and for how long, one request is repeated before it counts as failed."""

LISTED_AT_ONCE: Final = 1000

_SHA256: Final = "sha256"
"""The name under which the hash of the bytes is kept beside the object."""

_MD5: Final = re.compile(r"[0-9a-f]{32}")
_STATUS: Final = re.compile(r"status code: ([1-5][0-9]{2})\b")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")


class S3Store:
    """One bucket below one prefix.

    Bytes are sent with their checksum, so that the server can refuse what was damaged on the way;
    what it answers is compared with what was sent, and read back where it does not say.
    """

    def __init__(self, place: S3Place, environ: Mapping[str, str]) -> None:
        self.place = place
        self._sender = _client(place, environ, patient=True)
        self._client = _client(place, environ, patient=False)

    def put(
        self, key: str, source: bytes | Path, *, previous: store.ArtifactVersion | None
    ) -> store.ArtifactVersion:
        store.check_key(key)
        with steady(source) as content:
            if content.digest.size > store.MAX_OBJECT_BYTES:
                raise store.too_large(self.uri(key), store.MAX_OBJECT_BYTES)
            if previous is not None and _proves(previous, content) and self.head(key) == previous:
                return previous  # nothing new, and nothing to send
            version = self._put(key, content, previous)
            if self._holds(key, version, content):
                return version
            # Damaged on the way, and kept so: that version is ours to replace.
            version = self._put(key, content, version)
            if self._holds(key, version, content):
                return version
        raise store.damaged_error(self.uri(key))

    def head(self, key: str) -> store.ArtifactVersion | None:
        import obstore

        try:
            with _map_errors(self.uri(key)):
                return self._read_version(key, obstore.head(self._client, store.check_key(key)))
        except EnvironmentFault as problem:
            if problem.rule == store.MISSING:
                return None
            raise

    def exists(self, key: str) -> bool:
        return self.head(key) is not None

    def get(self, key: str, *, limit: int = store.MAX_GET_BYTES) -> bytes:
        pieces: list[bytes] = []
        self._read(key, pieces.append, limit)
        return b"".join(pieces)

    def download(self, key: str, path: Path) -> store.ArtifactVersion:
        with downloading(path) as descriptor:

            def write(piece: bytes) -> None:
                with mapped_errors(path):  # trouble with our disk, not with the server
                    write_all(descriptor, piece)

            return self._read(key, write, store.MAX_OBJECT_BYTES)

    def list(self, prefix: str = "") -> tuple[store.ArtifactEntry, ...]:
        import obstore

        found: list[store.ArtifactEntry] = []
        left_out = 0
        with _map_errors(self.uri(store.check_key_prefix(prefix))):
            for batch in obstore.list(self._client, prefix or None, chunk_size=LISTED_AT_ONCE):
                safe = [meta for meta in batch if store.is_safe_key(meta["path"])]
                left_out += len(batch) - len(safe)
                found += [store.ArtifactEntry(meta["path"], meta["size"]) for meta in safe]
                if len(found) > store.MAX_LISTED:
                    raise store.too_many(self.uri(prefix))
        if left_out:
            extra = {"event": "artifacts_left_out", "fields": {"count": left_out}}
            _log.warning("objects with other names left out: %d", left_out, extra=extra)
        return tuple(sorted(found))

    def uri(self, key: str) -> str:
        return self.place.uri(key)

    def _put(
        self, key: str, content: Content, previous: store.ArtifactVersion | None
    ) -> store.ArtifactVersion:
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
            found = _make_fault(problem, self.uri(key))
            if found.rule not in {store.CONFLICT, store.MISSING}:
                raise found from None
            # Return what is there if it is what we sent: the answer to an earlier try got lost.
            current = self.head(key)
            if current is not None and self._holds(key, current, content):
                return current
            raise store.conflict(self.uri(key)) from None
        return _version(self.uri(key), result, content.digest.size)

    def _holds(self, key: str, version: store.ArtifactVersion, content: Content) -> bool:
        """Return whether the object has our bytes, judged by its tag or by reading it."""
        if version.size != content.digest.size:
            return False
        if _proves(version, content):
            return True
        hasher = Hasher()
        found, _ = self._stream(key, hasher.take, content.digest.size)
        if found.token != version.token:
            raise store.conflict(self.uri(key))
        return hasher.digest() == content.digest

    def _read(self, key: str, sink: Callable[[bytes], object], limit: int) -> store.ArtifactVersion:
        """Pass the bytes of an object on, compared with the hash that was kept with it."""
        hasher = Hasher()

        def take(piece: bytes) -> None:
            hasher.take(piece)
            sink(piece)

        version, kept = self._stream(key, take, limit)
        digest, tag = hasher.digest(), _normalize_tag(version.token)
        if kept is None and _MD5.fullmatch(tag):
            kept = digest.sha256 if tag == digest.md5 else tag
        if kept is not None and kept != digest.sha256:
            raise store.damaged_error(self.uri(key))
        return version

    def _stream(
        self, key: str, sink: Callable[[bytes], object], limit: int
    ) -> tuple[store.ArtifactVersion, str | None]:
        """Pass the bytes of an object on; return its version, and the hash kept with it."""
        import obstore

        where = self.uri(store.check_key(key))
        with _map_errors(where):
            result: GetResult = obstore.get(self._client, key)
            version = self._read_version(key, result.meta)
            if version.size > limit:
                raise store.too_large(where, limit)
            size = 0
            for piece in result.stream(min_chunk_size=CHUNK_BYTES):
                size += len(piece)
                if size > version.size:
                    break
                sink(bytes(piece))
        if size != version.size:
            raise store.damaged_error(where)
        return version, result.attributes.get(_SHA256)

    def _read_version(self, key: str, meta: ObjectMeta) -> store.ArtifactVersion:
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
        raise _make_fault(problem, place.uri("")) from None


def _version(where: str, result: PutResult | ObjectMeta, size: int) -> store.ArtifactVersion:
    tag = result["e_tag"]
    if not tag:
        message = f"the server of {where} gives no tags to tell versions by"
        hint = "use a server that honours conditional writes"
        raise EnvironmentFault(message, rule=store.UNTAGGED, hint=hint)
    return store.ArtifactVersion(tag, size)


def _proves(version: store.ArtifactVersion, content: Content) -> bool:
    """Return whether the tag of a version proves that it has these bytes."""
    digest = content.digest
    return version.size == digest.size and _normalize_tag(version.token) == digest.md5


def _normalize_tag(token: str) -> str:
    return token.removeprefix("W/").strip('"').lower()


@contextmanager
def _map_errors(where: str) -> Iterator[None]:
    """Raise our error for each of the client's."""
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError) as problem:
        # Without the cause: its text is what must not be shown.
        raise _make_fault(problem, where) from None


def _make_fault(problem: BaseException, where: str) -> EnvironmentFault:
    """Return our error for one of the client's."""
    from obstore import exceptions

    text = str(problem)[:20_000]
    status, code = _STATUS.search(text), _CODE.search(text)
    said = ", ".join(match[1] for match in (status, code) if match)
    detail = f" ({said})" if said else ""
    if code and code[1] == "NoSuchBucket":
        hint = "make the bucket first, or name another one"
        message = f"the bucket of {where} does not exist"
        return EnvironmentFault(message, rule=store.NO_BUCKET, hint=hint)
    if isinstance(problem, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return store.conflict(where)
    if isinstance(problem, FileNotFoundError | exceptions.NotFoundError):
        return store.missing(where)
    # A refused listing has no class of its own.
    if status and status[1] in {"401", "403"}:
        message = f"the artifact store denied access to {where}{detail}"
        hint = "check the AWS_* variables and what the key may do in the bucket"
        return EnvironmentFault(message, rule=store.DENIED, hint=hint)
    message = f"the artifact store cannot be used for {where}{detail}"
    return EnvironmentFault(message, rule=store.NETWORK)
