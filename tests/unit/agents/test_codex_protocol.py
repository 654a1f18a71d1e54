"""What Codex is told and refused, and how its turns end; with a server that plays scripts."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from coilclaw.kernel.canonical_json import hash_json
from coilclaw.kernel.errors import EnvironmentFault, UsageError
from coilclaw.kernel.messages import Budget, Usage
from coilclaw.runners import external_agent
from coilclaw.runners.runner import AgentRequest, Ending
from coilclaw.workspace.process.confinement import Enforced, Sandbox, SandboxSupport
from tests.support.children import PATIENCE_S, given_time, marker, running, when
from tests.support.codexserver import (
    THREAD,
    TURN,
    VERSION,
    World,
    completed,
    end,
    item,
    notice,
    started,
    usage,
)
from tests.support.sandboxes import supported

HELD = Enforced(
    kind="bubblewrap",
    filesystem=True,
    network="blocked",
    processes=True,
    notes=("Of the network only the model could be reached: 127.0.0.1:40009.",),
)
SAID = completed(item("agentMessage", text="Bye."))
BEGUN = completed(item("agentMessage", "i0", text="Begun."))


@pytest.fixture(scope="module")
def support() -> SandboxSupport:
    return supported("bubblewrap")


@pytest.fixture
def world(tmp_path: Path, support: SandboxSupport) -> World:
    return World(tmp_path, support)


def ending(status: Any, reason: str = "", **more: Any) -> Ending:
    given: dict[str, Any] = {"thread_id": THREAD, "version": VERSION, "enforced": (HELD,)}
    return Ending(status, reason, **(given | more))


# --- what it is told -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "policy"),
    [
        ("deny", "untrusted"),
        ("never", "never"),
        ("on-request", "on-request"),
        ("untrusted", "untrusted"),
    ],
)
def test_the_terms_go_as_fields_of_the_protocol(world: World, shell: str, policy: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}}
    answer = completed(item("agentMessage", text='{"a": 4}'))
    done = world.play(answer, end(), shell=shell, output_schema=schema, model="m-1")
    assert done == ending("done", result={"a": 4}, text='{"a": 4}')
    initialize, initialized, thread, turn = world.received
    assert initialize["method"] == "initialize"
    assert initialize["params"]["capabilities"]["experimentalApi"] is True
    assert initialized == {"method": "initialized"}
    assert thread == {
        "id": 2,
        "method": "thread/start",
        "params": {
            "cwd": str(world.tree),
            "sandbox": "workspace-write",
            "approvalPolicy": policy,
            "approvalsReviewer": "user",
            "experimentalRawEvents": True,
            "model": "m-1",
        },
    }
    assert turn == {
        "id": 3,
        "method": "turn/start",
        "params": {
            "threadId": THREAD,
            "input": [{"type": "text", "text": "Do it."}],
            "cwd": str(world.tree),
            "approvalPolicy": policy,
            "approvalsReviewer": "user",
            "sandboxPolicy": {
                "type": "workspaceWrite",
                "networkAccess": False,
                "writableRoots": [],
                "excludeSlashTmp": True,
                "excludeTmpdirEnvVar": False,
            },
            "model": "m-1",
            "outputSchema": {
                "type": "object",
                "properties": {"a": {"type": "integer"}},
                "required": ["a"],
                "additionalProperties": False,
            },
        },
    }


def test_a_reader_is_told_so(world: World) -> None:
    box = Sandbox("bubblewrap", writable=(world.home,), private_tmp=False)
    world.play(SAID, end(), filesystem="read-only", sandbox=box)
    thread, turn = world.received[2:]
    assert thread["params"]["sandbox"] == "read-only"
    assert turn["params"]["sandboxPolicy"] == {"type": "readOnly", "networkAccess": False}
    assert "outputSchema" not in turn["params"]
    assert "model" not in turn["params"]


@pytest.mark.parametrize(("network", "inner"), [("on-request", False), ("allow", True)])
def test_a_task_that_may_get_the_network_has_it_around_codex(
    world: World, network: str, inner: bool
) -> None:
    done = world.play(SAID, end(), network=network)
    assert done.enforced == (Enforced("bubblewrap", filesystem=True, processes=True),)
    assert world.received[3]["params"]["sandboxPolicy"]["networkAccess"] is inner
    assert "HTTPS_PROXY" not in world.seen()["environ"]


def test_a_thread_is_resumed_by_its_id(world: World) -> None:
    before = usage((100, 10), (100, 10), turn="turn-0")
    script = [before, SAID, usage((130, 13), (30, 3)), usage((170, 17), (40, 4)), end()]
    done = world.play(*script, thread_id=THREAD)
    assert done == ending("done", text="Bye.", usage=Usage(70, 7))
    assert world.received[2]["method"] == "thread/resume"
    assert world.received[2]["params"]["threadId"] == THREAD


def test_another_thread_than_the_one_asked_for_is_no_thread(world: World) -> None:
    done = world.play(SAID, end(), thread_id="thread-0")
    assert done.status == "failed"
    assert done.reason == "Codex has no such thread: it gave no reason."
    assert done.session_lost


def test_a_schema_that_no_service_takes_is_refused(world: World) -> None:
    with pytest.raises(UsageError) as caught:
        world.play(SAID, end(), output_schema={"type": "array"})
    assert caught.value.rule == "provider.output_schema"


def test_under_landlock_it_is_not_started(world: World) -> None:
    world.support = SandboxSupport(landlock_abi=7)
    with pytest.raises(EnvironmentFault) as caught:
        world.play(SAID, end(), sandbox=Sandbox("auto", writable=(world.tree, world.home)))
    assert caught.value.rule == "sandbox.nested"


# --- what it asks for ----------------------------------------------------------------------------

COMMAND = {"itemId": "i1", "command": "bash -lc 'rm x'", "cwd": "/tree", "reason": "It is old."}
EXECUTION = item("commandExecution", command="bash -lc 'rm x'", cwd="/tree", status="inProgress")


def ask_command(**more: Any) -> dict[str, Any]:
    return {"ask": ["item/commandExecution/requestApproval", COMMAND | more]}


def ask_change(**more: Any) -> dict[str, Any]:
    return {"ask": ["item/fileChange/requestApproval", {"itemId": "c1", **more}]}


def ask_permission(**permissions: Any) -> dict[str, Any]:
    return {"ask": ["item/permissions/requestApproval", {"permissions": permissions}]}


def decision(word: str) -> list[dict[str, Any]]:
    return [{"id": 0, "result": {"decision": word}}]


@pytest.mark.parametrize("shell", ["deny", "never"])
def test_without_a_shell_commands_are_declined_and_nobody_is_asked(
    world: World, shell: str
) -> None:
    world.play(started(EXECUTION), ask_command(), SAID, end(), shell=shell)
    assert world.answers == decision("decline")
    assert world.asked == []
    (denial,) = world.denied
    assert (denial.what, denial.denied_by) == ("bash -lc 'rm x'", f"codex.shell_{shell}")
    assert denial.call_id == "i1"


@pytest.mark.parametrize("shell", ["on-request", "untrusted"])
@pytest.mark.parametrize(("approved", "word"), [(False, "decline"), (True, "accept")])
def test_a_command_is_put_before_whoever_approves(
    world: World, shell: str, approved: bool, word: str
) -> None:
    world.approve = approved
    world.play(started(EXECUTION), ask_command(), SAID, end(), shell=shell)
    assert world.answers == decision(word)
    detail = ('directory: "/tree"', "command: bash -lc 'rm x'")
    digest = hash_json({"kind": "command", "detail": list(detail)})
    assert world.asked == [
        AgentRequest("task-1", "command", "bash -lc 'rm x'", detail, digest, "It is old.")
    ]
    assert [each.denied_by for each in world.denied] == ([] if approved else ["codex.not_approved"])


def test_what_else_a_command_would_get_is_shown_and_changes_the_digest(world: World) -> None:
    more = {"additionalPermissions": {"network": {"enabled": True}}}
    world.play(ask_command(), ask_command(**more), SAID, end(), shell="on-request")
    plain, wider = world.asked
    assert wider.detail == (
        plain.detail[0],
        'additionalPermissions: {"network":{"enabled":true}}',
        plain.detail[1],
    )
    assert wider.digest != plain.digest


def test_no_line_of_a_request_can_pass_for_another(world: World) -> None:
    first = ask_command(command="a\nb", cwd="/tree")
    second = ask_command(command="b", cwd="/tree\ncommand: a")
    world.play(first, second, SAID, end(), shell="on-request")
    one, two = world.asked
    assert one.detail == ('directory: "/tree"', "command: a", "b")
    assert two.detail == ('directory: "/tree\\ncommand: a"', "command: b")
    assert one.digest != two.digest


def test_a_request_of_another_thread_is_refused(world: World) -> None:
    world.play(ask_command(threadId="thread-0"), SAID, end(), shell="on-request")
    assert [set(answer) for answer in world.answers] == [{"id", "error"}]
    assert world.asked == []


def test_a_command_that_cannot_be_seen_is_declined(world: World) -> None:
    world.play(ask_command(command=None), SAID, end(), shell="on-request")
    assert world.answers == decision("decline")
    assert world.asked == []


@pytest.mark.parametrize(("network", "asked"), [("deny", 0), ("on-request", 1)])
def test_the_network_is_asked_for_only_if_it_may_be(world: World, network: str, asked: int) -> None:
    context = {"host": "example.org", "protocol": "https"}
    script = [ask_command(networkApprovalContext=context), SAID, end()]
    world.play(*script, shell="on-request", network=network)
    assert len(world.asked) == asked
    assert world.answers == decision("accept" if asked else "decline")


def change(*paths: str) -> dict[str, Any]:
    changes = [{"path": path, "kind": {"type": "add"}, "diff": "one\ntwo\n"} for path in paths]
    return started(item("fileChange", "c1", changes=changes, status="inProgress"))


@pytest.mark.parametrize(
    ("began", "asked", "filesystem"),
    [
        (change("/etc/x"), ask_change(), "workspace-write"),
        (change("a.txt", "../x"), ask_change(), "workspace-write"),
        (change("."), ask_change(), "workspace-write"),
        (change("a.txt"), ask_change(itemId="c2"), "workspace-write"),
        (change("a.txt"), ask_change(grantRoot="/"), "workspace-write"),
        (change(), ask_change(), "workspace-write"),
        (change("a.txt"), ask_change(), "read-only"),
    ],
)
def test_a_change_that_the_contract_does_not_cover_is_declined(
    world: World, began: Any, asked: Any, filesystem: str
) -> None:
    world.play(began, asked, SAID, end(), shell="on-request", filesystem=filesystem)
    assert world.answers == decision("decline")
    assert world.asked == []


def test_a_change_inside_the_tree_needs_nobody_where_there_is_no_shell(world: World) -> None:
    world.play(change("a.txt"), ask_change(), SAID, end(), shell="deny")
    assert world.answers == decision("accept")
    assert world.asked == []


@pytest.mark.parametrize(("approved", "word"), [(False, "decline"), (True, "accept")])
def test_a_change_is_shown_line_by_line(world: World, approved: bool, word: str) -> None:
    world.approve = approved
    path = str(world.tree / "a.txt")
    world.play(change(path), ask_change(), SAID, end(), shell="untrusted")
    assert world.answers == decision(word)
    (request,) = world.asked
    assert request.kind == "change"
    assert request.title == f"change {path}"
    assert request.detail == (f"add {path}", "  one", "  two", "  ")


@pytest.mark.parametrize(
    ("asked", "network"),
    [
        (ask_permission(network={"enabled": True}), "deny"),
        (ask_permission(network={"enabled": True}, fileSystem={"write": ["/"]}), "on-request"),
        (ask_permission(fileSystem={"write": ["/"]}), "allow"),
        (ask_permission(), "allow"),
    ],
)
def test_a_permission_beyond_the_contract_is_not_given(
    world: World, asked: Any, network: str
) -> None:
    world.play(asked, SAID, end(), shell="on-request", network=network)
    assert world.answers == [{"id": 0, "result": {"permissions": {}, "scope": "turn"}}]
    assert world.asked == []


def test_the_network_can_be_given_for_a_turn(world: World) -> None:
    asked = {"network": {"enabled": True}}
    world.play(ask_permission(**asked), SAID, end(), shell="on-request", network="on-request")
    assert world.answers == [{"id": 0, "result": {"permissions": asked, "scope": "turn"}}]
    assert [request.kind for request in world.asked] == ["permission"]


def test_questions_that_nobody_here_answers_are_refused(world: World) -> None:
    methods = ["item/tool/requestUserInput", "item/tool/call", "execCommandApproval", "new/thing"]
    asked = [{"ask": [method, {}]} for method in methods]
    elicitation = {"ask": ["mcpServer/elicitation/request", {"serverName": "x"}]}
    without = {"ask": ["item/commandExecution/requestApproval", []]}
    done = world.play(*asked, elicitation, without, SAID, end(), shell="on-request")
    assert done.status == "done"
    refused = {"error": {"code": -32601, "message": "this request is not supported"}}
    assert world.answers == [
        *({"id": number, **refused} for number in range(4)),
        {"id": 4, "result": {"action": "decline"}},
        {"id": 5, **refused},
    ]
    assert world.asked == []


def test_before_there_is_a_task_nothing_is_granted(world: World) -> None:
    done = world.play(SAID, end(), shell="on-request", script={"first": [ask_command()]})
    assert done == ending("done", text="Bye.")
    assert [set(answer) for answer in world.answers] == [{"id", "error"}]
    assert world.asked == []


# --- how it ends ---------------------------------------------------------------------------------


def test_a_turn_that_fails(world: World) -> None:
    done = world.play(SAID, end("failed", "No quota left"))
    assert done == ending("failed", "Codex failed: No quota left.", text="Bye.")


def test_a_turn_that_somebody_else_interrupted(world: World) -> None:
    done = world.play(end("interrupted"))
    assert done == ending("aborted", "Codex was interrupted: it gave no reason.")


def test_a_status_that_is_not_known_is_no_success(world: World) -> None:
    assert world.play(SAID, end("finished")).status == "aborted"


@pytest.mark.parametrize("text", ["Bye.", "[1]", '{"a": 1, "a": 2}', '{"a": NaN}', ""])
def test_an_answer_that_is_no_object_fails_where_one_is_due(world: World, text: str) -> None:
    script = completed(item("agentMessage", text=text)), end()
    done = world.play(*script, output_schema={"type": "object", "properties": {}})
    assert (done.status, done.result, done.text) == ("failed", None, text)


def test_an_answer_that_says_failed_is_taken_at_its_word(world: World) -> None:
    text = '{"status": "FAILED", "summary": "It cannot be done"}'
    script = completed(item("agentMessage", text=text)), end()
    done = world.play(*script, output_schema={"type": "object", "properties": {}})
    assert (done.status, done.reason) == ("failed", "the agent says FAILED: It cannot be done")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ({"thread": {"error": {"code": -32600, "message": "no"}}}, "No thread: no."),
        (
            {"turn": {"error": {"code": -32600, "message": "no"}}},
            "Codex did not take the task: no.",
        ),
    ],
)
def test_an_error_for_an_answer_is_a_failure(world: World, script: Any, reason: str) -> None:
    done = world.play(script=script)
    assert (done.status, done.reason) == ("failed", reason)


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ({"exit": 0}, "it ended in the middle of its work"),
        ({"die": signal.SIGKILL}, "it ended in the middle of its work"),
        ({"raw": "{}\n\n"}, "it wrote a line that is not JSON"),
        ({"raw": "hello\n"}, "it wrote a line that is not JSON"),
        ({"raw": "[1]\n"}, "it wrote a line that is not a message"),
        ({"raw": '{"method": "x", "params": NaN}\n'}, "it wrote a line that is not JSON"),
        ({"raw": "[" * 200_000 + "\n"}, "it wrote a line that is not JSON"),
        ({"filler": 17 * 2**20}, "it wrote a line of more than 16777216 bytes"),
    ],
)
def test_whatever_is_no_protocol_is_the_end(world: World, action: Any, why: str) -> None:
    done = world.play(SAID, action)
    assert done == ending("aborted", f"Codex did not finish: {why}.", text="Bye.")


def test_an_event_nested_too_deeply_is_the_end(world: World) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    done = world.play(completed(item("mcpToolCall", arguments=deep)))
    assert done.status == "aborted"
    assert done.reason.startswith("Codex sent what cannot be kept")


def test_what_it_last_complained_of_explains_its_end(world: World) -> None:
    words = "\x1b[31mERROR\x1b[0m out of luck"
    done = world.play({"complain": "one"}, {"complain": words}, {"exit": 3})
    assert done.reason == (
        "Codex did not finish: it ended in the middle of its work. "
        "Its last words: ERROR out of luck"
    )


def test_notices_of_other_threads_are_not_heard(world: World) -> None:
    foreign = {"method": "item/completed", "params": {"threadId": "x", "item": item("plan")}}
    over = {"method": "turn/completed", "params": {"threadId": "x", "turn": {}}}
    done = world.play({"send": foreign}, {"send": over}, {"send": {"method": "y"}}, SAID, end())
    assert done.status == "done"
    assert [part.item_type for part in world.parts] == ["agentMessage"]


# --- what stops it -------------------------------------------------------------------------------


def test_when_time_is_up_the_turn_is_interrupted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It does not wait for what it would give to one that does not listen.
    monkeypatch.setattr(external_agent, "GRACE_S", 10 * PATIENCE_S)
    script = SAID, {"until": "turn/interrupt"}, end("interrupted")

    def attempt(wall_s: float) -> Ending:
        began = time.monotonic()
        done = world.play(*script, budget=Budget(wall_s=wall_s))
        reason = f"The time of {wall_s:g} s is used up."
        assert (done.status, done.reason) == ("exhausted", reason)
        assert time.monotonic() - began < wall_s + PATIENCE_S
        return done

    done = given_time(0.7, attempt, lambda _: world.parts)
    assert done == ending("exhausted", done.reason, text="Bye.")
    assert world.received[-1]["params"] == {"threadId": THREAD, "turnId": TURN}


def test_a_server_that_never_answers_costs_the_time_and_no_more(world: World) -> None:
    done = world.play(script={"first": [{"sleep": 600}]}, budget=Budget(wall_s=0.5))
    assert (done.status, done.reason) == ("exhausted", "The time of 0.5 s is used up.")


def test_one_that_does_not_listen_is_killed_with_all_that_it_started(world: World) -> None:
    mark = marker()
    stopping = when(lambda: running(mark), lambda: world.cancel.cancel("enough"))
    began = time.monotonic()
    done = world.play({"spawn": mark}, {"sleep": 600})
    stopping.join()
    assert done == ending("aborted", "It was cancelled: enough.")
    assert time.monotonic() - began < 2 * PATIENCE_S
    assert running(mark) == []


def test_what_completes_after_the_cancellation_is_still_seen(world: World) -> None:
    program = world.program(BEGUN, {"until": "turn/interrupt"}, SAID, end("interrupted"))
    performance = world.begin(program)
    assert next(performance).text == "Begun."
    world.cancel.cancel("enough")
    done = world.through(performance)
    assert done == ending("aborted", "It was cancelled: enough.", text="Bye.")
    assert [part.text for part in world.parts] == ["Bye."]


def test_cancelled_before_it_began(world: World) -> None:
    world.cancel.cancel("never mind")
    done = world.play(SAID, end())
    assert (done.status, done.reason) == ("aborted", "It was cancelled: never mind.")


def test_no_approval_is_asked_for_once_it_is_to_stop(world: World) -> None:
    script = BEGUN, {"until": "turn/interrupt"}, ask_command(), end("interrupted")
    performance = world.begin(world.program(*script), shell="on-request")
    assert next(performance).text == "Begun."
    world.cancel.cancel("enough")
    world.through(performance)
    assert [set(answer) for answer in world.answers] == [{"id", "error"}]
    assert world.asked == []


@pytest.mark.parametrize(
    ("budget", "seen", "reason"),
    [
        (Budget(wall_s=600, parts=1), 1, "The 1 parts of the budget are used up."),
        (Budget(wall_s=600, tool_rounds=0), 1, "The 0 tool calls are used up."),
        (Budget(wall_s=600, tokens=33), 2, "The 33 tokens of the budget are used up."),
    ],
)
def test_a_budget_that_is_used_up(world: World, budget: Budget, seen: int, reason: str) -> None:
    script = [SAID, completed(EXECUTION), usage((30, 4), (30, 4)), {"until": "turn/interrupt"}]
    done = world.play(*script, end("interrupted"), budget=budget, shell="never")
    assert (done.status, done.reason) == ("exhausted", reason)
    assert len(world.parts) == seen


def test_a_budget_that_is_just_enough(world: World) -> None:
    script = SAID, completed(EXECUTION), usage((30, 4), (30, 4)), end()
    budget = Budget(wall_s=600, parts=2, tool_rounds=1, tokens=34)
    assert world.play(*script, budget=budget, shell="never").status == "done"
    assert world.counted == [Usage(30, 4)]


def test_whoever_stops_listening_ends_it(world: World) -> None:
    mark = marker()
    performance = world.begin(world.program({"spawn": mark}, SAID, {"sleep": 600}))
    assert next(performance).text == "Bye."
    until = time.monotonic() + PATIENCE_S
    while not running(mark):  # For a moment after exec a process has no command line.
        assert time.monotonic() < until
    performance.close()
    assert running(mark) == []


def test_the_litter_of_its_sandbox_is_swept_and_work_is_not(world: World) -> None:
    (world.tree / ".aws").touch()
    touched = [{"touch": str(world.tree / name)} for name in (".codex", ".git", "empty")]
    world.play(*touched, SAID, end())
    assert sorted(path.name for path in world.tree.iterdir()) == [".aws", "empty"]
    world.play(notice("x"), {"touch": str(world.tree / ".agents")}, {"exit": 1})
    assert sorted(path.name for path in world.tree.iterdir()) == [".aws", "empty"]
