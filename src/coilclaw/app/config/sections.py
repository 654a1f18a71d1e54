"""The sections of the configuration, each read into its own value."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from coilclaw.agent import AgentLimits, CheckpointPlace, ToolLimits, classify_place, is_ref
from coilclaw.app.config import models
from coilclaw.app.config.keys import MODELS, PLUGINS, SERVERS, TABLES
from coilclaw.app.config.section import Section, find_user_home, is_variable
from coilclaw.app.config.values import (
    DEFAULT_TOOLS,
    CliChannel,
    Config,
    GatewaySection,
    MemorySettings,
    ReceiptSettings,
    Security,
)
from coilclaw.kernel import Risk, UsageError, quote, suggest
from coilclaw.policy import FORBIDDEN_PATHS, Autonomy
from coilclaw.workspace import SandboxView

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.agent import McpServer, PluginSettings, SearchSettings
    from coilclaw.app.config.section import ConfigDocument
    from coilclaw.models import ProviderSettings

MEMORY_NAME: Final = "memory.sqlite"
_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})
WORKSPACE: Final = "~/coilclaw-workspace"
MAX_ENTRIES: Final = 200


def read_config(
    document: ConfigDocument, data: Mapping[str, object], *, path: Path, home: Path
) -> Config:
    """Read everything; where there is a problem, the value that is returned means nothing."""
    top = document.section(data)
    named = top.read("default_model", "default_provider")
    entries = document.find(data, MODELS)
    default_model = named.get("default_model")
    providers = models.read(document, entries, default_model) if entries else models.defaults()
    default_provider = _default_provider(top, named.get("default_provider"), providers)
    chosen = providers.get(default_provider)
    memory = document.section(data, "memory").read()
    limits = document.section(data, "limits").read()
    of_tools = {name: limits.pop(name) for name in list(limits) if name.endswith("_s")}
    config = Config(
        path=path,
        workspace_dir=_workspace(top),
        default_provider=default_provider,
        default_model=default_model or (chosen.model if chosen else "") or models.MOCK_MODEL,
        security=_security(document.section(data, "security")),
        providers=providers,
        memory=MemorySettings(**{"path": home / MEMORY_NAME, **memory}),
        receipts=read_receipts(document.section(data, "receipts"), home),
        cli=_cli(document.section(data, "channels", "cli")),
        limits=AgentLimits(**limits, tools=ToolLimits(**of_tools)),
        gateway=_gateway(document.section(data, "gateway")),
        web_search=_web_search(document.section(data, "web_search")),
        plugins=dict(_plugins(document, data)),
        mcp_servers=dict(_servers(document, data)),
    )
    config = replace(config, sandbox=_view(document.section(data, "sandbox"), config, home))
    if config.memory.path == config.receipts.path:
        document.note(("receipts", "path"), "is the same file as that of the memory")
    refuse_reachable(document, config)
    if not document.problems:
        _warn(document, config, home)
    return config


def _default_provider(
    top: Section, named: str | None, providers: Mapping[str, ProviderSettings]
) -> str:
    names = tuple(providers)
    if named is None:
        if "default_provider" in top or models.DEFAULT_NAME in names or not names:
            return models.DEFAULT_NAME
        if len(names) > 1:
            top.note("default_provider", "is missing", names)
        return names[0]
    if named not in names:
        message = f"is {quote(named)}, which no provider is called{suggest(named, names)}"
        top.note("default_provider", message, names)
    return named


def _workspace(top: Section) -> Path:
    path = top.as_path(top.read_text("workspace_dir") or WORKSPACE, "workspace_dir")
    if path is not None and not path.is_absolute():
        top.note("workspace_dir", "is a relative path; it must be absolute, or begin with ~/")
    return path or Path("/")


def _security(section: Section) -> Security:
    values = section.read()
    if "autonomy" in values:
        values["autonomy"] = Autonomy(values["autonomy"])
    values["forbidden_paths"] = section.paths("forbidden_paths", FORBIDDEN_PATHS, _find_climb)
    found = Security(**values)

    for index, command in section.strings("forbidden_commands"):
        if "/" in command or len(command.split()) != 1:
            message = f"is {quote(command)}; write the name of one program"
            section.note_item("forbidden_commands", index, message)
    for index, entry in section.strings("allowed_commands"):
        from coilclaw.policy import check_entry

        try:
            check_entry(entry, forbidden=found.forbidden_commands)
        except UsageError as problem:
            section.note_item("allowed_commands", index, problem.message)
    for index, domain in section.strings("allowed_domains"):
        from coilclaw.policy import find_entry_problem

        if wrong := find_entry_problem(domain):
            section.note_item("allowed_domains", index, wrong)
    return found


def _find_climb(path: Path, raw: str) -> str:
    if not path.is_absolute():
        return f"is {quote(raw)}, a relative path; it must be absolute"
    return "climbs with ..; write the path that is meant" if ".." in path.parts else ""


def _cli(section: Section) -> CliChannel:
    for index, tool in section.strings("tools_allow"):
        kind, _, name = tool.partition(":")
        foreign = kind in {"plugin", "mcp"} and name
        if tool not in DEFAULT_TOOLS and not foreign and not section.document.full:
            message = f"is {quote(tool)}, no known tool{suggest(tool, DEFAULT_TOOLS)}"
            section.note_item("tools_allow", index, message, DEFAULT_TOOLS)
    return CliChannel(**section.read())


def _gateway(section: Section) -> GatewaySection:
    found = GatewaySection(**section.read())
    if (found.tls_cert is None) != (found.tls_key is None):
        missing = "tls_key" if found.tls_key is None else "tls_cert"
        section.note(missing, "is missing: a certificate and its key go together")
    return found


def _web_search(section: Section) -> SearchSettings | None:
    """Read ``[web_search]``; ``None`` where it is absent."""
    values = section.read()
    if "provider" not in values:
        if "provider" not in section and values:
            section.note("provider", "is missing")
        return None
    from coilclaw.agent import SearchSettings

    if values["provider"] == "searxng" and section.is_empty("base_url"):
        section.note("base_url", "is missing: searxng has no usual address")
    return SearchSettings(**values)


def _plugins(
    document: ConfigDocument, data: Mapping[str, object]
) -> Iterator[tuple[str, PluginSettings]]:
    for name, section in _entries(document, data, PLUGINS):
        from coilclaw.agent import PluginSettings

        yield name, PluginSettings(**_with_risk(section.read()))


def _servers(
    document: ConfigDocument, data: Mapping[str, object]
) -> Iterator[tuple[str, McpServer]]:
    for name, section in _entries(document, data, SERVERS):
        from coilclaw.agent import McpServer, flaws

        values = _with_risk(section.read())
        if "command" in section:
            values["command"] = tuple(word for _, word in section.strings("command"))
        server = McpServer(name=name, **values | {"writable": section.paths("writable")})
        for key, message in flaws(server):
            section.document.note((*section.place, key) if key else section.place, message)
        yield name, server


def _with_risk(values: dict[str, Any]) -> dict[str, Any]:
    return {**values, "risk": Risk[values.get("risk", "high").upper()]}


def _entries(
    document: ConfigDocument, data: Mapping[str, object], table: tuple[str, ...]
) -> Iterator[tuple[str, Section]]:
    entries = document.find(data, table)
    if len(entries) > MAX_ENTRIES:
        document.note(table, f"has more than {MAX_ENTRIES} entries")
        return
    for name, entry in entries.items():
        yield name, Section(document, document.table(entry, (*table, name)).values, (*table, name))


def _view(section: Section, config: Config, home: Path) -> SandboxView:
    """Read the paths that the user shows to every child, less what none may see."""
    hidden = [*_own_paths(config, home)]
    hidden += [("a forbidden path", path) for path in config.security.forbidden_paths]
    user = find_user_home(section.document.environ)
    hidden += [("the keys of the user", Path(user) / ".ssh")] if user else []
    barred = [(what, Path(os.path.realpath(path)), path) for what, path in hidden]

    def problem(path: Path, raw: str) -> str:
        if not path.is_absolute():
            return f"is {quote(raw)}, a relative path; it must be absolute, or begin with ~/"
        if not path.exists():
            return f"is {quote(raw)}, which does not exist"
        real = Path(os.path.realpath(path))
        for what, place, other in barred:
            if real.is_relative_to(place):
                return f"is {quote(raw)}, which lies in {what}: {other}"
            if place.is_relative_to(real):
                return f"is {quote(raw)}, which holds {what}: {other}"
        return ""

    return SandboxView(*(section.paths(name, (), problem) for name in TABLES["sandbox",]))


def _own_paths(config: Config, home: Path) -> Iterator[tuple[str, Path]]:
    """Where our own state and secrets are, with what to call each."""
    yield "our own state", home
    yield "the memory", config.memory.path
    yield "the log of receipts", config.receipts.path
    for provider in config.providers.values():
        if provider.api_key_file is not None:
            yield f"the key of {provider.name}", provider.api_key_file


def _warn(document: ConfigDocument, config: Config, home: Path) -> None:
    """Say what would work, and is probably not meant."""
    workspace = config.workspace_dir
    user = find_user_home(document.environ)
    if workspace == Path("/") or (user and workspace == Path(user)):
        document.warnings.append(f"workspace_dir is {workspace}: the agent would work in all of it")
    document.warnings += [
        f"{name} is inside the workspace: {path}"
        for name, path in _own_paths(config, home)
        if path.is_relative_to(workspace)
    ]
    if any(workspace.is_relative_to(path) for path in config.security.forbidden_paths):
        document.warnings.append("workspace_dir is below a forbidden path: every tool is denied")


RECEIPTS_NAME: Final = "tool_receipts.log"


def read_receipts(section: Section, home: Path) -> ReceiptSettings:
    """Read the table."""
    values = section.read("path", "enabled", "checkpoint_every")
    values = {"path": home / RECEIPTS_NAME, **values, "checkpoint": _checkpoint(section)}
    return ReceiptSettings(**values)


def refuse_reachable(document: ConfigDocument, config: Config) -> None:
    """Note a place of checkpoints that the agent, or something it starts, could write."""
    place = config.receipts.checkpoint
    if place is None or place.kind == "url":
        return
    path = place.directory if place.kind == "git-ref" else Path(place.target)
    if path is None:
        return
    writable = (
        ("the workspace", config.workspace_dir),
        *(("sandbox.write", path) for path in config.sandbox.write),
        *(
            (f"what the server {server.name} may write", path)
            for server in config.mcp_servers.values()
            for path in server.writable
        ),
    )
    for what, folder in writable:
        if path.resolve().is_relative_to(folder.resolve()):
            document.note(
                ("receipts", "checkpoint"), f"is inside {what}, where the agent can change it"
            )
    if place.kind == "file" and path in {config.memory.path, config.receipts.path}:
        document.note(("receipts", "checkpoint"), "is the same file as the memory or the receipts")


def _checkpoint(section: Section) -> CheckpointPlace | None:
    given = [n for n in ("checkpoint", "checkpoint_token_env") if not section.is_empty(n)]
    values = section.read(*given) if given else {}
    text, token = values.get("checkpoint"), values.get("checkpoint_token_env")
    if token is not None and not is_variable(token):
        section.note("checkpoint_token_env", "is not the name of a variable")
    if text is None:
        return None
    match classify_place(text):
        case "url":
            return _address(section, text, token)
        case "git-ref":
            return _ref(section, text)
        case _:
            path = _path(section, text)
            return None if path is None else CheckpointPlace("file", str(path))


def _address(section: Section, text: str, token: str | None) -> CheckpointPlace | None:
    """Take an address; no message repeats it, because of what may be in it."""
    parts = models.split_address(text)
    if parts is None or " " in text:
        section.note("checkpoint", "is not an http or https address")
    elif parts.username or parts.password or parts.fragment:
        section.note("checkpoint", "holds credentials or a fragment; see checkpoint_token_env")
    elif token is not None and parts.scheme == "http" and parts.hostname not in _LOCAL:
        section.note("checkpoint", "would send the token in clear text; use https")
    else:
        return CheckpointPlace("url", text, token_env=token)
    return None


def _ref(section: Section, text: str) -> CheckpointPlace | None:
    _, name, *rest = text.split(" ", 2) if " " in text else (text, "")
    if not is_ref(name):
        section.note("checkpoint", "must name a ref after git-ref, such as refs/coilclaw/receipts")
        return None
    directory = _path(section, rest[0]) if rest else None
    return None if rest and directory is None else CheckpointPlace("git-ref", name, directory)


def _path(section: Section, text: str) -> Path | None:
    path = section.as_path(text, "checkpoint")
    if path is not None and not path.is_absolute():
        section.note("checkpoint", "is a relative path; it must be absolute, or begin with ~/")
        return None
    return path
