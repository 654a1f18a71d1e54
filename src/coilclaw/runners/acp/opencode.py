"""``OpencodeRunner``: opencode over ACP, with settings that are made for each assignment.

The settings hold the key of the model, and are taken away once opencode has read them.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import Usage, UsageError
from coilclaw.runners import agent_program, test_tool
from coilclaw.runners.acp.agents import AcpStart, is_routed, perform_turn
from coilclaw.runners.agent_answer import count_of, object_of
from coilclaw.runners.external_agent import HomeFolder, read_bounded
from coilclaw.runners.model_route import RouteTarget, target_of
from coilclaw.runners.runner import Deadline
from coilclaw.workspace import command

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping
    from pathlib import Path

    from coilclaw.kernel import Json, Part
    from coilclaw.runners.acp.agents import AcpTurn
    from coilclaw.runners.runner import Assignment, Ending, Means
    from coilclaw.runners.test_tool import TestTool

EXPORT_S: Final = 60.0
MAX_EXPORT_BYTES: Final = 64 * 2**20
MAX_TEMPLATE_BYTES: Final = 2**20
_SETTINGS: Final = "settings.json"
_KEPT: Final = ("model", "small_model", "provider")
"""Settings that a template may have: the model, and how to reach it. Others could start programs or
loosen the assignment."""

_KNOWN: Final[Mapping[str, tuple[str, str]]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "api.anthropic.com"),
    "google": ("GEMINI_API_KEY", "generativelanguage.googleapis.com"),
    "openai": ("OPENAI_API_KEY", "api.openai.com"),
    "openrouter": ("OPENROUTER_API_KEY", "openrouter.ai"),
}
"""Providers that opencode knows by itself: the variable of their key, and where they are."""

_VARIABLE: Final = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_OFF: Final = (
    "AUTOUPDATE",
    "CLAUDE_CODE",
    "DEFAULT_PLUGINS",
    "EXTERNAL_SKILLS",
    "LSP_DOWNLOAD",
    "MODELS_FETCH",
    # What the tree brings for opencode could start any program, and allow itself anything.
    "PROJECT_CONFIG",
    "SHARE",
)
_FOLDERS: Final = ("cache", "config", "data", "state")


@dataclass(frozen=True, slots=True)
class OpencodeRunner:
    """Performs assignments with opencode."""

    settings: Path | None = None
    """The template of its settings, ``opencode.json``; of it only the model is taken."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """Where PATH, ``$COILCLAW_OPENCODE`` and the key of the model are looked up."""
    home: Path | None = None
    """Our own home, below which agents may be installed."""

    @property
    def name(self) -> str:
        return "opencode"

    def perform(self, assignment: Assignment, means: Means) -> Generator[Part, None, Ending]:
        """Start opencode, give it the task, and return how the turn ended."""
        deadline = Deadline.of(assignment.budget)
        program = agent_program.find(agent_program.KNOWN["opencode"], self.environ, self.home)
        tests = None if means.run_tests is None else test_tool.TestTool(assignment.home)
        turns: list[AcpTurn] = []
        with prepare_home(assignment, self.settings, self.environ, tests) as home:
            start = AcpStart(
                title="opencode",
                argv=[str(program), "acp"],
                env=home.environment(assignment.environ),
                sandbox=assignment.sandbox.showing(program),
                targets=home.targets,
                on_session=home.forget_settings,
                tools_in_settings=True,
            )
            ending = yield from perform_turn(start, assignment, means, deadline, turns)
        if ending.usage is None or not turns[0].updates.tool_calls:
            # One answer of the model: the count in the ending is complete.
            return ending
        return replace(ending, usage=_count_tokens(program, start, assignment, means, ending))


def _count_tokens(
    program: Path, start: AcpStart, assignment: Assignment, means: Means, ending: Ending
) -> Usage | None:
    """Return the tokens of all answers of the last turn, or those of the ending if unknown."""
    result = command.run(
        [str(program), "export", ending.thread_id],
        cwd=assignment.directory,
        timeout_s=EXPORT_S,
        env={name: value for name, value in start.env.items() if name != "OPENCODE_CONFIG"},
        limit_bytes=MAX_EXPORT_BYTES,
        sandbox=replace(start.sandbox, network=start.sandbox.kind == "none"),
        support=means.support,
        cancel=means.cancel,
    )
    if result.exit_code != 0 or result.stdout.dropped:
        return ending.usage
    try:
        session = object_of(json.loads(result.stdout.data))
    except (ValueError, RecursionError):
        return ending.usage
    messages = session.get("messages")
    return usage_of(messages if isinstance(messages, list) else []) or ending.usage


def usage_of(messages: list[Json]) -> Usage | None:
    """Return the tokens of the answers after the last question."""
    read = written = 0
    for message in reversed(messages):
        info = object_of(message).get("info")
        if not isinstance(info, dict) or info.get("role") == "user":
            break
        tokens = object_of(info.get("tokens"))
        kept = object_of(tokens.get("cache")).values()
        read += sum(count_of(value) or 0 for value in (tokens.get("input"), *kept))
        written += (count_of(tokens.get("output")) or 0) + (count_of(tokens.get("reasoning")) or 0)
    return Usage(read, written) if read or written else None


@dataclass(frozen=True, slots=True)
class OpencodeHome:
    """The home of opencode for one assignment."""

    folder: HomeFolder
    targets: tuple[RouteTarget, ...]

    @property
    def path(self) -> Path:
        return self.folder.path

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of opencode: what is given, and this home."""
        return {
            **given,
            **{f"XDG_{name.upper()}_HOME": str(self.path / name) for name in _FOLDERS},
            **{f"OPENCODE_DISABLE_{name}": "1" for name in _OFF},
            "OPENCODE_PURE": "1",
            "OPENCODE_CONFIG": str(self.path / _SETTINGS),
        }

    def forget_settings(self) -> None:
        """Remove the settings with the key, which opencode has read."""
        self.folder.remove(_SETTINGS)


