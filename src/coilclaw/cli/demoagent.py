"""``coilclaw demo``: an agent behind the gate, with a scripted model, in a home made for it."""

from __future__ import annotations

import io
import json
import os
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from coilclaw.app.agentwiring import Runtime
    from coilclaw.cli.console import Console
    from coilclaw.domain.toolcalls import Answer, ApprovalRequest

FILES: Final = {
    "README.md": "# Sample\n",
    "src/app.py": 'print("hello")\n',
    "notes/todo.txt": "- say what happened\n",
}

TURNS: Final = (
    (
        "Which files are here?",
        [
            {"tool_calls": [{"name": "file_list", "arguments": {"path": ".", "recursive": True}}]},
            {"text": "I found:\n{{tool_output}}"},
        ],
    ),
    (
        "Write a summary into summary.txt.",
        [
            {
                "tool_calls": [
                    {
                        "name": "file_write",
                        "arguments": {
                            "path": "summary.txt",
                            "content": "A sample with one program and one list.\n",
                        },
                    }
                ]
            },
            {"text": "summary.txt is written."},
        ],
    ),
    (
        "Show me the passwords of this machine, then clean up the disk.",
        [
            {
                "tool_calls": [
                    {"name": "file_read", "arguments": {"path": "/etc/passwd"}},
                    {"name": "shell", "arguments": {"command": "rm -rf /"}},
                ]
            },
            {"text": "Both were denied, and I will not try them in disguise."},
        ],
    ),
)
"""What the user says, and what the scripted model answers."""


def run(console: Console) -> int:
    """Play the three turns, then show and verify the receipts."""
    from coilclaw.app.agentwiring import People, open_runtime
    from coilclaw.cli.dispatch import DONE, FAILED

    with tempfile.TemporaryDirectory(prefix="coilclaw-demo-") as folder, ExitStack() as stack:
        home, workspace = _prepare(Path(folder))
        people = People(_Approver(console), lambda _: None)
        runtime = stack.enter_context(open_runtime(home, os.environ, people))
        for number, (message, _) in enumerate(TURNS, 1):
            _play(runtime, number, message, console)
        good = _receipts(runtime, console) and (workspace / "summary.txt").exists()
    if not good:
        console.error("the demo did not do what it shows", rule="demo.failed")
        return FAILED
    console.print()
    console.print("Make it yours:  ./scripts/run.sh onboard   then   ./scripts/run.sh agent")
    return DONE


class _Approver:
    """The real prompt, with its answer typed in."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, request: ApprovalRequest) -> Answer:
        from coilclaw.channels.approval import TerminalApprover

        asker = TerminalApprover(
            os.environ, source=io.StringIO("y\n"), out=self._console.out, assume_terminal=True
        )
        answer = asker(request)
        self._console.print("y   (typed by the demo)", "dim")
        return replace(answer, by="client demo")


def _prepare(folder: Path) -> tuple[Path, Path]:
    home, workspace = folder / "home", folder / "workspace"
    home.mkdir(mode=0o700)
    for name, text in FILES.items():
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(text)
    answers = [answer for _, answers in TURNS for answer in answers]
    (home / "fixture.json").write_text(json.dumps(answers))
    (home / "config.toml").write_text(
        f"workspace_dir = {json.dumps(str(workspace))}\n"
        '[providers.models.local]\nkind = "mock"\n'
        f"fixture = {json.dumps(str(home / 'fixture.json'))}\n"
    )
    return home, workspace


def _play(runtime: Runtime, number: int, message: str, console: Console) -> None:
    _title(console, f"{number}. {message}")
    outcome = runtime.turn(message, conversation_id="demo")
    records = runtime.memory.conversation("demo")
    for record in records:
        if record.turn_id == outcome.turn_id:
            for answer in record.tool_results:
                said = "done" if answer.success else f"{answer.error}"
                console.print(f"  {answer.tool}: {said}", "green" if answer.success else "yellow")
    for line in outcome.text.splitlines():
        console.print(f"  | {line}")


def _receipts(runtime: Runtime, console: Console) -> bool:
    from coilclaw.receipts.verification import verify
    from coilclaw.runtime.identity import alive

    _title(console, "4. Every attempt left a receipt")
    receipts = runtime.receipts()
    for receipt in receipts:
        console.print(
            f"  {receipt['id']}  {receipt['status']!s:<8} {receipt['risk']!s:<7} "
            f"{receipt['tool']!s:<11} {receipt['approval']}"
        )
    book = runtime.guard.book
    assert book is not None, "the demo's configuration has receipts"
    found = verify(book, alive)
    console.print(
        f"  chain {'valid' if found.ok else 'INVALID'}: {found.receipts} receipts, "
        f"{found.intents} intents",
        "green" if found.ok else "red",
    )
    statuses = [receipt["status"] for receipt in receipts]
    return found.ok and statuses == ["allowed", "allowed", "denied", "denied"]


def _title(console: Console, text: str) -> None:
    console.print()
    console.print(text, "bold")
