"""The private home of one opencode: its settings for a task, made from a template, and the key.

What opencode keeps there (its sessions) stays, so that a session can be resumed. The settings hold
the key: they are there until opencode has read them.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from coilclaw.agents import acpprocess
from coilclaw.agents.codexdoor import Target
from coilclaw.agents.testtool import CALL_S
from coilclaw.errors import DeniedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.agents.runner import Assignment
    from coilclaw.agents.testtool import TestTool
    from coilclaw.domain.messages import Json

MAX_TEMPLATE_BYTES: Final = 2**20
_HOME, _SETTINGS = "opencode", "settings.json"
_KEPT: Final = ("model", "small_model", "provider")
"""What a template may say: which model, and how it is reached. Anything else could start programs
or loosen what the assignment says."""

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
class OpencodeHome:
    """A home that is ready."""

    path: Path
    targets: tuple[Target, ...]

    def environment(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment of opencode: what is given, and this home."""
        return {
            **given,
            **{f"XDG_{name.upper()}_HOME": str(self.path / name) for name in _FOLDERS},
            **{f"OPENCODE_DISABLE_{name}": "1" for name in _OFF},
            "OPENCODE_PURE": "1",
            "OPENCODE_CONFIG": str(self.path / _SETTINGS),
        }

    def forget_settings(self) -> None:
        """Take the settings with the key away; whoever needed them has read them."""
        with _directory(self.path) as here:
            _remove(here)


@contextmanager
def prepared(
    assignment: Assignment,
    template: Path | None,
    environ: Mapping[str, str],
    tests: TestTool | None,
) -> Iterator[OpencodeHome]:
    """Make the home for an assignment, and leave no key behind."""
    said = _template(template)
    provider, model = _model(said, assignment)
    providers = said.get("provider")
    own = providers.get(provider) if isinstance(providers, dict) else None
    options = _provider(provider, own if isinstance(own, dict) else {}, environ)
    targets: tuple[Target, ...] = ()
    if acpprocess.is_routed(assignment):
        targets = (_target(provider, options),)
    settings = _settings(assignment, tests) | {
        "model": f"{provider}/{model}",
        "small_model": f"{provider}/{model}",
        "enabled_providers": [provider],
        "provider": {provider: options},
    }
    with _directory(assignment.home) as outer, suppress(FileExistsError):
        os.mkdir(_HOME, 0o700, dir_fd=outer)
    home = OpencodeHome(assignment.home / _HOME, targets)
    with _directory(home.path) as here:
        for name in _FOLDERS:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=here)
        _write(json.dumps(settings).encode(), here)
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
        # Nobody asked for a title, and it would be asked of the model.
        "agent": {"title": {"disable": True}},
        "instructions": [f"{assignment.workspace}/AGENTS.md"],
        # Each asks, so that each request comes to us; what opencode does by itself, the sandbox
        # holds. What would work on unseen, or wait for a person in a terminal, is not there.
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
            "timeout": CALL_S * 1000,
        }
        made["mcp"] = {tests.name: server}
    return made


def _template(path: Path | None) -> dict[str, Json]:
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEMPLATE_BYTES + 1)
    except OSError as problem:
        raise UsageError(
            f"The settings of opencode {str(path)!r} cannot be read: {problem.strerror}.",
            rule="opencode.home",
        ) from problem
    try:
        said = json.loads(data) if len(data) <= MAX_TEMPLATE_BYTES else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise UsageError(
            f"The settings of opencode {str(path)!r} are no JSON object of at most "
            f"{MAX_TEMPLATE_BYTES:,} bytes.",
            rule="opencode.home",
        )
    return {name: value for name, value in said.items() if name in _KEPT}


def _model(said: Mapping[str, Json], assignment: Assignment) -> tuple[str, str]:
    """Return provider and name of the model; opencode would choose one of its own."""
    wanted = assignment.model or said.get("model")
    provider, slash, model = (wanted if isinstance(wanted, str) else "").partition("/")
    if not (provider and slash and model):
        raise UsageError(
            "opencode is told its model as PROVIDER/MODEL.",
            rule="opencode.model",
            hint="Give one with --model, or in the settings of opencode.",
        )
    return provider, model


def _provider(name: str, own: Mapping[str, Json], environ: Mapping[str, str]) -> dict[str, Json]:
    """Return the settings of a provider, with the key that a variable of ours holds."""
    options = own.get("options")
    made: dict[str, Json] = dict(options) if isinstance(options, dict) else {}
    key = made.get("apiKey")
    if key is None and name in _KNOWN:
        key = f"{{env:{_KNOWN[name][0]}}}"
    if isinstance(key, str):
        made["apiKey"] = _VARIABLE.sub(lambda found: environ.get(found[1], ""), key)
    return {**own, "options": made}


def _target(name: str, provider: Mapping[str, Json]) -> Target:
    options = provider.get("options")
    address = options.get("baseURL") if isinstance(options, dict) else None
    if isinstance(address, str):
        return acpprocess.target_of(address)
    if name in _KNOWN:
        return Target(_KNOWN[name][1], 443)
    raise UsageError(
        f"The settings of opencode do not say where the provider {name!r} is.",
        rule="opencode.home",
        hint="Give it options.baseURL, or allow the network.",
    )


@contextmanager
def _directory(path: Path) -> Iterator[int]:
    """Open a directory of ours. The agent could write around it before: no link is followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        raise DeniedError(
            f"The home of opencode {str(path)!r} is no directory of ours: {problem.strerror}.",
            rule="opencode.home",
        ) from problem
    try:
        yield fd
    finally:
        os.close(fd)


def _write(data: bytes, directory: int) -> None:
    _remove(directory)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(_SETTINGS, flags, 0o600, dir_fd=directory), "wb") as file:
        file.write(data)


def _remove(directory: int) -> None:
    try:
        with suppress(FileNotFoundError):
            os.unlink(_SETTINGS, dir_fd=directory)
    except IsADirectoryError as problem:
        raise DeniedError(
            f"{_SETTINGS} in the home of opencode is a directory.", rule="opencode.home"
        ) from problem
