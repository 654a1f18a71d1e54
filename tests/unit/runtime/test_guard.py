"""The guard, with real tools in a real workspace: every way in, and what stays behind."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from coilclaw.agent.estop import Estop
from coilclaw.agent.guard import result_hash
from coilclaw.agent.receipts.book import intents_path
from coilclaw.agent.receipts.verification import verify
from coilclaw.kernel.canonical_json import digest_bytes
from coilclaw.kernel.messages import (
    ApprovalAnswer,
    ApprovalReply,
    ApprovalRequest,
    Json,
    ToolCall,
    ToolResult,
)
from tests.support.agents import AgentHome, Person
from tests.support.children import PATIENCE_S


@pytest.fixture
def home(tmp_path: Path) -> AgentHome:
    return AgentHome.make(tmp_path)


def call(name: str, **arguments: Json) -> ToolCall:
    return ToolCall("call-1", name, arguments)


def tell(result: ToolResult) -> tuple[object, object]:
    return result.metadata.get("status"), result.metadata.get("rule")


def intents(home: AgentHome) -> int:
    path = intents_path(home.receipts)
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_an_allowed_call_has_an_intent_and_a_receipt(home: AgentHome) -> None:
    (home.workspace / "a.txt").write_text("hello\n")
    with home.runtime() as runtime:
        result = runtime.call(call("file_read", path="a.txt"))
        assert result.success
        assert runtime.guard.book is not None
        assert verify(runtime.guard.book, lambda _: False).ok
    (receipt,) = home.records()
    assert receipt["id"] == result.receipt_id
    assert receipt["args_hash"] == digest_bytes(b'{"path":"a.txt"}')
    assert receipt["result_hash"] == result_hash(result)
    assert (receipt["status"], receipt["risk"]) == ("allowed", "low")
    assert receipt["approval"] == "policy path.workspace"
    assert receipt["intent_hash"] != ""
    assert intents(home) == 1


@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        (call("file_read", path="/etc/passwd"), "path.forbidden"),
        (call("file_read", path="../outside"), "path.outside"),
        (call("file_read"), "arguments.schema"),
        (call("file_read", path=7), "arguments.schema"),
        (call("file_read", path="a", more=1), "arguments.schema"),
        (call("no_such_tool"), "tool.unknown"),
        (call("file_read", path="\ud800"), "arguments.malformed"),
        (ToolCall("c", "file_read", {}, problem="not JSON"), "arguments.malformed"),
        (call("shell", command="rm -rf /"), None),
        (call("file_write", path=".git/hooks/pre-commit", content="x"), "path.git"),
    ],
)
def test_a_denied_call_has_a_receipt_and_no_intent(
    home: AgentHome, asked: ToolCall, rule: str | None
) -> None:
    with home.runtime() as runtime:
        result = runtime.call(asked)
    assert not result.success
    assert result.metadata["status"] == "denied"
    if rule is not None:
        assert result.metadata["rule"] == rule
    (receipt,) = home.records()
    assert (receipt["status"], receipt["intent_hash"]) == ("denied", "")
    assert intents(home) == 0


def test_a_tool_that_the_channel_does_not_allow_is_denied(home: AgentHome) -> None:
    home.configure('[channels.cli]\ntools_allow = ["file_read"]\n')
    (home.workspace / "a.txt").write_text("a")
    with home.runtime() as runtime:
        assert tell(runtime.call(call("time"))) == ("denied", "tool.not_allowed")
        assert runtime.call(call("file_read", path="a.txt")).success


def test_without_receipts_nothing_runs(home: AgentHome) -> None:
    home.configure("[receipts]\nenabled = false\n")
    with home.runtime() as runtime:
        result = runtime.call(call("time"))
        assert "receipts.disabled" in (result.error or "")
        assert runtime.tools() == ()
    assert home.records() == []


def test_a_failed_call_has_a_receipt(home: AgentHome) -> None:
    with home.runtime() as runtime:
        result = runtime.call(call("file_read", path="missing.txt"))
    assert not result.success
    (receipt,) = home.records()
    assert receipt["status"] == "failed"


def test_approval_is_asked_with_the_diff_and_no_denies(home: AgentHome) -> None:
    person = Person()
    with home.runtime(person) as runtime:
        result = runtime.call(call("file_write", path="a.txt", content="one\n"))
    assert tell(result) == ("denied", "approval.denied")
    (request,) = person.asked
    assert request.tool == "file_write"
    assert request.arguments == '{"content":"one\\n","path":"a.txt"}'
    assert any(line.startswith("+one") for line in request.detail)
    assert not (home.workspace / "a.txt").exists()
    (receipt,) = home.records()
    assert receipt["status"] == "denied"
    assert receipt["approval"] == "person ann no path.workspace.write"
    assert intents(home) == 0


def test_yes_approves_once_and_always_only_the_very_same(home: AgentHome) -> None:
    person = Person([ApprovalReply.YES, ApprovalReply.ALWAYS])
    same = call("shell", argv=["touch", "made"])
    with home.runtime(person) as runtime:
        for expected in (1, 2, 2, 2):
            assert runtime.call(same).success
            assert len(person.asked) == expected
        assert not runtime.call(call("shell", argv=["touch", "other"])).success
        assert len(person.asked) == 3
    given = [str(receipt["approval"]).rsplit(" ", 1)[0] for receipt in home.records()]
    assert given == [f"person ann {word}" for word in ("yes", *["always"] * 3, "no")]


@pytest.mark.parametrize(
    ("by", "reason", "rule"),
    [
        ("timeout", "no answer within 300 s", "approval.timeout"),
        ("estop", "the emergency stop is set", "estop"),
        ("shutdown", "the gateway is being stopped", "approval.shutdown"),
        ("nobody", "no terminal is available to ask the user", "approval.unattended"),
        ("person ann", "the request was not approved", "approval.denied"),
        ("client ci", "the request was not approved", "approval.denied"),
    ],
)
def test_a_denial_names_who_or_what_gave_it(
    home: AgentHome, by: str, reason: str, rule: str
) -> None:
    class Answering(Person):
        def approve(self, request: ApprovalRequest) -> ApprovalAnswer:  # noqa: ARG002 - its shape
            return ApprovalAnswer(ApprovalReply.NO, by, "" if " " in by else reason)

    with home.runtime(Answering()) as runtime:
        result = runtime.call(call("file_write", path="a.txt", content="x"))
    assert result.error == f"denied by {rule}: {reason}"
    (receipt,) = home.records()
    assert receipt["approval"] == f"{by} no path.workspace.write"
    assert not (home.workspace / "a.txt").exists()


def test_an_approval_names_the_client_that_gave_it(home: AgentHome) -> None:
    with home.runtime(Person([ApprovalReply.YES], name="client ci")) as runtime:
        assert runtime.call(call("file_write", path="a.txt", content="x")).success
    (receipt,) = home.records()
    assert receipt["approval"] == "client ci yes path.workspace.write"


def test_an_approval_does_not_outlive_the_process(home: AgentHome) -> None:
    same = call("shell", argv=["touch", "made"])
    with home.runtime(Person([ApprovalReply.ALWAYS])) as runtime:
        assert runtime.call(same).success
    person = Person()
    with home.runtime(person) as runtime:
        assert not runtime.call(same).success
    assert len(person.asked) == 1


def test_what_changed_between_approval_and_writing_is_not_overwritten(home: AgentHome) -> None:
    target = home.workspace / "a.txt"
    target.write_text("one\n")

    class Slow(Person):
        def approve(self, request: ApprovalRequest) -> ApprovalAnswer:  # noqa: ARG002 - its shape
            target.write_text("somebody else's\n")
            return ApprovalAnswer(ApprovalReply.YES, "person ann")

    with home.runtime(Slow()) as runtime:
        result = runtime.call(call("file_write", path="a.txt", content="two\n"))
    assert result.metadata["status"] == "denied"
    assert target.read_text() == "somebody else's\n"
    assert home.records()[-1]["status"] == "denied"


def test_estop_denies_everything_and_clearing_allows_again(home: AgentHome) -> None:
    with home.runtime() as runtime:
        Estop.of(home.home).trigger("test")
        assert tell(runtime.call(call("time"))) == ("denied", "estop")
        assert Estop.of(home.home).clear()
        assert runtime.call(call("time")).success
    assert not Estop.of(home.home).clear()


def test_an_estop_set_while_a_person_thinks_still_counts(home: AgentHome) -> None:
    class Thinking(Person):
        def approve(self, request: ApprovalRequest) -> ApprovalAnswer:  # noqa: ARG002 - its shape
            Estop.of(home.home).trigger("test")
            return ApprovalAnswer(ApprovalReply.YES, "person ann")

    with home.runtime(Thinking()) as runtime:
        result = runtime.call(call("file_write", path="a.txt", content="x"))
    assert tell(result) == ("denied", "estop")
    assert not (home.workspace / "a.txt").exists()


def test_estop_ends_a_running_command_soon(home: AgentHome) -> None:
    home.configure(
        '[security]\nautonomy = "full"\n[limits]\nshell_timeout_s = 600\ntool_timeout_s = 600\n'
    )
    estop = Estop.of(home.home)
    began: list[float] = []

    def stop() -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not (home.workspace / "started").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        began.append(time.monotonic())
        estop.trigger("test")

    thread = threading.Thread(target=stop)
    thread.start()
    with home.runtime() as runtime:
        result = runtime.call(
            call(
                "shell", command="touch started; (trap '' TERM; sleep 600) & sleep 600; touch late"
            )
        )
        took = time.monotonic() - began[0]
    thread.join()
    assert not result.success
    assert "emergency stop" in (result.error or "")
    assert took < PATIENCE_S  # bench/agent_bench.py measures it
    assert home.records()[-1]["status"] == "failed"
    assert not (home.workspace / "late").exists()


def test_an_interrupted_call_has_a_receipt(
    home: AgentHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    with home.runtime() as runtime:
        tool = runtime.guard.tools["time"]

        class Broken:
            detail = ()
            lookup = ""

            def perform(self) -> ToolResult:
                raise KeyboardInterrupt

        monkeypatch.setattr(type(tool), "prepare", lambda *_: Broken())
        with pytest.raises(KeyboardInterrupt):
            runtime.call(call("time"))
    (receipt,) = home.records()
    assert receipt["status"] == "failed"
    assert receipt["intent_hash"] != ""


def test_a_gate_that_breaks_denies(home: AgentHome, monkeypatch: pytest.MonkeyPatch) -> None:
    with home.runtime() as runtime:

        def broken(*_: object) -> object:
            raise ZeroDivisionError

        monkeypatch.setattr(runtime.policy_source, "judge", broken)
        assert tell(runtime.call(call("time"))) == ("denied", "gate.fault")
    (receipt,) = home.records()
    assert receipt["status"] == "denied"


def test_no_effect_without_an_intent_on_the_disk(
    home: AgentHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    from coilclaw.kernel.errors import EnvironmentFault

    with home.runtime(Person([ApprovalReply.YES])) as runtime:
        book = runtime.guard.book
        assert book is not None

        def full(*_: object) -> str:
            raise EnvironmentFault("No space left on device", rule="journal.io")

        monkeypatch.setattr(book, "intend", full)
        with pytest.raises(EnvironmentFault):
            runtime.call(call("file_write", path="a.txt", content="x"))
    assert not (home.workspace / "a.txt").exists()


def test_the_receipt_says_which_sandbox_held(home: AgentHome) -> None:
    with home.runtime(Person([ApprovalReply.YES])) as runtime:
        assert runtime.call(call("shell", argv=["touch", "x"])).success
        assert runtime.call(call("time")).success
    shell, clock = home.records()
    assert str(shell["sandbox"]).split()[0] in {"bubblewrap", "landlock"}
    assert clock["sandbox"] == "none"


def test_a_secret_in_the_output_is_taken_out(tmp_path: Path) -> None:
    home = AgentHome.make(tmp_path)
    secret = "sk-canary-0123456789abcdef"
    home.configure(
        '[providers.models.real]\nkind = "openai-compatible"\nmodel = "m"\n'
        'base_url = "http://127.0.0.1:9/v1"\napi_key_env = "MY_KEY"\n'
    )
    (home.workspace / "leak.txt").write_text(f"key={secret}\n")
    with home.runtime(environ={"MY_KEY": secret, "PATH": "/usr/bin:/bin"}) as runtime:
        result = runtime.call(call("file_read", path="leak.txt"))
        assert result.success
        assert secret not in result.output
        assert secret[:-2] not in result.output
