"""What ``replay``, ``graph_trace`` and the cache write: closed schemas, and formats that stay."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.console import Console
from coilclaw.cli.traces.replay import checkout
from coilclaw.kernel import schemas
from coilclaw.traces.evaluation.evaluation import (
    Evaluation,
    EvaluationCache,
    TreeQuestion,
    evaluate,
)
from coilclaw.traces.evaluation.graph import graph_of
from tests.support.recordings import (
    BUILD_FAILS,
    CASES,
    VANISHES,
    FakeJudge,
    court,
    passing,
    recording,
)

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "trajectory"
PARTS = [
    None,
    passing(CASES[0], CASES[2]),
    passing(CASES[0], BUILD_FAILS),
    passing(CASES[2]),
    None,
    passing(CASES[0], VANISHES),
    passing(*CASES),
]
DOCUMENTS = {
    "replay_evaluate": "replay.v1",
    "replay_checkout": "replay.v1",
    "graph_trace": "graph_trace.v1",
    "evaluation": "evaluation.v1",
}


def judged(folder: Path) -> Evaluation:
    return evaluate(recording(folder, PARTS), court(folder, FakeJudge()), paths=("", "edge"))


def timeless(value: Any) -> Any:
    """Without what differs from time to time and from place to place."""
    if isinstance(value, dict):
        kept = {"duration_ms": 0, "repo_path": "/somewhere"}
        return {name: kept.get(name, timeless(inner)) for name, inner in value.items()}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def written(folder: Path) -> dict[str, Any]:
    """Today's documents of one recording."""
    evaluation = judged(folder)
    console = Console(io.StringIO(), io.StringIO(), colour_out=False, colour_err=False)
    out = folder / "checkout.json"
    assert checkout(evaluation.recording, 2, str(folder / "at2"), str(out), console) == 0
    answers = list((folder / "cache").rglob("*.json"))
    assert len(answers) == 10  # six trees but the one without a judge, at two paths
    question = evaluation.of_part(2).judged["edge"].question
    name = question.digest()
    kept = folder / "cache" / name[:2] / f"{name[2:]}.json"
    return {
        "replay_evaluate": timeless(evaluation.json()),
        "replay_checkout": timeless(json.loads(out.read_bytes())),
        "graph_trace": timeless(graph_of(evaluation).json()),
        "evaluation": timeless(json.loads(kept.read_bytes())),
    }


def baseline(name: str) -> Any:
    return json.loads((BASELINE / f"{name}.json").read_bytes())


def test_today_the_same_is_written_as_in_the_baseline(tmp_path: Path) -> None:
    today = written(tmp_path)
    assert {name: baseline(name) for name in DOCUMENTS} == today
    for name, document in today.items():
        assert schemas.find_schema_problems(DOCUMENTS[name], document) == (), name
        assert document["schema_version"] == DOCUMENTS[name]


def test_an_answer_of_the_baseline_is_known_today(tmp_path: Path) -> None:
    document = baseline("evaluation")
    question = TreeQuestion(document["tree"], document["environment_version"], document["path"])
    name = question.digest()
    path = tmp_path / name[:2] / f"{name[2:]}.json"
    path.parent.mkdir()
    path.write_bytes((BASELINE / "evaluation.json").read_bytes())
    answer = EvaluationCache(tmp_path).get(question)
    assert answer is not None
    assert answer.result.json() == document["result"]


def test_what_an_answer_holds_is_the_result_of_an_environment() -> None:
    ours, theirs = schemas.load_schema("evaluation.v1"), schemas.load_schema("test_result.v1")
    assert ours["$defs"] == theirs["$defs"]


Change = Callable[[dict[str, Any]], object]
WRONG: list[tuple[str, Change]] = [
    ("replay_evaluate", lambda d: d.update(more=1)),
    ("replay_evaluate", lambda d: d.pop("mode")),
    ("replay_evaluate", lambda d: d.update(mode="checkout-part")),
    ("replay_evaluate", lambda d: d.update(schema_version="replay.v2")),
    ("replay_evaluate", lambda d: d["part_to_commit"].update({"0": "a" * 40})),
    ("replay_evaluate", lambda d: d["part_to_commit"].update({"1": "HEAD"})),
    ("replay_evaluate", lambda d: d["part_evaluations"][0]["evaluation"].pop("total")),
    ("replay_evaluate", lambda d: d["part_evaluations"][5]["evaluation"].update(passed=1)),
    ("replay_evaluate", lambda d: d["part_evaluations"][0].update(part=0)),
    ("replay_checkout", lambda d: d.update(part=-1)),
    ("replay_checkout", lambda d: d.update(repo_path="")),
    ("replay_checkout", lambda d: d.update(judged=0)),
    ("replay_checkout", lambda d: d.update(trajectory_id="../x")),
    ("graph_trace", lambda d: d.update(end="tired")),
    ("graph_trace", lambda d: d["points"][0].pop("error")),
    ("graph_trace", lambda d: d["points"][0].update(passed=-1)),
    ("graph_trace", lambda d: d["cases"].update({"a": ["fine"]})),
    ("graph_trace", lambda d: d["points"][0]["suites"].update(x={"passed": 1})),
    ("evaluation", lambda d: d.update(more=1)),
    ("evaluation", lambda d: d.update(duration_ms="5")),
    ("evaluation", lambda d: d["result"].pop("children")),
    ("evaluation", lambda d: d.update(tree="HEAD")),
]


@pytest.mark.parametrize(("name", "change"), WRONG)
def test_a_document_that_is_none_is_found(name: str, change: Change) -> None:
    document = baseline(name)
    change(document)
    assert schemas.find_schema_problems(DOCUMENTS[name], document) != ()


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(more=1),
        lambda d: d.update(duration_ms="5"),
        lambda d: d.update(tree="b" * 40),
        lambda d: d["result"].update(passed="1"),
    ],
)
def test_an_answer_that_is_none_is_made_again(tmp_path: Path, change: Change) -> None:
    document = baseline("evaluation")
    question = TreeQuestion(document["tree"], document["environment_version"], document["path"])
    change(document)
    name = question.digest()
    path = tmp_path / name[:2] / f"{name[2:]}.json"
    path.parent.mkdir()
    path.write_text(json.dumps(document))
    assert EvaluationCache(tmp_path).get(question) is None


def test_the_documentation_has_every_field() -> None:
    text = (Path(__file__).parents[3] / "docs" / "trajectories.md").read_text()
    for name in DOCUMENTS:
        section = text.partition(f"\n### `{DOCUMENTS[name]}`\n")[2].partition("\n### ")[0]
        for field in baseline(name):
            assert f"`{field}`" in section, (name, field)
