"""``KnownClients``: from the header of a request to the client that sent it."""

from __future__ import annotations

import hmac
import logging
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from coilclaw.errors import CoilClawError
from coilclaw.gateway.clients import OPERATOR, Client
from coilclaw.gateway.faults import refused
from coilclaw.gateway.token_store import PREFIX, StoredToken, TokenStore, hashed
from coilclaw.runtime.identity import stamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.domain.secret import Secret
    from coilclaw.errors import UsageError

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
        self._operator = hashed(self._token)
        self._store = store
        self._now = now
        self._version: tuple[int, ...] | None = None
        self._stored: tuple[StoredToken, ...] = () if store is None else store.list()

    def identify(self, header: bytes) -> Client | UsageError:
        """Return who presents an ``Authorization`` header, or why nobody is admitted with it."""
        scheme, value = header[: len(_SCHEME)].lower(), header[len(_SCHEME) :].strip()
        digest = hashed(value)
        # All are compared, whichever fits, so that the time tells nothing.
        fitting = [one for one in self._tokens() if hmac.compare_digest(one.sha256, digest)]
        operator = hmac.compare_digest(self._operator, digest)
        if scheme != _SCHEME or not (operator or fitting):
            return refused("auth.wrong", "this token is not valid")
        if operator:
            return Client(OPERATOR, "admin")
        (found,) = fitting
        if found.revoked:
            return refused("auth.revoked", f"the token {found.name!r} was revoked")
        if self._is_expired(found):
            return refused("auth.expired", f"the token {found.name!r} has expired")
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
        return bool(token.expires) and stamp(self._now()) >= token.expires

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
