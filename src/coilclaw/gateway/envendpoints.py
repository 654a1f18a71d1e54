"""What clients of an environment ask for: its schema, sessions, and tests in them."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from coilclaw.environments.sessions import DEFAULT_IDLE_S, MAX_IDLE_S
from coilclaw.errors import UsageError
from coilclaw.gateway import envforms
from coilclaw.gateway.answers import json_response
from coilclaw.gateway.envforms import FILE, FormRules, read_form
from coilclaw.gateway.faults import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from starlette.responses import Response
    from starlette.types import Receive, Scope

    from coilclaw.domain.messages import Json
    from coilclaw.environments.results import Result
    from coilclaw.environments.sessions import Sessions
    from coilclaw.gateway.settings import GatewaySettings

_log = logging.getLogger(__name__)

PARAMS: Final = "params"
TIMEOUT: Final = "timeout"
_GLANCE_S: Final = 0.01

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    scope: Scope
    receive: Receive

    @property
    def path(self) -> str:
        """The path of tests that is asked for."""
        return str(self.scope["path_params"].get("path", ""))

    @property
    def session(self) -> str:
        return str(self.scope["path_params"]["session"])

    @property
    def content_type(self) -> bytes:
        return bytes(dict(self.scope["headers"]).get(b"content-type", b""))

    async def is_gone(self) -> bool:
        """Whether the client has gone away; asked once its request is complete."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_GLANCE_S):
                message = await self.receive()
                return bool(message["type"] == "http.disconnect")
        return False


@dataclass(frozen=True, slots=True)
class EnvEndpoints:
    """Answers requests; what takes long happens in threads of its own."""

    sessions: Sessions
    schema: Mapping[str, Json]
    settings: GatewaySettings
    pool: ThreadPoolExecutor = field(init=False)
    _reading: set[asyncio.Timeout] = field(default_factory=set)

    def __post_init__(self) -> None:
        limits = self.sessions.limits
        # Every call that can run or wait has a thread, and so has everything that ends one.
        threads = limits.sessions * (limits.waiting + 2) + 2
        object.__setattr__(self, "pool", ThreadPoolExecutor(threads, "env"))

    def interrupt(self) -> None:
        """Wait for nothing that is still being sent: all sessions are about to end."""
        for reading in self._reading:
            reading.reschedule(0.0)

    async def health(self, _: Asked) -> Response:
        return json_response({"status": "ok"})

    async def describe(self, _: Asked) -> Response:
        return json_response(dict(self.schema))

    async def test(self, asked: Asked) -> Response:
        """Test what comes with the request, once; nothing of it is kept."""
        if self.schema["has_setup"]:
            raise UsageError("This environment requires a session.", rule="session.required")
        opening = self.sessions.begin()
        try:
            form = await self._form(asked, (FILE, PARAMS), opening.upload)
            params = envforms.params_of(form)
        except BaseException:
            opening.discard()
            raise
        result, trouble = await self._tested(asked, lambda: opening.once(asked.path, params))
        return json_response(_shown(result, trouble))

    async def open(self, asked: Asked) -> Response:
        """Take an upload, build it, and keep it as a session."""
        opening = self.sessions.begin()
        try:
            form = await self._form(asked, (FILE, PARAMS, TIMEOUT), opening.upload)
            params = envforms.params_of(form)
            idle_s = envforms.seconds_of(form, DEFAULT_IDLE_S, MAX_IDLE_S)
        except BaseException:
            opening.discard()
            raise
        made = await self._apart(lambda: opening.open(params, idle_s))
        if await asked.is_gone():
            # Nobody will ever know its name.
            await self._apart(lambda: self.sessions.close(made))
            _log.info("a client did not wait for its session", extra={"event": "session_unwanted"})
        _log.info("a session was opened", extra={"event": "session_opened"})
        return json_response({"session_id": made, "timeout": idle_s})

    async def test_session(self, asked: Asked) -> Response:
        """Test what a session holds."""
        params = envforms.params_of(await self._form(asked, (PARAMS,), None))
        result = await self._tested(
            asked, lambda: self.sessions.test(asked.session, asked.path, params)
        )
        return json_response(_shown(result, None))

    async def close(self, asked: Asked) -> Response:
        """End a session."""
        trouble = await self._apart(lambda: self.sessions.close(asked.session))
        said: dict[str, Json] = {"status": "closed"}
        if trouble is not None:
            said["trouble"] = f"the teardown failed: {trouble}"
        return json_response(said)

    async def _form(
        self, asked: Asked, fields: tuple[str, ...], upload: Path | None
    ) -> dict[str, str]:
        settings = self.settings
        most = settings.max_body_bytes if FILE in fields else envforms.MAX_TEXTS_BYTES
        rules = FormRules(fields, upload, most, settings.body_timeout_s)
        try:
            async with asyncio.timeout(None) as reading:
                self._reading.add(reading)
                try:
                    return await read_form(asked.content_type, asked.receive, rules)
                finally:
                    self._reading.discard(reading)
        except TimeoutError:
            raise refused("gateway.stopping", "the server is being stopped") from None

    async def _tested(self, asked: Asked, call: Callable[[], T]) -> T:
        try:
            return await self._apart(call)
        except UsageError as problem:
            if problem.rule != "environment.path":
                raise
            raise UsageError(
                f"No tests match: {asked.path}", rule=problem.rule, hint=problem.hint
            ) from problem

    async def _apart(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self.pool, call)
        except UsageError as problem:
            if problem.rule != "environment.parameter.missing":
                raise
            # What is said on the command line helps nobody here.
            raise UsageError(
                problem.message, rule=problem.rule, hint=f"give it in the field {PARAMS}"
            ) from problem


