"""What ``coilclaw approvals`` says of a question."""

from __future__ import annotations

from coilclaw.agent.approvals import ApprovalQuestion
from coilclaw.cli.runtime.approvals import describe_question


def test_a_question_names_the_client_that_asked() -> None:
    lines = list(
        describe_question(ApprovalQuestion("tool", "conv-1", "x", "d", asker="client a\x1bb"))
    )
    assert "asked by: client a<ESC>b" in lines


def test_a_question_without_a_client_names_none() -> None:
    lines = list(describe_question(ApprovalQuestion("tool", "conv-1", "x", "d")))
    assert lines == ["for: tool conv-1", "title: x"]
