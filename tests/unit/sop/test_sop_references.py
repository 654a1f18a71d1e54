"""What a stage takes from earlier ones."""

from __future__ import annotations

from coilclaw.agent.sop import references
from coilclaw.agent.sop.document import Sop, SopStage, StageOutcome
from coilclaw.kernel.messages import Json

SCHEMA: dict[str, Json] = {"properties": {"copy_from": {}, "copy": {}, "content": {}}}


def test_an_argument_that_the_tool_itself_calls_so_is_the_tools() -> None:
    args: dict[str, Json] = {
        "copy_from": "place",
        "content_from": "list",
        "_from": "x",
        "n_from": 3,
    }
    assert references.find_sources(args, SCHEMA) == {"content": "list"}
    stage = SopStage("s", "tool", (), args=args)
    outcomes = {"list": StageOutcome("list", "done", output="text")}
    assert references.arguments(stage, SCHEMA, outcomes) == {
        "copy_from": "place",
        "content": "text",
        "_from": "x",
        "n_from": 3,
    }


def test_output_put_into_a_prompt_is_not_read_again() -> None:
    stage = SopStage("ask", "approval", (), prompt="{{a.output}} and {{ b.output }}")
    outcomes = {
        "a": StageOutcome("a", "done", output="{{b.output}}"),
        "b": StageOutcome("b", "done", output="\\1"),
    }
    assert references.render_prompt(stage, outcomes) == "{{b.output}} and \\1"


def test_an_agent_without_references_gets_what_ran_last() -> None:
    def stage(name: str, kind: str) -> SopStage:
        return SopStage(name, "agent" if kind == "agent" else "approval", (), prompt="Go.")

    stages = (
        stage("first", "agent"),
        stage("second", "agent"),
        stage("left", "agent"),
        stage("ask", "approval"),
        stage("last", "agent"),
    )
    sop = Sop("s", "", stages, "", "")
    outcomes = {
        "first": StageOutcome("first", "done", output="one"),
        "second": StageOutcome("second", "done", output="two"),
        "left": StageOutcome("left", "skipped"),
        "ask": StageOutcome("ask", "done"),
    }
    message = references.message(stages[-1], sop, outcomes)
    assert "<<<output of stage second" in message
    assert "one" not in message.split("\n\n", 2)[2]
    assert references.message(stages[0], sop, {}) == "Go."


def test_long_output_is_cut_and_said_so() -> None:
    stage = SopStage("say", "agent", (), prompt="{{a.output}}")
    output = "x" * (references.MAX_SHOWN_CHARS + 7)
    message = references.message(
        stage, Sop("s", "", (stage,), "", ""), {"a": StageOutcome("a", "done", output=output)}
    )
    assert "… 7 more characters are not shown" in message
    assert len(message) < references.MAX_SHOWN_CHARS + 1000
