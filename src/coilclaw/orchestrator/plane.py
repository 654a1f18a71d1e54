"""The orchestration plane: a model is asked for one JSON object, and can do nothing else.

It is offered no tools, so there is nothing that it could bring about. Its answer counts only if it
is JSON from the first character to the last and fits the whole schema that is bound to it by hash;
anything else is a list of problems. Nothing is cut out of an answer or mended; whoever asks again
asks another question, which says what was wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.contracts import reading, schemas
from coilclaw.contracts.schemas import Problem
from coilclaw.domain import freeform
from coilclaw.domain.canonical import digest
from coilclaw.domain.messages import ChatRequest, Message
from coilclaw.errors import ProviderError, Stopped, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.contracts.roles import Role
    from coilclaw.domain.messages import ChatResponse, Json, Provider, Usage
    from coilclaw.workspace.cancel import Cancellation

MAX_PAYLOAD_BYTES: Final = 2 * 2**20
"""Of what a model is told."""
MAX_ANSWER_BYTES: Final = 512 * 2**10


@dataclass(frozen=True, slots=True)
class BoundSchema:
    """The schema that an answer must fit, and the hash of its file."""

    name: str
    sha256: str

    @classmethod
    def of(cls, name: str) -> BoundSchema:
        """Bind one of our schemas as it is."""
        return cls(name, schemas.sha256(name))


@dataclass(frozen=True, slots=True)
class Question:
    """What a role is asked. ``payload`` is data; the instruction is the system prompt."""

    role: Role
    system_prompt: str
    payload: Mapping[str, Json]
    schema: BoundSchema


@dataclass(frozen=True, slots=True)
class Exchange:
    """One question and what came of it, without secrets; the hashes are those of the two texts."""

    role: Role
    provider: str
    model: str
    schema: BoundSchema
    request: str
    """RFC 8785 text."""
    answer: str
    """As it came; empty when nothing came."""
    request_sha256: str
    answer_sha256: str
    problems: tuple[Problem, ...] = ()
    error: str = ""
    """Why the provider gave no answer."""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A value that fits, or everything that is wrong with what came."""

    value: Mapping[str, Json] | None
    problems: tuple[Problem, ...]
    text: str
    request_sha256: str
    answer_sha256: str


@dataclass(frozen=True, slots=True)
class Plane:
    """Asks one model; ``record`` is told of every exchange before anybody acts on it."""

    provider: Provider
    model: str
    record: Callable[[Exchange], None]
    redact: Callable[[str], str]
    cancel: Cancellation | None = None
    recall: Callable[[str], str | None] = lambda _: None
    """The answer that is already in the evidence for the hash of a request, where it had no
    problem: a run that goes on after a kill does not ask again."""

    def ask(self, question: Question) -> Answer:
        """Ask once. A provider's error is recorded, and raised."""
        held = _broken_binding(question.schema)
        if held:
            return Answer(None, (held,), "", "", "")
        payload = _payload(question.payload)
        request = self.describe(question)
        self._go_on()
        request_sha256 = digest(request.encode("utf-8"))
        known = self.recall(request_sha256)
        if known is not None:
            value, problems = parse(known, question.schema.name)
            answer_sha256 = digest(known.encode("utf-8"))
            return Answer(value, problems, known, request_sha256, answer_sha256)
        try:
            response = self.provider.chat(
                ChatRequest(
                    question.system_prompt,
                    (Message("user", payload),),
                    self.model,
                    output_schema=schemas.document(question.schema.name),
                )
            )
        except ProviderError as problem:
            self.keep(question, request, "", error=self.redact(problem.message))
            raise
        value, problems = read(response, question.schema.name)
        exchange = self.keep(question, request, response.final_text, problems, response.usage)
        self._go_on()
        return Answer(
            value,
            problems,
            response.final_text,
            exchange.request_sha256,
            exchange.answer_sha256,
        )

    def describe(self, question: Question) -> str:
        """Return a question as it is kept: RFC 8785 text without secrets."""
        payload = _payload(question.payload)
        return self.redact(_described(question, payload, self.provider.name, self.model))

    def keep(
        self,
        question: Question,
        request: str,
        answer: str,
        problems: tuple[Problem, ...] = (),
        usage: Usage | None = None,
        *,
        error: str = "",
    ) -> Exchange:
        """Record an exchange, also one that came about in a conversation with tools."""
        kept = self.redact(answer[:MAX_ANSWER_BYTES])
        exchange = Exchange(
            role=question.role,
            provider=self.provider.name,
            model=self.model,
            schema=question.schema,
            request=request,
            answer=kept,
            request_sha256=digest(request.encode("utf-8")),
            answer_sha256=digest(kept.encode("utf-8")),
            problems=problems,
            error=error,
            usage=usage,
        )
        self.record(exchange)
        return exchange

    def _go_on(self) -> None:
        if self.cancel is not None and self.cancel.cancelled:
            raise Stopped(f"the run was stopped: {self.cancel.reason}")


def read(
    response: ChatResponse, schema: str
) -> tuple[Mapping[str, Json] | None, tuple[Problem, ...]]:
    """Return the value of an answer, or everything that is wrong with it."""
    if response.tool_calls:
        names = ", ".join(sorted({call.name for call in response.tool_calls}))
        return None, (Problem("/", f"the answer asks for tools, and there are none: {names}"),)
    return parse(response.final_text, schema)


def parse(text: str, schema: str) -> tuple[Mapping[str, Json] | None, tuple[Problem, ...]]:
    """As ``read``, of a text alone."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        return None, (Problem("/", "the answer is not valid Unicode"),)
    if len(data) > MAX_ANSWER_BYTES:
        return None, (Problem("/", f"the answer is larger than {MAX_ANSWER_BYTES:,} bytes"),)
    try:
        value = reading.parse(data)
    except UsageError as problem:
        return None, (Problem("/", f"the answer {problem.message.removeprefix('the file ')}"),)
    problems = schemas.problems(schema, value)
    return (None, problems) if problems else (value, ())


def _broken_binding(bound: BoundSchema) -> Problem | None:
    if bound.name not in schemas.NAMES:
        return Problem("/", f"there is no schema {bound.name!r} to bind the answer to")
    if schemas.sha256(bound.name) != bound.sha256:
        return Problem("/", f"the schema {bound.name} is not the one that the answer is bound to")
    return None


def fits(payload: Mapping[str, Json]) -> bool:
    """Whether a model can be told all of it."""
    return len(freeform.text(dict(payload)).encode("utf-8")) <= MAX_PAYLOAD_BYTES


def _payload(payload: Mapping[str, Json]) -> str:
    text = freeform.text(dict(payload))
    if len(text.encode("utf-8")) > MAX_PAYLOAD_BYTES:
        raise UsageError(
            f"what the model would be told is larger than {MAX_PAYLOAD_BYTES:,} bytes",
            rule="plane.payload",
        )
    return text


def _described(question: Question, payload: str, provider: str, model: str) -> str:
    return freeform.text(
        {
            "role": question.role,
            "provider": provider,
            "model": model,
            "system_prompt": question.system_prompt,
            "payload": payload,
            "output_schema": question.schema.name,
            "output_schema_sha256": question.schema.sha256,
        }
    )
