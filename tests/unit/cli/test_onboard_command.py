"""``coilclaw onboard``: unattended with flags, and at a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from coilclaw.app.config.load import load_config
from coilclaw.app.config.values import Config
from coilclaw.models.endpoint import ProviderSettings
from coilclaw.policy.judgement import Autonomy
from tests.support.children import PATIENCE_S
from tests.support.rawserver import response, serving
from tests.unit.cli.setting_up import World

CANARY = "canary-0badcafe"
ANSWER = json.dumps({"choices": [{"message": {"role": "assistant", "content": "ok"}}]}).encode()


def config(world: World) -> Config:
    return load_config(world.config, home=world.home, environ={"HOME": str(world.user)})


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ((), "--provider"),
        (("--provider", "openai-compatible"), "--base-url"),
        (("--provider", "openai-compatible", "--base-url", "http://localhost:1"), "--model"),
        (("--provider", "gemini"), "--model"),
    ],
)
def test_without_a_terminal_a_missing_answer_names_its_flag(
    world: World, flags: tuple[str, ...], missing: str
) -> None:
    done = world.run("onboard", *flags)
    assert done.code == 2
    assert f"answer with {missing}" in done.err
    assert not world.home.exists()


def test_without_a_terminal_only_a_change_needs_a_yes(world: World) -> None:
    for _ in range(2):
        done = world.run("onboard", "--provider", "mock")
        assert done.code == 0, done.err
    before = world.config.read_text(encoding="utf-8")
    done = world.run("onboard", "--provider", "mock", "--name", "other")
    assert (done.code, "answer with --yes" in done.err) == (2, True)
    assert world.config.read_text(encoding="utf-8") == before
    assert world.run("onboard", "--provider", "mock", "--name", "other", "--yes").code == 0
    assert config(world).default_provider == "other"


@pytest.mark.parametrize(
    ("environ", "flags", "settings"),
    [
        (
            {"OPENAI_API_KEY": CANARY, "OPENAI_MODEL": "m"},
            (),
            ProviderSettings(
                *("openai_compatible", "openai-compatible", "m"),
                base_url="https://api.openai.com/v1",
                api_key_env="OPENAI_API_KEY",
            ),
        ),
        (
            {"OPENAI_BASE_URL": "http://localhost:1/v1", "OPENAI_MODEL": "m"},
            (),
            ProviderSettings(
                *("openai_compatible", "openai-compatible", "m"), base_url="http://localhost:1/v1"
            ),
        ),
        (  # A key goes nowhere but where it was set for.
            {"OPENAI_API_KEY": CANARY},
            ("--base-url", "http://localhost:1/v1", "--model", "m"),
            ProviderSettings(
                *("openai_compatible", "openai-compatible", "m"), base_url="http://localhost:1/v1"
            ),
        ),
        (
            {"GEMINI_API_KEY": CANARY, "GEMINI_MODEL": "g"},
            (),
            ProviderSettings("gemini", "gemini", "g", api_key_env="GEMINI_API_KEY"),
        ),
        (
            {"ANTHROPIC_API_KEY": CANARY, "GEMINI_API_KEY": CANARY, "ANTHROPIC_MODEL": "c"},
            ("--provider", "anthropic"),
            ProviderSettings("anthropic", "anthropic", "c", api_key_env="ANTHROPIC_API_KEY"),
        ),
    ],
)
def test_without_a_terminal_the_environment_answers(
    world: World, environ: dict[str, str], flags: tuple[str, ...], settings: ProviderSettings
) -> None:
    done = world.run("onboard", *flags, "--no-test", **environ)
    assert done.code == 0, done.err
    written = config(world)
    assert written.providers[settings.name] == settings
    assert (written.default_provider, written.default_model) == (settings.name, settings.model)
    assert CANARY not in done.out + done.err + world.config.read_text(encoding="utf-8")
    # The settings are shown; what the file explains beside them is not.
    assert f'default_provider = "{settings.name}"' in done.out
    assert not [line for line in done.out.splitlines() if line.startswith("#") or not line]


@pytest.mark.parametrize(
    ("environ", "missing"),
    [
        ({"OPENAI_API_KEY": CANARY, "GEMINI_API_KEY": CANARY}, "--provider"),
        ({"OPENAI_MODEL": "m"}, "--provider"),
        ({"ANTHROPIC_API_KEY": CANARY}, "--model"),
    ],
)
def test_an_environment_that_leaves_something_open_is_no_answer(
    world: World, environ: dict[str, str], missing: str
) -> None:
    done = world.run("onboard", "--no-test", **environ)
    assert (done.code, f"answer with {missing}" in done.err) == (2, True)
    assert not world.home.exists()


@pytest.mark.parametrize(
    "flags",
    [
        ("--provider", "mock", "--base-url", "http://localhost"),
        ("--provider", "mock", "--api-key-env", "X"),
        ("--provider", "gemini", "--model", "m", "--api-key-env", "X", "--api-key-file", "f"),
        ("--provider", "gemini", "--model", "m", "--name", "a b"),
        ("--provider", "gemini", "--model", "m", "--base-url", f"http://u:{CANARY}@h"),
        ("--provider", "gemini", "--model", "m", "--api-key-env", f"sk-{CANARY}"),
    ],
)
def test_flags_that_make_no_sense_are_refused(world: World, flags: tuple[str, ...]) -> None:
    done = world.run("onboard", *flags, "--yes", "--no-test")
    assert done.code == 2
    assert CANARY not in done.out + done.err
    assert not world.home.exists()


def test_a_mock_is_set_up_unattended_with_all_that_init_makes(world: World) -> None:
    done = world.run("onboard", "--provider", "mock", "--yes")
    assert done.code == 0, done.err
    assert config(world).providers["local"] == ProviderSettings("local", "mock", "mock")
    assert world.workspace.is_dir()
    assert (world.home / "memory.sqlite").is_file()
    assert (world.home / "policy.toml").is_file()
    assert stat.S_IMODE(world.config.stat().st_mode) == 0o600
    assert world.run("onboard", "--provider", "mock", "--yes").code == 0


def test_every_flag_is_an_answer(world: World) -> None:
    key = world.user / "key file"
    done = world.run(
        "onboard",
        *("--provider", "anthropic", "--name", "claude", "--model", "c-1"),
        *("--base-url", "https://h.example/v1", "--api-key-file", str(key)),
        *("--autonomy", "readonly", "--workspace", str(world.user / "w"), "--no-test", "--yes"),
    )
    assert done.code == 0, done.err
    written = config(world)
    assert written.providers["claude"] == ProviderSettings(
        "claude", "anthropic", "c-1", base_url="https://h.example/v1", api_key_file=key
    )
    assert (written.default_provider, written.default_model) == ("claude", "c-1")
    assert written.security.autonomy is Autonomy.READONLY
    assert written.workspace_dir == world.user / "w"
    assert (world.user / "w").is_dir()
    assert 'api_key_file = "~/key file"' in world.config.read_text(encoding="utf-8")


def test_it_merges_into_what_there_is(world: World) -> None:
    world.write(
        f"""\
