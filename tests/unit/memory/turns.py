"""Records to remember."""

from __future__ import annotations

from coilclaw.kernel.messages import ToolAnswer, ToolCall, TurnRecord

CALL = ToolCall(
    "call-1",
    "file_read",
    {"path": "src/lock_detection.py", "lines": [1, 2.5, None, True], "more": {"ключ": "значение"}},
)
BROKEN_CALL = ToolCall("call-2", "shell", {}, "the arguments are no JSON", "c2lnbmF0dXJl")
ANSWER = ToolAnswer("call-1", "file_read", True, "def hold():\n    ...\n", None, "receipt-1")
FAILURE = ToolAnswer("call-2", "shell", False, "", "broken arguments", None)


def time(second: int, day: int = 1) -> str:
    return f"2026-01-{day:02d}T00:{second // 60:02d}:{second % 60:02d}.000000Z"


def said(text: str, conversation: str = "c-1", turn: str = "t-1", at: str = "") -> TurnRecord:
    return TurnRecord(conversation, turn, at or time(0), "user", text)


def exchange(conversation: str = "c-1") -> list[TurnRecord]:
    """One turn with everything a record can hold."""
    return [
        TurnRecord(conversation, "t-1", time(0), "user", "\n  Read the file,\nplease\n"),
        TurnRecord(
            conversation,
            "t-1",
            time(1),
            "assistant",
            "",
            (CALL, BROKEN_CALL),
            (),
            "local",
            "mock",
            {"usage": {"input": 3}, "temperature": 0.5, "note": "zwölf \U0001f98a"},
        ),
        TurnRecord(conversation, "t-1", time(2), "tool", "", (), (ANSWER, FAILURE)),
        TurnRecord(conversation, "t-1", time(3), "assistant", "It holds a lock.\0 Done."),
    ]
