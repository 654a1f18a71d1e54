"""Whatever a schema accepts comes back from its record as it was, and nothing else gets in."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import coilclaw.runs.contracts
from coilclaw.kernel import schemas
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.record import Record
from coilclaw.runs.contracts import rules
from coilclaw.runs.contracts.policy_set import PolicySet
from coilclaw.runs.contracts.task_contract import TaskContract
from tests.support import schema_records
from tests.support.scale import scaled
from tests.support.schemavalues import values

rfc8785 = pytest.importorskip("rfc8785")

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
POLICIES = PolicySet.read_shipped()


def _records() -> dict[str, type[Record]]:
    found: dict[str, type[Record]] = {}
    names = [module.name for module in pkgutil.iter_modules(coilclaw.runs.contracts.__path__)]
    modules = [importlib.import_module(f"coilclaw.runs.contracts.{name}") for name in names]
    for module in (*modules, schema_records):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Record) and "#" not in value.SCHEMA:
                found[value.SCHEMA] = value
    del found[""]
    return found


RECORDS = _records()


def _valid(name: str) -> st.SearchStrategy[dict[str, Any]]:
    document = schemas.load_schema(name)

    def mended(value: dict[str, Any]) -> dict[str, Any]:
        # What the conditions of these two ask for.
        if name == "run_manifest.v1":
            value["status"] = "RUNNING"
            value.pop("integrity", None)
        if name == "gate_result.v1":
            value["passed"] = not value["violations"]
        return value

    return values(document, document).map(mended)


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_valid_value_comes_back_as_it_was(name: str) -> None:
    @settings(max_examples=scaled(full=200, default=20), suppress_health_check=SLOW, deadline=None)
    @given(_valid(name))
    def check(value: dict[str, Any]) -> None:
        assert schemas.find_schema_problems(name, value) == ()
        assert RECORDS[name].of(value).json() == value

    check()


@pytest.mark.parametrize("name", sorted(RECORDS))
def test_a_key_too_few_or_too_many_is_refused(name: str) -> None:
    required: Any = schemas.load_schema(name)["required"]

    @settings(max_examples=scaled(full=100, default=10), suppress_health_check=SLOW, deadline=None)
    @given(_valid(name), st.sampled_from(sorted(required)), st.text(max_size=8))
    def check(value: dict[str, Any], key: str, more: str) -> None:
        fewer = {name: inner for name, inner in value.items() if name != key}
        with pytest.raises(UsageError):
            RECORDS[name].of(fewer)
        with pytest.raises(UsageError):
            RECORDS[name].of({**value, f"{more}-": None})

    check()


@settings(max_examples=scaled(full=300, default=60), suppress_health_check=SLOW, deadline=None)
@given(_valid("task_contract.v1"))
def test_a_contract_is_judged_whatever_it_says_and_hashed_as_rfc_8785(
    value: dict[str, Any],
) -> None:
    contract = TaskContract.of(value)
    assert contract.sha256 == hashlib.sha256(rfc8785.dumps(value)).hexdigest()
    # Agents are made up here, so that no such contract can be right.
    assert rules.find_rule_problems(contract, POLICIES, known_files=lambda _: None)
