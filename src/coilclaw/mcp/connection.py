"""``McpConnection``: a foreign server behind plain calls; connected when first needed, and again.

A call that is stopped, or takes too long, ends the whole session and the program behind it: a
request that was taken back may still be at work, and nothing else makes sure that it is not. Calls
are never repeated, for nobody knows what the first one did.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from coilclaw.errors import DeniedError, EnvironmentFault
from coilclaw.mcp.foreigntext import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.domain.messages import Json
    from coilclaw.mcp.answers import Answer
    from coilclaw.mcp.definitions import Listing
    from coilclaw.mcp.launching import Launched
    from coilclaw.mcp.session import Session
    from coilclaw.mcp.settings import McpServer
    from coilclaw.workspace.process import Cancellation

LOOK_EVERY_S: Final = 0.05
MAX_COMPLAINT: Final = 500

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """On what terms a server is asked."""

    start: Callable[[], Launched] | None
    """Starts the program, if it is one; asked only when there is no session."""
    environ: Mapping[str, str]
    timeout_s: float
    cancel: Cancellation


class McpConnection:
    """The one connection to a server; any thread may use it, also several at once."""

    def __init__(self, server: McpServer) -> None:
        self.server = server
        self.contained = "none"
        """What really held the program that was started last, for receipts."""
        self._session: Session | None = None
        self._lock = threading.Lock()

    def listing(self, terms: Terms) -> Listing:
        """Ask for the tools as they are defined now."""
        deadline = time.monotonic() + terms.timeout_s
        session = self._connected(terms, deadline)
        return self._awaited(session, session.submit(session.listing()), terms, deadline)

    def call(self, tool: str, args: Mapping[str, Json], *, pinned: str, terms: Terms) -> Answer:
        """Call a tool if its definition has the hash ``pinned``."""
        deadline = time.monotonic() + terms.timeout_s
        session = self._connected(terms, deadline)
        listing = self._awaited(session, session.submit(session.listing()), terms, deadline)
        self._unchanged(tool, listing, pinned)
        future = session.submit(session.call(tool, args))
        return self._awaited(session, future, terms, deadline)

    def close(self) -> None:
        """End the session, if there is one; the next call would begin another."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _unchanged(self, tool: str, listing: Listing, pinned: str) -> None:
        found = listing.tools.get(tool)
        if found is not None and found.sha256 == pinned:
            return
        what = "does not offer" if found is None else "has changed the definition of"
        raise DeniedError(
            f"the MCP server {self.server.name} {what} {plain(tool, 100)!r}",
            rule="mcp.gone" if found is None else "mcp.changed",
            hint=f"'coilclaw mcp approve {self.server.name}' shows what it offers now",
        )

    def _connected(self, terms: Terms, deadline: float) -> Session:
        from coilclaw.mcp.session import Session
        from coilclaw.mcp.web import headers

        with self._lock:
            session = self._session
            if session is None or not session.usable:
                sent = {} if terms.start else headers(self.server, terms.environ)
                launched = terms.start() if terms.start else None
                self.contained = launched.sandbox if launched else "none"
                session = Session(self.server, launched, sent)
                self._session = session
                session.start()
        until = min(deadline, time.monotonic() + self.server.start_timeout_s)
        self._awaited(session, session.ready, terms, until)
        return session

    def _awaited(
        self,
        session: Session,
        future: concurrent.futures.Future[T],
        terms: Terms,
        deadline: float,
    ) -> T:
        """Wait for something, for as long as it may take and nobody wants to stop."""
        while not future.done():
            if terms.cancel.cancelled:
                self._drop(session)
                raise EnvironmentFault(f"stopped: {terms.cancel.reason}", rule="stopped")
            if time.monotonic() > deadline:
                self._drop(session)
                raise EnvironmentFault(
                    f"the MCP server {self.server.name} did not answer in time", rule="mcp.timeout"
                )
            concurrent.futures.wait([future], LOOK_EVERY_S)
        try:
            return future.result()
        except (Exception, concurrent.futures.CancelledError) as problem:  # noqa: BLE001 - told below
            self._failed(session, problem)

    def _failed(self, session: Session, problem: BaseException) -> NoReturn:
        """Say in our words what the SDK raised."""
        from mcp.shared.exceptions import MCPError

        from coilclaw.mcp.session import WantsInput

        name = self.server.name
        if isinstance(problem, WantsInput):
            raise EnvironmentFault(
                f"the MCP server {name} wants to ask back during a call, and may not",
                rule="mcp.input",
            ) from None
        # The code of a lost connection is also one that servers use for anything else.
        said = isinstance(problem, MCPError) and not session.why_ended
        if said and session.ready.exception() is None:
            if session.launched is None:
                self._drop(session)  # over HTTP it may be the session that is gone
            words = plain(str(problem), MAX_COMPLAINT)
            raise EnvironmentFault(
                f"the MCP server {name} answers with an error: {words}", rule="mcp.error"
            ) from None
        self._drop(session)
        reason = session.why_ended or _kind(problem)
        complaint = plain(session.complaint[-2 * MAX_COMPLAINT :], MAX_COMPLAINT)
        raise EnvironmentFault(
            f"the connection to the MCP server {name} failed: {reason}"
            + (f"; it wrote: {complaint}" if complaint else ""),
            rule="mcp.connection",
        ) from None

    def _drop(self, session: Session) -> None:
        with self._lock:
            if self._session is session:
                self._session = None
        session.close(at_once=True)


def _kind(problem: BaseException) -> str:
    """Name what happened, without what somebody else wrote about it."""
    while isinstance(problem, BaseExceptionGroup):
        problem = problem.exceptions[0]
    from mcp.shared.exceptions import MCPError

    if isinstance(problem, MCPError):
        return plain(str(problem), MAX_COMPLAINT)
    return type(problem).__name__
