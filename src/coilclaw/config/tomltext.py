"""Values written as TOML."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeAlias

from coilclaw.config.problem import is_bare

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Value: TypeAlias = "str | bool | int | float | Sequence[str] | Mapping[str, str]"


def written(value: Value) -> str:
    """Write a value as it stands behind ``=``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON escapes what TOML wants escaped, with one exception.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if hasattr(value, "items"):
        pairs = (f"{name(key)} = {written(item)}" for key, item in value.items())
        return f"{{ {', '.join(pairs)} }}" if value else "{}"
    return f"[{', '.join(written(item) for item in value)}]"


def name(text: str) -> str:
    """Write a name as it stands before ``=``."""
    return text if is_bare(text) else written(text)


def header(parts: Iterable[str]) -> str:
    """Write the line that begins a table."""
    return f"[{'.'.join(name(part) for part in parts)}]"
