"""The structured answer of an agent is read without guessing."""

from __future__ import annotations

import pytest

from coilclaw.agents import answers
from coilclaw.contracts import schemas
from coilclaw.errors import AnswerError


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
    bound = 50 if rule == "answer.bounds" else answers.MAX_ANSWER_BYTES
    with pytest.raises(AnswerError) as caught:
        answers.read_object(data, what="it", bound=bound)
    assert caught.value.rule == rule


def test_one_json_object_is_read() -> None:
    data = ' \n{"a": [1, 2.5, null, "ü"], "b": {"a": true}}\n'.encode()
    assert answers.read_object(data, what="it") == {"a": [1, 2.5, None, "ü"], "b": {"a": True}}


@pytest.mark.parametrize("failure", ["", "broken"])
def test_a_result_made_for_an_agent_fits_the_schema(failure: str) -> None:
    made = answers.task_result("task-1", "did", failure=failure)
    assert schemas.problems("agent_task_result.v1", made) == ()
    assert answers.verdict(made)[0] == ("failed" if failure else "done")


def test_a_result_says_how_it_went() -> None:
    assert answers.verdict({"status": "FAILED", "summary": "s", "failure": {"message": "m"}}) == (
        "failed",
        "the agent says FAILED: m",
    )
    assert answers.verdict({"status": "BLOCKED", "summary": "s", "failure": None}) == (
        "failed",
        "the agent says BLOCKED: s",
    )
    for status in ("SUCCESS", "SKIPPED", "FAIL"):
        assert answers.verdict({"status": status}) == ("done", "")
    assert answers.verdict({"verdict": "FAIL"}) == ("done", "")
