"""``coilclaw env fixtures`` and ``coilclaw env selfcheck`` as a user types them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from coilclaw.traces.environments import fixtures
from tests.support.command import Command
from tests.support.fixturesets import lay, packed

MAIN = """
import json
import os
from pathlib import Path

from coilclaw.environments.authoring import case, check, run, suite

own = suite("own")
words = suite("words").suite("part_{n}", n=(1, 2))


@own.test
def always(fixtures: str = "", reference: str = "") -> None:
    check(os.path.basename(reference) in ("", "true", "false"), "another one")


def judged(word: str):
    def of(fixtures: str = "", reference: str = "") -> None:
        done = run([reference, "x"], timeout_s=60)
        check(done.exit_code == 0, "the reference said no", kind="wrong_exit_code")
        check(word != "bad", "it is bad", kind="wrong_output")

    return of


@words.cases
def of_part(n: int, fixtures: str = ""):
    folder = Path(fixtures or "/nowhere") / "words"
    left_out = json.loads(Path(__file__).with_name("words_left_out.json").read_text())["left_out"]
    for file in sorted(folder.glob("*.word"))[n - 1 :: 2]:
        if file.stem not in left_out:
            yield case(file.stem, judged(file.read_text()))
"""
WORDS = {f"{name}.word": b"good" for name in ("a", "b", "c", "d")} | {"e.word": b"bad"}
EMPTY = {"suite": "words", "left_out": {}}


@dataclass(frozen=True)
class World:
    """An environment that needs fixtures, and somebody who uses it."""

    command: Command
    environment: Path
    root: Path

    def __call__(self, action: str, *arguments: str) -> tuple[int, str, str]:
        done = self.command(
            "env", *action.split()[:1], str(self.environment), *action.split()[1:], *arguments
        )
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def data(self, action: str, *arguments: str) -> tuple[int, Any]:
        code, out, _ = self(action, *arguments, "--fixtures", str(self.root), "--json")
        return code, json.loads(out)


def declared(sha256: str, programs: int) -> str:
    return (
        '[[set]]\nname = "words"\nsuite = "words"\npurpose = "some words"\nlicence = "ours"\n'
        'places = ["words"]\nfiles = ["*.word"]\nanchor = "a.word"\n'
        f'sha256 = "{sha256}"\nprograms = {programs}\nleft_out = "words_left_out.json"\n'
        '[set.git]\nurl = "https://127.0.0.1:9/words.git"\n'
        f'commit = "{"ab" * 20}"\n'
    )


@pytest.fixture
def world(tmp_path: Path) -> World:
    environment = tmp_path / "words_environment"
    environment.mkdir()
    (environment / "main.py").write_text(MAIN)
    (environment / "words_left_out.json").write_text(json.dumps(EMPTY))
    (environment / fixtures.FILE).write_text(declared("0" * 64, 5))
    sample = lay(tmp_path / "sample", WORDS)
    wanted = fixtures.read_declared(environment)[0]
    digest = fixtures.fingerprint(sample, fixtures.select_files(wanted, sample))
    (environment / fixtures.FILE).write_text(declared(digest, 5))
    known = {"names": ["true"], "proved_with": "true 1", "failures": {"words/part_1/e": "bad"}}
    (environment / "selfcheck.json").write_text(json.dumps({"version": 1, "compilers": [known]}))
    (tmp_path / "user").mkdir()
    return World(Command(tmp_path / "user" / ".coilclaw"), environment, tmp_path / "root")


def status(world: World) -> tuple[int, str, int | None]:
    code, told = world.data("fixtures status")
    (only,) = told["sets"]
    return code, only["state"], only["programs"]


def test_missing_then_installed_then_another_version(world: World, tmp_path: Path) -> None:
    assert status(world) == (1, "missing", None)
    code, out, _ = world("fixtures status", "--fixtures", str(world.root))
    assert code == 1
    assert "coilclaw env fixtures words_environment install words" in out
    assert "git clone https://127.0.0.1:9/words.git" in out
    archive = tmp_path / "words.tar.gz"
    archive.write_bytes(packed({f"words-1/{name}": data for name, data in WORDS.items()}, "w:gz"))
    place = ("--fixtures", str(world.root))
    code, out, err = world("fixtures install", "--from", f"words={archive}", *place)
    assert (code, "installed from" in out) == (0, True), err
    assert status(world) == (0, "pinned", 5)
    code, out, _ = world("fixtures install", *place)
    assert (code, "was already installed" in out) == (0, True)
    (world.root / "words/b.word").write_bytes(b"changed")
    assert status(world) == (1, "other", 5)
    code, out, _ = world("fixtures status", *place)
    wanted = fixtures.read_declared(world.environment)[0]
    assert wanted.sha256 in out
    code, _, err = world("fixtures install", "--from", f"words={archive}", *place)
    assert (code, "[fixtures.other]" in err) == (1, True)
    code, _, err = world("fixtures install", "--from", f"words={archive}", "--force", *place)
    assert (code, status(world)) == (0, (0, "pinned", 5))


def test_without_a_network_it_says_what_to_do(world: World) -> None:
    code, out, err = world("fixtures install", "words", "--fixtures", str(world.root))
    assert (code, out) == (1, "")
    assert "git clone https://127.0.0.1:9/words.git" in err
    assert "--from words=PATH" in err
    assert status(world)[1] == "missing"


def test_fewer_programs_than_are_pinned(world: World) -> None:
    lay(world.root / "words", WORDS)
    assert status(world) == (0, "pinned", 5)
    left_out = world.environment / "words_left_out.json"
    left_out.write_text(json.dumps(EMPTY | {"left_out": {"a": "because"}}))
    assert status(world) == (1, "pinned", 4)


@pytest.mark.parametrize(
    ("action", "arguments", "rule"),
    [
        ("fixtures install", ("large",), "fixtures.unknown"),
        ("fixtures install", ("--from", "large=/x"), "fixtures.unknown"),
        ("fixtures install", ("--from", "words"), "usage.from"),
        ("fixtures install", ("--from", "words=/x", "--from", "words=/y"), "usage.from"),
        ("selfcheck", ("--cc", "no-such-compiler"), "selfcheck.compiler"),
        ("selfcheck", ("--cc", "true", "--suite", "nothing"), "selfcheck.suite"),
        ("selfcheck", ("--cc", "true", "--derive", "own"), "selfcheck.derive"),
        ("selfcheck", ("--cc", "true", "--derive", "words"), "fixtures.missing"),
        ("selfcheck", ("--cc", "true", "--output", "x"), "usage.output"),
    ],
)
def test_wrong_usage(world: World, action: str, arguments: tuple[str, ...], rule: str) -> None:
    code, out, err = world(action, *arguments, "--fixtures", str(world.root))
    assert (code, out) == (2, ""), err
    assert f"[{rule}]" in err


def test_an_environment_that_needs_none_or_is_none(world: World) -> None:
    for name, rule in (("kv_store", "fixtures.none"), ("no_such", "environment.unknown")):
        done = world.command("env", "fixtures", name, "status")
        assert (done.returncode, f"[{rule}]".encode() in done.stderr) == (2, True)
    done = world.command("env", "selfcheck", "kv_store", "--cc", "true")
    assert done.returncode == 2
    assert b"[selfcheck.environment]" in done.stderr


def checked(world: World, *arguments: str) -> tuple[int, dict[str, str]]:
    code, told = world.data("selfcheck", *arguments)
    return code, {suite["suite"]: suite["state"] for suite in told["suites"]}


def test_exactly_as_expected_or_not(world: World) -> None:
    lay(world.root / "words", WORDS)
    assert checked(world, "--cc", "true") == (0, {"own": "proved", "words": "proved"})
    code, out, _ = world("selfcheck", "--cc", "true", "--fixtures", str(world.root))
    assert (code, "fails, as expected: words/part_1/e" in out) == (0, True)
    assert "exactly as expected (known from true 1)" in out
    # A failure that is not known of.
    known = json.loads((world.environment / "selfcheck.json").read_text())
    failures = known["compilers"][0]["failures"]
    known["compilers"][0]["failures"] = {}
    (world.environment / "selfcheck.json").write_text(json.dumps(known))
    assert checked(world, "--cc", "true") == (1, {"own": "proved", "words": "differs"})
    assert checked(world, "--cc", "true", "--suite", "own") == (0, {"own": "proved"})
    assert checked(world, "--cc", "true", "--suite", "words/part_2") == (
        0,
        {"words/part_2": "proved"},
    )
    # One that is known of and does not happen.
    known["compilers"][0]["failures"] = failures | {"words/part_1/a": "it is not"}
    (world.environment / "selfcheck.json").write_text(json.dumps(known))
    code, out, _ = world("selfcheck", "--cc", "true", "--fixtures", str(world.root))
    assert (code, "passed, and should have failed: words/part_1/a" in out) == (1, True)


def test_fixtures_that_are_missing_are_told_of_and_fail_only_who_asks_for_them(
    world: World,
) -> None:
    (world.environment / "main.py").write_text(
        MAIN.replace("    for file in", "    yield case('none', lambda: None)\n    for file in")
    )
    assert checked(world, "--cc", "true") == (0, {"own": "proved", "words": "missing"})
    assert checked(world, "--cc", "true", "--suite", "words") == (1, {"words": "missing"})
    code, out, err = world("selfcheck", "--cc", "true", "--fixtures", str(world.root))
    assert (code, "words            not checked: words is not installed" in out) == (0, True)
    assert "fixtures are missing: words" in err


def test_a_compiler_that_is_not_known_is_scored(world: World) -> None:
    lay(world.root / "words", WORDS)
    assert checked(world, "--cc", "false") == (0, {"own": "scored", "words": "scored"})
    code, out, _ = world("selfcheck", "--cc", "false", "--fixtures", str(world.root))
    assert (code, "nothing is expected of false; it scored 1 of 6" in out) == (0, True)


def test_what_is_left_out_is_derived(world: World, tmp_path: Path) -> None:
    """With nothing left out, whatever the list says now; then the suite is all right."""
    lay(world.root / "words", WORDS)
    own = world.environment / "words_left_out.json"
    own.write_text(json.dumps(EMPTY | {"left_out": {"a": "because"}}))
    before = own.read_bytes()
    made = tmp_path / "made.json"
    code, told = world.data("selfcheck", "--cc", "true", "--derive", "words", "--output", str(made))
    assert (code, told["programs"], told["left_out"]) == (0, 5, {"e": "wrong_output: it prints"})
    assert (json.loads(made.read_text()), own.read_bytes()) == (told, before)
    assert told["fixtures_sha256"] == fixtures.read_declared(world.environment)[0].sha256
    code, told = world.data("selfcheck", "--cc", "true", "--derive", "words")
    assert (code, json.loads(own.read_text())) == (0, told)
    code, told = world.data("selfcheck", "--cc", "true", "--suite", "words")
    (suite,) = told["suites"]
    assert (suite["passed"], suite["total"], suite["expected_total"]) == (4, 4, 5)
