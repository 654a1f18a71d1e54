"""The orchestration plane: a model is asked for one JSON object, and can do nothing else.

It is offered no tools, so there is nothing that it could bring about. Its answer counts only if it
is JSON from the first character to the last and fits the whole schema that is bound to it by hash;
anything else is a list of problems. Nothing is cut out of an answer or mended; asking again is
another question, which says what was wrong.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import (
    ChatRequest,
    Message,
    ProviderError,
    SchemaProblem,
    Stopped,
    UsageError,
    canonical_json,
    digest_bytes,
    schemas,
)
from coilclaw.runners import usage_json
from coilclaw.runs.contracts import task_contract
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.contracts.task_contract import parse_document
from coilclaw.runs.evidence.layout import make_segment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coilclaw.kernel import ChatResponse, Json, Provider, Usage
    from coilclaw.runs.contracts.roles import Role
    from coilclaw.runs.engine.run import Run, RunDependencies
    from coilclaw.workspace import Cancellation


MAX_PAYLOAD_BYTES: Final = 2 * 2**20
"""The limit of a question."""
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
class ModelQuestion:
    """What a role is asked. ``payload`` is data; the instruction is the system prompt."""

    role: Role
    system_prompt: str
    payload: Mapping[str, Json]
    schema: BoundSchema


@dataclass(frozen=True, slots=True)
class RoleExchange:
    """One question and its answer, without secrets; the hashes are those of the two texts."""

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
    problems: tuple[SchemaProblem, ...] = ()
    error: str = ""
    """Why the provider gave no answer."""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """A value that fits, or everything that is wrong with what came."""

    value: Mapping[str, Json] | None
    problems: tuple[SchemaProblem, ...]
    text: str


@dataclass(frozen=True, slots=True)
class ModelPlane:
    """Asks one model; ``record`` gets every exchange before the answer is used."""

    provider: Provider
    model: str
    record: Callable[[RoleExchange], None]
    redact: Callable[[str], str]
    cancel: Cancellation | None = None
    recall: Callable[[str], str | None] = lambda _: None
    """The answer that is already in the evidence for the hash of a request, where it had no
    problem: a run that goes on after a kill does not ask again."""

    def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Ask once. A provider's error is recorded, and raised."""
        name, broken = question.schema.name, ""
        if name not in schemas.NAMES:
            broken = f"the answer cannot be bound to an unknown schema {name!r}"
        elif schemas.sha256(name) != question.schema.sha256:
            broken = f"the schema {name} is not the one that the answer is bound to"
        if broken:
            return ModelAnswer(None, (SchemaProblem("/", broken),), "")
        payload, request = _encode_payload(question.payload), self.describe(question)
        self._check_cancelled()
        known = self.recall(digest_bytes(request.encode("utf-8")))
        if known is not None:
            return ModelAnswer(*parse_answer(known, name), known)
        message, schema = Message("user", payload), schemas.load_schema(name)
        try:
            response = self.provider.chat(
                ChatRequest(question.system_prompt, (message,), self.model, output_schema=schema)
            )
        except ProviderError as problem:
            self.keep(question, request, "", error=self.redact(problem.message))
            raise
        value, problems = read_answer(response, name)
        self.keep(question, request, response.final_text, problems, response.usage)
        self._check_cancelled()
        return ModelAnswer(value, problems, response.final_text)

    def describe(self, question: ModelQuestion) -> str:
        """Return a question as it is kept: RFC 8785 text without secrets."""
        return self.redact(
            canonical_json.render_json(
                {
                    "role": question.role,
                    "provider": self.provider.name,
                    "model": self.model,
                    "system_prompt": question.system_prompt,
                    "payload": _encode_payload(question.payload),
                    "output_schema": question.schema.name,
                    "output_schema_sha256": question.schema.sha256,
                }
            )
        )

    def keep(
        self,
        question: ModelQuestion,
        request: str,
        answer: str,
        problems: tuple[SchemaProblem, ...] = (),
        usage: Usage | None = None,
        *,
        error: str = "",
    ) -> None:
        """Record an exchange, also one that came about in a conversation with tools."""
        kept = self.redact(answer[:MAX_ANSWER_BYTES])
        exchange = RoleExchange(
            role=question.role,
            provider=self.provider.name,
            model=self.model,
            schema=question.schema,
            request=request,
            answer=kept,
            request_sha256=digest_bytes(request.encode("utf-8")),
            answer_sha256=digest_bytes(kept.encode("utf-8")),
            problems=problems,
            error=error,
            usage=usage,
        )
        self.record(exchange)

    def _check_cancelled(self) -> None:
        if self.cancel is not None and self.cancel.cancelled:
            raise Stopped(f"the run was stopped: {self.cancel.reason}")


