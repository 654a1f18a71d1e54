"""Turn one request into one answer: everything between reading and sending bytes."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from coilclaw.cli.model_server import chat_completions, gemini, messages, responses
from coilclaw.cli.model_server.dialect import (
    ChatQuery,
    Dialect,
    Reply,
    Streaming,
    Tokens,
    encode_json,
    estimate,
    mapping,
    read_body,
    read_history,
    text,
)
from coilclaw.cli.model_server.exchange import Payload, mark_text, spoil_payload
from coilclaw.cli.model_server.offered_tools import make_call
from coilclaw.cli.model_server.routes import (
    Operation,
    check_key,
    check_origin,
    find_route,
    guess_dialect,
)
from coilclaw.cli.model_server.script import DialectName, Stop
from coilclaw.cli.model_server.wire import find_status
from coilclaw.kernel import CoilClawError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from coilclaw.cli.model_server.dialect import Body, ChatHistory, OfferedTool
    from coilclaw.cli.model_server.request_log import RequestLog
    from coilclaw.cli.model_server.routes import ServerRoute
    from coilclaw.cli.model_server.script import Fault, ModelScript, ScriptedAnswer, When
    from coilclaw.cli.model_server.wire import RequestHead
    from coilclaw.kernel import Secret

# A fixed date, so that the list is always the same.
_CREATED: Final = 1_700_000_000
_CREATED_TEXT: Final = "2023-11-14T22:13:20Z"
_INPUT_TOKENS: Final = 1_048_576
_OUTPUT_TOKENS: Final = 65_536


def list_models(
    dialect: DialectName, models: Sequence[str], wanted: str | None
) -> dict[str, object]:
    """Return the list of models, or one of them; raise ``UsageError`` if it is unknown."""
    if wanted is not None:
        if wanted not in models:
            raise UsageError(f"the model {wanted} does not exist", rule="request.model")
        return _record(dialect, wanted)
    records = [_record(dialect, model) for model in models]
    if dialect is DialectName.GEMINI:
        return {"models": records}
    if dialect is DialectName.MESSAGES:
        ends = {"first_id": models[0], "last_id": models[-1]}
        return {"data": records, "has_more": False, **ends}
    return {"object": "list", "data": records}


def _record(dialect: DialectName, model: str) -> dict[str, object]:
    if dialect is DialectName.GEMINI:
        return {
            "name": f"models/{model}",
            "version": "001",
            "displayName": model,
            "inputTokenLimit": _INPUT_TOKENS,
            "outputTokenLimit": _OUTPUT_TOKENS,
            "supportedGenerationMethods": ["generateContent", "countTokens"],
        }
    if dialect is DialectName.MESSAGES:
        return {
            "type": "model",
            "id": model,
            "display_name": model,
            "created_at": _CREATED_TEXT,
        }
    return {"id": model, "object": "model", "created": _CREATED, "owned_by": "coilclaw"}


def choose(
    script: ModelScript, dialect: DialectName, asked: ChatQuery, history: ChatHistory
) -> ScriptedAnswer:
    """Return the answer to play; raise ``UsageError`` past the end of a strict script."""
    answers = script.answers
    prompt = max(1, len(history.prompts))
    where = ""
    if script.turns is not None:
        if prompt > len(script.turns):
            return _play_end(
                script,
                f"the script has nothing at index {prompt - 1} of turns: it has answers for "
                f"{len(script.turns)} prompts, and the request is at prompt {prompt}",
            )
        answers, where = script.turns[prompt - 1], f" for prompt {prompt}"
    eligible = [answer for answer in answers if _holds(answer.when, dialect, asked, history)]
    index = history.answered
    if index < len(eligible):
        return eligible[index]
    return _play_end(
        script,
        f"the script has no answer at index {index}{where}: of its {len(answers)} answers, "
        f"{len(eligible)} are eligible for this request",
    )


def _holds(when: When, dialect: DialectName, asked: ChatQuery, history: ChatHistory) -> bool:
    """Return whether a request meets every condition of an answer."""
    return (
        all(words in history.prompt for words in when.prompt)
        and all(words in history.system for words in when.system)
        and when.model in {None, asked.model}
        and when.dialect in {None, dialect}
        and when.stream in {None, asked.streaming is not Streaming.NO}
        and all(
            name in asked.headers and text in asked.headers[name] for name, text in when.headers
        )
    )


def _play_end(script: ModelScript, message: str) -> ScriptedAnswer:
    if script.otherwise is None:
        raise UsageError(message, rule="script.exhausted")
    return script.otherwise


DIALECTS: Final[Mapping[DialectName, Dialect]] = {
    DialectName.CHAT: chat_completions,
    DialectName.RESPONSES: responses,
    DialectName.MESSAGES: messages,
    DialectName.GEMINI: gemini,
}


class Service:
    """Answers requests from a script; safe for many threads."""

    __slots__ = ("_clock", "_counts", "_key", "_lock", "_log", "_script")

    def __init__(
        self, script: ModelScript, key: Secret | None, log: RequestLog, clock: Callable[[], float]
    ) -> None:
        self._script, self._key, self._log, self._clock = script, key, log, clock
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def answer(self, head: RequestHead, data: bytes | CoilClawError) -> Payload:
        """Log a request and return the answer to it.

        ``data`` is the body, or the error that reading it raised.
        """
        name = guess_dialect(head.target, head.headers)
        body: object = None
        unreadable = problem = None
        try:
            if isinstance(data, CoilClawError):
                raise data
            try:
                body = read_body(data)
            except CoilClawError as found:
                # The log shows it as it is; whether it matters depends on the path.
                body, unreadable = data.decode("utf-8", "replace") or None, found
            check_origin(head.headers)
            found_route = find_route(head.method, head.target, head.headers)
            name = found_route.dialect
            check_key(name, head.target, head.headers, self._key)
            if unreadable and found_route.operation in {Operation.ANSWER, Operation.COUNT}:
                raise unreadable
            payload = self._play(head, found_route, mapping(body), len(data))
        except CoilClawError as refused:
            problem = refused.message
            payload = refuse(name, refused)
        self._log.add(head, body, name, payload.path, problem)
        return payload

    def _play(self, head: RequestHead, found: ServerRoute, body: Body, size: int) -> Payload:
        value: dict[str, object]
        match found.operation:
            case Operation.ANSWER:
                return self._answer(head, found, body, size)
            case Operation.HEALTH:
                value = {"status": "ok", "server": "coilclaw mock-server"}
            case Operation.COUNT if found.dialect is DialectName.MESSAGES:
                value = {"input_tokens": estimate(size)}
            case Operation.COUNT:
                details = [{"modality": "TEXT", "tokenCount": estimate(size)}]
                value = {"totalTokens": estimate(size), "promptTokensDetails": details}
            case _:
                value = list_models(found.dialect, self._script.models, found.model)
        return Payload(200, (encode_json(value),))

    def _answer(self, head: RequestHead, found: ServerRoute, body: Body, size: int) -> Payload:
        """Choose the answer, render it in its dialect and apply its fault."""
        streaming = found.streaming
        if streaming is None:
            streaming = Streaming.EVENTS if body.get("stream") is True else Streaming.NO
        model = found.model or text(body.get("model")) or self._script.models[0]
        asked, dialect = ChatQuery(body, head.headers, model, streaming), DIALECTS[found.dialect]
        dialect.check(asked)
        heard = read_history(dialect.read_messages(body), self._script.context_prefixes)
        answer = choose(self._script, found.dialect, asked, heard)
        fault = self._count_fault(answer)
        if fault.status is not None:
            payload = _make_error(dialect, asked, fault, fault.status)
        else:
            reply = _make_reply(answer, fault, dialect.tools(body), size, int(self._clock()))
            if streaming is Streaming.NO:
                payload = Payload(200, (encode_json(dialect.render_answer(reply, asked)),))
            else:
                pieces = tuple(dialect.stream(reply, asked))
                payload = Payload(200, pieces, streamed=True)
                if streaming is Streaming.EVENTS:
                    payload = replace(payload, media_type="text/event-stream; charset=utf-8")
            payload = replace(spoil_payload(payload, fault), headers=fault.headers)
        return replace(payload, fault=fault, path=answer.path)

    def _count_fault(self, answer: ScriptedAnswer) -> Fault:
        """Return the next fault of an answer, and after the last one its own."""
        if not answer.faults:
            return answer.fault
        with self._lock:
            played = self._counts[answer.path]
            self._counts[answer.path] += 1
        return answer.faults[played] if played < len(answer.faults) else answer.fault


def refuse(name: DialectName, problem: CoilClawError) -> Payload:
    """Return an error in the dialect's own shape."""
    status = find_status(problem)
    allowed = problem.hint if problem.rule == "request.method" else None
    body = encode_json(DIALECTS[name].error(status, problem.message, None))
    return Payload(status, (body,), headers=(("allow", allowed),) if allowed else ())


