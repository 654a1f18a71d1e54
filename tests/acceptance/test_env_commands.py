"""``coilclaw env`` as a user types it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from coilclaw.cli.console import Console
from coilclaw.cli.status_line import CaseCounter
from coilclaw.traces.environments.results import Case
from tests.support.command import Command
from tests.support.environments import VARIANTS, submit, write_environment


@pytest.fixture
def coilclaw(tmp_path: Path) -> Command:
    return Command(tmp_path / "user" / ".coilclaw")


@pytest.fixture(autouse=True)
def user(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (("test", "no_such", "--submission", "."), "environment.unknown"),
        (("test", "kv_store", "--submission", "/nowhere"), "environment.submission"),
        (("test", "kv_store", "nothing", "--submission", "."), "environment.path"),
        (("test", "kv_store", "--submission", ".", "--jobs", "0"), "environment.jobs"),
        (("test", "kv_store", "--submission", ".", "--timeout", "-1"), "usage.timeout"),
        (("test", "kv_store", "--submission", ".", "--param", "x"), "usage.param"),
        (
            ("test", "kv_store", "--submission", ".", "--param", "x=1"),
            "environment.parameter.unknown",
        ),
        (("schema", "no_such"), "environment.unknown"),
    ],
)
def test_wrong_usage_ends_with_2(
    coilclaw: Command, tmp_path: Path, arguments: tuple[str, ...], rule: str
) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    done = coilclaw("env", *arguments, cwd=empty)
    assert (done.returncode, done.stdout) == (2, b"")
    assert f"[{rule}]".encode() in done.stderr


def test_without_a_submission_there_is_nothing_to_test(coilclaw: Command) -> None:
    assert coilclaw("env", "test", "kv_store").returncode == 2
    assert coilclaw("env").returncode == 2


def test_list_names_what_ships(coilclaw: Command) -> None:
    done = coilclaw("env", "list")
    assert done.returncode == 0
    assert b"kv_store" in done.stdout
    listed = json.loads(coilclaw("env", "list", "--json").stdout)
    assert "kv_store" in [entry["name"] for entry in listed]
    assert set(listed[0]) == {"name", "file", "version", "task", "workspace"}


def test_schema_names_every_test(coilclaw: Command) -> None:
    done = coilclaw("env", "schema", "kv_store")
    assert done.returncode == 0
    assert b"load/batch_{n}" in done.stdout
    assert b"  n: 100, 1000, 5000\n" in done.stdout
    schema = json.loads(coilclaw("env", "schema", "kv_store", "--json").stdout)
    assert "load/batch_100" in schema["cases"]


def test_a_right_submission_ends_with_0(coilclaw: Command, tmp_path: Path) -> None:
    place = submit(tmp_path / "right")
    done = coilclaw("env", "test", "kv_store", "basics", "--submission", str(place), "--jobs", "2")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == b"passed 12 of 12, failed 0\n"


def test_a_wrong_submission_ends_with_1_and_says_where(coilclaw: Command, tmp_path: Path) -> None:
    place = submit(tmp_path / "wrong", VARIANTS[0].source())
    done = coilclaw("env", "test", "kv_store", "basics", "--submission", str(place))
    assert done.returncode == 1
    assert b"failed   basics/keys_are_sorted (wrong_output)" in done.stdout
    assert b"expected 'KEYS C a a1 b'" in done.stdout
    assert b"passed 10 of 12, failed 2" in done.stdout
    told = coilclaw("env", "test", "kv_store", "basics", "--submission", str(place), "--json")
    assert told.returncode == 1
    result = json.loads(told.stdout)
    assert (result["passed"], result["failed"], result["total"]) == (10, 2, 12)
    assert {case["id"] for case in result["cases"] if case["status"] == "failed"} == {
        "basics/keys_are_sorted",
        "basics/keys_by_prefix",
    }


def test_a_build_that_fails_ends_with_1_and_says_why(coilclaw: Command, tmp_path: Path) -> None:
    place = submit(tmp_path / "wrong", build="echo no luck >&2; exit 1\n")
    done = coilclaw("env", "test", "kv_store", "--submission", str(place))
    assert done.returncode == 1
    assert b"the build failed: build.sh ended with exit code 1" in done.stderr
    assert b"no luck" in done.stderr


def test_an_environment_of_ones_own_takes_parameters(coilclaw: Command, tmp_path: Path) -> None:
    write_environment(
        tmp_path / "mine",
        "from coilclaw.environments.authoring import check, test\n"
        "@test\n"
        "def small(n: int, word: str = 'x') -> None:\n"
        "    check(n < 3 and word == 'x', 'too large')\n",
    )
    place = submit(tmp_path / "any")

    def code(*params: str) -> int:
        given = [part for param in params for part in ("--param", param)]
        where = ("--submission", str(place))
        return coilclaw("env", "test", str(tmp_path / "mine"), *where, *given).returncode

    assert code("n=2") == 0
    assert code("n=2", "word=x") == 0
    assert code("n=3") == 1
    assert code("n=two") == 2
    assert code("n=2", "n=2") == 2
    assert code() == 2


FILES = """
from pathlib import Path
from coilclaw.environments.authoring import case, check, skip, suite

words = suite("words").suite("part_{n}", n=range(1, 4))


def missing() -> None:
    skip("there are no words")


def there(fixtures: str) -> None:
    check((Path(fixtures) / "word").is_file(), "not there")


@words.cases
def of_part(n: int, fixtures: str = ""):
    yield case("missing", missing) if not fixtures else case("there", there)
"""


def test_fixtures_are_named_from_where_one_is(coilclaw: Command, tmp_path: Path) -> None:
    """The tests run elsewhere; and the reason why many were skipped is said once."""
    write_environment(tmp_path / "mine", FILES)
    place = submit(tmp_path / "any")
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "word").touch()
    line = ("env", "test", str(tmp_path / "mine"), "--submission", str(place))
    done = coilclaw(*line, "--fixtures", "files", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.endswith(b"passed 3 of 3, failed 0\n")
    assert coilclaw(*line, "--fixtures", "x", "--param", "fixtures=y").returncode == 2
    skipped = coilclaw(*line)
    assert skipped.returncode == 1
    assert skipped.stdout.count(b"there are no words") == 1
    assert skipped.stdout.endswith(b"passed 0 of 0, failed 0, skipped 3\n")


@pytest.mark.parametrize("given", ["relative/files", "/", "//", "/usr/.."])
def test_a_wrong_directory_of_fixtures_is_refused_before_anything_is_built(
    coilclaw: Command, tmp_path: Path, given: str
) -> None:
    (tmp_path / "any").mkdir()
    for path in ("basics/smoke/return_42", "wacct/chapter_1"):
        done = coilclaw(
            "env", "test", "c_compiler", path, "--submission", str(tmp_path / "any"),
            "--param", f"fixtures={given}",
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"[fixtures.directory]" in done.stderr


def test_what_takes_no_compiler_cannot_be_checked_with_one(coilclaw: Command) -> None:
    done = coilclaw("env", "selfcheck", "kv_store", "--cc", "sh")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"[selfcheck.environment]" in done.stderr


def test_a_terminal_shows_how_far_it_is() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for kind, shown in ((Terminal, True), (io.StringIO, False)):
        err = kind()
        console = Console(io.StringIO(), err, colour_out=False, colour_err=False)
        with CaseCounter(console, "judging") as counter:
            counter.count(Case(id="a", status="passed", duration_ms=1))
        text = err.getvalue()
        assert ("judging: building" in text) is shown
        assert ("judging: 1 cases finished, 0 failed" in text) is shown
        assert text.endswith("\r\x1b[K") is shown
