"""What a result rests on, and what a submission may see of ours."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.app.drivers import open_tracing
from coilclaw.traces.environments import catalogue, fixtures
from coilclaw.traces.environments.catalogue import EnvironmentPlace
from coilclaw.traces.environments.judge import (
    ReadyEnvironment,
    open_judge,
    read_environment,
)
from coilclaw.traces.trace_session import TraceOptions
from tests.support.fixturesets import FILES, SET, lay

MAIN = """
from coilclaw.environments.authoring import suite, test

@suite("own").test
def one() -> None: ...

@suite("small").test
def two() -> None: ...
"""
DECLARED = f"""
[[set]]
name = "small-set"
suite = "small"
purpose = "a few files"
licence = "ours"
places = {list(SET.places)}
files = {list(SET.files)}
anchor = "{SET.anchor}"
sha256 = "{SET.sha256}"
programs = 2

[set.git]
url = "https://example.invalid/small.git"
commit = "{"1" * 40}"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentPlace:
    monkeypatch.setattr(fixtures, "SHARED", tmp_path / "nowhere")
    files = {"main.py": MAIN, "task.md": "Make it.\n", "fixtures.toml": DECLARED}
    lay(tmp_path / "given", {name: text.encode() for name, text in files.items()})
    return catalogue.find_environment(str(tmp_path / "given"))


def test_without_declared_fixtures_it_is_the_environment_alone(tmp_path: Path) -> None:
    kv_store = catalogue.find_environment("kv_store")
    assert read_environment(kv_store, tmp_path) == ReadyEnvironment(kv_store.version)


def test_other_fixtures_are_another_version(place: EnvironmentPlace, tmp_path: Path) -> None:
    none = read_environment(place, tmp_path)
    assert none.skipped == ("small",)
    folder = lay(tmp_path / "fixtures" / "small", FILES)
    some = read_environment(place, tmp_path)
    assert some.skipped == ()
    (folder / "tests" / "a.c").write_bytes(b"int main(void) { return 1; }\n")
    other = read_environment(place, tmp_path)
    (folder / "not-read.txt").write_bytes(b"x")
    assert read_environment(place, tmp_path) == other
    assert len({place.version, none.version, some.version, other.version}) == 4


def test_what_cannot_be_judged_is_not_required(place: EnvironmentPlace, tmp_path: Path) -> None:
    tracing = open_tracing(tmp_path, environ={"PATH": "/usr/bin:/bin"}, start=tmp_path)
    plan = tracing.plan(TraceOptions(environment=str(place.file.parent)))
    assert (plan.required, tracing.skipped) == (("own",), ("small",))
    lay(tmp_path / "fixtures" / "small", FILES)
    complete = tracing.plan(TraceOptions(environment=str(place.file.parent)))
    assert (complete.required, tracing.skipped) == (("own", "small"), ())
    assert plan.environment_version != complete.environment_version


SHOWS = """
from coilclaw.environments.authoring import run, test

@test
def shows(line: str) -> None:
    print(run(line).stdout)
"""


def test_what_is_judged_sees_nothing_of_our_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A tool on the PATH can be read with all that is around it, as /opt can.
    tool = tmp_path / "tool"
    lay(tool, {"manual": b"the manual", "home/gateway.token": b"the token"})
    lay(tool, {"bin/tool": b"", "home/environments/builds/other/tree/x": b"of others"})
    monkeypatch.setenv("PATH", f"{tool / 'bin'}:{os.environ['PATH']}")
    lay(tmp_path / "given", {"main.py": SHOWS.encode()})
    lay(tmp_path / "work", {"own": b"own work"})
    judge = open_judge(str(tmp_path / "given"), tool / "home", os.environ, jobs=1)
    line = f"cat {tool}/manual; cat {tool}/home/*; cat $(find {tool} -type f)"
    (case,) = judge.test(tmp_path / "work", "shows", params={"line": line}).cases
    assert case.log is not None
    assert case.log.startswith("the manual"), "its neighbours can be read"
    assert "own work" in case.log
    assert "the token" not in case.log
    assert "of others" not in case.log
