"""The tokens that the operator gave to clients: their hashes, names and roles, in one file.

A token is 256 random bits, so that a plain SHA-256 of it cannot be turned back. Tokens are never
deleted: a name in approvals and receipts stands for one client, for good.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from coilclaw.gateway.clients import OPERATOR, RESERVED, ROLES, Client, Role
from coilclaw.gateway.http.faults import refusal_error
from coilclaw.gateway.operator_token import TOKEN_BYTES, check_private
from coilclaw.kernel import (
    MAX_PRIVATE_BYTES,
    CoilClawError,
    EnvironmentFault,
    FileLock,
    Secret,
    UsageError,
    read_private,
    write_atomic,
)
from coilclaw.workspace import format_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


TOKENS_NAME: Final = "gateway.tokens.json"
PREFIX: Final = "coilclaw_"
"""Begins every token of a client, so that one is known where it does not belong."""
MAX_TOKENS: Final = 200
"""Tokens of one home, those that were revoked included."""
MAX_YEARS: Final = 100
_VERSION: Final = 1
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_SPAN: Final = re.compile(r"([1-9][0-9]{0,5})([mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class StoredToken:
    """What is kept of a token."""

    name: str
    role: Role
    sha256: str
    created: str
    expires: str = ""
    """Empty where it does not expire."""
    revoked: str = ""
    """When it was revoked; empty where it was not."""


class TokenStore:
    """The tokens of one home. Making it touches nothing."""

    def __init__(self, home: Path, now: Callable[[], datetime]) -> None:
        self.path = home / TOKENS_NAME
        self._now = now

    def list(self) -> tuple[StoredToken, ...]:
        """Return all tokens, oldest first; a file that cannot be trusted is an error."""
        data = read_private(self.path)
        if data is None:
            return ()
        check_private(self.path, "token.file", "delete it: this revokes all tokens in it")
        return _parse_tokens(data, self.path)

    def new(self, name: str, role: Role, expires: str = "") -> tuple[StoredToken, Secret]:
        """Make a token and return it, which is the only time that it is known."""
        _check_name(name)
        secret = f"{PREFIX}{secrets.token_hex(TOKEN_BYTES)}"
        made = StoredToken(
            name, role, hash_token(secret.encode()), format_time(self._now()), expires
        )
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self._make_lock():
            known = self.list()
            if any(one.name.lower() == name.lower() for one in known):
                raise UsageError(
                    f"there is a token {name!r} already, or was one",
                    rule="token.exists",
                    hint="choose another name: a name stands for one client, for good",
                )
            if len(known) >= MAX_TOKENS:
                raise UsageError(
                    f"there are {MAX_TOKENS} tokens, revoked ones included, and no more fit",
                    rule="token.many",
                    hint=f"delete {self.path}, which revokes all of them",
                )
            self._write((*known, made))
        return made, Secret(secret)

    def revoke(self, name: str) -> StoredToken:
        """Revoke a token, at once and for good; one that was revoked stays as it is."""
        with self._make_lock():
            known = self.list()
            found = next((one for one in known if one.name == name), None)
            if found is None:
                raise UsageError(
                    f"no token is called {name!r}",
                    rule="token.unknown",
                    hint="see 'coilclaw token list'; the operator's own token is the file "
                    "gateway.token, which you can delete",
                )
            if found.revoked:
                return found
            revoked = replace(found, revoked=format_time(self._now()))
            self._write(tuple(revoked if one is found else one for one in known))
        return revoked

    def version(self) -> tuple[int, ...]:
        """Name the state of the file, so that a change of it shows without reading it."""
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return ()
        return found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode, found.st_uid

    def _make_lock(self) -> FileLock:
        return FileLock(self.path.with_suffix(".lock"))

    def _write(self, tokens: tuple[StoredToken, ...]) -> None:
        value = {"version": _VERSION, "tokens": [asdict(one) for one in tokens]}
        data = f"{json.dumps(value, indent=1)}\n".encode("ascii")
        assert len(data) <= MAX_PRIVATE_BYTES, "MAX_TOKENS of them fit"
        write_atomic(self.path, data, mode=0o600)


def hash_token(token: bytes) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token).hexdigest()


def parse_expiry(text: str, now: datetime) -> str:
    """Return when a token expires, given a span such as ``30d`` or a date or time to come."""
    span = _SPAN.fullmatch(text)
    try:
        if span is not None:
            moment = now + timedelta(**{_UNITS[span[2]]: int(span[1])})
        else:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        if not now < moment <= now + timedelta(days=366 * MAX_YEARS):
            raise ValueError(text)
        return format_time(moment)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is not a time to come",
            rule="token.expires",
            hint="write 30m, 12h, 30d or 4w, or a date such as 2031-12-31",
        ) from None


def _check_name(name: str) -> None:
    if not _PLAIN.fullmatch(name) or name.lower() in RESERVED:
        raise UsageError(
            f"{name!r} cannot be the name of a token",
            rule="token.name",
            hint="letters, digits, '.', '_' and '-', at most 64, a letter or digit first; "
            f"{' and '.join(sorted(RESERVED))} are taken",
        )


def _parse_tokens(data: bytes, path: Path) -> tuple[StoredToken, ...]:
    """Return the tokens in the file, all of them or none."""
    try:
        value = json.loads(data)
        if value["version"] != _VERSION:
            raise ValueError("version")
        return tuple(_token(one) for one in value["tokens"])
    except (ValueError, TypeError, KeyError, RecursionError) as problem:
        raise EnvironmentFault(
            f"{path} is not a list of tokens",
            rule="token.file",
            hint="delete it: this revokes all tokens in it",
        ) from problem


def _token(value: dict[str, Any]) -> StoredToken:
    found = StoredToken(**value)
    texts = all(isinstance(text, str) for text in asdict(found).values())
    if not texts or found.role not in ROLES or not _HASH.fullmatch(found.sha256):
        raise ValueError("token")
    _check_name(found.name)
    return found


_log = logging.getLogger(__name__)

_SCHEME: Final = b"bearer "
_TOKEN: Final = re.compile(PREFIX.encode() + rb"[0-9a-f]{64}")


class KnownClients:
    """The operator and the clients of the token store, as that is at this moment."""

    def __init__(
        self,
        operator: Secret,
        store: TokenStore | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._token = operator.reveal().encode("ascii")
        self._operator = hash_token(self._token)
        self._store = store
        self._now = now
        self._version: tuple[int, ...] | None = None
        self._stored: tuple[StoredToken, ...] = () if store is None else store.list()

    def identify(self, header: bytes) -> Client | UsageError:
        """Return who presents an ``Authorization`` header, or why it is not admitted."""
        scheme, value = header[: len(_SCHEME)].lower(), header[len(_SCHEME) :].strip()
        digest = hash_token(value)
        # All are compared, whichever fits, so that the time tells nothing.
        fitting = [one for one in self._tokens() if hmac.compare_digest(one.sha256, digest)]
        operator = hmac.compare_digest(self._operator, digest)
        if scheme != _SCHEME or not (operator or fitting):
            return refusal_error("auth.wrong", "this token is not valid")
        if operator:
            return Client(OPERATOR, "admin")
        (found,) = fitting
        if found.revoked:
            return refusal_error("auth.revoked", f"the token {found.name!r} was revoked")
        if self._is_expired(found):
            return refusal_error("auth.expired", f"the token {found.name!r} has expired")
        return Client(found.name, found.role, found.expires)

    def admits(self, client: Client) -> bool:
        """Tell whether the token of a client that was admitted still holds."""
        if client.name == OPERATOR:
            return True
        return any(
            one.name == client.name and not one.revoked and not self._is_expired(one)
            for one in self._tokens()
        )

    def told_in(self, query: bytes) -> bool:
        """Tell whether a query in lower case holds a token."""
        return self._token in query or _TOKEN.search(query) is not None

    def _is_expired(self, token: StoredToken) -> bool:
        return bool(token.expires) and format_time(self._now()) >= token.expires

    def _tokens(self) -> tuple[StoredToken, ...]:
        """Return the stored tokens; a file that cannot be read holds none."""
        if self._store is None:
            return ()
        version = self._store.version()
        if version != self._version:
            self._version = version
            try:
                self._stored = self._store.list()
            except CoilClawError as problem:
                self._stored = ()
                _log.error(
                    "no client but the operator is admitted: %s",
                    problem.message,
                    extra={"event": "tokens_unreadable"},
                )
        return self._stored