def read_answer(
    response: ChatResponse, schema: str
) -> tuple[Mapping[str, Json] | None, tuple[SchemaProblem, ...]]:
    """Return the value of an answer, or everything that is wrong with it."""
    if response.tool_calls:
        names = ", ".join(sorted({call.name for call in response.tool_calls}))
        said = f"the answer asks for tools, and there are none: {names}"
        return None, (SchemaProblem("/", said),)
    return parse_answer(response.final_text, schema)


def parse_answer(
    text: str, schema: str
) -> tuple[Mapping[str, Json] | None, tuple[SchemaProblem, ...]]:
    """Return the value of the text of an answer, or everything that is wrong with it."""
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        return None, (SchemaProblem("/", "the answer is not valid Unicode"),)
    if len(data) > MAX_ANSWER_BYTES:
        return None, (SchemaProblem("/", f"the answer is larger than {MAX_ANSWER_BYTES:,} bytes"),)
    try:
        value = task_contract.parse_document(data)
    except UsageError as problem:
        said = f"the answer {problem.message.removeprefix('the file ')}"
        return None, (SchemaProblem("/", said),)
    problems = schemas.find_schema_problems(schema, value)
    return (None, problems) if problems else (value, ())


def fits(payload: Mapping[str, Json]) -> bool:
    """Return whether a payload is small enough for a question."""
    return len(canonical_json.render_json(dict(payload)).encode("utf-8")) <= MAX_PAYLOAD_BYTES


def _encode_payload(payload: Mapping[str, Json]) -> str:
    text = canonical_json.render_json(dict(payload))
    if len(text.encode("utf-8")) > MAX_PAYLOAD_BYTES:
        raise UsageError(
            f"what the model would be told is larger than {MAX_PAYLOAD_BYTES:,} bytes",
            rule="plane.payload",
        )
    return text


FOLDER: Final = "artifacts/exchanges"


def plane_of(run: Run, equipment: RunDependencies, role: Role, task_id: str) -> ModelPlane:
    """Return the plane of a role's model; raise if no model is configured."""
    model = equipment.model(role)
    if model is None:
        raise UsageError(
            f"no model is configured for the role {role}",
            rule="run.model",
            hint="configure a provider ('coilclaw onboard'), or give a contract instead",
        )

    def recall(request_sha256: str) -> str | None:
        """Return the answer that a killed run already had to the same question."""
        folder = run.bundle.directory / FOLDER
        places = folder.glob(f"*-{request_sha256[:16]}-*.json") if folder.is_dir() else ()
        for place in sorted(places):
            kept = parse_document(run.bundle.read(f"{FOLDER}/{place.name}"))
            if kept["request_sha256"] == request_sha256 and not (kept["error"] or kept["problems"]):
                return str(kept["answer"])
        return None

    return ModelPlane(
        model.provider,
        model.name,
        lambda exchange: _keep(run, exchange, task_id),
        equipment.secrets.redact,
        equipment.cancel,
        recall=recall,
    )


def _keep(run: Run, exchange: RoleExchange, task_id: str) -> None:
    asked: dict[str, Json] = {
        "role": exchange.role,
        "provider": exchange.provider,
        "model": exchange.model,
        "request_sha256": exchange.request_sha256,
    }
    # Named by what was asked and answered: the same exchange twice is the same file.
    name = f"{exchange.role.lower()}-{exchange.request_sha256[:16]}-{exchange.answer_sha256[:8]}"
    path = f"{FOLDER}/{make_segment(name)}.json"
    if not run.bundle.has(path):
        value: dict[str, Json] = {
            **asked,
            "schema": exchange.schema.name,
            "schema_sha256": exchange.schema.sha256,
            "request": exchange.request,
            "answer": exchange.answer,
            "problems": [str(each) for each in exchange.problems],
            "error": exchange.error,
        }
        run.bundle.write_json(path, value)
    told = {
        **asked,
        "answer_sha256": exchange.answer_sha256,
        "path": path,
        "problems": len(exchange.problems),
        **({} if exchange.usage is None else {"usage": usage_json(exchange.usage)}),
    }
    run.emit(EventType.MODEL_ASKED, told, task_id=task_id or None)
