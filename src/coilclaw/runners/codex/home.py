"""The private home of one Codex, made for a task from the safe settings of a template.

The threads of Codex stay there, so that one can be resumed. The key is removed once Codex has read
it.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from coilclaw.kernel import UsageError
from coilclaw.runners.agent_answer import object_of
from coilclaw.runners.agent_program import OPENAI_HOSTS
from coilclaw.runners.external_agent import HomeFolder, read_bounded
from coilclaw.runners.model_route import RouteTarget, target_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.runners.runner import Assignment

MAX_FILE_BYTES: Final = 2**20

_CONFIG, _AUTH, _ADVICE = "config.toml", "auth.json", "AGENTS.md"
_OWN_PROVIDER: Final = "openai"
_KEPT: Final = frozenset(
    {
        "chatgpt_base_url",
        "cli_auth_credentials_store",
        "forced_chatgpt_workspace_id",
        "forced_login_method",
        "model",
        "model_auto_compact_token_limit",
        "model_context_window",
        "model_provider",
        "model_providers",
        "model_reasoning_effort",
        "model_reasoning_summary",
        "model_verbosity",
        "openai_base_url",
        "service_tier",
    }
)
"""Settings that a template may have: the model, and how to reach it. Others could start programs
(``mcp_servers``, ``notify``, ``hooks``, ``plugins``) or loosen the contract."""

_FEATURES_OFF: Final = (
    "apps",
    "browser_use",
    "computer_use",
    "daemon_auto_start",
    "goals",
    "hooks",
    "image_generation",
    "in_app_browser",
    "memories",
    "multi_agent",
    "plugin_discovery_prefetch",
    "plugins",
    "remote_plugin",
    "skill_mcp_dependency_install",
    "tool_suggest",
    # It would wait forever for a server that is down.
    "unbounded_connection_retries",
)
_NOT_FOR_COMMANDS: Final = ("CODEX_HOME", "CODEX_API_KEY", "OPENAI_*")
_GIT_SETTING: Final = re.compile(r"GIT_CONFIG_KEY_\d+")
"""Names a setting of git. Codex takes it for a key by its name and drops it; git then fails for
``GIT_CONFIG_COUNT``, which promises it."""
_SHELL_FEATURES: Final = ("shell_tool", "unified_exec")


@dataclass(frozen=True, slots=True)
class CodexHome:
    """The home of Codex for one assignment."""

    folder: HomeFolder
    temporary: Path
    settings: Mapping[str, Any]

    @property
    def path(self) -> Path:
        return self.folder.path

    def environment(self, given: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of Codex: what is given, this home, and the model's key.

        Its temporary directory is not around its home, where Codex would not keep its helpers.
        """
        name = str(self.settings.get("model_provider"))
        providers = self.settings.get("model_providers", {})
        keys = key_variables({name: providers[name]} if name in providers else {})
        return {
            **{key: ours[key] for key in keys if key in ours},
            **given,
            "CODEX_HOME": str(self.path),
            "TMPDIR": str(self.temporary),
        }

    def forget_key(self) -> None:
        """Remove the key, which Codex has read."""
        self.folder.remove(_AUTH)


@contextmanager
def prepare_home(assignment: Assignment, base: Path | None) -> Iterator[CodexHome]:
    """Yield the home for an assignment; the key is removed afterwards."""
    import tomlkit

    template = _template(base)
    settings = _settings(template, assignment)
    outer = HomeFolder(assignment.home, "Codex home", "codex.home")
    folder, temporary = outer.make("codex"), outer.make("codex-tmp")
    home = CodexHome(folder, temporary.path, settings)
    folder.write(_CONFIG, tomlkit.dumps(settings).encode())
    for name in (_AUTH, _ADVICE):
        folder.remove(name)
        if name in template:
            folder.write(name, template[name])
    try:
        yield home
    finally:
        home.forget_key()


def _template(base: Path | None) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    if base is None:
        return found
    if not base.is_dir():
        raise UsageError(
            f"The template of the Codex home {str(base)!r} is not a directory.", rule="codex.home"
        )
    for name in (_CONFIG, _AUTH, _ADVICE):
        if os.path.exists(base / name):
            found[name] = read_bounded(base / name, MAX_FILE_BYTES, "codex.home")
    return found


def _settings(template: Mapping[str, bytes], assignment: Assignment) -> dict[str, Any]:
    import tomllib

    try:
        given = tomllib.loads(template.get(_CONFIG, b"").decode("utf-8"))
    except ValueError as problem:
        raise UsageError(
            f"{_CONFIG} of the template of the Codex home is not valid TOML: {problem}.",
            rule="codex.home",
        ) from problem
    providers = given.get("model_providers", {})
    if not isinstance(providers, dict) or not all(_is_provider(p) for p in providers.values()):
        raise UsageError(
            f"model_providers in {_CONFIG} of the template of the Codex home has an entry that "
            "is not a provider.",
            rule="codex.home",
        )
    off = (*_FEATURES_OFF, *(_SHELL_FEATURES if assignment.shell == "deny" else ()))
    return {
        **{name: value for name, value in given.items() if name in _KEPT},
        "check_for_update_on_startup": False,
        "web_search": "live" if assignment.network == "allow" else "disabled",
        "analytics": {"enabled": False},
        "features": dict.fromkeys(off, False),
        "history": {"persistence": "none"},
        # Codex would take a directory that it works in for trusted, and then the configuration in
        # there could start any program.
        "projects": {str(assignment.workspace): {"trust_level": "untrusted"}},
        # The profile files that a login shell reads set another PATH than the assignment's.
        "allow_login_shell": False,
        "shell_environment_policy": {
            "inherit": "all",
            "ignore_default_excludes": False,
            "exclude": [*_NOT_FOR_COMMANDS, *key_variables(providers)],
            "set": {
                name: value
                for name, value in assignment.environ.items()
                if _GIT_SETTING.fullmatch(name)
            },
        },
    }


def _is_provider(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("env_http_headers", {}), dict)


def writable_roots(assignment: Assignment) -> tuple[str, ...]:
    """Return what commands may write beside the directory: what git keeps elsewhere for it.

    The home is not among it, where Codex keeps its settings.
    """
    known = (assignment.home, assignment.directory)
    found = (path for path in assignment.sandbox.writable if path not in known)
    return tuple(str(assignment.find_inside(path)) for path in found)


def key_variables(providers: Mapping[str, Any]) -> list[str]:
    """Return the variables that hold keys: what commands are started with has none of them."""
    found: list[str] = []
    for provider in providers.values():
        headers = provider.get("env_http_headers", {})
        named = [provider.get("env_key"), *headers.values()]
        found += [name for name in named if isinstance(name, str)]
    return sorted(set(found))


def targets_of(settings: Mapping[str, Any]) -> tuple[RouteTarget, ...]:
    """Return the addresses of the model in these settings; raise if they name none."""
    name = settings.get("model_provider", _OWN_PROVIDER)
    provider = object_of(object_of(settings.get("model_providers")).get(name))
    addresses = [provider.get("base_url")]
    found: list[RouteTarget] = []
    if name == _OWN_PROVIDER or provider.get("requires_openai_auth") is True:
        addresses += [settings.get("openai_base_url"), settings.get("chatgpt_base_url")]
        found += [RouteTarget(host, 443) for host in OPENAI_HOSTS]
    found += [target_of(str(address)) for address in addresses if address is not None]
    if not found:
        raise UsageError(
            f"The Codex template has no address for the model provider {name!r}.",
            rule="codex.home",
            hint="Set its base_url in the template's config.toml.",
        )
    return tuple(dict.fromkeys(found))
