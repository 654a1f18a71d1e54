"""``coilclaw demo agent``: an agent behind the gate, with a scripted model."""

from __future__ import annotations

import io
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coilclaw.cli.demo.stage import conclude, load_story, print_title, write_files, write_mock_home

if TYPE_CHECKING:
    from coilclaw.app import Runtime
    from coilclaw.cli.command import Console
    from coilclaw.kernel import ApprovalAnswer, ApprovalRequest


def run(console: Console) -> int:
    """Play the three turns, then show and verify the receipts."""
    from coilclaw.agent import TerminalApprover
    from coilclaw.app import People, open_runtime

    def approve(request: ApprovalRequest) -> ApprovalAnswer:
        """Show the real prompt, with its answer typed in."""
        ask = TerminalApprover(
            os.environ, source=io.StringIO("y\n"), out=console.out, assume_terminal=True
        )
        answer = ask(request)
        console.print("y   (typed by the demo)", "dim")
        return replace(answer, by="client demo")

    story = load_story("agent")
    with tempfile.TemporaryDirectory(prefix="coilclaw-demo-") as folder:
        home, workspace = _prepare(Path(folder), story)
        with open_runtime(home, os.environ, People(approve, lambda _: None)) as runtime:
            for number, turn in enumerate(story["turn"], 1):
                _play(runtime, number, turn["message"], console)
            good = _show_receipts(runtime, console) and (workspace / "summary.txt").exists()
    hint = "Make it yours:  ./scripts/run.sh onboard   then   ./scripts/run.sh agent"
    return conclude(console, hint, good=good)


def _prepare(folder: Path, story: dict[str, Any]) -> tuple[Path, Path]:
    home, workspace = folder / "home", folder / "workspace"
    write_files(workspace, story["files"])
    answers = [answer for turn in story["turn"] for answer in turn["answers"]]
    write_mock_home(home, answers, f"workspace_dir = {json.dumps(str(workspace))}\n")
    return home, workspace


def _play(runtime: Runtime, number: int, message: str, console: Console) -> None:
    print_title(console, f"{number}. {message}")
    outcome = runtime.turn(message, conversation_id="demo")
    records = runtime.memory.conversation("demo")
    for record in (one for one in records if one.turn_id == outcome.turn_id):
        for answer in record.tool_results:
            said = "done" if answer.success else f"{answer.error}"
            console.print(f"  {answer.tool}: {said}", "green" if answer.success else "yellow")
    for line in outcome.text.splitlines():
        console.print(f"  | {line}")


def _show_receipts(runtime: Runtime, console: Console) -> bool:
    from coilclaw.agent import verify
    from coilclaw.workspace import is_alive

    print_title(console, "4. Every attempt left a receipt")
    receipts = runtime.receipts()
    for receipt in receipts:
        console.print(
            f"  {receipt['id']}  {receipt['status']!s:<8} {receipt['risk']!s:<7} "
            f"{receipt['tool']!s:<11} {receipt['approval']}"
        )
    book = runtime.guard.book
    assert book is not None, "the demo's configuration has receipts"
    found = verify(book, is_alive)
    said = f"{found.receipts} receipts, {found.intents} intents"
    state, style = ("valid", "green") if found.ok else ("INVALID", "red")
    console.print(f"  chain {state}: {said}", style)
    statuses = [receipt["status"] for receipt in receipts]
    return found.ok and statuses == ["allowed", "allowed", "denied", "denied"]
