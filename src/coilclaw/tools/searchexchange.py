"""One question to a search service: as any page is got, but with a key and never elsewhere."""

from __future__ import annotations

import threading
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coilclaw.errors import EnvironmentFault
from coilclaw.tools.fetching import LOOK_S, Exchange, Fetched, Fetcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.security.hosts import WebAddress
    from coilclaw.workspace.process import Cancellation


@dataclass(frozen=True, slots=True)
class Question:
    """What is sent: the key stands in a header, and nowhere else."""

    address: WebAddress
    headers: Mapping[str, str]
    body: bytes | None = None
    """What is posted; without it the question is a GET."""


def ask(fetcher: Fetcher, question: Question, cancel: Cancellation) -> Fetched:
    """Ask, and wait for the end of the answer, the time, or the patience of somebody."""
    exchange = _Asking(fetcher, time.monotonic() + fetcher.timeout_s, question)
    thread = threading.Thread(
        target=exchange.run, args=(question.address,), name="web search", daemon=True
    )
    thread.start()
    try:
        while thread.is_alive():
            if cancel.cancelled:
                raise EnvironmentFault(f"stopped: {cancel.reason}", rule="stopped")
            if time.monotonic() > exchange.deadline:
                raise fetcher.late()
            thread.join(LOOK_S)
    finally:
        exchange.stop()
    return exchange.outcome()


class _Asking(Exchange):
    """An exchange whose request is the question; where a redirect leads, the key does not go."""

    def __init__(self, fetcher: Fetcher, deadline: float, question: Question) -> None:
        super().__init__(fetcher, deadline)
        self._question = question

    def _ask(self, address: WebAddress, ip: str, redirects: int) -> Fetched:
        import httpx2

        if self._stopped:
            raise self._fetcher.late()
        host = f"[{ip}]" if ":" in ip else ip
        left = max(self.deadline - time.monotonic(), 0.001)
        extensions: dict[str, object] = {
            "target": address.target.encode("ascii"),
            "timeout": httpx2.Timeout(left).as_dict(),
            "trace": self._watch,
        }
        if not address.is_literal:
            extensions["sni_hostname"] = address.host
        body = self._question.body
        request = httpx2.Request(
            "GET" if body is None else "POST",
            f"{address.scheme}://{host}:{address.port}/",
            headers={
                "host": address.authority,
                "user-agent": "coilclaw",
                "accept": "application/json",
                "accept-encoding": "gzip",
                "connection": "close",
                **self._question.headers,
            },
            content=body,
            extensions=extensions,
        )
        verify = self._fetcher.verify or address.scheme == "https"
        with (
            httpx2.HTTPTransport(verify=verify, trust_env=False) as transport,
            closing(transport.handle_request(request)) as response,
        ):
            return self._taken(address, ip, response, redirects)
