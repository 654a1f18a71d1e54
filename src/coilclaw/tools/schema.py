"""Checking the arguments of a call against the schema of its tool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsonschema_rs import ValidationError
    from jsonschema_rs import Validator as _Compiled

    from coilclaw.domain.messages import Json
    from coilclaw.tools.contract import Arguments

MAX_PROBLEMS: Final = 20
MAX_MESSAGE: Final = 300
_MASK: Final = "the value"


class Validators:
    """Compiled schemas, each made when it is first asked for and kept as long as this object."""

    def __init__(self) -> None:
        self._compiled: dict[int, tuple[Mapping[str, Json], _Compiled]] = {}

    def check(self, schema: Mapping[str, Json], args: Arguments) -> tuple[str, ...]:
        """Return everything that is wrong with some arguments, each with its JSON pointer."""
        flaw = _unwritable(args)
        if flaw:
            return (flaw,)
        try:
            errors = self._validator(schema).iter_errors(dict(args))
            found = [_sentence(error) for error, _ in zip(errors, range(MAX_PROBLEMS + 1))]  # noqa: B905 - the range is the bound
        except ValueError as problem:  # nested too deeply to be walked
            return (f"/: {problem}",)
        if len(found) > MAX_PROBLEMS:
            return (*found[:MAX_PROBLEMS], "… and more")
        return tuple(found)

    def _validator(self, schema: Mapping[str, Json]) -> _Compiled:
        kept = self._compiled.get(id(schema))
        # The schema is kept with it: an id means an object only as long as that lives.
        if kept is None or kept[0] is not schema:
            kept = (schema, _compile(schema))
            self._compiled[id(schema)] = kept
        return kept[1]


def check(schema: Mapping[str, Json], args: Arguments) -> tuple[str, ...]:
    """As ``Validators.check``, for one time."""
    return Validators().check(schema, args)


def _compile(schema: Mapping[str, Json]) -> _Compiled:
    import jsonschema_rs

    try:
        # A schema that refers to elsewhere must not make us fetch it.
        return jsonschema_rs.validator_for(dict(schema), mask=_MASK, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as problem:
        raise UsageError(
            f"the schema of a tool is malformed: {str(problem)[:MAX_MESSAGE]}", rule="tool.schema"
        ) from problem


def _unwritable(args: Arguments) -> str | None:
    """Say what has no form in JSON at all: then no record could tell what was asked."""
    try:
        json.dumps(dict(args), ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError:
        return "/: holds text that is not valid Unicode"
    except (ValueError, TypeError, RecursionError):
        return "/: holds what JSON cannot say"
    return None


def _sentence(error: ValidationError) -> str:
    """One problem; what was given is not repeated, for it may be large or secret."""
    pointer = "/".join(
        ["", *(str(part).replace("~", "~0").replace("/", "~1") for part in error.instance_path)]
    )
    kind = error.kind
    unexpected = getattr(kind, "unexpected", None)
    if isinstance(unexpected, list):
        names = ", ".join(shown(str(name)) for name in unexpected[:MAX_PROBLEMS])
        message = f"there is no argument {names}"
    else:
        message = error.message
    return f"{shown(pointer)[1:-1] or '/'}: {message}"[:MAX_MESSAGE]
