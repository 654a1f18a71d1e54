"""One request in, one answer out: everything between reading a request and sending bytes."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coilclaw.errors import CoilClawError
from coilclaw.modelserver import catalog
from coilclaw.modelserver.access import check_key, check_origin
from coilclaw.modelserver.bodies import mapping, read_body
from coilclaw.modelserver.dialect import Streaming
from coilclaw.modelserver.history import history
from coilclaw.modelserver.refusal import status_of
from coilclaw.modelserver.rendering import (
    DIALECTS,
    asked_of,
    error_payload,
    json_payload,
    scripted,
)
from coilclaw.modelserver.reply import estimate
from coilclaw.modelserver.routes import Operation, likely_dialect, route
from coilclaw.modelserver.script import DialectName, Fault
from coilclaw.modelserver.selection import Situation, choose

if TYPE_CHECKING:
    from collections.abc import Callable

    from coilclaw.domain.secret import Secret
    from coilclaw.modelserver.bodies import Body
    from coilclaw.modelserver.exchange import Payload
    from coilclaw.modelserver.requestlog import RequestLog
    from coilclaw.modelserver.routes import Route
    from coilclaw.modelserver.script import Answer, Script
    from coilclaw.modelserver.wire import Head


@dataclass(frozen=True, slots=True)
class Played:
    """An answer, how it is sent, and where in the script it stands."""

    payload: Payload
    fault: Fault = field(default_factory=Fault)
    path: str | None = None


class Service:
    """Answers requests from a script; safe for many threads."""

    __slots__ = ("_clock", "_counts", "_key", "_lock", "_log", "_script")

    def __init__(
        self, script: Script, key: Secret | None, log: RequestLog, clock: Callable[[], float]
    ) -> None:
        self._script, self._key, self._log, self._clock = script, key, log, clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def answer(self, head: Head, data: bytes | CoilClawError) -> Played:
        """Return the answer to a request, which is in the log by then.

        ``data`` is the body, or why it could not be read.
        """
        name = likely_dialect(head.target, head.headers)
        body, unreadable = (None, data) if isinstance(data, CoilClawError) else _content(data)
        problem = None
        try:
            if isinstance(data, CoilClawError):
                raise data
            check_origin(head.headers)
            found = route(head.method, head.target, head.headers)
            name = found.dialect
            check_key(name, head.target, head.headers, self._key)
            if unreadable and found.operation in {Operation.ANSWER, Operation.COUNT}:
                raise unreadable
            played = self._play(head, found, mapping(body), len(data))
        except CoilClawError as refused:
            problem = refused.message
            played = refusal(name, refused)
        self._log.add(
            method=head.method,
            target=head.target,
            headers=head.headers,
            body=body,
            dialect=str(name),
            answer=played.path,
            problem=problem,
        )
        return played

    def _play(self, head: Head, found: Route, body: Body, size: int) -> Played:
        if found.operation is Operation.ANSWER:
            return self._scripted(head, found, body, size)
        if found.operation is Operation.HEALTH:
            return Played(json_payload({"status": "ok", "server": "coilclaw mock-server"}))
        if found.operation is Operation.COUNT:
            return Played(json_payload(_token_count(found.dialect, estimate(size))))
        models = self._script.models
        if found.model is None:
            return Played(json_payload(catalog.listing(found.dialect, models)))
        return Played(json_payload(catalog.single(found.dialect, models, found.model)))

    def _scripted(self, head: Head, found: Route, body: Body, size: int) -> Played:
        asked = asked_of(found, body, head.headers, self._script.models[0])
        dialect = DIALECTS[found.dialect]
        dialect.check(asked)
        situation = Situation(
            dialect=found.dialect,
            history=history(dialect.said(body), self._script.context_prefixes),
            model=asked.model,
            stream=asked.streaming is not Streaming.NO,
            headers=head.headers,
        )
        answer = choose(self._script, situation)
        fault = self._fault(answer)
        payload = scripted(found.dialect, asked, answer, fault, size, int(self._clock()))
        return Played(payload, fault, answer.path)

    def _fault(self, answer: Answer) -> Fault:
        """Return the fault that is next for an answer, and in the end its own."""
        if not answer.faults:
            return answer.fault
        with self._lock:
            played = self._counts[answer.path]
            self._counts[answer.path] += 1
        return answer.faults[played] if played < len(answer.faults) else answer.fault


def refusal(name: DialectName, problem: CoilClawError) -> Played:
    """Return an error in the dialect's own shape."""
    status = status_of(problem)
    allowed = problem.hint if problem.rule == "request.method" else None
    headers = (("allow", allowed),) if allowed else ()
    return Played(error_payload(name, status, problem.message, headers))


def _content(data: bytes) -> tuple[object, CoilClawError | None]:
    """Return what a body holds for the log, and why it cannot be used if so."""
    try:
        return read_body(data), None
    except CoilClawError as problem:
        return data.decode("utf-8", "replace") or None, problem


def _token_count(dialect: DialectName, tokens: int) -> dict[str, object]:
    if dialect is DialectName.MESSAGES:
        return {"input_tokens": tokens}
    details = [{"modality": "TEXT", "tokenCount": tokens}]
    return {"totalTokens": tokens, "promptTokensDetails": details}
