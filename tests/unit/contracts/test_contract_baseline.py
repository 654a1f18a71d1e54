"""One record of every schema of version 1, with every field; they stay readable for ever."""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path

import pytest

import coilclaw.contracts
from coilclaw.contracts import reading, schemas
from coilclaw.contracts.record import Record

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "contracts"


def _record(name: str) -> type[Record]:
    for module in pkgutil.iter_modules(coilclaw.contracts.__path__):
        for value in vars(importlib.import_module(f"coilclaw.contracts.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Record) and name == value.SCHEMA:
                return value
    raise AssertionError(name)


NAMES = sorted(path.name.removesuffix(".json") for path in BASELINE.glob("*.json"))


def test_there_is_one_of_every_record() -> None:
    models = {"plan.v1", "review_answer.v1", "split.v1"}
    trajectories = {"agent_trace.v1", "evaluation.v1", "graph_trace.v1", "replay.v1"}
    without = models | trajectories | {"test_result.v1"}
    assert set(NAMES) == set(schemas.NAMES) - without


@pytest.mark.parametrize("name", NAMES)
def test_it_is_read_and_written_as_it_was(name: str) -> None:
    data = (BASELINE / f"{name}.json").read_bytes()
    record = _record(name).of(reading.parse(data))
    assert record.json() == json.loads(data)


@pytest.mark.parametrize("name", NAMES)
def test_it_has_every_field(name: str) -> None:
    value = json.loads((BASELINE / f"{name}.json").read_bytes())
    properties = schemas.document(name)["properties"]
    assert isinstance(properties, dict)
    assert value.keys() == properties.keys()
