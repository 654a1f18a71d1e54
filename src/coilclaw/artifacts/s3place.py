"""Which bucket, and how it is reached: read from an address and the usual AWS variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.artifacts import keys
from coilclaw.errors import PathRefused, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import ClientConfig, S3Config

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
            raise UsageError(
                "the address of an artifact store does not name a bucket",
                rule="artifact.address",
                hint="write s3://bucket or s3://bucket/prefix; keys come from AWS_* variables",
            )
        try:
            keys.check_prefix(prefix)
        except PathRefused as problem:
            raise UsageError(
                f"the prefix of the artifact store is refused: {problem.message}",
                rule="artifact.address",
                hint=problem.hint,
            ) from problem
        return cls(bucket, prefix)

    def uri(self, key: str) -> str:
        return SCHEME + "/".join(filter(None, (self.bucket, self.prefix, key)))


def configuration(environ: Mapping[str, str]) -> S3Config:
    """Return who we are and whom we talk to; without credentials nobody is asked for any."""
    found: S3Config = {
        "region": _first(environ, "AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1",
        "checksum_algorithm": "SHA256",
        "conditional_put": "etag",
    }
    if endpoint := _endpoint(environ):
        found["endpoint"] = endpoint
    key_id, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if key_id and secret:
        found["access_key_id"] = key_id
        found["secret_access_key"] = secret
        if token := environ.get("AWS_SESSION_TOKEN"):
            found["session_token"] = token
    elif _is(environ, "AWS_SKIP_SIGNATURE", _YES):
        found["skip_signature"] = True
    elif role := _role(environ):
        found.update(role)
    elif not _is(environ, "AWS_EC2_METADATA_DISABLED", _NO):
        raise UsageError(
            "there are no credentials for the artifact store",
            rule="artifact.credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; on a machine with a role, set "
            "AWS_EC2_METADATA_DISABLED=false; for a public bucket, AWS_SKIP_SIGNATURE=true",
        )
    return found


def client_options(environ: Mapping[str, str], *, patient: bool = False) -> ClientConfig:
    """Return the bounds of a request, and whether it may go unencrypted.

    Silence ends a request, but for a patient one: while bytes are being sent, nothing is heard.
    """
    endpoint = _endpoint(environ) or ""
    plain = _is(environ, "AWS_ALLOW_HTTP", _YES)
    if not plain and not (endpoint.startswith("https://") or not endpoint):
        raise UsageError(
            "the endpoint of the artifact store is not an https address",
            rule="artifact.endpoint",
            hint="set AWS_ALLOW_HTTP=true for a server that you trust the way to",
        )
    options: ClientConfig = {
        "allow_http": plain,
        "connect_timeout": CONNECT_LIMIT,
        "timeout": REQUEST_LIMIT,
    }
    if not patient:
        options["read_timeout"] = SILENCE_LIMIT
    return options


def _endpoint(environ: Mapping[str, str]) -> str | None:
    return _first(environ, "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def _role(environ: Mapping[str, str]) -> S3Config:
    """Return where a role is to be had from, if the environment names such a place."""
    found: S3Config = {}
    if token := environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
        found["web_identity_token_file"] = token
        if arn := environ.get("AWS_ROLE_ARN"):
            found["role_arn"] = arn
        if session := environ.get("AWS_ROLE_SESSION_NAME"):
            found["role_session_name"] = session
    elif relative := environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        found["container_credentials_relative_uri"] = relative
    elif full := environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        found["container_credentials_full_uri"] = full
        if file := environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            found["container_authorization_token_file"] = file
    return found


def _first(environ: Mapping[str, str], *names: str) -> str | None:
    return next((value for name in names if (value := environ.get(name))), None)


def _is(environ: Mapping[str, str], name: str, values: frozenset[str]) -> bool:
    return environ.get(name, "").strip().lower() in values
