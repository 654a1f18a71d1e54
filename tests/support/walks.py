"""Follow real calls through the product, for the page about its architecture.

``python -m tests.support.walks`` prints the walks, ``--write`` writes them into the page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

from coilclaw.changes.answer import parse_answer
from coilclaw.kernel.messages import Json, ToolCall
from coilclaw.runs.engine.contract_stage import RunRequest
from coilclaw.runs.engine.run_start import RunOptions
from coilclaw.workspace.tree.delivery import DeliveryTerms, deliver_answer
from coilclaw.workspace.tree.recovery import open_tree
from tests.support.agents import AgentHome, Person
from tests.support.repository import PACKAGE, ROOT
from tests.support.runs import ADDS, opened

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- walks: written by tests/support/walks.py -->\n", "<!-- end of walks -->\n"
ANSWER = '```json\n{"root": ".", "files": [{"path": "hello.txt", "content": "hello\\n"}]}\n```\n'
# Of the lowest package only what touches the disk is worth a line.
_KERNEL = ("kernel.journal", "kernel.atomic_file", "kernel.file_lock", "kernel.database")
# Values, clocks and handles: every walk is full of them.
_DETAILS = (
    *("pages", "app.home", "runs.evidence.layout", "runs.contracts", "runs.gates.result"),
    *("workspace.process.cancellation", "workspace.process.owner", "workspace.process.identity"),
    *("agent.estop", "agent.tools.contract"),
)

Function = tuple[str, str]
"""The module without ``coilclaw.``, and the qualified name."""


@dataclass
class Walk:
    """The functions that one call passed, and how it went from package to package."""

    functions: set[Function] = field(default_factory=set)
    crossings: dict[Function, int] = field(default_factory=dict)
    """Each function that was called from another package, first call first, with its depth."""

    @property
    def modules(self) -> set[str]:
        return {module for module, _ in self.functions}

    @property
    def packages(self) -> set[str]:
        return {module.split(".")[0] for module in self.modules}

    @property
    def counts(self) -> dict[str, int]:
        return {
            "functions": len(self.functions),
            "modules": len(self.modules),
            "packages": len(self.packages),
        }

    def render(self) -> list[str]:
        """Return the lines of the page."""
        passed = [
            f"{'  ' * depth}{module}.{name}" for (module, name), depth in self.crossings.items()
        ]
        return ["```text", *passed, "```", ""]


def _unit(module: str) -> str:
    """Return what a module is a part of: a package, or a sub-package of the two largest drivers."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in {"agent", "runs"} and len(parts) > 2 else parts[0]


def _is_told(function: Function, caller: Function | None) -> bool:
    """Tell whether a call is worth a line: it enters a package, and is not a detail of a value."""
    module, name = function
    package = module.split(".")[0]
    if caller is None:
        # What runs beside the call in threads of its own is no part of its way.
        return package in {"app", "changes", "runs"} or threading.current_thread() is _MAIN
    if _unit(caller[0]) == _unit(module) or module.startswith(_DETAILS):
        return False
    private = any(part.startswith("_") for part in name.split("."))
    return not private and (package != "kernel" or module.startswith(_KERNEL))


_MAIN = threading.main_thread()


class _Tracer:
    """Collects the calls of all threads."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._stacks = threading.local()
        self._known: dict[CodeType, Function | None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event not in {"call", "return"}:
            return
        function = self._name(frame.f_code)
        if function is None:
            return
        stack: list[tuple[Function, int]] = self._stacks.__dict__.setdefault("stack", [])
        if event == "return":
            while stack and stack.pop()[0] != function:
                pass
            return
        self._walk.functions.add(function)
        depth = stack[-1][1] if stack else -1
        if _is_told(function, stack[-1][0] if stack else None):
            depth += 1
            self._walk.crossings.setdefault(function, depth)
        stack.append((function, depth))

    def _name(self, code: CodeType) -> Function | None:
        if code not in self._known:
            self._known[code] = None
            path = Path(code.co_filename)
            if path.is_relative_to(PACKAGE) and "<" not in code.co_qualname.replace("<locals>", ""):
                module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
                self._known[code] = (module, code.co_qualname.replace(".<locals>", ""))
        return self._known[code]


@contextmanager
def following(walk: Walk) -> Iterator[None]:
    """Note every call of the product's functions, in all threads."""
    tracer = _Tracer(walk)
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def follow_change(folder: Path) -> Walk:
    """Apply an answer that writes one file, twice; follow the second time."""
    walk = Walk()
    (folder / "tree").mkdir()
    for number in range(2):
        with open_tree(folder / "tree", folder / "home") as tree, ExitStack() as stack:
            if number:
                stack.enter_context(following(walk))
            parsed = parse_answer(ANSWER.replace("hello", f"hello {number}"))
            deliver_answer(tree.root, tree.state, parsed, DeliveryTerms())
    return walk


def follow_tool_call(folder: Path) -> Walk:
    """Call ``file_write`` through the guard, twice; follow the second time."""
    walk = Walk()
    made = AgentHome.make(folder, '[security]\nautonomy = "full"\n')
    with made.runtime(Person()) as runtime:
        for number in range(2):
            arguments: dict[str, Json] = {"path": f"{number}.txt", "content": "x\n"}
            call = ToolCall(f"call-{number}", "file_write", arguments)
            with ExitStack() as stack:
                if number:
                    stack.enter_context(following(walk))
                result = runtime.call(call)
            assert result.error is None, result
    return walk


def follow_run(_: Path) -> Walk:
    """Carry out a contract with one task and a scripted agent; follow the second run."""
    walk = Walk()
    for number in range(2):
        with opened() as world, ExitStack() as stack:
            contract, orchestrator = world.contract(), world.orchestrator()
            options = RunOptions(world.script([{"write": ADDS}]), "rules")
            if number:
                stack.enter_context(following(walk))
            outcome = orchestrator.start(RunRequest(contract), options)
        assert outcome.status == "passed", outcome.reason
    return walk


WALKS: dict[str, Callable[[Path], Walk]] = {
    "A change: one answer is applied": follow_change,
    "A tool call: `file_write` through the guard": follow_tool_call,
    "A run: one task, one scripted agent": follow_run,
}


def render_walks() -> str:
    """Return the section of the page."""
    lines = [BEGIN]
    for title, follow in WALKS.items():
        with tempfile.TemporaryDirectory() as folder:
            lines += [f"### {title}", "", *follow(Path(folder)).render()]
    return "\n".join(lines) + "\n" + END


def main() -> int:
    """Print or write the walks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write them into the page")
    section = render_walks()
    if parser.parse_args().write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        PAGE.write_text(before + section + rest.partition(END)[2], encoding="utf-8")
    else:
        print(section)
    return 0


if __name__ == "__main__":
    sys.exit(main())
