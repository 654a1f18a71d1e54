"""The runs of version 1, which stay readable and resumable for ever."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from coilclaw.agent.sop.document import StageOutcome
from coilclaw.agent.sop.run_journal import HASH_FIELD, RunFile, SopRun, StageAttempt
from coilclaw.kernel.canonical_json import digest_bytes
from coilclaw.kernel.journal_verification import verify_journal

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "sop"
NAME = "sop-0123456789abcdef"
MOMENT = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
TEXT = """\
name = "daily"
[[steps]]
id = "list"
kind = "tool"
tool = "file_list"
args = { path = "." }
[[steps]]
id = "say"
kind = "agent"
prompt = "Sum up."
on_failure = "retry(2)"
[[steps]]
id = "skip"
kind = "agent"
prompt = "Why?"
when = "say.failure"
[[steps]]
id = "ask"
kind = "approval"
prompt = "Go on?"
"""
EXPECTED = SopRun(
    id=NAME,
    sop="daily",
    text=TEXT,
    sop_hash=digest_bytes(TEXT.encode()),
    workspace="/home/me/work",
    receipts="/home/me/.coilclaw/tool_receipts.log",
    begun="2025-01-02T03:04:05.000000Z",
    process="4711:99",
    outcomes={
        "list": StageOutcome("list", "done", 1, "a.txt\nünï \u2028 \x07", receipt="receipt-1"),
        "say": StageOutcome("say", "done", 2, output_known=False),
        "skip": StageOutcome("skip", "skipped", 0),
    },
    failures={"say": 1},
    tried={"list": 1, "say": 2, "ask": 1},
    attempts={"ask": StageAttempt("ask", 1, "4711:99")},
    waits={"ask": "approval-0123456789abcdef"},
)


def run_file(folder: Path) -> RunFile:
    return RunFile(NAME, folder, folder / "key", lambda: MOMENT)


def test_the_baseline_verifies_where_it_stands() -> None:
    report = verify_journal(
        BASELINE / f"{NAME}.jsonl", hash_field=HASH_FIELD, key_path=BASELINE / "key"
    )
    assert report.ok
    names = {path.name for path in BASELINE.iterdir()}
    assert names == {"key", f"{NAME}.jsonl", f"{NAME}.jsonl.anchor"}


def test_the_baseline_reads_as_it_was_written() -> None:
    run = run_file(BASELINE).read()
    assert run == EXPECTED
    assert run.status == "waiting"


def test_the_baseline_can_be_continued(tmp_path: Path) -> None:
    for path in BASELINE.iterdir():
        shutil.copyfile(path, tmp_path / path.name)
    (tmp_path / "key").chmod(0o600)
    file = run_file(tmp_path)
    file.reload()
    file.record_outcome(StageOutcome("ask", "done", 1, approval=EXPECTED.approval))
    file.end("done", "")
    file.close()
    after = run_file(tmp_path).read()
    assert after == file.run
    assert after == replace(
        EXPECTED,
        process=after.process,
        outcomes={
            **EXPECTED.outcomes,
            "ask": StageOutcome("ask", "done", 1, approval=EXPECTED.approval),
        },
        attempts={},
        waits={},
        ending="done",
        ended="2025-01-02T03:04:05.000000Z",
    )
    assert verify_journal(
        tmp_path / f"{NAME}.jsonl", hash_field=HASH_FIELD, key_path=tmp_path / "key"
    ).ok
