"""Evaluations: each distinct tree once, kept, resumed, and failures that do not end the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coilclaw.kernel.errors import EnvironmentFault, Stopped, UsageError
from coilclaw.traces.environments.results import Case, Delta, Result
from coilclaw.traces.evaluation.evaluation import (
    EvaluationAnswer,
    EvaluationCache,
    JudgedTree,
    TreeQuestion,
    evaluate,
)
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support.recordings import (
    BUILD_FAILS,
    CASES,
    VANISHES,
    FakeJudge,
    court,
    passing,
    recording,
)


def test_200_parts_over_40_trees_are_judged_40_times_and_then_never(tmp_path: Path) -> None:
    parts = [
        {"passing.txt": f"{number // 5}\n"} if number % 5 == 0 else None for number in range(200)
    ]
    recorded = recording(tmp_path, parts)
    judge = FakeJudge()
    first = evaluate(recorded, court(tmp_path, judge))
    assert (len(judge.asked), first.judged, len(first.trees)) == (40, 40, 40)
    assert judge.most <= 2
    second = evaluate(recorded, court(tmp_path, judge))
    assert (len(judge.asked), second.judged) == (40, 0)
    assert second.json()["part_evaluations"] == first.json()["part_evaluations"]
    evaluate(recorded, court(tmp_path, judge, fresh=True))
    assert len(judge.asked) == 80
    assert list((tmp_path / "scratch").iterdir()) == []


def test_the_report_maps_results_back_onto_every_part(tmp_path: Path) -> None:
    recorded = recording(
        tmp_path,
        [
            None,
            passing("basics/get"),
            None,
            passing("basics/get", "basics/set"),
            passing("basics/set"),
            passing("basics/get", "basics/set"),
        ],
    )
    report = evaluate(recorded, court(tmp_path, FakeJudge())).json()
    assert report["part_to_commit"] == {str(n): recorded.commit(n) for n in range(1, 7)}
    rows = report["part_evaluations"]
    assert isinstance(rows, list)
    told = []
    for row in rows:
        assert isinstance(row, dict)
        figures = row["evaluation"]
        assert isinstance(figures, dict)
        told.append(
            (
                row["part"],
                figures["passed"],
                figures["total"],
                row["newly_broken"],
                row["newly_fixed"],
            )
        )
    assert told == [
        (1, 0, 5, [], []),
        (2, 1, 5, [], ["basics/get"]),
        (3, 1, 5, [], []),
        (4, 2, 5, [], ["basics/set"]),
        (5, 1, 5, ["basics/get"], []),
        (6, 2, 5, [], ["basics/get"]),
    ]
    commits = report["commit_evaluations"]
    assert isinstance(commits, dict)
    assert list(commits) == report["commits_evaluated"]
    one = commits[recorded.commit(4)]
    assert isinstance(one, dict)
    assert one["cases"] == {
        name: "passed" if name.startswith("basics") else "failed" for name in CASES
    }
    json.dumps(report)


def test_a_commit_that_does_not_build_is_a_result_which_is_kept(tmp_path: Path) -> None:
    recorded = recording(
        tmp_path, [passing(*CASES), passing(BUILD_FAILS), passing(*CASES, "again")]
    )
    judge = FakeJudge()
    found = evaluate(recorded, court(tmp_path, judge))
    assert [found.of_part(n).result().passed for n in (1, 2, 3)] == [5, 0, 5]
    assert found.of_part(2).error == "build.sh ended with exit code 1"
    assert found.failed == 0
    assert found.changes() == {2: Delta(newly_broken=CASES), 3: Delta(newly_fixed=CASES)}
    assert evaluate(recorded, court(tmp_path, judge)).judged == 0


def test_what_could_not_be_judged_is_said_and_tried_again_and_ends_nothing(tmp_path: Path) -> None:
    recorded = recording(
        tmp_path, [passing("basics/get"), passing(VANISHES), passing("basics/set")]
    )
    judge = FakeJudge()
    found = evaluate(recorded, court(tmp_path, judge))
    assert (found.failed, found.judged) == (1, 3)
    assert found.of_part(2).error == "the judge is gone [test.judge]"
    # It says nothing about the code, so nothing broke there.
    assert found.changes() == {3: Delta(newly_broken=("basics/get",), newly_fixed=("basics/set",))}
    assert evaluate(recorded, court(tmp_path, judge)).judged == 1


def test_a_path_that_does_not_exist_is_the_callers_mistake(tmp_path: Path) -> None:
    recorded = recording(tmp_path, [passing("basics/get"), passing("basics/set")])

    class Refusing(FakeJudge):
        def test(self, submission: Path, path: str = "", *, cancel: Cancellation) -> Result:
            assert submission.is_dir()
            assert not cancel.cancelled
            raise UsageError(f"no such path: {path}", rule="environment.path")

    with pytest.raises(UsageError, match="no such path"):
        evaluate(recorded, court(tmp_path, Refusing()), paths=("nothing",))


def test_several_paths_are_judged_apart_and_counted_together(tmp_path: Path) -> None:
    recorded = recording(tmp_path, [passing("basics/get", "edge/empty")])
    judge = FakeJudge()
    found = evaluate(recorded, court(tmp_path, judge), paths=("basics", "edge", "basics/get"))
    assert sorted(judge.asked) == ["basics", "basics/get", "edge"]
    result = found.of_part(1).result()
    assert (result.passed, result.total) == (2, 3)
    assert sorted(result.children) == ["basics", "edge"]


def test_one_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    recorded = recording(tmp_path, [passing("basics/get", str(number)) for number in range(6)])
    judge, cancel = FakeJudge(), Cancellation()

    def stop(done: int, total: int, one: JudgedTree) -> None:
        assert (total, one.source) == (6, "judged")
        if done == 3:
            cancel.cancel("enough")

    with pytest.raises(Stopped):
        evaluate(recorded, court(tmp_path, judge, jobs=1), cancel=cancel, notify=stop)
    before = len(judge.asked)
    assert before >= 3
    assert evaluate(recorded, court(tmp_path, judge)).judged == 6 - before
    assert list((tmp_path / "scratch").iterdir()) == []


QUESTION = TreeQuestion("a" * 40, "e" * 64, "basics")
ANSWER = EvaluationAnswer(
    Result.build([Case(id="basics/get", status="passed", duration_ms=3)], "basics"), 12
)


def test_the_cache_answers_only_the_very_question(tmp_path: Path) -> None:
    cache = EvaluationCache(tmp_path)
    assert cache.get(QUESTION) is None
    cache.put(QUESTION, ANSWER)
    assert cache.get(QUESTION) == ANSWER
    assert cache.get(TreeQuestion("b" * 40, "e" * 64, "basics")) is None
    assert cache.get(TreeQuestion("a" * 40, "f" * 64, "basics")) is None
    assert cache.get(TreeQuestion("a" * 40, "e" * 64, "")) is None
    newer = TreeQuestion("a" * 40, "f" * 64, "basics")
    cache.put(newer, EvaluationAnswer(ANSWER.result, 99))
    assert (cache.get(QUESTION), cache.get(newer)) == (ANSWER, EvaluationAnswer(ANSWER.result, 99))


def test_a_question_that_is_asked_twice_is_judged_once(tmp_path: Path) -> None:
    recorded = recording(tmp_path, [passing("basics/get")])
    judge = FakeJudge()
    judging = court(tmp_path, judge)
    question = judging.question(recorded.spans()[0].tree, "basics")
    assert len(list(judging.hear(recorded, [question, question], Cancellation()))) == 1
    assert judge.asked == ["basics"]


def test_a_cached_file_that_was_touched_is_not_believed(tmp_path: Path) -> None:
    cache = EvaluationCache(tmp_path)
    cache.put(QUESTION, ANSWER)
    (file,) = tmp_path.rglob("*.json")
    value = json.loads(file.read_bytes())
    for name, wrong in (
        ("tree", "c" * 40),
        ("schema_version", "evaluation.v0"),
        ("result", {**value["result"], "passed": 5}),
        ("result", None),
    ):
        file.write_text(json.dumps({**value, name: wrong}))
        assert cache.get(QUESTION) is None, name
    for data in (b"", b"[]", b"\xff", file.read_bytes()[:20]):
        file.write_bytes(data)
        assert cache.get(QUESTION) is None
    cache.put(QUESTION, ANSWER)
    assert cache.get(QUESTION) == ANSWER


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(EnvironmentFault):
        EvaluationCache(tmp_path / "taken").put(QUESTION, ANSWER)
