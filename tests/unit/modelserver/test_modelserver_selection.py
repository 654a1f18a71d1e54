"""Which answer is played follows from the request alone."""

from __future__ import annotations

from typing import Any

import pytest

from coilclaw.cli.model_server import chat_completions, gemini, messages, responses
from coilclaw.cli.model_server.dialect import (
    ChatHistory,
    ChatQuery,
    Dialect,
    Streaming,
    read_history,
)
from coilclaw.cli.model_server.script import DialectName
from coilclaw.cli.model_server.script_file import make_script
from coilclaw.cli.model_server.service import choose
from coilclaw.kernel.errors import UsageError
from tests.unit.modelserver.asking import DIALECTS, Question, Turn

MODULES: dict[str, Dialect] = {
    "chat": chat_completions,
    "responses": responses,
    "messages": messages,
    "gemini": gemini,
}
every = pytest.mark.parametrize("dialect", DIALECTS)


def read(dialect: str, body: dict[str, Any], *prefixes: str) -> ChatHistory:
    return read_history(MODULES[dialect].read_messages(body), prefixes)


def chosen(script: object, **fields: Any) -> str | None:
    streaming = Streaming.EVENTS if fields.get("stream") else Streaming.NO
    asked = ChatQuery({}, fields.get("headers", {}), fields.get("model", "m"), streaming)
    told = fields.get("history", ChatHistory(("hello",)))
    return choose(make_script(script), fields.get("dialect", DialectName.CHAT), asked, told).text


# ---- histories ------------------------------------------------------------------------------


@every
@pytest.mark.parametrize(
    ("turns", "prompts", "answered"),
    [
        ([Turn("a")], ("a",), 0),
        ([Turn("a"), Turn(text="x", calls=("f",))], ("a",), 1),
        ([Turn("a"), Turn(calls=("f", "g")), Turn(calls=("f",))], ("a",), 2),
        ([Turn("a"), Turn(calls=("f",)), Turn(text="done"), Turn("b")], ("a", "b"), 0),
        ([Turn("a"), Turn(text="done"), Turn("b"), Turn(calls=("f",))], ("a", "b"), 1),
        ([Turn("a"), Turn("b")], ("a", "b"), 0),
        ([Turn("a"), Turn(text="x"), Turn(text="y")], ("a",), 1),
    ],
)
def test_a_history(
    dialect: str, turns: list[Turn], prompts: tuple[str, ...], answered: int
) -> None:
    found = read(dialect, Question(dialect, turns=tuple(turns)).body)
    assert (found.prompts, found.answered) == (prompts, answered)


@every
@pytest.mark.parametrize(
    "context",
    ["<environment_context>\n<cwd>/x</cwd>", "  <system-reminder>be", "# AGENTS.md instructions"],
)
def test_context_in_the_users_name_is_no_prompt(dialect: str, context: str) -> None:
    turns = (Turn(context), Turn("real"), Turn(calls=("f",)), Turn(context), Turn(text="x"))
    found = read(dialect, Question(dialect, turns=turns).body)
    assert (found.prompts, found.answered) == (("real",), 2)


@every
def test_a_script_can_name_more_context(dialect: str) -> None:
    body = Question(dialect, turns=(Turn("<note>x"), Turn("<html>real"))).body
    assert read(dialect, body).prompts == ("<note>x", "<html>real")
    assert read(dialect, body, "<note>").prompts == ("<html>real",)


def test_context_beside_the_words_of_a_prompt_is_left_out() -> None:
    parts = [{"type": "text", "text": text} for text in ("<system-reminder>x", "do it", "now")]
    body = {"messages": [{"role": "user", "content": parts}]}
    assert read("messages", body).prompts == ("do it\nnow",)


def test_a_prompt_without_any_text_is_a_prompt() -> None:
    body = {"contents": [{"role": "user", "parts": [{"inlineData": {}}]}, {"role": "model"}]}
    assert read("gemini", body) == ChatHistory(("",), 1)


def test_a_response_may_ask_with_plain_text() -> None:
    body = {"input": "hello", "instructions": "be good"}
    assert read("responses", body) == ChatHistory(("hello",), 0, "be good")


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("chat", {"messages": [{"role": "developer", "content": "be good"}]}),
        ("responses", {"input": [{"role": "system", "content": "be good"}]}),
        ("messages", {"system": [{"type": "text", "text": "be good"}], "messages": []}),
        ("gemini", {"systemInstruction": {"parts": [{"text": "be good"}]}}),
        ("gemini", {"system_instruction": {"parts": [{"text": "be good"}]}}),
    ],
)
def test_the_system_prompt_is_known(dialect: str, body: dict[str, Any]) -> None:
    assert read(dialect, body).system == "be good"


