"""One record of every schema of version 1, with every field; they stay readable for ever."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path

import pytest

import coilclaw.runs.contracts
from coilclaw.kernel import schemas
from coilclaw.kernel.record import Record
from coilclaw.runs.contracts import task_contract
from coilclaw.runs.contracts.task_contract import TaskContract
from tests.support import schema_records

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "contracts"


def _record(name: str) -> type[Record]:
    names = [module.name for module in pkgutil.iter_modules(coilclaw.runs.contracts.__path__)]
    modules = [importlib.import_module(f"coilclaw.runs.contracts.{each}") for each in names]
    for module in (*modules, schema_records):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Record) and name == value.SCHEMA:
                return value
    raise AssertionError(name)


NAMES = sorted(path.name.removesuffix(".json") for path in BASELINE.glob("*.json"))
LATER = BASELINE / "later"
"""Records with the optional fields that their schema got afterwards."""
FILES = sorted(BASELINE.rglob("*.json"))


def test_there_is_one_of_every_record() -> None:
    models = {"plan.v1", "review_answer.v1", "split.v1"}
    trajectories = {"agent_trace.v1", "evaluation.v1", "graph_trace.v1", "replay.v1"}
    without = models | trajectories | {"test_result.v1"}
    assert set(NAMES) == set(schemas.NAMES) - without


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(BASELINE)))
def test_it_is_read_and_written_as_it_was(path: Path) -> None:
    data = path.read_bytes()
    record = _record(path.name.removesuffix(".json")).of(task_contract.parse_document(data))
    assert record.json() == json.loads(data)


def test_a_contract_of_before_has_the_hash_that_it_had() -> None:
    value = task_contract.parse_document((BASELINE / "task_contract.v1.json").read_bytes())
    assert TaskContract.of(value).sha256 == (
        "84f7ef7116fbf53b0825f979c60e8d9e8ebd746b06eb152b43eb0d56d41e9ce8"
    )


@pytest.mark.parametrize("name", NAMES)
def test_it_has_every_field(name: str) -> None:
    later = LATER / f"{name}.json"
    place = later if later.exists() else BASELINE / f"{name}.json"
    value = json.loads(place.read_bytes())
    properties = schemas.load_schema(name)["properties"]
    assert isinstance(properties, dict)
    assert value.keys() == properties.keys()
