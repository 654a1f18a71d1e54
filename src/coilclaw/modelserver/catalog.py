"""The models that the script names, listed as each dialect lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError
from coilclaw.modelserver.script import DialectName

if TYPE_CHECKING:
    from collections.abc import Sequence

# A date that stays the same, so that the list does.
_CREATED: Final = 1_700_000_000
_CREATED_TEXT: Final = "2023-11-14T22:13:20Z"
_INPUT_TOKENS: Final = 1_048_576
_OUTPUT_TOKENS: Final = 65_536


def listing(dialect: DialectName, models: Sequence[str]) -> dict[str, object]:
    """Return the list of models."""
    records = [_record(dialect, model) for model in models]
    if dialect is DialectName.GEMINI:
        return {"models": records}
    if dialect is DialectName.MESSAGES:
        return {
            "data": records,
            "has_more": False,
            "first_id": models[0],
            "last_id": models[-1],
        }
    return {"object": "list", "data": records}


def single(dialect: DialectName, models: Sequence[str], name: str) -> dict[str, object]:
    """Return one model; one that the script does not name is a ``UsageError``."""
    if name not in models:
        raise UsageError(f"there is no model {name}", rule="request.model")
    return _record(dialect, name)


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
