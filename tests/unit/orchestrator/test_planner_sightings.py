"""What a planner has seen, and the paths of a plan that it has not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from coilclaw.kernel.messages import Json, Part
from coilclaw.runs.engine.contract_checks import Baseline
from coilclaw.runs.roles.planner import SeenPaths, hint_lines

FILES = ("a.py", "src/app/main.py", "src/app/other.py", "src/lib/deep/x.py", "pyproject.toml")
BASELINE = Baseline.of("a" * 40, FILES, lambda _: None)
FILE = f"file     {12:>10} "
LISTED = f"directory           deep/\n{FILE}other.py\nlink                l -> main.py\n"


def seen(*parts: Part) -> SeenPaths:
    sightings = SeenPaths(BASELINE)
    for part in parts:
        sightings.take(part)
    return sightings


def part(tool: str, output: str = "", *, exit_code: int = 0, **arguments: Json) -> Part:
    return Part("tool", tool=tool, input=json.dumps(arguments), output=output, exit_code=exit_code)


def problems(sightings: SeenPaths, allowed: Sequence[str], new: Sequence[str] = ()) -> list[str]:
    return [str(each) for each in sightings.problems(allowed, new)]


def test_nothing_was_seen_of_what_nobody_looked_at() -> None:
    (said,) = problems(seen(), ["a.py"])
    assert said.startswith("/allowed_paths/0: 'a.py' exists, and you have not seen it")


@pytest.mark.parametrize(
    ("looked", "path"),
    [
        (part("file_read", path="a.py"), "a.py"),
        (part("file_read", path="./src//app/main.py"), "src/app/main.py"),
        (part("file_read", path="src/app/main.py"), "src/app"),
        (part("file_read", path="src/app/main.py"), "src/app/"),
        (part("file_list", LISTED, path="src/app"), "src/app/other.py"),
        (part("file_list", LISTED, path="src/lib"), "src/lib/deep"),
        (part("file_list", f"{FILE}a.py"), "a.py"),
        (part("file_search", "src/app/main.py:3: x\n", query="x"), "src/app/main.py"),
    ],
)
def test_a_call_shows_names(looked: Part, path: str) -> None:
    assert problems(seen(looked), [path]) == []
    assert problems(seen(), [path]) != []


@pytest.mark.parametrize(
    "looked",
    [
        part("file_read", "a.py", exit_code=1, path="a.py"),
        part("file_read", f"a.py\n{FILE}a.py", path="src/app/main.py"),
        part("file_list", LISTED, path="src/lib"),
        part("try_test", "a.py:1: x", cmd="pytest"),
        Part("text", text="I have read a.py"),
    ],
)
def test_what_a_file_says_or_a_model_claims_is_not_seen(looked: Part) -> None:
    assert problems(seen(looked), ["a.py"]) != []


def test_a_path_that_is_not_there_has_to_be_announced() -> None:
    (said,) = problems(seen(), ["src/new.py"])
    assert "does not exist at the baseline" in said
    assert problems(seen(), ["src/new.py"], ["src/new.py"]) == []
    assert problems(seen(), ["src/new/x.py"], ["src/new"]) == []
    assert problems(seen(), ["src/new.py"], ["src/newer.py"]) != []


def test_what_exists_is_not_new() -> None:
    looked = seen(part("file_read", path="a.py"))
    assert problems(looked, ["a.py"], ["a.py"]) == [
        "/new_paths/0: 'a.py' exists already, and is not new"
    ]
    assert any("have not seen" in said for said in problems(seen(), ["a.py"], ["a.py"]))


def test_a_path_that_rules_refuse_anyway_is_left_to_them() -> None:
    assert problems(seen(), ["../x", "*.py"]) == []


def test_names_in_a_request_are_found() -> None:
    text = 'Mend "src/app/main.py", src/lib/ and nothing.py.'
    assert BASELINE.find_mentioned(text) == ("src/app/main.py", "src/lib")


def test_hints_come_from_what_was_recognised() -> None:
    files = {"package.json": b'{"scripts": {"test": "jest"}}', "Makefile": b"all:\n"}
    hints = hint_lines(Baseline.of("a", files, files.get))
    assert any("package.json" in hint for hint in hints)
    assert any("npm test" in hint for hint in hints)
    assert hint_lines(Baseline.of("a", ["sub/package.json"], lambda _: None)) == ()


def test_the_lock_of_a_tool_that_is_missing_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"uv.lock": b"", "pyproject.toml": b'[dependency-groups]\ndev = ["pytest"]\n'}
    baseline = Baseline.of("a", files, files.get)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not any("uv" in command for command in baseline.recognise().tests)
    assert baseline.recognise().setup == ()
    assert "uv.lock" in baseline.recognise().forbidden_paths
    (tmp_path / "uv").touch(mode=0o755)
    assert any("uv run" in command for command in baseline.recognise().tests)
