"""What ``init`` and ``onboard`` do: a home, a configuration, a memory, a workspace."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.app.config import edit, sample
from coilclaw.app.config.keys import BELONGING, MODELS
from coilclaw.app.config.load import (
    FILE_NAME,
    examine_config,
    examine_config_text,
    invalid,
    read_source,
)
from coilclaw.kernel import EnvironmentFault, UsageError
from coilclaw.models import SERVICES
from coilclaw.policy import STAGING_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.app.config.values import Config
    from coilclaw.kernel import Secret

POLICY_NAME: Final = "policy.toml"
KEYS_NAME: Final = "keys"
KINDS: Final = ("mock", *SERVICES)
"""The kinds of provider that ``onboard`` sets up."""


@dataclass(frozen=True, slots=True)
class SetupItem:
    """One thing that is there now; ``made`` when it was not before."""

    what: str
    path: Path
    made: bool


@dataclass(frozen=True, slots=True)
class Initialised:
    """What ``init`` made and found."""

    items: tuple[SetupItem, ...]
    warnings: tuple[str, ...]


def init(home: Path, environ: Mapping[str, str], workspace: Path | None = None) -> Initialised:
    """Create whatever is missing; leave existing files alone.

    The configuration is written last, so that a failed setup can be repeated with other answers.
    """
    from coilclaw.policy import read_shipped_policy

    path = home / FILE_NAME
    text, config = _configuration(path, home, environ, workspace)
    items = [
        _folder("home", home, private=True),
        _folder("keys", home / KEYS_NAME, private=True),
        _file("policy", home / POLICY_NAME, read_shipped_policy()),
        _folder("workspace", config.workspace_dir, private=False),
        _memory(config.memory.path),
        _file("configuration", path, text),
    ]
    mode = stat.S_IMODE(home.stat().st_mode)
    lax = f"{home} is open to others (mode {mode:o}); chmod 700 closes it"
    return Initialised(tuple(items), (*config.warnings, *([lax] if mode & 0o077 else [])))


@dataclass(frozen=True, slots=True)
class Choices:
    """The answers of an onboarding; ``None`` leaves what there is."""

    kind: str
    name: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_file: Path | None = None
    autonomy: str | None = None
    workspace: Path | None = None


def plan(choices: Choices, home: Path, environ: Mapping[str, str]) -> edit.PlannedEdit:
    """Work out the configuration that the answers make, on top of the one there is."""
    entry = (*MODELS, choices.name)
    chosen: dict[tuple[str, ...], object] = {
        (*entry, "kind"): choices.kind,
        (*entry, "model"): choices.model,
        (*entry, "base_url"): choices.base_url,
        (*entry, "api_key_env"): choices.api_key_env,
        (*entry, "api_key_file"): choices.api_key_file,
        ("default_provider",): choices.name,
        ("default_model",): choices.model,
        ("security", "autonomy"): choices.autonomy,
        ("workspace_dir",): choices.workspace,
    }
    values = {
        place: sample.written_path(value, environ) if isinstance(value, Path) else value
        for place, value in chosen.items()
        if value is not None
    }
    kept = {key for key in BELONGING[choices.kind] if not key.startswith(("api_key", "base_url"))}
    others = {key for keys in BELONGING.values() for key in keys} - kept
    removed = [(*entry, key) for key in sorted(others) if (*entry, key) not in values]
    planned = edit.plan(
        home / FILE_NAME,
        lambda text: edit.change_text(text, values, removed),
        home=home,
        environ=environ,
        initial=sample.text(home, environ),
    )
    if planned.examined.config is None:
        raise invalid(FILE_NAME, planned.examined.problems)
    return planned


def store_key(path: Path, key: Secret) -> None:
    """Keep a key in a file that only its owner can read."""
    from coilclaw.kernel import write_atomic

    _folder("home", path.parent.parent, private=True)
    _folder("keys", path.parent, private=True)
    write_atomic(path, key.reveal().encode() + b"\n", mode=0o600)


@dataclass(frozen=True, slots=True)
class SetupAnswers:
    """What a provider answered when it was tried."""

    text: str
    model: str
    latency_s: float
    input_tokens: int | None
    output_tokens: int | None


def try_provider(config: Config, name: str, environ: Mapping[str, str]) -> SetupAnswers:
    """Ask for a tiny answer; a ``ProviderError`` says why there is none."""
    import time

    from coilclaw.app import providers
    from coilclaw.kernel import ChatRequest, Message
    from coilclaw.policy import SecretRedactor

    redact = SecretRedactor(providers.list_provider_secrets(config.providers, environ)).redact
    provider = providers.build_configured(config, name, environ, redact)
    request = ChatRequest(
        system_prompt="You are being tested. Answer with one short word.",
        messages=(Message("user", "Say ok."),),
        model=config.providers[name].model or config.default_model,
        temperature=config.providers[name].temperature,
    )
    begin = time.monotonic()
    response = provider.chat(request)
    usage = response.usage
    return SetupAnswers(
        text=redact(response.final_text),
        model=response.model or request.model,
        latency_s=time.monotonic() - begin,
        input_tokens=usage.input_tokens if usage else None,
        output_tokens=usage.output_tokens if usage else None,
    )


def _configuration(
    path: Path, home: Path, environ: Mapping[str, str], workspace: Path | None
) -> tuple[str, Config]:
    source = read_source(path)
    if source.text is None and not source.problems:
        text = sample.text(home, environ, workspace)
        examined = examine_config_text(text, path, home=home, environ=environ)
    else:
        text = source.text or ""
        examined = examine_config(path, home=home, environ=environ)
    if examined.config is None:
        raise invalid(path.name, examined.problems)
    config = examined.config
    if workspace is not None and config.workspace_dir != workspace:
        raise UsageError(
            f"{path} exists and names another workspace: {config.workspace_dir}",
            rule="init.workspace",
            hint=f"coilclaw config set workspace_dir {workspace}",
        )
    return text, config


def _folder(what: str, path: Path, *, private: bool) -> SetupItem:
    try:
        if path.is_dir():
            return SetupItem(what, path, made=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700 if private else 0o777)
        if private:
            path.chmod(0o700)  # whatever the umask says, it is readable by us
    except FileExistsError as problem:
        if path.is_dir():
            return SetupItem(what, path, made=False)
        raise EnvironmentFault(
            f"{problem.filename or path} is in the way: the {what} must be a directory",
            rule="init.obstacle",
        ) from problem
    except OSError as problem:
        raise _cannot_make(path, problem, "init.directory") from problem
    return SetupItem(what, path, made=True)


def _cannot_make(path: Path, problem: OSError, rule: str) -> EnvironmentFault:
    return EnvironmentFault(f"cannot make {path}: {problem.strerror}", rule=rule)


def _file(what: str, path: Path, text: str) -> SetupItem:
    """Make a private file, whole or not at all, unless there is anything of that name."""
    from coilclaw.kernel import sync_directory, write_atomic

    if os.path.lexists(path):
        return SetupItem(what, path, made=False)
    whole = path.with_name(f"{STAGING_PREFIX}{os.urandom(8).hex()}.new")
    write_atomic(whole, text.encode(), mode=0o600)
    try:
        # Unlike a rename, a link does not replace what somebody else put there meanwhile.
        os.link(whole, path)
    except FileExistsError:
        return SetupItem(what, path, made=False)
    except OSError as problem:
        raise _cannot_make(path, problem, "init.file") from problem
    finally:
        whole.unlink()
    sync_directory(path.parent)
    return SetupItem(what, path, made=True)


def _memory(path: Path) -> SetupItem:
    from coilclaw.agent import Memory

    made = not os.path.lexists(path)
    if not path.parent.is_dir():
        _folder("directory of the memory", path.parent, private=True)
    with Memory(path) as memory:
        memory.create()
    return SetupItem("memory", path, made)


def name_of(kind: str) -> str:
    """Return what a provider of a kind is called, unless the user has another name."""
    return "local" if kind == "mock" else kind.replace("-", "_")
