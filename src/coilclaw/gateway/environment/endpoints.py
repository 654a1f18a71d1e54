"""What clients of an environment ask for: its schema, sessions, and tests in them."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from coilclaw.gateway.environment import forms as envforms
from coilclaw.gateway.environment.forms import FILE, FormRules, read_form
from coilclaw.gateway.http.faults import json_response, refusal_error
from coilclaw.kernel import UsageError
from coilclaw.traces import DEFAULT_IDLE_S, MAX_IDLE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from starlette.responses import Response
    from starlette.types import Receive, Scope

    from coilclaw.gateway.settings import GatewaySettings
    from coilclaw.kernel import Json
    from coilclaw.traces import Result, Sessions

_log = logging.getLogger(__name__)

PARAMS: Final = "params"
TIMEOUT: Final = "timeout"
_GLANCE_S: Final = 0.01

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class EnvironmentRequest:
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

    async def health(self, _: EnvironmentRequest) -> Response:
        return json_response({"status": "ok"})

    async def describe(self, _: EnvironmentRequest) -> Response:
        return json_response(dict(self.schema))

    async def test(self, asked: EnvironmentRequest) -> Response:
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
        result, trouble = await self._run_test(asked, lambda: opening.once(asked.path, params))
        return json_response(_render_result(result, trouble))

    async def open(self, asked: EnvironmentRequest) -> Response:
        """Take an upload, build it, and keep it as a session."""
        opening = self.sessions.begin()
        try:
            form = await self._form(asked, (FILE, PARAMS, TIMEOUT), opening.upload)
            params = envforms.params_of(form)
            idle_s = envforms.seconds_of(form, DEFAULT_IDLE_S, MAX_IDLE_S)
        except BaseException:
            opening.discard()
            raise
        made = await self._run_in_pool(lambda: opening.open(params, idle_s))
        if await asked.is_gone():
            # Nobody will ever know its name.
            await self._run_in_pool(lambda: self.sessions.close(made))
            _log.info("a client did not wait for its session", extra={"event": "session_unwanted"})
        _log.info("a session was opened", extra={"event": "session_opened"})
        return json_response({"session_id": made, "timeout": idle_s})

    async def test_session(self, asked: EnvironmentRequest) -> Response:
        """Test what a session holds."""
        params = envforms.params_of(await self._form(asked, (PARAMS,), None))
        result = await self._run_test(
            asked, lambda: self.sessions.test(asked.session, asked.path, params)
        )
        return json_response(_render_result(result, None))

    async def close(self, asked: EnvironmentRequest) -> Response:
        """End a session."""
        trouble = await self._run_in_pool(lambda: self.sessions.close(asked.session))
        return json_response({"status": "closed", **_trouble(trouble)})

    async def _form(
        self, asked: EnvironmentRequest, fields: tuple[str, ...], upload: Path | None
    ) -> dict[str, str]:
        rules = FormRules(fields, upload, self.settings)
        try:
            async with asyncio.timeout(None) as reading:
                self._reading.add(reading)
                try:
                    return await read_form(asked.content_type, asked.receive, rules)
                finally:
                    self._reading.discard(reading)
        except TimeoutError:
            raise refusal_error("gateway.stopping", "the server is being stopped") from None

    async def _run_test(self, asked: EnvironmentRequest, call: Callable[[], T]) -> T:
        try:
            return await self._run_in_pool(call)
        except UsageError as problem:
            if problem.rule != "environment.path":
                raise
            raise UsageError(
                f"No tests match: {asked.path}", rule=problem.rule, hint=problem.hint
            ) from problem

    async def _run_in_pool(self, call: Callable[[], T]) -> T:
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
    metadata: dict[str, Json] = {}
    for test in _tests(schema):
        shown: dict[str, Json] = {"params_schema": _open_parameters(test["params_schema"], fixed)}
        shown |= {name: test[name] for name in ("description", "values") if test[name]}
        metadata.setdefault(str(test["path"]), shown)
    cases = schema["cases"]
    assert isinstance(cases, list)
    # Cases at the very top that a function made have no other name than their own.
    made = [case for case in cases if "" in metadata and "/" not in str(case)]
    metadata.pop("", None)
    said: dict[str, Json] = {
        "schema_version": "envoi.schema.v1",
        "capabilities": {
            "requires_session": schema["has_setup"],
            "has_teardown": schema["has_teardown"],
            "handler_mode": "sync_or_async",
        },
        "has_setup": schema["has_setup"],
        "has_teardown": schema["has_teardown"],
        "tests": [*sorted({*metadata, *map(str, made)})],
        "test_metadata": metadata,
        "cases": cases,
    }
    if schema["setup_params_schema"] is not None:
        said["setup_params_schema"] = _open_parameters(schema["setup_params_schema"], fixed)
    return said


def choices(schema: Mapping[str, Json], fixed: Collection[str]) -> tuple[str, ...]:
    """Return the names of the parameters in a schema that clients can give."""
    forms = [test["params_schema"] for test in _tests(schema)]
    forms += [schema["setup_params_schema"]] if schema["setup_params_schema"] else []
    return tuple(
        sorted({name for form in forms for name in _open_parameters(form, fixed)["properties"]})
    )


def _tests(schema: Mapping[str, Json]) -> list[dict[str, Json]]:
    return cast("list[dict[str, Json]]", schema["tests"])


def _open_parameters(form: Json, fixed: Collection[str]) -> dict[str, Any]:
    """The schema of parameters without those that are fixed."""
    whole = cast("dict[str, Any]", form)
    return {
        **whole,
        "properties": {k: v for k, v in whole["properties"].items() if k not in fixed},
        "required": [name for name in whole["required"] if name not in fixed],
    }


def _render_result(result: Result, trouble: str | None) -> dict[str, Json]:
    """A result as clients read it: one with a field ``error`` would be an error to them."""
    said = result.json()
    said.pop("error", None)
    return {**said, **_trouble(trouble)}


def _trouble(why: str | None) -> dict[str, Json]:
    return {} if why is None else {"trouble": f"the teardown failed: {why}"}
