"""The configuration that ``init`` writes: complete, with a comment at every key."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from coilclaw.agent import DEFAULT_EVERY, AgentLimits
from coilclaw.app.config import models
from coilclaw.app.config.keys import ANY, MODELS, TABLES
from coilclaw.app.config.section import escape_path, find_user_home
from coilclaw.app.config.sections import MEMORY_NAME, RECEIPTS_NAME, WORKSPACE
from coilclaw.app.config.show import header, name, write_value
from coilclaw.app.config.values import CliChannel, Security
from coilclaw.kernel import UsageError
from coilclaw.policy import FORBIDDEN_PATHS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from coilclaw.app.config.keys import Key
    from coilclaw.app.config.show import Value
    from coilclaw.models import ProviderSettings

_WIDTH: Final = 96
_HEAD: Final = """\
# The configuration of CoilClaw. Every key has its default here, and has it when it is left out.
# In paths ~, $VAR and ${VAR} are expanded. Keys of models do not belong into this file: name the
# variable (api_key_env) or the file (api_key_file) that holds one.
# Check with: coilclaw config validate
"""
_MORE_PROVIDERS: Final = """\

# More kinds of provider:
# [providers.models.gemini]
# kind = "gemini"
# model = "gemini-2.5-pro"
# api_key_env = "GEMINI_API_KEY"
#
# [providers.models.anthropic]
# kind = "anthropic"
# model = "claude-sonnet-4-5"
# api_key_file = "~/.coilclaw/keys/anthropic.key"
# timeout_s = 120
# temperature = 0.2
#
# [providers.models.steady]
# kind = "reliable"  # asks the next one when one cannot be reached
# providers = ["gemini", "local"]
#
# [providers.models.chosen]
# kind = "router"  # asks by hint
# routes = { fast = "local" }
# default = "gemini"
#
# [providers.models.taped]
# kind = "recorded"  # keeps every exchange; mode = "play" gives them back
# provider = "gemini"
# file = "exchanges.jsonl"
# mode = "record"
"""


_EXTENSIONS: Final = """
# Where `coilclaw serve` listens, and what it takes:
#
# [gateway]
# host = "127.0.0.1"
# port = 8737
# tls_cert = "cert.pem"
# tls_key = "key.pem"
# allowed_hosts = ["agent.example.org"]
# requests_per_minute = 6000
# max_body_bytes = 2097152
# self_approval = false  # true: a client may approve what it asked for itself
# completions_approval = "notice"  # or "refuse": /v1 never waits for an approval
# completions_wait_s = 600
#
# Whom the tool web_search asks; its address must be in security.allowed_domains, too:
#
# [web_search]
# provider = "brave"
# api_key_env = "BRAVE_API_KEY"
# base_url = "https://api.search.brave.com/res/v1/web/search"
#
# How far a plugin is trusted, and whether it may use the network:
#
# [plugins.echo-plugin]
# risk = "medium"
# network = false
# memory_mb = 1024  # of all its processes together, for one call
# processes = 64
#
# Servers whose tools the agent may use, once `coilclaw mcp approve NAME` has seen them:
#
# [mcp.servers.files]
# command = ["npx", "-y", "some-mcp-server"]
# env = ["SOME_VARIABLE"]
# network = true
# writable = ["~/.npm"]
# risk = "medium"
# timeout_s = 30
# start_timeout_s = 30
# enabled = true
#
# [mcp.servers.remote]
# url = "https://mcp.example.org/mcp"
# token_env = "EXAMPLE_TOKEN"
# headers = { X-Team = "EXAMPLE_TEAM" }
# risk = "high"
"""


def text(home: Path, environ: Mapping[str, str], workspace: Path | None = None) -> str:
    """Return the text; read with the same home and environment, it is all defaults."""
    parts = [_HEAD]
    explained: set[Key] = set()
    for table, values in _values(home, environ, workspace):
        general = (*MODELS, ANY) if table[:2] == MODELS else table
        lines = ["", header(table)] if table else [""]
        for key, value in values.items():
            described = TABLES[general][key]
            if described not in explained:
                explained.add(described)
                lines += _comment(described)
            lines.append(f"{name(key)} = {write_value(value)}")
        parts.append("\n".join(lines) + "\n")
        if table == (*MODELS, "openai_compatible"):
            parts.append(_MORE_PROVIDERS)
    parts.append(_EXTENSIONS)
    return "".join(parts)


def written_path(path: Path, environ: Mapping[str, str]) -> str:
    """Write an absolute path for the file; what is below the user's home begins with ``~``."""
    whole = str(path)
    try:
        whole.encode()
    except UnicodeEncodeError as problem:
        raise UsageError(
            f"{whole!r} is not UTF-8 and cannot be written into the configuration",
            rule="config.path",
        ) from problem
    own = (find_user_home(environ) or "").rstrip("/")
    if own and whole.startswith(f"{own}/"):
        return "~" + escape_path(whole[len(own) :])
    return escape_path(whole)


def _comment(key: Key) -> list[str]:
    from textwrap import wrap

    choices = f" ({', '.join(key.allowed)})" if len(key.allowed) > 1 else ""
    return [f"# {line}" for line in wrap(key.meaning + choices, _WIDTH)]


def _values(
    home: Path, environ: Mapping[str, str], workspace: Path | None
) -> Iterator[tuple[tuple[str, ...], dict[str, Value]]]:
    """Yield the defaults of every table."""
    limits = asdict(AgentLimits())
    limits |= {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in limits.pop("tools").items()
    }
    security = {**asdict(Security()), "forbidden_paths": FORBIDDEN_PATHS}
    security["autonomy"] = security["autonomy"].value
    defaults: dict[tuple[str, ...], dict[str, Value]] = {
        (): {
            "workspace_dir": written_path(workspace, environ) if workspace else WORKSPACE,
            "default_provider": models.DEFAULT_NAME,
            "default_model": models.MOCK_MODEL,
        },
        ("security",): security,
        ("sandbox",): {"read": (), "write": ()},
        **{(*MODELS, each.name): _provider(each) for each in models.defaults().values()},
        ("channels", "cli"): asdict(CliChannel()),
        ("memory",): {"backend": "sqlite", "path": written_path(home / MEMORY_NAME, environ)},
        ("receipts",): {
            "enabled": True,
            "path": written_path(home / RECEIPTS_NAME, environ),
            "checkpoint": "",
            "checkpoint_every": DEFAULT_EVERY,
            "checkpoint_token_env": "",
        },
        ("limits",): limits,
    }
    for table, values in defaults.items():
        order = values if table[:2] == MODELS else TABLES[table]
        yield table, {key: values[key] for key in order}


def _provider(settings: ProviderSettings) -> dict[str, Value]:
    values: dict[str, Value] = {"kind": settings.kind}
    if settings.base_url:
        values["base_url"] = settings.base_url
    values["model"] = settings.model
    if settings.api_key_env:
        values["api_key_env"] = settings.api_key_env
    return values
