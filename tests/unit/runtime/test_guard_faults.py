"""What is raised inside the guard: it becomes a receipt and an answer, and only a stop leaves."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from coilclaw.agent.guard import MAX_REASON_CHARS
from coilclaw.agent.receipts.verification import verify
from coilclaw.agent.tools.contract import Arguments, ReadyCall, Tool, ToolContext
from coilclaw.app.agent_runtime import Runtime
from coilclaw.kernel.errors import (
    CoilClawError,
    DeniedError,
    EnvironmentFault,
    PathRefused,
    Stopped,
    UsageError,
)
from coilclaw.kernel.messages import (
    ApprovalAnswer,
    ApprovalReply,
    ApprovalRequest,
    Json,
    ToolCall,
    ToolResult,
)
from tests.support.agents import AgentHome, Person, calls, says

PLACES = ("effects", "judge", "prepare", "approve", "before_change", "perform")
BEFORE_A_DECISION = frozenset({"schema", "effects", "judge", "policy_hash", "approve"})
FAULT_RULES = {"judge": "gate.fault", "policy_hash": "gate.fault", "approve": "approval.fault"}
SECRET = "sk-canary-0123456789abcdef"


class PanicException(BaseException):
    """As a library in Rust raises it."""


@dataclass(frozen=True)
class Raising:
    """A tool whose methods raise at one place, in front of a real one."""

    inner: Tool
    place: str
    problem: BaseException

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def description(self) -> str:
        return self.inner.description

    @property
    def owner(self) -> str:
        return self.inner.owner

    @property
    def parameters_schema(self) -> object:
        self._reach("schema")
        return self.inner.parameters_schema

    def effects(self, args: Arguments) -> object:
        self._reach("effects")
        return self.inner.effects(args)

    def prepare(self, args: Arguments, context: ToolContext) -> object:
        self._reach("prepare")
        prepared = self.inner.prepare(args, context)
        return _RaisingCall(prepared, self) if self.place == "perform" else prepared

    def _reach(self, place: str) -> None:
        if place == self.place:
            raise self.problem


@dataclass(frozen=True)
class _RaisingCall:
    inner: ReadyCall
    tool: Raising

    timeout_s: ClassVar[float] = 0.0

    @property
    def detail(self) -> tuple[str, ...]:
        return self.inner.detail

    @property
    def lookup(self) -> str:
        return self.inner.lookup

    def perform(self) -> ToolResult:
        raise self.tool.problem


@pytest.fixture
def home(tmp_path: Path) -> AgentHome:
    return AgentHome.make(tmp_path)


def write(content: str = "x") -> ToolCall:
    return ToolCall("call-1", "file_write", {"path": "a.txt", "content": content})


@contextmanager
def raising(home: AgentHome, place: str, problem: BaseException) -> Iterator[Runtime]:
    """Open a runtime in which a problem is raised at one place of the way of ``file_write``."""

    def raise_problem(*_: object) -> object:
        raise problem

    with home.runtime(Person([ApprovalReply.YES] * 9)) as runtime:
        guard = runtime.guard
        tool = Raising(guard.tools["file_write"], place, problem)
        guard.tools = {**guard.tools, "file_write": tool}  # type: ignore[dict-item]  # by duck
        if place in {"approve", "before_change", "policy_hash", "redact"}:
            setattr(guard, place, raise_problem)
        if place == "judge":
            runtime.policy_source.judge = raise_problem  # type: ignore[method-assign,assignment]
        yield runtime


def check_chain(runtime: Runtime) -> None:
    book = runtime.guard.book
    assert book is not None
    assert verify(book, lambda _: False).ok


@pytest.mark.parametrize("place", [*PLACES, "schema", "policy_hash"])
@pytest.mark.parametrize(
    "make",
    [
        lambda: RecursionError(SECRET),
        lambda: MemoryError(SECRET),
        lambda: OSError(28, SECRET),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, SECRET),
        lambda: UnboundLocalError(SECRET),
        lambda: PanicException(SECRET),
    ],
    ids=["recursion", "memory", "os", "unicode", "unbound", "panic"],
)
def test_what_nobody_expected_is_a_receipt_and_an_answer(
    home: AgentHome,
    place: str,
    make: Callable[[], BaseException],
    caplog: pytest.LogCaptureFixture,
) -> None:
    problem = make()
    with raising(home, place, problem) as runtime, caplog.at_level(logging.ERROR):
        result = runtime.call(write())
        check_chain(runtime)
    (receipt,) = home.records()
    rule = FAULT_RULES.get(place, "tool.fault")
    said = f"the call failed unexpectedly ({type(problem).__name__})"
    if place in BEFORE_A_DECISION:
        assert (receipt["status"], result.error) == ("denied", f"denied by {rule}: {said}")
    else:
        assert (receipt["status"], result.error) == ("failed", f"{said} [{rule}]")
    assert (receipt["id"], result.success) == (result.receipt_id, False)
    assert bool(receipt["intent_hash"]) is (place == "perform")
    assert not (home.workspace / "a.txt").exists()
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[1] is problem
    assert record.__dict__["event"] == rule.replace(".", "_")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("problem", "denied"),
    [
        (PathRefused("no such way", path="../x", rule="path.dots"), "always"),
        (DeniedError("no", rule="some.denial"), "always"),
        (UsageError("makes no sense", rule="some.usage"), "undecided"),
        (EnvironmentFault("the disk is gone", rule="some.fault"), "undecided"),
    ],
    ids=["path", "denied", "usage", "environment"],
)
def test_our_own_errors_keep_their_rule_wherever_they_are_raised(
    home: AgentHome, place: str, problem: CoilClawError, denied: str
) -> None:
    with raising(home, place, problem) as runtime:
        result = runtime.call(write())
        check_chain(runtime)
    (receipt,) = home.records()
    expected = denied == "always" or place in BEFORE_A_DECISION
    assert receipt["status"] == ("denied" if expected else "failed")
    assert result.metadata["rule"] == problem.rule
    assert problem.message in str(result.error)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", [KeyboardInterrupt, lambda: Stopped("stopped by the user")])
def test_a_stop_leaves_with_a_receipt(
    home: AgentHome, place: str, make: Callable[[], BaseException]
) -> None:
    with raising(home, place, make()) as runtime:
        with pytest.raises(KeyboardInterrupt):
            runtime.call(write())
        check_chain(runtime)
    (receipt,) = home.records()
    undecided = place in BEFORE_A_DECISION
    assert receipt["status"] == ("denied" if undecided else "failed")
    if place == "approve":
        assert receipt["approval"] == "nobody no path.workspace.write"


def test_where_redaction_fails_nothing_is_shown(home: AgentHome) -> None:
    with raising(home, "redact", ZeroDivisionError(SECRET)) as runtime:
        denied = runtime.call(write(SECRET))
        refused = runtime.guard.refuse(
            write(), runtime.context("c", "t"), "limits.rounds", f"no more {SECRET}"
        )
        clock = runtime.call(ToolCall("call-2", "time", {}))
        check_chain(runtime)
    assert [receipt["status"] for receipt in home.records()] == ["denied", "denied", "failed"]
    for result in (denied, refused, clock):
        assert SECRET not in f"{result}"
        assert "withheld" in str(result.error)


@pytest.mark.parametrize("place", ["policy_hash", "redact"])
def test_refusing_leaves_a_receipt_whatever_fails(home: AgentHome, place: str) -> None:
    with raising(home, place, ZeroDivisionError()) as runtime:
        result = runtime.guard.refuse(write(), runtime.context("c", "t"), "limits.rounds", "no")
    (receipt,) = home.records()
    assert (receipt["status"], receipt["id"]) == ("denied", result.receipt_id)


@pytest.mark.parametrize(
    "metadata", [None, 7, {"sandbox": "\udcff" * 9000}, {"sandbox": ["x"]}, {"rule": object()}]
)
def test_odd_metadata_do_not_stop_a_receipt(
    home: AgentHome, metadata: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with home.runtime(Person([ApprovalReply.YES])) as runtime:
        tool = runtime.guard.tools["time"]

        class Odd:
            detail = ()
            timeout_s = 0.0
            lookup = ""

            def perform(self) -> ToolResult:
                return ToolResult(True, "ok", None, metadata)  # type: ignore[arg-type]

        def prepare(*_: object) -> Odd:
            return Odd()

        monkeypatch.setattr(type(tool), "prepare", prepare)
        result = runtime.call(ToolCall("call-1", "time", {}))
        check_chain(runtime)
    (receipt,) = home.records()
    assert receipt["id"] == result.receipt_id
    assert len(str(receipt["sandbox"])) <= 128


def test_a_long_reason_is_cut(home: AgentHome) -> None:
    with raising(home, "effects", UsageError("y" * 10**6)) as runtime:
        result = runtime.call(write())
    assert len(str(result.error)) < MAX_REASON_CHARS + 100


def test_a_refused_path_leaves_a_receipt_and_the_turn_goes_on(tmp_path: Path) -> None:
    changes = "*** Begin Patch\n*** Add File: ../x\n+y\n*** End Patch\n"
    home = AgentHome.make(
        tmp_path,
        answers=[
            calls(("apply_changes", {"changes": changes}), ("time", {})),
            says("the path was refused"),
        ],
    )
    with home.runtime() as runtime:
        outcome = runtime.turn("go", conversation_id="c")
        check_chain(runtime)
        said = [one for record in runtime.memory.conversation("c") for one in record.tool_results]
    assert outcome.text == "the path was refused"
    assert [(one["tool"], one["status"]) for one in home.records()] == [
        ("apply_changes", "denied"),
        ("time", "allowed"),
    ]
    assert (said[0].success, said[1].success) == (False, True)
    assert "../x" in str(said[0].error)
    assert not (tmp_path / "x").exists()


def test_a_path_in_the_workspace_is_its_allowed_neighbour(home: AgentHome) -> None:
    changes = "*** Begin Patch\n*** Add File: x\n+y\n*** End Patch\n"
    with home.runtime(Person([ApprovalReply.YES])) as runtime:
        result = runtime.call(ToolCall("call-1", "apply_changes", {"changes": changes}))
    assert result.success
    assert (home.workspace / "x").read_text() == "y\n"


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond a size, as a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_on_a_full_disk_nothing_runs_and_the_error_says_so(home: AgentHome) -> None:
    with home.runtime(Person([ApprovalReply.YES] * 3)) as runtime:
        assert runtime.call(ToolCall("call-1", "time", {})).success
        intents = home.home / "tool_receipts.intents.log"
        with full_disk(intents.stat().st_size + 10), pytest.raises(EnvironmentFault) as caught:
            runtime.call(ToolCall("call-2", "time", {}))
        assert caught.value.rule == "journal.write"
        assert caught.value.hint == "make room on the disk, then try again"
        # Once there is room again, it goes on, and the chain holds.
        assert runtime.call(write()).success
        check_chain(runtime)
    assert [receipt["tool"] for receipt in home.records()] == ["time", "file_write"]


def test_a_receipt_that_cannot_be_written_ends_the_turn_and_leaves_the_intent(
    home: AgentHome,
) -> None:
    with home.runtime(Person()) as runtime:
        for _ in range(3):
            runtime.call(ToolCall("call-1", "no_such_tool", {}))
        with full_disk(home.receipts.stat().st_size + 10):
            with pytest.raises(EnvironmentFault) as caught:
                runtime.call(ToolCall("call-2", "time", {}))
            # What is denied has no effect, and is not told either without its receipt.
            with pytest.raises(EnvironmentFault):
                runtime.call(ToolCall("call-3", "no_such_tool", {}))
        assert caught.value.rule == "journal.write"
        book = runtime.guard.book
        assert book is not None
        found = verify(book, lambda _: False)
    assert (found.receipts, found.intents, len(found.open_intents)) == (3, 1, 1)


def test_arguments_that_have_no_text_are_denied_with_a_receipt(home: AgentHome) -> None:
    deep: Json = []
    for _ in range(5000):
        deep = [deep]
    odd: list[dict[str, object]] = [
        {"path": deep},
        {"path": "\ud800"},
        {"path": float("nan")},
        {"path": 10**5000},
        {"path": object()},
        {"path": "a" * 10**6},
        {"path": "a", 7: "b"},  # type: ignore[dict-item]  # no JSON has it, a bug might
    ]
    with home.runtime() as runtime:
        for arguments in odd:
            asked = ToolCall("call-1", "file_read", arguments)  # type: ignore[arg-type]
            assert runtime.call(asked).metadata["status"] == "denied"
        check_chain(runtime)
    assert len(home.records()) == len(odd)


def test_an_approver_that_answers_nonsense_is_a_no(home: AgentHome) -> None:
    class Odd(Person):
        def approve(self, request: ApprovalRequest) -> ApprovalAnswer:  # noqa: ARG002 - its shape
            return None  # type: ignore[return-value]

    with home.runtime(Odd()) as runtime:
        result = runtime.call(write())
    assert (result.metadata["status"], result.metadata["rule"]) == ("denied", "approval.fault")
    (receipt,) = home.records()
    assert receipt["approval"] == "nobody no path.workspace.write"
