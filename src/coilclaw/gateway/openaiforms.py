"""The OpenAI protocol: what a request may hold, and the forms of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.gateway.schemas import (
    CONVERSATION_ID,
    MAX_MESSAGES,
    TEXT,
    WRITTEN,
    Schema,
    count,
    listed,
    whole,
)

if TYPE_CHECKING:
    from coilclaw.domain.messages import Json
    from coilclaw.gateway.agent import Finished

MODEL: Final = "coilclaw"
"""The one model that is offered: the agent itself, whoever it asks."""

_SAYING: Final = ("system", "developer", "user", "tool", "function")
_PART: Final[Schema] = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": WRITTEN},
    "required": ["type", "text"],
}
_CONTENT: Final[Schema] = {
    "anyOf": [WRITTEN, {"type": "array", "minItems": 1, "maxItems": MAX_MESSAGES, "items": _PART}]
}
_SAID: Final[Schema] = {
    "type": "object",
    "properties": {"role": {"enum": list(_SAYING)}, "content": _CONTENT},
    "required": ["role", "content"],
}
_ANSWERED: Final[Schema] = {
    "type": "object",
    "properties": {
        "role": {"const": "assistant"},
        "content": {"anyOf": [_CONTENT, {"type": "null"}, {"const": ""}]},
    },
    "required": ["role"],
}
_NONE_OF: Final[Schema] = {"type": ["array", "null"], "maxItems": 0}

REQUEST: Final[Schema] = {
    "type": "object",
    "properties": {
        "model": {"type": "string", "minLength": 1, "maxLength": 200, "examples": [MODEL]},
        "messages": {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_MESSAGES,
            "items": {"anyOf": [_SAID, _ANSWERED]},
            "contains": _SAID,
        },
        "stream": {"type": ["boolean", "null"]},
        "stream_options": {
            "type": ["object", "null"],
            "properties": {"include_usage": {"type": ["boolean", "null"]}},
        },
        "n": {"type": ["integer", "null"], "minimum": 1, "maximum": 1},
        "tools": _NONE_OF,
        "functions": _NONE_OF,
        "response_format": {
            "type": ["object", "null"],
            "properties": {"type": {"const": "text"}},
        },
        "metadata": {
            "type": ["object", "null"],
            "properties": {"conversation_id": CONVERSATION_ID},
        },
    },
    "required": ["model", "messages"],
}
_USAGE: Final = whole(
    {"prompt_tokens": count(), "completion_tokens": count(), "total_tokens": count()}
)
COMPLETION: Final = whole(
    {
        "id": TEXT,
        "object": {"const": "chat.completion"},
        "created": count(),
        "model": TEXT,
        "conversation_id": TEXT,
        "choices": listed(
            whole(
                {
                    "index": count(),
                    "message": whole({"role": {"const": "assistant"}, "content": TEXT}),
                    "finish_reason": {"const": "stop"},
                    "logprobs": {"type": "null"},
                }
            )
        ),
        "usage": _USAGE,
    },
    "usage",
)
_MODEL: Final = whole(
    {"id": TEXT, "object": {"const": "model"}, "created": count(), "owned_by": TEXT}
)
MODELS: Final = whole({"object": {"const": "list"}, "data": listed(_MODEL)})


def models() -> dict[str, Json]:
    """Return the list of models."""
    return {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "coilclaw"}],
    }


def usage_of(finished: Finished) -> dict[str, Json] | None:
    """Return the tokens of a turn, where the provider told them."""
    given, made = finished.input_tokens, finished.output_tokens
    if given is None or made is None:
        return None
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}


def completion(finished: Finished, created: int) -> dict[str, Json]:
    """Return a whole answer."""
    outcome = finished.outcome
    value: dict[str, Json] = {
        "id": f"chatcmpl-{outcome.turn_id}",
        "object": "chat.completion",
        "created": created,
        "model": MODEL,
        "conversation_id": outcome.conversation_id,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": outcome.text},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
    }
    usage = usage_of(finished)
    return value if usage is None else {**value, "usage": usage}


def chunk(
    completion_id: str, created: int, delta: dict[str, Json], finish: str | None = None
) -> dict[str, Json]:
    """Return a piece of an answer."""
    return {
        "id": completion_id,
        "object": "chat.completion.chunk",
        "created": created,
        "model": MODEL,
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}],
    }


def usage_chunk(completion_id: str, created: int, finished: Finished) -> dict[str, Json]:
    """Return the piece that tells the tokens, for a client that asked for it."""
    return {
        **chunk(completion_id, created, {}),
        "choices": [],
        "usage": usage_of(finished),
    }
