"""The mock provider: answers without a model, from a fixture or by repeating what it is told.

A fixture is a JSON list of answers, checked as a whole.

Each answer is one of

    {"text": "…"}
    {"tool_calls": [{"name": "…", "arguments": {…}, "id": "…"}], "text": "…"}
    {"error": "timeout" | "network" | "auth"}

and may have ``delay_s``, how long it takes, and ``when``, a part of the last user message that it
is for. ``id`` and the ``text`` beside calls may be left out. ``arguments`` may also be a string,
which is read as the text that a model sent: broken JSON becomes the problem of the call.

In ``text``, and in the strings of ``arguments``, ``{{tool_output}}`` stands for what the last tool
returned and ``{{user_message}}`` for the last user message. Everything else is taken as it is,
and what was put in is not looked through again.
"""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    ChatResponse,
    Document,
    JsonFault,
    ProviderAuth,
    ProviderCapabilities,
    ProviderError,
    ProviderMalformed,
    ProviderNetwork,
    ProviderRejected,
    ProviderTimeout,
    UsageError,
    read_json,
)
from coilclaw.models.json_value import clean, flaw
from coilclaw.models.tool_arguments import number_calls, tool_call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from coilclaw.kernel import ChatRequest, Json, Table

DEFAULT_RESPONSE_BYTES: Final = 2**20
ECHO_CHARS: Final = 2000
MAX_FIXTURE_BYTES: Final = 16 * 2**20
MAX_ANSWERS: Final = 10_000
MAX_DELAY_S: Final = 3600.0
MAX_DEPTH: Final = 256

_PLACEHOLDER: Final = re.compile(r"\{\{(tool_output|user_message)\}\}")
_ERRORS: Final[Mapping[str, tuple[type[ProviderError], str]]] = {
    "timeout": (ProviderTimeout, "did not answer in time"),
    "network": (ProviderNetwork, "could not be reached"),
    "auth": (ProviderAuth, "does not accept the key"),
}


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """One call of an answer."""

    name: str
    arguments: dict[str, Json] | str
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Scripted:
    """One answer of a fixture."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    error: str | None = None
    delay_s: float = 0.0
    when: str | None = None


class Mock:
    """Plays the answers of a fixture in order, from the first one in every process.

    The next answer whose ``when`` is absent, or is in the last user message, is played and used up;
    those before it stay for later requests. Past the end is an error. Without a fixture it echoes.
    """

    __slots__ = ("_answers", "_limit", "_lock", "_model", "_name", "_sleep", "_timeout_s", "_total")

    def __init__(
        self,
        name: str = "mock",
        model: str = "mock",
        answers: Sequence[Scripted] | None = None,
        *,
        timeout_s: float = 120.0,
        max_response_bytes: int = DEFAULT_RESPONSE_BYTES,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._name, self._model = name, model
        self._answers = None if answers is None else list(answers)
        self._total = len(answers or ())
        self._timeout_s, self._limit, self._sleep = timeout_s, max_response_bytes, sleep
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> ProviderCapabilities:
        return ProviderCapabilities(tools=True, streaming=False)

    def chat(self, request: ChatRequest) -> ChatResponse:
        """Play the next answer."""
        if self._answers is None:
            return ChatResponse(_echo(request), model=self._model)
        answer = self._next(self._answers, request)
        if answer.delay_s:
            self._sleep(min(answer.delay_s, self._timeout_s))
        if answer.delay_s > self._timeout_s:
            raise self._failure("timeout")
        if answer.error:
            raise self._failure(answer.error)
        filling = _Filling(request, self._limit)
        try:
            text = filling.text(answer.text)
            calls = [
                tool_call(call.name, filling.arguments(call.arguments), call.id)
                for call in answer.calls
            ]
        except _TooLarge:
            raise ProviderMalformed(
                f"the answer of {self.name} is larger than {self._limit:,} bytes",
                provider=self.name,
            ) from None
        return ChatResponse(clean(text), number_calls(calls, request), model=self._model)

    def _next(self, answers: list[Scripted], request: ChatRequest) -> Scripted:
        message = _last(request, "user")
        with self._lock:
            for index, answer in enumerate(answers):
                if answer.when is None or answer.when in message:
                    return answers.pop(index)
            left = len(answers)
        if left:
            why = f"none of the {left} answers that are left is for this message"
        else:
            why = f"all {self._total} answers were played"
        raise ProviderRejected(
            f"the fixture of {self.name} has no answer for this request: {why}",
            provider=self.name,
            rule="provider.fixture",
            hint="add an answer to the fixture; it starts anew in each process",
        )

    def _failure(self, kind: str) -> ProviderError:
        error, what = _ERRORS[kind]
        return error(f"{self.name} {what} (as its fixture says)", provider=self.name)


class _TooLarge(Exception):
    """An answer grew beyond the bound; it never leaves this module."""


class _Filling:
    """Puts into an answer what its placeholders stand for, within the bound on answers."""

    def __init__(self, request: ChatRequest, limit: int) -> None:
        self._values = {
            "tool_output": _last(request, "tool"),
            "user_message": _last(request, "user"),
        }
        self._left = limit

    def text(self, text: str) -> str:
        self._count(text)
        return _PLACEHOLDER.sub(self._value, text)

    def arguments(self, arguments: dict[str, Json] | str) -> Json:
        if isinstance(arguments, str):
            self._count(arguments)
            return arguments
        self._count(json.dumps(arguments))
        # What is unfit stays as it is, so that the call shows it.
        return arguments if flaw(arguments) else self._fill_value(arguments)

    def _fill_value(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._fill_value(item) for item in value]
        if isinstance(value, dict):
            return {key: self._fill_value(item) for key, item in value.items()}
        return value

    def _value(self, placeholder: re.Match[str]) -> str:
        value = self._values[placeholder[1]]
        self._count(value)
        return value

    def _count(self, text: str) -> None:
        self._left -= len(text.encode("utf-8", "surrogatepass"))
        if self._left < 0:
            raise _TooLarge


def _last(request: ChatRequest, role: str) -> str:
    found = (message.content for message in reversed(request.messages) if message.role == role)
    return next(found, "")


def _echo(request: ChatRequest) -> str:
    said = clean(_last(request, "user"))
    cut = f"{said[:ECHO_CHARS]}…" if len(said) > ECHO_CHARS else said
    tools = ", ".join(tool.name for tool in request.tools) or "none"
    return (
        "This is the mock provider: it answers without a model, and repeats what you say.\n"
        f"You said: {cut}\n"
        f"Tools a model could call here: {tools}.\n"
        "To ask a real model, run 'coilclaw onboard', or add [providers.models.NAME] with kind, "
        "base_url, model and api_key_env to config.toml, and set default_provider to NAME."
    )


def load_fixture(path: Path) -> tuple[Scripted, ...]:
    """Read a fixture; everything that is wrong with it is one ``UsageError``."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FIXTURE_BYTES + 1)
    except OSError as problem:
        raise _wrong(path, f"cannot be read: {problem.strerror}") from problem
    if len(raw) > MAX_FIXTURE_BYTES:
        raise _wrong(path, f"is larger than {MAX_FIXTURE_BYTES:,} bytes")
    try:
        answers, problems = parse_fixture(read_json(raw, max_depth=MAX_DEPTH))
    except JsonFault as fault:
        raise _wrong(path, str(fault)) from fault
    if problems:
        raise _wrong(path, "; ".join(problems))
    return answers