@contextmanager
def prepare_home(
    assignment: Assignment,
    template: Path | None,
    environ: Mapping[str, str],
    tests: TestTool | None,
) -> Iterator[OpencodeHome]:
    """Yield the home for an assignment; the settings with the key are removed afterwards."""
    said = _template(template)
    provider, model = _model(said, assignment)
    own = object_of(object_of(said.get("provider")).get(provider))
    options = _provider(provider, own, environ)
    targets = (_target(provider, options),) if is_routed(assignment) else ()
    settings = _settings(assignment, tests) | {
        "model": f"{provider}/{model}",
        "small_model": f"{provider}/{model}",
        "enabled_providers": [provider],
        "provider": {provider: options},
    }
    outer = HomeFolder(assignment.home, "home of opencode", "opencode.home")
    folder = outer.make("opencode")
    for name in _FOLDERS:
        folder.make(name)
    folder.write(_SETTINGS, json.dumps(settings).encode())
    home = OpencodeHome(folder, targets)
    try:
        yield home
    finally:
        home.forget_settings()


def _settings(assignment: Assignment, tests: TestTool | None) -> dict[str, Json]:
    writes = assignment.filesystem == "workspace-write"
    made: dict[str, Json] = {
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        # A title would cost a request to the model, and is not used.
        "agent": {"title": {"disable": True}},
        "instructions": [f"{assignment.workspace}/AGENTS.md"],
        # Each asks, so that each request comes to us; what opencode does by itself, the sandbox
        # confines. What would run unseen, or wait for a user at a terminal, is denied.
        "permission": {
            "bash": "deny" if assignment.shell == "deny" else "ask",
            "edit": "ask" if writes else "deny",
            "webfetch": "ask" if assignment.network == "allow" else "deny",
            "websearch": "ask" if assignment.network == "allow" else "deny",
            "external_directory": "allow",
            "doom_loop": "allow",
            "question": "deny",
            "skill": "deny",
            "task": "deny",
        },
    }
    if tests is not None:
        server: dict[str, Json] = {
            "type": "local",
            "command": [*tests.argv],
            "enabled": True,
            "timeout": test_tool.CALL_S * 1000,
        }
        made["mcp"] = {test_tool.SERVER: server}
    return made


def _template(path: Path | None) -> dict[str, Json]:
    if path is None:
        return {}
    try:
        said = json.loads(read_bounded(path, MAX_TEMPLATE_BYTES, "opencode.home"))
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise UsageError(
            f"The settings of opencode {str(path)!r} are not a JSON object.", rule="opencode.home"
        )
    return {name: value for name, value in said.items() if name in _KEPT}


def _model(said: Mapping[str, Json], assignment: Assignment) -> tuple[str, str]:
    """Return provider and name of the model; opencode would choose one of its own."""
    wanted = assignment.model or said.get("model")
    provider, slash, model = (wanted if isinstance(wanted, str) else "").partition("/")
    if not (provider and slash and model):
        raise UsageError(
            "opencode needs its model as PROVIDER/MODEL.",
            rule="opencode.model",
            hint="Give one with --model, or in the settings of opencode.",
        )
    return provider, model


def _provider(name: str, own: Mapping[str, Json], environ: Mapping[str, str]) -> dict[str, Json]:
    """Return the settings of a provider, with the key that a variable of ours holds."""
    made = dict(object_of(own.get("options")))
    key = made.get("apiKey")
    if key is None and name in _KNOWN:
        key = f"{{env:{_KNOWN[name][0]}}}"
    if isinstance(key, str):
        made["apiKey"] = _VARIABLE.sub(lambda found: environ.get(found[1], ""), key)
    return {**own, "options": made}


def _target(name: str, provider: Mapping[str, Json]) -> RouteTarget:
    address = object_of(provider.get("options")).get("baseURL")
    if isinstance(address, str):
        return target_of(address)
    if name in _KNOWN:
        return RouteTarget(_KNOWN[name][1], 443)
    raise UsageError(
        f"The settings of opencode do not say where the provider {name!r} is.",
        rule="opencode.home",
        hint="Give it options.baseURL, or allow the network.",
    )
