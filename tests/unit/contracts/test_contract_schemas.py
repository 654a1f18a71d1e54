"""The schemas themselves: closed, checked, registered, and the same words everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel import schemas
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.schemas import Drift, SchemaProblem
from tests.support.repository import ROOT

FOLDER = ROOT / "schemas"
# Objects that hold what others decide: evidence, payloads, arguments.
OPEN = {
    ("agent_task_result.v1", "contracts"),
    ("agent_task_result.v1", "evidence_refs"),
    ("agent_task_result.v1", "handoff_payload"),
    ("gate_result.v1", "facts"),
    ("orchestrator_event.v1", "payload"),
    ("task_chain.v1", "context_policy"),
    ("task_chain.v1", "payload"),
    ("tool_call.v1", "args"),
    ("tool_call.v1", "config"),
    ("work_report.v1", "evidence_refs"),
    ("work_report.v1", "metrics"),
}


def _files() -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in FOLDER.glob("*.json")
        if path.name != schemas.REGISTRY
    }


def _objects(value: Any, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        if value.get("type") == "object":
            yield name, value
        for key, inner in value.items():
            yield from _objects(inner, name if key == "items" else key)
    elif isinstance(value, list):
        for inner in value:
            yield from _objects(inner, name)


def test_the_files_are_those_that_the_program_knows() -> None:
    assert sorted(_files()) == [f"{name}.json" for name in schemas.NAMES]
    assert list(schemas.NAMES) == sorted(schemas.NAMES)


def test_what_the_specification_requires_is_there() -> None:
    assert {
        "task_contract.v1",
        "task_result.v1",
        "work_report.v1",
        "review_report.v1",
        "test_report.v1",
        "orchestrator_event.v1",
        "reexec_report.v1",
        "run_manifest.v1",
        "evidence_bundle.v1",
        "evidence_report.v1",
        "agent_registry.v1",
    } <= set(schemas.NAMES)


@pytest.mark.parametrize("name", schemas.NAMES)
def test_every_object_is_closed(name: str) -> None:
    document: Any = schemas.load_schema(name)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert name in document["$id"]
    open_ones = {
        (name, where)
        for where, schema in _objects(document)
        if schema.get("additionalProperties") is None
    }
    assert open_ones <= OPEN


def test_a_definition_means_the_same_wherever_it_is() -> None:
    seen: dict[str, Any] = {}
    for name in schemas.NAMES:
        definitions: Any = schemas.load_schema(name).get("$defs", {})
        for key, value in definitions.items():
            assert seen.setdefault(key, value) == value, (name, key)
    assert "ArtifactRef" in seen


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("2026-01-02T03:04:05Z", True),
        ("2026-01-02T03:04:05.123456+00:00", True),
        ("2026-01-02 03:04", False),
        ("2026-13-02T03:04:05Z", False),
        ("2026-01-02T03:04:05", False),
        ("", False),
    ],
)
def test_formats_are_checked(text: str, fine: bool) -> None:
    found = schemas.find_schema_problems("reexec_report.v1", {"reexec_ts": text})
    assert ("/reexec_ts" not in {problem.path for problem in found}) is fine


@pytest.mark.parametrize("text", ["0" * 63, "0" * 65, "g" * 64, "0" * 64 + "\n", "\n" + "0" * 64])
def test_a_hash_is_a_hash(text: str) -> None:
    value = {"instruction_sha256": text, "summary": "", "risks": []}
    assert [p.path for p in schemas.find_schema_problems("handoff.v1", value)] == [
        "/instruction_sha256"
    ]
    value["instruction_sha256"] = "aF" * 32
    assert schemas.find_schema_problems("handoff.v1", value) == ()


def test_every_problem_is_named_with_its_place_and_without_its_value() -> None:
    secret = "hunter2-hunter2"
    found = schemas.find_schema_problems(
        "evidence_report.v1", {"status": secret, "missing": ["a", 1], "a/b~c": secret}
    )
    assert {problem.path for problem in found} == {"/", "/missing/1", "/status"}
    assert not any(secret in problem.message for problem in found)
    assert SchemaProblem("/", "no field is named 'a/b~c'") in found


def test_problems_are_bounded_in_number_and_length() -> None:
    found = schemas.find_schema_problems(
        "evidence_report.v1", {"status": "ok", "missing": [1] * 5000}
    )
    assert len(found) == schemas.MAX_SCHEMA_PROBLEMS + 1
    many = {f"{index}" + "x" * 1000: 1 for index in range(50)}
    found = schemas.find_schema_problems(
        "evidence_report.v1", {"status": "ok", "missing": [], **many}
    )
    assert all(len(problem.message) <= schemas.MAX_MESSAGE for problem in found)


@pytest.mark.parametrize(
    "value",
    [{"a": float("nan")}, {"a": "\ud800"}, {"a": object()}, {1: {2}}],
    ids=["nan", "surrogate", "object", "set"],
)
def test_what_json_cannot_say_is_a_problem(value: object) -> None:
    (problem,) = schemas.find_schema_problems("evidence_report.v1", value)
    assert problem.path == "/"


def test_depth_is_a_problem_and_no_crash() -> None:
    value: object = 1
    for _ in range(100_000):
        value = [value]
    assert schemas.find_schema_problems("evidence_report.v1", {"status": value, "missing": []})


def test_an_unknown_schema_is_refused() -> None:
    for name in ("task_contract", "task_contract.v2", "../pyproject", "registry"):
        with pytest.raises(UsageError, match=r"the schema .* does not exist") as caught:
            schemas.load_schema(name)
        assert caught.value.rule == "schema.unknown"


def test_the_registry_holds() -> None:
    assert schemas.find_drift() == Drift("ok")
    assert schemas.find_drift(_files(), (FOLDER / schemas.REGISTRY).read_bytes()) == Drift("ok")


def test_drift_is_found() -> None:
    files = _files()
    register = json.dumps(schemas.registry_of(files)).encode()
    changed = {**files, "handoff.v1.json": files["handoff.v1.json"] + b" "}
    assert schemas.find_drift(changed, register) == Drift("mismatch", ("handoff.v1.json",))
    fewer = {name: data for name, data in files.items() if name != "handoff.v1.json"}
    assert schemas.find_drift(fewer, register) == Drift("missing", missing=("handoff.v1.json",))
    more = {**files, "other.v1.json": b"{}"}
    assert schemas.find_drift(more, register) == Drift("mismatch", extra=("other.v1.json",))
    for broken in (
        b"",
        b"[]",
        b"{}",
        b'{"version":"v1","schemas":{}}',
        b'{"version":"v1","schemas":{"a":1}}',
    ):
        assert schemas.find_drift(files, broken) == Drift("invalid")


def test_the_script_writes_and_checks(tmp_path: Path) -> None:
    for name, data in _files().items():
        (tmp_path / name).write_bytes(data)

    def run(option: str) -> int:
        script = str(ROOT / "scripts" / "schemas.py")
        argv = [sys.executable, script, option, "--folder", str(tmp_path)]
        return subprocess.run(argv, check=False, capture_output=True, timeout=60).returncode

    assert run("--check") == 1
    assert run("--write") == 0
    assert run("--check") == 0
    assert (tmp_path / schemas.REGISTRY).read_bytes() == (FOLDER / schemas.REGISTRY).read_bytes()
    (tmp_path / "handoff.v1.json").write_text("{}", encoding="utf-8")
    assert run("--check") == 1


def _manifest(status: str) -> dict[str, Any]:
    return {
        "run_id": "run-12345678",
        "created_at": "2026-01-01T00:00:00Z",
        "status": status,
        "user_request": "r",
        "trace_id": "0" * 32,
        "repo": {"root": "/r", "baseline_ref": "0" * 40},
        "versions": {"contracts_schema": "v1", "orchestrator": "0"},
        "tasks": [],
        "artifacts": [],
        "evidence_hashes": {},
        "directories": [],
        "merge": {"status": "none"},
    }


def test_a_manifest_is_sealed_when_the_run_has_ended_and_not_before() -> None:
    assert schemas.find_schema_problems("run_manifest.v1", _manifest("RUNNING")) == ()
    seal = {
        "contract_sha256": "0" * 64,
        "events_count": 1,
        "events_head": "0" * 64,
        "root_hash": "0" * 64,
        "seal": "0" * 64,
        "key_id": "k",
    }
    assert schemas.find_schema_problems(
        "run_manifest.v1", {**_manifest("RUNNING"), "integrity": seal}
    )
    assert schemas.find_schema_problems("run_manifest.v1", _manifest("FAILURE"))
    ended = {
        **_manifest("FAILURE"),
        "integrity": seal,
        "finished_at": "2026-01-01T00:00:01Z",
        "failure_reason": "the contract is invalid",
        "evidence_hashes": {"contract.json": "0" * 64, "events.jsonl": "0" * 64},
    }
    assert schemas.find_schema_problems("run_manifest.v1", ended) == ()
    assert schemas.find_schema_problems("run_manifest.v1", {**ended, "status": "SUCCESS"})


def test_a_gate_passed_exactly_when_nothing_violates_it() -> None:
    violation = {"rule": "diff.out_of_scope", "message": "m", "path": "p"}
    base: dict[str, Any] = {
        "run_id": "r",
        "task_id": None,
        "attempt": 0,
        "ts": "2026-01-01T00:00:00Z",
        "gate": "diff_gate",
        "facts": {},
    }
    for passed, violations, fine in (
        (True, [], True),
        (False, [violation], True),
        (True, [violation], False),
        (False, [], False),
    ):
        value = {**base, "passed": passed, "violations": violations}
        assert (schemas.find_schema_problems("gate_result.v1", value) == ()) is fine