def public_schema(schema: Mapping[str, Json], fixed: Collection[str] = ()) -> dict[str, Json]:
    """Return what an environment tests, in the form that clients know.

    ``fixed`` are parameters that they cannot give.
    """
    metadata: dict[str, dict[str, Json]] = {}
    tests = schema["tests"]
    assert isinstance(tests, list)
    for test in tests:
        assert isinstance(test, dict)
        metadata.setdefault(str(test["path"]), _metadata(test, fixed))
    cases = schema["cases"]
    assert isinstance(cases, list)
    # Cases at the very top that a function made have no other name than their own.
    made = [case for case in cases if "" in metadata and "/" not in str(case)]
    metadata.pop("", None)
    paths: list[Json] = [*sorted({*metadata, *map(str, made)})]
    said: dict[str, Json] = {
        "schema_version": "envoi.schema.v1",
        "capabilities": {
            "requires_session": schema["has_setup"],
            "has_teardown": schema["has_teardown"],
            "handler_mode": "sync_or_async",
        },
        "has_setup": schema["has_setup"],
        "has_teardown": schema["has_teardown"],
        "tests": paths,
        "test_metadata": dict(metadata),
        "cases": cases,
    }
    if schema["setup_params_schema"] is not None:
        said["setup_params_schema"] = _left(schema["setup_params_schema"], fixed)
    return said


def choices(schema: Mapping[str, Json], fixed: Collection[str]) -> tuple[str, ...]:
    """Return the names of the parameters in a schema that clients can give."""
    tests = schema["tests"]
    assert isinstance(tests, list)
    forms = [test["params_schema"] for test in tests if isinstance(test, dict)]
    forms += [schema["setup_params_schema"]] if schema["setup_params_schema"] else []
    return tuple(sorted({name for form in forms for name in _properties(_left(form, fixed))}))


def _left(form: Json, fixed: Collection[str]) -> dict[str, Json]:
    """The schema of parameters without those that are fixed."""
    assert isinstance(form, dict)
    required = form["required"]
    assert isinstance(required, list)
    return {
        **form,
        "properties": {k: v for k, v in _properties(form).items() if k not in fixed},
        "required": [name for name in required if name not in fixed],
    }


def _properties(form: Mapping[str, Json]) -> dict[str, Json]:
    found = form["properties"]
    assert isinstance(found, dict)
    return found


def _metadata(test: Mapping[str, Json], fixed: Collection[str]) -> dict[str, Json]:
    found: dict[str, Json] = {"params_schema": _left(test["params_schema"], fixed)}
    for name in ("description", "values"):
        if test[name]:
            found[name] = test[name]
    return found


def _shown(result: Result, trouble: str | None) -> dict[str, Json]:
    """A result as clients read it: one with a field ``error`` would be an error to them."""
    said = result.json()
    said.pop("error", None)
    if trouble is not None:
        said["trouble"] = f"the teardown failed: {trouble}"
    return said
