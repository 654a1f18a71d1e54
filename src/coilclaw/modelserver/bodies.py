"""Reading a request's JSON, of which nothing may be taken for granted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

from coilclaw.errors import UsageError
from coilclaw.modelserver.fields import MAX_DEPTH, kind, too_deep

if TYPE_CHECKING:
    from collections.abc import Mapping

Body: TypeAlias = "Mapping[str, object]"


def read_body(data: bytes) -> dict[str, object]:
    """Return the object that a request's body holds; anything else is a ``UsageError``."""
    try:
        value = json.loads(data, parse_constant=_no_number)
    except RecursionError as problem:
        raise _refused(f"the body is nested more than {MAX_DEPTH} levels deep") from problem
    except ValueError as problem:
        raise _refused(f"the body is not JSON: {problem}") from problem
    if too_deep(value):
        raise _refused(f"the body is nested more than {MAX_DEPTH} levels deep")
    if not isinstance(value, dict):
        raise _refused(f"the body must be an object, not {kind(value)}")
    return value


def text(value: object) -> str:
    """Return text, or nothing."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> Body:
    """Return an object, or an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Body]:
    """Return the objects of a list, and leave out whatever else it holds."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts(content: object, key: str = "text") -> list[str]:
    """Return the texts of a content, which is a text or a list of parts."""
    if isinstance(content, str):
        return [content]
    if not isinstance(content, list):
        return []
    return [
        part if isinstance(part, str) else text(mapping(part)[key])
        for part in content
        if isinstance(part, str) or isinstance(mapping(part).get(key), str)
    ]


def require_list(body: Body, key: str) -> None:
    """Insist on a list that holds objects and is not empty."""
    value = body.get(key)
    if key not in body:
        raise _refused(f"{key}: field required")
    if not isinstance(value, list) or not value:
        shown = "an empty list" if value == [] else kind(value)
        raise _refused(f"{key}: must be a list that is not empty, not {shown}")
    for index, item in enumerate(value):
        if not isinstance(item, dict):
            raise _refused(f"{key}[{index}]: must be an object, not {kind(item)}")


def require_text(body: Body, key: str) -> None:
    """Insist on text that is not empty."""
    if key not in body:
        raise _refused(f"{key}: field required")
    if not text(body[key]):
        raise _refused(f"{key}: must be text that is not empty")


def _no_number(word: str) -> object:
    raise ValueError(f"{word} is no number there")


def _refused(message: str) -> UsageError:
    return UsageError(message, rule="request.shape")