def _make_error(dialect: Dialect, asked: ChatQuery, fault: Fault, status: int) -> Payload:
    """Return the error response of a fault."""
    headers = fault.headers
    if fault.retry_after is not None:
        headers = (("retry-after", fault.retry_after), *headers)
    if fault.body is not None:
        return Payload(status, (fault.body.data,), fault.body.media_type, headers=headers)
    value: object = dialect.error(status, f"scripted error {status}", fault.retry_after)
    if asked.streaming is Streaming.ARRAY:
        value = [value]
    return Payload(status, (encode_json(value),), headers=headers)


def _make_reply(
    answer: ScriptedAnswer, fault: Fault, tools: Sequence[OfferedTool], size: int, created: int
) -> Reply:
    """Render the actions as calls, and estimate the token counts that the script leaves out."""
    said = mark_text(answer.text, fault.malformed)
    calls = tuple(make_call(action, tools) for action in answer.actions)
    output = len(answer.reasoning or "") + len(said or "") + sum(each.size for each in calls)
    counts = answer.usage
    tokens = Tokens(
        input=estimate(size) if counts.input is None else counts.input,
        output=estimate(output) if counts.output is None else counts.output,
        cached=counts.cached,
        reasoning=counts.reasoning,
    )
    stop = answer.stop or (Stop.TOOL_CALLS if answer.actions else Stop.STOP)
    return Reply(answer.reasoning, said, calls, stop, tokens, created, answer.stop_as)