# mine
workspace_dir = "{world.user}/w"  # here
default_provider = "x"

[providers.models.x] # that one
kind = "openai-compatible"
base_url = "http://localhost:1/v1"
model = "old"
api_key_env = "OLD"
timeout_s = 7 # slow
"""
    )
    done = world.run(
        "onboard",
        *("--provider", "gemini", "--name", "x", "--model", "new"),
        *("--api-key-env", "NEW", "--no-test", "--yes"),
    )
    assert done.code == 0, done.err
    assert world.config.read_text(encoding="utf-8") == (
        f"""\
# mine
workspace_dir = "{world.user}/w"  # here
default_provider = "x"
default_model = "new"

[providers.models.x] # that one
kind = "gemini"
model = "new"
api_key_env = "NEW"
timeout_s = 7 # slow
"""
    )
    assert '\n-kind = "openai-compatible"\n' in done.out
    assert '\n+kind = "gemini"\n' in done.out


def test_a_wrong_configuration_is_told_and_kept(world: World) -> None:
    world.write("x = 1\n")
    done = world.run("onboard", "--provider", "mock", "--yes")
    assert done.code == 2
    assert "config.toml:1: x" in done.err
    assert world.config.read_text(encoding="utf-8") == "x = 1\n"


def test_the_model_is_tried_before_anything_is_written(world: World) -> None:
    flags = ("--provider", "openai-compatible", "--model", "m", "--api-key-env", "K", "--yes")
    refused = response(CANARY.encode(), "401 Unauthorized")
    with serving(refused) as server:
        done = world.run("onboard", *flags, "--base-url", f"{server.url}/v1", K=CANARY)
    assert done.code == 4
    assert "--no-test" in done.err
    assert CANARY not in done.out + done.err
    assert not world.home.exists()
    with serving(response(ANSWER)) as server:
        done = world.run("onboard", *flags, "--base-url", f"{server.url}/v1", K=CANARY)
    assert done.code == 0, done.err
    assert "openai_compatible answered in" in done.err
    assert CANARY.encode() in server.received[0]
    assert CANARY not in done.out + done.err + world.config.read_text(encoding="utf-8")


def test_a_key_that_is_not_there_is_told(world: World) -> None:
    flags = ("--provider", "gemini", "--model", "m", "--yes", "--api-key-env", "NOT_SET_HERE")
    done = world.run("onboard", *flags)
    assert done.code == 2
    assert "NOT_SET_HERE is not set" in done.err
    assert not world.home.exists()
    assert world.run("onboard", *flags, "--no-test").code == 0


_DRIVER = """
import sys
from coilclaw.cli import dispatch
from coilclaw.cli.setup import onboard
from coilclaw.cli.parser import Parser
parser = Parser()
onboard.declare(parser)
args = parser.parse_args(sys.argv[1:])
args.module = ".setup.onboard"
sys.exit(dispatch.perform(args))
"""


@dataclass
class Terminal:
    """A person at a terminal, who waits for a question and answers it."""

    descriptor: int
    process: subprocess.Popen[bytes]
    seen: str = ""
    read: int = 0

    def answer(self, question: str, line: str) -> None:
        """Wait for the question, then type."""
        self._until(question)
        os.write(self.descriptor, line.encode() + b"\n")

    def finish(self) -> int:
        self._until(None)
        return self.process.wait(PATIENCE_S)

    def _until(self, text: str | None) -> None:
        end = time.monotonic() + PATIENCE_S
        while text is None or text not in self.seen[self.read :]:
            ready, _, _ = select.select([self.descriptor], [], [], end - time.monotonic())
            assert ready, f"waited for {text!r}, saw {self.seen!r}"
            try:
                piece = os.read(self.descriptor, 4096)
            except OSError:  # the other side is closed
                piece = b""
            if not piece:
                assert text is None, f"waited for {text!r}, saw {self.seen!r}"
                return
            self.seen += piece.decode()
        self.read = self.seen.index(text, self.read) + len(text)


@contextmanager
def terminal(world: World, *flags: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    environ = {k: v for k, v in os.environ.items() if k in {"PATH", "LANG", "PYTHONPATH"}}
    environ |= {"HOME": str(world.user), "TERM": "dumb"}
    process = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, *flags],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, process)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_a_person_is_asked_for_everything(world: World) -> None:
    with serving(response(ANSWER)) as server, terminal(world) as person:
        person.answer("1-4 [mock]", "openai")
        person.answer("one of: mock", "2")
        person.answer("Its name? [openai_compatible]", "mine")
        person.answer("Its URL? [http://localhost:1234/v1]", f"{server.url}/v1")
        person.answer("Which model", "m")
        person.answer("Where is its key?", "type")
        person.answer("The key (not shown)?", CANARY)
        person.answer("How much may the agent do", "full")
        person.answer("Its workspace?", "")
        person.answer("Write this? [Y/n]", "y")
        code = person.finish()
    assert code == 0, person.seen
    assert CANARY not in person.seen
    assert CANARY.encode() in server.received[0]
    written = config(world)
    kept = world.home / "keys" / "mine.key"
    assert written.providers["mine"] == ProviderSettings(
        "mine", "openai-compatible", "m", base_url=f"{server.url}/v1", api_key_file=kept
    )
    assert written.security.autonomy is Autonomy.FULL
    assert kept.read_text(encoding="utf-8") == f"{CANARY}\n"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert CANARY not in world.config.read_text(encoding="utf-8")


def test_a_no_writes_nothing(world: World) -> None:
    with terminal(world, "--provider", "mock", "--autonomy", "full") as person:
        person.answer("Its name? [local]", "")
        person.answer("Its workspace?", "")
        person.answer("Write this? [Y/n]", "n")
        code = person.finish()
    assert code == 3
    assert re.search(r"nothing was written", person.seen)
    assert not world.home.exists()


def test_a_model_that_does_not_answer_can_be_kept_all_the_same(world: World) -> None:
    flags = [
        *("--provider", "openai-compatible", "--name", "n", "--model", "m", "--yes"),
        *("--api-key-env", "K", "--base-url", "http://localhost:1", "--autonomy", "full"),
        *("--workspace", str(world.user / "w")),
    ]
    with terminal(world, *flags) as person:
        person.answer("Continue anyway? [y/N]", "")
        assert person.finish() == 4
    assert not world.home.exists()
    with terminal(world, *flags) as person:
        person.answer("Continue anyway? [y/N]", "y")
        assert person.finish() == 0
    assert config(world).default_provider == "n"


def test_the_end_of_input_writes_nothing(world: World) -> None:
    with terminal(world) as person:
        person.answer("1-4 [mock]", "\x04")
        assert person.finish() == 3
    assert not world.home.exists()


def test_nothing_is_left_in_the_folder_but_what_was_made(world: World) -> None:
    world.run("onboard", "--provider", "mock", "--yes")
    names = {path.name for path in world.home.iterdir()}
    assert names >= {"config.toml", "policy.toml", "memory.sqlite", "keys", "config.lock"}
    assert not [name for name in names if name.startswith(".")]
    assert list(Path(world.home / "keys").iterdir()) == []