def parse_fixture(value: Json) -> tuple[tuple[Scripted, ...], list[str]]:
    """Read a fixture's JSON value: the answers, and everything that is wrong."""
    if not isinstance(value, list):
        return (), ["is not a list of answers"]
    if len(value) > MAX_ANSWERS:
        return (), [f"has more than {MAX_ANSWERS:,} answers"]
    document = Document(root="$")
    answers = tuple(
        _read_answer(document.table(item, (number,)))
        for number, item in enumerate(value)
        if isinstance(item, dict) or document.table(item, (number,)).values
    )
    return answers, [str(problem) for problem in document.problems]


def _read_answer(table: Table) -> Scripted:
    if not {"text", "tool_calls", "error"} & table.values.keys():
        table.document.note(table.place, "has none of 'text', 'tool_calls' and 'error'")
    if "error" in table and {"text", "tool_calls"} & table.values.keys():
        table.note("error", "has an answer beside it")
    if table.values.get("tool_calls") == []:
        table.note("tool_calls", "is empty")
    answer = Scripted(
        text=table.text("text", blank=True),
        calls=tuple(_read_call(call) for call in table.tables("tool_calls")),
        error=table.choice("error", None, _ERRORS),
        delay_s=table.number("delay_s", 0.0, least=0, most=MAX_DELAY_S),
        when=table.text("when", None, blank=True),
    )
    table.refuse_unknown()
    return answer


def _read_call(table: Table) -> ScriptedCall:
    name, identity = table.text("name", required=True, blank=True), table.text("id", None)
    arguments = table.take("arguments") if "arguments" in table else {}
    if not isinstance(arguments, dict | str):
        table.note("arguments", "is neither an object nor a string")
        arguments = {}
    table.refuse_unknown(("arguments",))
    return ScriptedCall(name, arguments, identity)


def _wrong(path: Path, what: str) -> UsageError:
    return UsageError(f"the fixture {path}: {what}", rule="provider.fixture")