# ---- choice ---------------------------------------------------------------------------------


def test_answers_serve_every_prompt() -> None:
    script = [{"text": "a"}, {"text": "b"}]
    assert chosen(script, history=ChatHistory(("p",), 0)) == "a"
    assert chosen(script, history=ChatHistory(("p",), 1)) == "b"
    assert chosen(script, history=ChatHistory(("p", "q"), 0)) == "a"
    assert chosen(script, history=ChatHistory((), 0)) == "a"


def test_turns_have_answers_for_each_prompt() -> None:
    script = {"turns": [[{"text": "a"}], [{"text": "b"}, {"text": "c"}]]}
    assert chosen(script, history=ChatHistory(("p",), 0)) == "a"
    assert chosen(script, history=ChatHistory(("p", "q"), 0)) == "b"
    assert chosen(script, history=ChatHistory(("p", "q"), 1)) == "c"
    assert chosen(script, history=ChatHistory((), 0)) == "a"


@pytest.mark.parametrize(
    ("script", "past", "message"),
    [
        (
            [{"text": "a"}],
            ChatHistory(("p",), 1),
            "no answer at index 1: of its 1 answers, 1 are eligible for this request",
        ),
        (
            [{"text": "a", "when": "x"}, {"text": "b", "when": "x"}],
            ChatHistory(("p",), 0),
            "no answer at index 0: of its 2 answers, 0 are eligible for this request",
        ),
        (
            {"turns": [[], [{"text": "a"}]]},
            ChatHistory(("p",), 0),
            "no answer at index 0 for prompt 1: of its 0 answers, 0 are eligible for this request",
        ),
        (
            {"turns": [[{"text": "a"}]]},
            ChatHistory(("p", "q"), 0),
            (
                "nothing at index 1 of turns: it has answers for 1 prompts, "
                "and the request is at prompt 2"
            ),
        ),
    ],
)
def test_past_the_end_is_an_error_that_says_what_was_wanted(
    script: object, past: ChatHistory, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        chosen(script, history=past)
    assert (caught.value.rule, caught.value.message) == (
        "script.exhausted",
        f"the script has {message}",
    )


def test_past_the_end_of_a_script_that_is_not_strict() -> None:
    past = ChatHistory(("p",), 5)
    assert chosen({"answers": [], "strict": False}, history=past) == (
        "(the script has no further answer)"
    )
    assert chosen({"answers": [], "otherwise": {"text": "o"}}, history=past) == "o"


def test_the_first_eligible_answer_is_first() -> None:
    script = [
        {"text": "a", "when": "alpha"},
        {"text": "ab", "when": ["alpha", "beta"]},
        {"text": "any"},
    ]
    assert chosen(script, history=ChatHistory(("alpha beta",), 0)) == "a"
    assert chosen(script, history=ChatHistory(("alpha beta",), 1)) == "ab"
    assert chosen(script, history=ChatHistory(("alpha",), 1)) == "any"
    assert chosen(script, history=ChatHistory(("beta",), 0)) == "any"
    # Only the last prompt counts.
    assert chosen(script, history=ChatHistory(("alpha", "gamma"), 0)) == "any"


@pytest.mark.parametrize(
    ("when", "fields"),
    [
        ({"prompt": "hell"}, {"history": ChatHistory(("goodbye",))}),
        ({"system": "good"}, {"history": ChatHistory(("hello",), 0, "evil")}),
        ({"model": "m"}, {"model": "mm"}),
        ({"dialect": "chat"}, {"dialect": DialectName.GEMINI}),
        ({"stream": False}, {"stream": True}),
        ({"headers": {"X-Retry-Count": "0"}}, {"headers": {"x-retry-count": "1"}}),
        ({"headers": {"X-Retry-Count": ""}}, {"headers": {}}),
    ],
)
def test_a_condition_holds_or_not(when: dict[str, Any], fields: dict[str, Any]) -> None:
    script = [{"text": "yes", "when": when}, {"text": "no"}]
    good = {"history": ChatHistory(("hello",), 0, "be good"), "headers": {"x-retry-count": "0"}}
    assert chosen(script, **good) == "yes"
    assert chosen(script, **{**good, **fields}) == "no"
