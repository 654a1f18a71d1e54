"""``--sandbox modal``: what is asked of the SDK, and what is left when anything goes wrong.

The SDK is a stand-in with the real signatures: what runs in its sandboxes are real processes.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from coilclaw.cli.main import main
from coilclaw.cli.traces.trace_run import stop_on_signals
from coilclaw.kernel.errors import CoilClawError, EnvironmentFault, Stopped
from coilclaw.traces import modal_payload, modal_sandbox
from coilclaw.traces.artifacts.local_store import LocalStore
from coilclaw.traces.modal_payload import INPUTS, ModalExtras
from coilclaw.traces.modal_sandbox import ModalBox
from coilclaw.traces.trajectory.plan import TrajectoryPlan
from coilclaw.workspace.process.cancellation import Cancellation
from tests.support import modalstandin as standin
from tests.support.children import PATIENCE_S
from tests.support.modalstandin import World
from tests.support.repository import PACKAGE, ROOT
from tests.support.sandboxes import UNCOVERED

ID = "far-away"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIA-SAYS-WHO", "AWS_SECRET_ACCESS_KEY": "s3cr3t/of+the/bucket"}
MODEL_KEY = "sk-of-the-model-0123456789"
ENVIRONMENT = """\
from coilclaw.environments.authoring import check, session_path, suite

only = suite("only")


@only.test
def one() -> None:
    check((session_path() / "one").read_text() == "ok", "it does not say ok")
