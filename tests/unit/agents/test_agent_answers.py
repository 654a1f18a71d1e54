"""The structured answer of an agent is read without guessing."""

from __future__ import annotations

import pytest

from coilclaw.kernel import schemas
from coilclaw.kernel.errors import AnswerError
from coilclaw.runners import agent_answer


@pytest.mark.parametrize(
    ("data", "rule"),
    [
        (b"", "answer.json"),
        (b"{} {}", "answer.json"),
        (b"```json\n{}\n```", "answer.json"),
        (b'Here it is: {"a": 1}', "answer.json"),
        (b'{"a": 1, "a": 2}', "answer.json"),
        (b'{"a": {"b": 1, "b": 1}}', "answer.json"),
        (b'{"a": NaN}', "answer.json"),
        (b'{"a": Infinity}', "answer.json"),
        (b'{"a": 1e999}', "answer.json"),
        (b'{"a": "\\ud800"}', "answer.json"),
        (b'{"a": ' + b"9" * 5000 + b"}", "answer.json"),
        (b"[]", "answer.json"),
        (b'"text"', "answer.json"),
        (b"\xff{}", "answer.encoding"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "answer.depth"),
        (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "answer.json"),
        (b'{"a": "' + b"x" * 100 + b'"}', "answer.bounds"),
    ],
)
def test_what_is_not_one_json_object_is_refused(data: bytes, rule: str) -> None:
    bound = 50 if rule == "answer.bounds" else agent_answer.MAX_ANSWER_BYTES
    with pytest.raises(AnswerError) as caught:
        agent_answer.read_object(data, what="it", bound=bound)
    assert caught.value.rule == rule


def test_one_json_object_is_read() -> None:
    data = ' \n{"a": [1, 2.5, null, "ü"], "b": {"a": true}}\n'.encode()
    assert agent_answer.read_object(data, what="it") == {"a": [1, 2.5, None, "ü"], "b": {"a": True}}


@pytest.mark.parametrize("failure", ["", "broken"])
def test_a_result_made_for_an_agent_fits_the_schema(failure: str) -> None:
    made = agent_answer.task_result("task-1", "did", failure=failure)
    assert schemas.find_schema_problems("agent_task_result.v1", made) == ()
    assert agent_answer.verdict(made)[0] == ("failed" if failure else "done")


def test_a_result_says_how_it_went() -> None:
    assert agent_answer.verdict(
        {"status": "FAILED", "summary": "s", "failure": {"message": "m"}}
    ) == (
        "failed",
        "the agent says FAILED: m",
    )
    assert agent_answer.verdict({"status": "BLOCKED", "summary": "s", "failure": None}) == (
        "failed",
        "the agent says BLOCKED: s",
    )
    for status in ("SUCCESS", "SKIPPED", "FAIL"):
        assert agent_answer.verdict({"status": status}) == ("done", "")
    assert agent_answer.verdict({"verdict": "FAIL"}) == ("done", "")
