"""The JSON schemas of orchestrated work: reading them, checking against them, and their drift.

A name is that of the file without its ending: ``task_contract.v1``. ``name#Agent`` is the
definition ``Agent`` within it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from coilclaw.kernel.canonical_json import digest_bytes
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.tree_path import quote_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jsonschema_rs import Draft202012Validator, ValidationError

    from coilclaw.kernel.messages import Json

NAMES: Final = (
    *("agent_registry.v1", "agent_task_result.v1", "agent_trace.v1", "approval.v1"),
    *("command_allowlist.v1", "evaluation.v1", "evidence_bundle.v1", "evidence_report.v1"),
    *("forbidden_actions.v1", "gate_result.v1", "graph_trace.v1", "handoff.v1", "mcp_allowlist.v1"),
    *("orchestrator_event.v1", "plan.v1", "policy_pack.v1", "reexec_report.v1", "replay.v1"),
    *("review_answer.v1", "review_report.v1", "run_manifest.v1", "split.v1", "task_chain.v1"),
    *("task_contract.v1", "task_result.v1", "test_report.v1", "test_result.v1", "tool_call.v1"),
    *("tool_registry.v1", "work_report.v1"),
)
REGISTRY: Final = "registry.json"
FOLDER: Final = "schemas"
"""Where the schemas are in a repository; an output schema is bound as ``schemas/NAME.json``."""

MAX_SCHEMA_PROBLEMS: Final = 100
MAX_MESSAGE: Final = 300
_MASK: Final = "the value"

DriftStatus: TypeAlias = Literal["ok", "mismatch", "missing", "invalid"]


@dataclass(frozen=True, slots=True)
class SchemaProblem:
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


def read_schema(name: str) -> bytes:
    """Return the bytes of a schema's file."""
    if name not in NAMES:
        raise UsageError(
            f"the schema {quote_text(name)} does not exist",
            rule="schema.unknown",
            hint=f"the schemas are {', '.join(NAMES)}",
        )
    return _file(f"{name}.json")


def load_schema(name: str) -> dict[str, Json]:
    """Return a schema, parsed anew: it may be changed."""
    return cast("dict[str, Json]", json.loads(read_schema(name)))


def sha256(name: str) -> str:
    """Return the SHA-256 of a schema's file."""
    return digest_bytes(read_schema(name))


def uri(name: str) -> str:
    """Return the path that a contract binds a schema by."""
    return f"{FOLDER}/{name}.json"


def registry() -> dict[str, Json]:
    """Return the registry of hashes."""
    return cast("dict[str, Json]", json.loads(_file(REGISTRY)))


def registry_sha256() -> str:
    return digest_bytes(_file(REGISTRY))


def registry_of(files: Mapping[str, bytes]) -> dict[str, Json]:
    """Make the registry of some schemas, given by the names of their files."""
    entries: dict[str, Json] = {
        name: {"sha256": digest_bytes(data), "bytes": len(data)}
        for name, data in sorted(files.items())
    }
    return {"version": "v1", "schemas": entries}


def find_drift(files: Mapping[str, bytes] | None = None, register: bytes | None = None) -> Drift:
    """Compare schemas with the registry of their hashes; without arguments those we came with."""
    if files is None:
        files = {f"{name}.json": read_schema(name) for name in NAMES}
    try:
        expected = _entries(json.loads(_file(REGISTRY) if register is None else register))
    except ValueError:
        return Drift("invalid")
    missing = tuple(sorted(expected.keys() - files.keys()))
    extra = tuple(sorted(files.keys() - expected.keys()))
    both = sorted(expected.keys() & files.keys())
    mismatched = tuple(
        name for name in both if expected[name] != (digest_bytes(files[name]), len(files[name]))
    )
    differs: DriftStatus = "mismatch" if mismatched or extra else "ok"
    return Drift("missing" if missing else differs, mismatched, missing, extra)


def _entries(register: object) -> dict[str, tuple[str, int]]:
    match register:
        case {"version": "v1", "schemas": dict(entries), **rest} if not rest and entries:
            found = {}
        case _:
            raise ValueError
    for name, entry in entries.items():
        match entry:
            case {"sha256": str(text), "bytes": int(size), **rest} if not rest:
                found[str(name)] = (text, size)
            case _:
                raise ValueError
    return found


def _file(name: str) -> bytes:
    return (resources.files("coilclaw.kernel") / FOLDER / name).read_bytes()


@cache
def _compile(name: str) -> Draft202012Validator:
    import jsonschema_rs

    base, _, part = name.partition("#")
    schema = load_schema(base)
    if part:
        schema = {"$ref": f"#/$defs/{part}", "$defs": schema["$defs"]}
    return jsonschema_rs.Draft202012Validator(
        schema, validate_formats=True, ignore_unknown_formats=False, mask=_MASK, offline=True
    )


def find_schema_problems(name: str, value: object) -> tuple[SchemaProblem, ...]:
    """Return everything that a schema has against a value, up to ``MAX_PROBLEMS``."""
    try:
        # What has no form in JSON at all could be held by no record.
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except UnicodeEncodeError:
        return (SchemaProblem("/", "holds text that is not valid Unicode"),)
    except (ValueError, TypeError, RecursionError):
        return (SchemaProblem("/", "holds what JSON cannot say"),)
    try:
        errors = islice(_compile(name).iter_errors(value), MAX_SCHEMA_PROBLEMS + 1)
        found = sorted(map(_problem, errors), key=lambda problem: problem.path)
    except ValueError as problem:  # nested too deeply to be walked
        return (SchemaProblem("/", str(problem)[:MAX_MESSAGE]),)
    if len(found) > MAX_SCHEMA_PROBLEMS:
        rest = SchemaProblem("/", "there are more problems than are listed")
        found[MAX_SCHEMA_PROBLEMS:] = [rest]
    return tuple(found)


def _problem(error: ValidationError) -> SchemaProblem:
    """One problem; the value itself is not repeated, for it may be large or secret."""
    parts = (str(part).replace("~", "~0").replace("/", "~1") for part in error.instance_path)
    pointer = "/".join(["", *parts]) or "/"
    unexpected = getattr(error.kind, "unexpected", None)
    message = error.message
    if isinstance(unexpected, list):
        names = ", ".join(quote_text(str(name)) for name in unexpected[:20])
        message = f"no field is named {names}"
    return SchemaProblem(quote_text(pointer)[1:-1], message[:MAX_MESSAGE])