"""
SLOW = 'echo begun; trap "echo told; exit 3" TERM; while :; do sleep 0.05; done'


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    # Not below /tmp, which the sandbox of a real recording covers.
    place = Path(tempfile.mkdtemp(dir=UNCOVERED))
    made = World(place / "remote", place / "programs")
    made.root.mkdir()
    made.programs.mkdir()
    monkeypatch.setitem(sys.modules, "modal", standin.module(made))
    yield made
    made.end()
    shutil.rmtree(place)


def plan(**changes: Any) -> TrajectoryPlan:
    given: dict[str, Any] = {
        "trajectory_id": ID,
        "agent": "codex",
        "prompt": "build it",
        "environment": "kv_store",
        "timeout_s": 60.0,
    }
    return TrajectoryPlan(**(given | changes))


def box(
    said: list[tuple[str, str]],
    store: str,
    environ: Mapping[str, str] | None = None,
    **changes: Any,
) -> ModalBox:
    given: dict[str, Any] = {"plan": plan(), "start": Path("/"), **changes}
    return ModalBox(
        store=store,
        environ=environ or {},
        say=lambda line, side: said.append((line, side)),
        **given,
    )


def codex_home(where: Path) -> dict[str, str]:
    where.mkdir()
    (where / "config.toml").write_text(
        'model_provider = "ours"\n[model_providers.ours]\nenv_key = "OUR_KEY"\n'
        '[model_providers.other]\nenv_key = "OTHER_KEY"\n'
    )
    return {
        "CORTEXPILOT_CODEX_BASE_HOME": str(where),
        "OUR_KEY": MODEL_KEY,
        "OTHER_KEY": "is-not-needed",
        "UNRELATED_TOKEN": "stays-here",
        "MODAL_TOKEN_SECRET": "stays-here-too",
    }


def refused(work: Callable[[], object], rule: str) -> CoilClawError:
    with pytest.raises(CoilClawError) as caught:
        work()
    assert caught.value.rule == rule
    return caught.value


def load(environ: Mapping[str, str], store: str = "", **changes: Any) -> modal_payload.ModalPayload:
    return modal_payload.load_payload(
        plan(**changes), store, ModalExtras(), environ=environ, start=Path("/")
    )


# What is refused before anything is asked of Modal.


@pytest.mark.parametrize("agent", ["acp:gemini --acp", "process:./agent", "builtin"])
def test_an_agent_that_cannot_be_installed_there_is_refused(agent: str) -> None:
    refused(lambda: load({}, agent=agent), "modal.agent")


def test_a_bucket_without_keys_is_refused_and_with_them_taken() -> None:
    role = {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_EC2_METADATA_DISABLED": "false"}
    refused(lambda: load(role, "s3://bucket"), "modal.credentials")
    cargo = load({**role, **KEYS, "AWS_REGION": "eu-west-1"}, "s3://bucket")
    assert cargo.secrets == KEYS
    assert cargo.env["AWS_REGION"] == "eu-west-1"
    assert not set(role) & set(cargo.env)
    assert load({"AWS_SKIP_SIGNATURE": "true"}, "s3://bucket").secrets == {}
    assert load(KEYS, "").secrets == {}


@pytest.mark.parametrize("host", ["http://127.0.0.1:8333", "http://localhost", "http://[::1]:1"])
def test_an_endpoint_of_this_machine_is_refused_and_another_taken(host: str) -> None:
    refused(lambda: load({**KEYS, "AWS_ENDPOINT_URL": host}, "s3://bucket"), "modal.endpoint")
    far = {**KEYS, "AWS_ENDPOINT_URL": "https://s3.example.org"}
    assert load(far, "s3://bucket").env["AWS_ENDPOINT_URL"] == "https://s3.example.org"


def test_a_time_that_no_sandbox_lives_is_refused() -> None:
    most = modal_payload.MAX_LIFE_S - modal_payload.MARGIN_S
    refused(lambda: load({}, timeout_s=most + 1.0), "modal.timeout")
    longest, unlimited = load({}, timeout_s=float(most)), load({}, timeout_s=None)
    assert longest.words == unlimited.words
    assert f"--timeout={most}" in unlimited.words
    assert unlimited.life_s == modal_payload.MAX_LIFE_S
    assert load({}, timeout_s=1.5).life_s == 2 + modal_payload.MARGIN_S


def test_debian_packages_are_names(world: World) -> None:
    sdk = standin.module(world)
    wrong = {modal_payload.PACKAGES_VARIABLE: "cargo ;reboot"}
    refused(lambda: modal_payload.make_image(sdk, "codex", wrong), "modal.packages")
    modal_payload.make_image(sdk, "scripted", {modal_payload.PACKAGES_VARIABLE: "cargo g++"})
    assert world.of("apt_install")[-1]["packages"][-2:] == ("cargo", "g++")


def test_a_missing_package_is_told_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "modal", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setenv("COILCLAW_HOME", str(tmp_path))
    refused(modal_sandbox.load_sdk, "modal.missing")
    assert main(["trace", "run", "--sandbox", "modal"]) == 5
    said = capsys.readouterr().err
    assert "[modal.missing]" in said
    assert "pip install 'coilclaw[modal]'" in said
    assert "modal setup" in said


def test_going_on_is_refused(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COILCLAW_HOME", str(tmp_path))
    words = ["trace", "run", "--sandbox", "modal", "--resume", "--trajectory-id", ID]
    assert main(words) == 2
    assert "[modal.resume]" in capsys.readouterr().err
    assert world.asked == []


def test_a_trajectory_that_is_there_is_not_written_again(world: World, tmp_path: Path) -> None:
    LocalStore(tmp_path).put(f"trajectories/{ID}/agent_trace.json", b"{}", previous=None)
    refused(box([], str(tmp_path)).record, "artifact.conflict")
    assert world.of("create") == []


# What is asked of Modal.


def test_the_image_holds_debian_python_git_bubblewrap_ourselves_and_the_agent(world: World) -> None:
    modal_payload.make_image(standin.module(world), "codex", KEYS)
    assert [name for name, _ in world.asked if name != "add_local_dir"] == [
        "debian_slim",
        "apt_install",
        "requirements",
        "run_commands",
    ]
    assert world.of("debian_slim") == [
        {"python_version": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    ]
    packages = world.of("apt_install")[0]["packages"]
    assert {"git", "bubblewrap", "nodejs", "npm"} <= set(packages)
    assert world.of("requirements") == [
        {"file": str(ROOT / "requirements.txt"), "extra_options": "--require-hashes"}
    ]
    copied = {given["target"]: given["source"] for given in world.of("add_local_dir")}
    assert all(given["copy"] for given in world.of("add_local_dir"))
    assert copied["/opt/coilclaw/coilclaw"] == PACKAGE
    assert copied["/opt/coilclaw/coilclaw/kernel/schemas"] == ROOT / "schemas"
    assert copied["/opt/coilclaw/coilclaw/traces/environments/shipped"] == ROOT / "environments"
    assert world.of("run_commands")[0]["commands"][-1] == (
        "python -m coilclaw agents install codex"
    )
    assert not any(value in repr(world.asked) for value in KEYS.values())


def test_a_scripted_agent_needs_no_node(world: World) -> None:
    modal_payload.make_image(standin.module(world), "scripted", {})
    assert "npm" not in world.of("apt_install")[0]["packages"]
    assert "agents install" not in repr(world.of("run_commands"))


def test_without_a_source_tree_the_versions_that_are_here_are_pinned() -> None:
    import httpx2

    found = modal_payload.pins("coilclaw")
    assert f"httpx2=={httpx2.__version__}" in found
    assert any(pin.startswith("jsonschema-rs==") for pin in found)
    assert not any(pin.startswith(("coilclaw==", "modal==", "pytest==")) for pin in found)


def test_the_command_line_says_everything_that_was_asked(tmp_path: Path) -> None:
    given = plan(model="-odd", max_parts=7, max_turns=3, timeout_s=90.0, keep_raw=True)
    cargo = modal_payload.load_payload(
        given,
        "s3://bucket/below",
        ModalExtras(jobs=2, preemptible=True, as_json=True),
        environ=KEYS,
        start=tmp_path,
    )
    assert cargo.words == (
        *("python", "-m", "coilclaw", "trace", "run"),
        "--agent=codex",
        "--model=-odd",
        "--environment=kv_store",
        f"--prompt-file={INPUTS}/prompt.md",
        "--max-parts=7",
        "--max-turns=3",
        "--timeout=90",
        "--sandbox=local",
        "--store=s3://bucket/below",
        f"--trajectory-id={ID}",
        "--jobs=2",
        "--raw",
        "--preemptible",
        "--json",
    )
    assert cargo.files == {"prompt.md": b"build it"}


def test_only_the_key_of_the_chosen_provider_goes_along(tmp_path: Path) -> None:
    cargo = load(codex_home(tmp_path / "codex"))
    assert cargo.secrets == {"OUR_KEY": MODEL_KEY}
    assert set(cargo.files) == {"prompt.md", "codex/config.toml"}
    assert MODEL_KEY not in repr(cargo)
    assert MODEL_KEY not in repr((cargo.words, cargo.env))


def test_opencode_gets_the_key_of_its_model_only() -> None:
    environ = {"OPENAI_API_KEY": MODEL_KEY, "ANTHROPIC_API_KEY": "is-not-needed"}
    cargo = load(environ, agent="opencode", model="openai/gpt")
    assert cargo.secrets == {"OPENAI_API_KEY": MODEL_KEY}


def test_secrets_reach_the_recording_only_and_no_line_of_it_shows_them(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    standin.program(world, 'echo "key $OUR_KEY"; echo "id $AWS_SECRET_ACCESS_KEY" >&2; exit 1')
    environ = codex_home(tmp_path / "codex") | KEYS
    said: list[tuple[str, str]] = []
    assert box(said, "s3://bucket", environ).record() == 1
    assert sorted(said) == [("id [redacted]", "err"), ("key [redacted]", "out")]
    assert [given["secrets"] for given in world.of("create")] == [[]]
    given = [one for one in world.of("exec") if one["secrets"]]
    assert len(given) == 1
    assert given[0]["secrets"][0].values == KEYS | {"OUR_KEY": MODEL_KEY}
    secret = (*KEYS.values(), MODEL_KEY, "stays-here")
    assert not any(value in repr(world.asked) + caplog.text for value in secret)
    assert world.of("copy_from_local")[0]["remote"] == "/srv/coilclaw/inputs.tar"
    assert world.of("terminate") == [{"wait": True}]
    assert world.of("lookup") == [{"name": "coilclaw", "create_if_missing": True}]
    assert world.of("create")[0]["tags"] == {"trajectory": ID}
    assert world.of("create")[0]["timeout"] == 61 + modal_payload.MARGIN_S


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5])
def test_the_exit_code_is_that_of_the_recording(world: World, tmp_path: Path, code: int) -> None:
    standin.program(world, f"exit {code}")
    assert box([], str(tmp_path)).record() == code
    assert world.of("terminate") == [{"wait": True}]


def test_a_recording_that_was_killed_has_no_code_of_its_own(world: World, tmp_path: Path) -> None:
    standin.program(world, "kill -9 $$")
    problem = refused(box([], str(tmp_path)).record, "modal.ended")
    assert isinstance(problem, EnvironmentFault)
    assert world.of("terminate") == [{"wait": True}]


# What goes wrong.


@pytest.mark.parametrize("where", ["lookup", "run_commands", "create"])
def test_a_sandbox_that_cannot_be_made_is_told_without_secrets(
    world: World, tmp_path: Path, where: str
) -> None:
    world.failing[where] = standin.Error(f"no {MODEL_KEY} for\nyou")
    work = box([], str(tmp_path / "out"), codex_home(tmp_path / "codex")).record
    problem = refused(work, "modal.service")
    assert problem.message.endswith("Error: no [redacted] for you")
    assert problem.__suppress_context__
    assert world.of("terminate") == []


def test_who_is_not_logged_in_is_told_how(world: World, tmp_path: Path) -> None:
    world.failing["lookup"] = standin.AuthError("token missing")
    problem = refused(box([], str(tmp_path)).record, "modal.login")
    assert problem.hint is not None
    assert "modal setup" in problem.hint


@pytest.mark.parametrize("where", ["copy_from_local", "exec"])
def test_a_failure_leaves_no_sandbox(world: World, tmp_path: Path, where: str) -> None:
    world.failing[where] = standin.Error("gone")
    refused(box([], str(tmp_path)).record, "modal.service")
    assert world.of("terminate") == [{"wait": True}]
    world.asked.clear()
    refused(box([], "s3://bucket", KEYS).leave, "modal.service")
    assert world.of("terminate") == [{"wait": True}]


def test_a_sandbox_that_stays_against_our_will_is_named(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    standin.program(world, "exit 0")
    world.failing["terminate"] = standin.Error("no")
    assert box([], str(tmp_path)).record() == 0
    assert "sb-0 could not be terminated" in caplog.text


def test_a_signal_is_passed_on(world: World, tmp_path: Path) -> None:
    standin.program(world, SLOW)
    said: list[tuple[str, str]] = []
    cancel = Cancellation()
    with stop_on_signals(cancel.cancel), _signals_when(said, "begun"):
        assert box(said, str(tmp_path), cancel=cancel).record() == 3
    assert said == [("begun", "out"), ("told", "out")]
    assert world.of("terminate") == [{"wait": True}]


def test_a_second_signal_terminates_at_once(world: World, tmp_path: Path) -> None:
    standin.program(world, SLOW.replace("exit 3", ":"))
    said: list[tuple[str, str]] = []
    cancel = Cancellation()
    with (
        stop_on_signals(cancel.cancel),
        _signals_when(said, "begun", "told"),
        pytest.raises(KeyboardInterrupt),
    ):
        box(said, str(tmp_path), cancel=cancel).record()
    assert world.of("terminate") == [{"wait": True}]


def test_a_recording_that_does_not_stop_is_terminated(world: World, tmp_path: Path) -> None:
    standin.program(world, SLOW.replace("exit 3", ":"))
    cancel = Cancellation()
    cancel.cancel("the emergency stop")
    problem = refused(box([], str(tmp_path), cancel=cancel, stop_s=0.5).record, "modal.stop")
    assert isinstance(problem, Stopped)
    assert world.of("terminate") == [{"wait": True}]


class _signals_when:  # noqa: N801 - used like a function
    """Send ourselves a signal each time that a line was said."""

    def __init__(self, said: list[tuple[str, str]], *lines: str) -> None:
        self._thread = threading.Thread(target=self._watch, args=(said, lines), daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(PATIENCE_S)

    def _watch(self, said: list[tuple[str, str]], lines: tuple[str, ...]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        for line in lines:
            while (line, "out") not in said and time.monotonic() < deadline:
                time.sleep(0.02)
            os.kill(os.getpid(), signal.SIGTERM)


# Artifacts.

WRITING = """\
out={root}/artifacts/trajectories/far-away; mkdir -p $out/bundles $out/.coilclaw
echo first >$out/bundles/1.bundle; echo one >$out/agent_trace.json; echo x >$out/.coilclaw/lock
until [ -e {store}/trajectories/far-away/agent_trace.json ]; do sleep 0.05; done
echo second >$out/bundles/2.bundle; echo one two >$out/agent_trace.json
echo "TRAJECTORY_ID=far-away"; echo "it is at /srv/coilclaw/artifacts/trajectories"
"""


def test_artifacts_are_copied_meanwhile_and_at_the_end(world: World, tmp_path: Path) -> None:
    store = tmp_path / "store"
    standin.program(world, WRITING.format(root=world.root, store=store))
    said: list[tuple[str, str]] = []
    assert box(said, str(store), copy_every_s=0.1).record() == 0
    ours = LocalStore(store)
    found = {entry.key.removeprefix(f"trajectories/{ID}/"): entry.key for entry in ours.list()}
    assert {name: ours.get(key) for name, key in found.items()} == {
        "agent_trace.json": b"one two\n",
        "bundles/1.bundle": b"first\n",
        "bundles/2.bundle": b"second\n",
    }
    # Each piece came once, and our own place stands for that of the sandbox.
    assert [given["remote"] for given in world.of("copy_to_local")].count(
        f"/srv/coilclaw/artifacts/trajectories/{ID}/bundles/1.bundle"
    ) == 1
    assert said == [(f"it is at {store}/trajectories", "out")]


def test_a_detached_recording_goes_on_by_itself(world: World) -> None:
    standin.program(world, f'echo "$AWS_ACCESS_KEY_ID" >{world.root}/went-on')
    assert box([], "s3://bucket", KEYS).leave() == "sb-0"
    assert world.of("terminate") == []
    assert world.of("detach") == [{}]
    assert [given["secrets"][0].values for given in world.of("create")] == [KEYS]
    deadline = time.monotonic() + PATIENCE_S
    while not (world.root / "went-on").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert (world.root / "went-on").read_text() == f"{KEYS['AWS_ACCESS_KEY_ID']}\n"


def test_a_real_recording_of_an_environment_of_ones_own(
    world: World,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    standin.real_program(world, PACKAGE.parent)
    monkeypatch.setenv("COILCLAW_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AWS_S3_BUCKET", raising=False)
    own = tmp_path / "small"
    own.mkdir()
    (own / "main.py").write_text(ENVIRONMENT)
    (own / "task.md").write_text("Write ok into the file one.")
    (tmp_path / "script.json").write_text(
        json.dumps({"turns": [[{"write": {"one": "ok"}}, {"run_tests": ""}]]})
    )
    words = [
        *("trace", "run", "--sandbox", "modal", "--json", "--trajectory-id", ID),
        *("--agent", f"scripted:{tmp_path}/script.json", "--environment", str(own)),
        *("--store", str(tmp_path / "store"), "--max-turns", "2", "--timeout", "120"),
    ]
    code = main(words)
    said = capsys.readouterr()
    assert code == 0, said.err
    told = json.loads(said.out)
    trace = tmp_path / "store" / "trajectories" / ID / "agent_trace.json"
    assert told["trace"] == str(trace)
    assert told["session_end"]["reason"] == "solved"
    document = json.loads(trace.read_text())
    assert document["trajectory_id"] == ID
    names = {entry.key for entry in LocalStore(tmp_path / "store").list(f"trajectories/{ID}")}
    assert f"trajectories/{ID}/repo.bundle" in names
    assert f"trajectories/{ID}/parts.jsonl" in names
    assert said.err.count(f"TRAJECTORY_ID={ID}") == 1
    assert world.of("terminate") == [{"wait": True}]
