"""The tables about runs in the documents are what the program has."""

from __future__ import annotations

import re

from coilclaw.runners.contract_policy import TABLE
from coilclaw.runners.runner import KINDS
from coilclaw.runners.script import KINDS as PARTS
from coilclaw.runs.contracts.policy_set import PACKS, PolicySet
from coilclaw.runs.evidence.layout import FOLDERS
from coilclaw.runs.evidence.progress import RunState
from coilclaw.runs.evidence.verification_codes import LENIENT, WARNINGS, Code
from tests.support.repository import text

_ANSWERS = {"refuse": "refused", "run": "runs", "ask": "a person is asked"}


def _row(document: str, name: str) -> list[str]:
    (line,) = [line for line in document.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_every_code_of_verification_is_listed_and_no_other() -> None:
    document = text("docs/evidence.md")
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| [A-Za-z].+\. \|$", document, re.MULTILINE)
    assert rows == [(code.value, code.check.value) for code in Code]
    sentence = document[document.index("`signature_unchecked` is a warning") :].partition("\n\n")[0]
    assert set(re.findall(r"`(\w+)`", sentence)) == {code.value for code in LENIENT | WARNINGS}


def test_every_folder_of_a_bundle_is_listed() -> None:
    document = text("docs/evidence.md")
    assert [name for name in FOLDERS if f"`{name}/" not in document] == []


def test_states_runners_and_parts_of_scripts_are_listed() -> None:
    document = text("docs/orchestrator.md")
    states = [state.value for state in RunState if state is not RunState.FAILED]
    assert re.findall(r"^\| `(S\d_\w+)` \|", document, re.MULTILINE) == states
    assert [kind for kind in KINDS if f"| `{kind}" not in document] == []
    assert [part for part in PARTS if f"`{part}`" not in document] == []


def test_the_table_of_the_shell_is_that_of_the_program() -> None:
    document = text("docs/contracts.md")
    for word, terms in TABLE.items():
        assert _row(document, f"`{word}`") == [_ANSWERS[terms.contained], _ANSWERS[terms.beyond]]


def test_the_packs_differ_as_the_table_says() -> None:
    document, shipped = text("docs/contracts.md"), PolicySet.read_shipped()
    packs = [shipped.under(name).pack for name in PACKS]
    limits = [pack.limits for pack in packs]
    assert _row(document, "longest task") == [f"{one.max_timeout_sec // 3600} h" for one in limits]
    assert _row(document, "repairs") == [str(one.max_retries) for one in limits]
    assert _row(document, "paths in a contract") == [str(one.max_allowed_paths) for one in limits]
    assert _row(document, "changed files") == [f"{one.max_changed_files:,}" for one in limits]
    sizes = [
        f"{one.max_patch_bytes // 2**20} MiB"
        if one.max_patch_bytes >= 2**20
        else f"{one.max_patch_bytes // 2**10} KiB"
        for one in limits
    ]
    assert _row(document, "patch") == sizes
    assert _row(document, "ceiling: shell / network") == [
        f"`{pack.ceilings.shell}` / `{pack.ceilings.network}`" for pack in packs
    ]
