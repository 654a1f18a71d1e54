"""The JSON schemas of orchestrated work: reading them, checking against them, and their drift.

A name is that of the file without its ending: ``task_contract.v1``. ``name#Agent`` is the
definition ``Agent`` within it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from coilclaw.domain.canonical import digest
from coilclaw.domain.treepath import shown
from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsonschema_rs import Draft202012Validator, ValidationError

    from coilclaw.domain.messages import Json

NAMES: Final = (
    "agent_registry.v1",
    "agent_task_result.v1",
    "agent_trace.v1",
    "approval.v1",
    "command_allowlist.v1",
    "evaluation.v1",
    "evidence_bundle.v1",
    "evidence_report.v1",
    "forbidden_actions.v1",
    "gate_result.v1",
    "graph_trace.v1",
    "handoff.v1",
    "mcp_allowlist.v1",
    "orchestrator_event.v1",
    "plan.v1",
    "policy_pack.v1",
    "reexec_report.v1",
    "replay.v1",
    "review_answer.v1",
    "review_report.v1",
    "run_manifest.v1",
    "split.v1",
    "task_chain.v1",
    "task_contract.v1",
    "task_result.v1",
    "test_report.v1",
    "test_result.v1",
    "tool_call.v1",
    "tool_registry.v1",
    "work_report.v1",
)
REGISTRY: Final = "registry.json"
FOLDER: Final = "schemas"
"""Where the schemas are in a repository; an output schema is bound as ``schemas/NAME.json``."""

MAX_PROBLEMS: Final = 100
MAX_MESSAGE: Final = 300
_MASK: Final = "the value"

DriftStatus: TypeAlias = Literal["ok", "mismatch", "missing", "invalid"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where: ``path`` is a JSON pointer, ``/`` the whole."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(frozen=True, slots=True)
class Drift:
    """How the schemas compare with the registry of their hashes; all names are of files."""

    status: DriftStatus
    mismatched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


def raw(name: str) -> bytes:
    """Return the bytes of a schema's file."""
    if name not in NAMES:
        raise UsageError(
            f"there is no schema {shown(name)}",
            rule="schema.unknown",
            hint=f"the schemas are {', '.join(NAMES)}",
        )
    return _file(f"{name}.json")


def document(name: str) -> dict[str, Json]:
    """Return a schema, parsed anew: it may be changed."""
    return cast("dict[str, Json]", json.loads(raw(name)))


def sha256(name: str) -> str:
    """Return the SHA-256 of a schema's file."""
    return digest(raw(name))


def uri(name: str) -> str:
    """Return the path that a contract binds a schema by."""
    return f"{FOLDER}/{name}.json"


def problems(name: str, value: object) -> tuple[Problem, ...]:
    """Return everything that a schema has against a value, up to ``MAX_PROBLEMS``."""
    return _found(_compiled(name), value)


def problems_of(schema: Mapping[str, Json], value: object) -> tuple[Problem, ...]:
    """As ``problems``, for a schema that is not one of ours."""
    return _found(_compile(dict(schema)), value)


def registry() -> dict[str, Json]:
    """Return the registry of hashes."""
    return cast("dict[str, Json]", json.loads(_file(REGISTRY)))


def registry_sha256() -> str:
    return digest(_file(REGISTRY))


def registry_of(files: Mapping[str, bytes]) -> dict[str, Json]:
    """Make the registry of some schemas, given by the names of their files."""
    entries: dict[str, Json] = {
        name: {"sha256": digest(data), "bytes": len(data)} for name, data in sorted(files.items())
    }
    return {"version": "v1", "schemas": entries}


def drift(files: Mapping[str, bytes] | None = None, register: bytes | None = None) -> Drift:
    """Compare schemas with the registry of their hashes; without arguments those we came with."""
    if files is None:
        files = {f"{name}.json": raw(name) for name in NAMES}
    try:
        expected = _entries(json.loads(_file(REGISTRY) if register is None else register))
    except ValueError:
        return Drift("invalid")
    missing = tuple(sorted(expected.keys() - files.keys()))
    extra = tuple(sorted(files.keys() - expected.keys()))
    mismatched = tuple(
        sorted(
            name
            for name in expected.keys() & files.keys()
            if expected[name] != (digest(files[name]), len(files[name]))
        )
    )
    status: DriftStatus = "ok"
    if missing:
        status = "missing"
    elif mismatched or extra:
        status = "mismatch"
    return Drift(status, mismatched, missing, extra)


def _entries(register: object) -> dict[str, tuple[str, int]]:
    match register:
        case {"version": "v1", "schemas": dict(entries), **rest} if not rest and entries:
            pass
        case _:
            raise ValueError
    found: dict[str, tuple[str, int]] = {}
    for name, entry in entries.items():
        match entry:
            case {"sha256": str(text), "bytes": int(size), **rest} if not rest:
                found[str(name)] = (text, size)
            case _:
                raise ValueError
    return found


def _file(name: str) -> bytes:
    return (resources.files("coilclaw.contracts") / FOLDER / name).read_bytes()


@cache
def _compiled(name: str) -> Draft202012Validator:
    base, _, part = name.partition("#")
    schema = document(base)
    if part:
        definitions = schema["$defs"]
        assert isinstance(definitions, dict)
        schema = {"$ref": f"#/$defs/{part}", "$defs": definitions}
    return _compile(schema)


def _compile(schema: dict[str, Json]) -> Draft202012Validator:
    import jsonschema_rs

    try:
        # A schema that refers to elsewhere must not make us fetch it.
        return jsonschema_rs.Draft202012Validator(
            schema, validate_formats=True, ignore_unknown_formats=False, mask=_MASK, offline=True
        )
    except (ValueError, jsonschema_rs.ReferencingError) as problem:
        raise UsageError(
            f"a schema is malformed: {str(problem)[:MAX_MESSAGE]}", rule="schema.malformed"
        ) from problem


def _found(validator: Draft202012Validator, value: object) -> tuple[Problem, ...]:
    flaw = _unwritable(value)
    if flaw:
        return (Problem("/", flaw),)
    try:
        errors = validator.iter_errors(value)
        found = [_problem(error) for error, _ in zip(errors, range(MAX_PROBLEMS + 1))]  # noqa: B905 - the range is the bound
    except ValueError as problem:  # nested too deeply to be walked
        return (Problem("/", str(problem)[:MAX_MESSAGE]),)
    found.sort(key=lambda problem: problem.path)
    if len(found) > MAX_PROBLEMS:
        return (*found[:MAX_PROBLEMS], Problem("/", "there are more problems than are listed"))
    return tuple(found)


def _unwritable(value: object) -> str | None:
    """Say what has no form in JSON at all: then no record could hold it."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError:
        return "holds text that is not valid Unicode"
    except (ValueError, TypeError, RecursionError):
        return "holds what JSON cannot say"
    return None


def _problem(error: ValidationError) -> Problem:
    """One problem; the value itself is not repeated, for it may be large or secret."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in error.instance_path)
    pointer = "/".join(["", *parts]) or "/"
    unexpected = getattr(error.kind, "unexpected", None)
    if isinstance(unexpected, list):
        message = "there is no field " + ", ".join(shown(str(name)) for name in unexpected[:20])
    else:
        message = error.message
    return Problem(shown(pointer)[1:-1], message[:MAX_MESSAGE])
