"""The sections of the configuration, each read into its own value."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast

from coilclaw.config import expand, extensions, models
from coilclaw.config.keys import MODELS, PLUGINS, SERVERS, TABLES, known
from coilclaw.config.receipt_section import read_receipts, refuse_reachable
from coilclaw.config.sandbox_paths import read_view
from coilclaw.config.section import Section, meant, shown, unknown
from coilclaw.config.values import (
    CliChannel,
    Config,
    MemorySettings,
    Security,
)
from coilclaw.errors import UsageError
from coilclaw.runtime.settings import Limits
from coilclaw.security.autonomy import Autonomy
from coilclaw.security.settings import FORBIDDEN_PATHS
from coilclaw.tools.contract import ToolLimits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.config.section import Reading
    from coilclaw.providers.settings import ProviderSettings
    from coilclaw.workspace.sandbox import Kind

MEMORY_NAME: Final = "memory.sqlite"
WORKSPACE: Final = "~/coilclaw-workspace"


def config_of(
    reading: Reading,
    data: Mapping[str, object],
    *,
    path: Path,
    home: Path,
    tools: tuple[str, ...],
) -> Config:
    """Read everything; where there is a problem, the value that is returned means nothing."""
    top = Section(reading, data, (), TABLES[()])
    top.refuse_unknown()
    default_model = top.text("default_model", None)
    providers = _providers(reading, data, default_model)
    default_provider = _default_provider(top, providers)
    chosen = providers.get(default_provider)
    config = Config(
        path=path,
        workspace_dir=_workspace(top),
        default_provider=default_provider,
        default_model=default_model or (chosen.model if chosen else "") or models.MOCK_MODEL,
        security=_security(_section(reading, data, ("security",))),
        providers=providers,
        memory=_memory(_section(reading, data, ("memory",)), home),
        receipts=read_receipts(_section(reading, data, ("receipts",)), home),
        cli=_cli(_section(reading, data, ("channels", "cli")), tools),
        limits=_limits(_section(reading, data, ("limits",))),
        gateway=extensions.gateway(_section(reading, data, ("gateway",))),
        web_search=extensions.web_search(_section(reading, data, ("web_search",))),
        plugins=extensions.plugins(reading, _table(reading, data, PLUGINS)),
        mcp_servers=extensions.servers(reading, _table(reading, data, SERVERS)),
    )
    config = replace(config, sandbox=read_view(_section(reading, data, ("sandbox",)), config, home))
    if config.memory.path == config.receipts.path:
        reading.note(("receipts", "path"), "is the same file as that of the memory")
    refuse_reachable(reading, config)
    if not reading.noted:
        _doubt(reading, config, home)
    return config


def _section(reading: Reading, data: Mapping[str, object], place: tuple[str, ...]) -> Section:
    """Return the table at a place; one that is absent says nothing."""
    table = _table(reading, data, place)
    section = Section(reading, table, place, TABLES[place])
    section.refuse_unknown()
    return section


def _table(
    reading: Reading, data: Mapping[str, object], place: tuple[str, ...]
) -> Mapping[str, object]:
    table = data
    for depth, name in enumerate(place, start=1):
        inner = table.get(name, {})
        if not isinstance(inner, dict):
            reading.note(place[:depth], "must be a table")
            return {}
        table = inner
        names = known(place[:depth])
        if depth < len(place):
            for other in table:
                if other not in names:
                    reading.note((*place[:depth], other), *unknown(other, names))
    return table


def _providers(
    reading: Reading, data: Mapping[str, object], default_model: str | None
) -> dict[str, ProviderSettings]:
    entries = _table(reading, data, MODELS)
    return models.read(reading, entries, default_model) if entries else models.defaults()


def _default_provider(top: Section, providers: Mapping[str, ProviderSettings]) -> str:
    named = top.text("default_provider", None)
    names = tuple(providers)
    if named is None:
        if "default_provider" in top or models.DEFAULT_NAME in names or not names:
            return models.DEFAULT_NAME
        if len(names) > 1:
            top.note("default_provider", "is missing", names)
        return names[0]
    if named not in names:
        top.note(
            "default_provider",
            f"is {shown(named)}, which no provider is called{meant(named, names)}",
            names,
        )
    return named


def _workspace(top: Section) -> Path:
    raw = top.text("workspace_dir", WORKSPACE)
    path = top.as_path(raw, ("workspace_dir",))
    if path is None:
        return Path("/")
    if not path.is_absolute():
        top.note("workspace_dir", "is a relative path; it must be absolute, or begin with ~/")
    return path


def _security(section: Section) -> Security:
    usual = Security()
    return Security(
        autonomy=Autonomy(section.choice("autonomy", usual.autonomy.value)),
        workspace_only=section.flag("workspace_only", usual.workspace_only),
        forbidden_paths=_forbidden_paths(section),
        forbidden_commands=_forbidden_commands(section, usual.forbidden_commands),
        allowed_commands=_allowed_commands(section, usual.allowed_commands),
        allowed_domains=_domains(section, usual.allowed_domains),
        harmless_commands=section.flag("harmless_commands", usual.harmless_commands),
        sandbox=cast("Kind", section.choice("sandbox", usual.sandbox)),
        audit_log=section.flag("audit_log", usual.audit_log),
    )


def _forbidden_paths(section: Section) -> tuple[Path, ...]:
    name = "forbidden_paths"
    taken = []
    for index, raw in section.items(name, FORBIDDEN_PATHS):
        path = section.as_path(raw, (*section.place, name, index))
        if path is None:
            continue
        if not path.is_absolute():
            section.item(name, index, f"is {shown(raw)}, a relative path; it must be absolute")
        elif ".." in path.parts:
            section.item(name, index, "climbs with ..; write the path that is meant")
        else:
            taken.append(path)
    return tuple(taken)


def _forbidden_commands(section: Section, usual: tuple[str, ...]) -> tuple[str, ...]:
    name = "forbidden_commands"
    for index, command in section.items(name, ()):
        if "/" in command or len(command.split()) != 1:
            section.item(name, index, f"is {shown(command)}; write the name of one program")
    return section.texts(name, usual)


def _allowed_commands(section: Section, usual: tuple[str, ...]) -> tuple[str, ...]:
    name = "allowed_commands"
    given = section.items(name, ())
    if given:
        from coilclaw.security.commandrules import check_entry

        forbidden = section.texts("forbidden_commands", Security().forbidden_commands)
        for index, entry in given:
            try:
                check_entry(entry, forbidden=forbidden)
            except UsageError as problem:
                section.item(name, index, problem.message)
    return section.texts(name, usual)


def _domains(section: Section, usual: tuple[str, ...]) -> tuple[str, ...]:
    name = "allowed_domains"
    given = section.items(name, ())
    if given:
        from coilclaw.security.hosts import problem_with

        for index, domain in given:
            problem = problem_with(domain)
            if problem:
                section.item(name, index, problem)
    return section.texts(name, usual)


def _foreign(tool: str) -> bool:
    """Tell whether an entry means the tools of a plugin or a server."""
    kind, _, name = tool.partition(":")
    return kind in {"plugin", "mcp"} and bool(name)


def _cli(section: Section, tools: tuple[str, ...]) -> CliChannel:
    usual = CliChannel()
    for index, tool in section.items("tools_allow", ()):
        if tool not in tools and not _foreign(tool) and not section.reading.full:
            message = f"is {shown(tool)}, no known tool{meant(tool, tools)}"
            section.item("tools_allow", index, message, tools)
    return CliChannel(
        enabled=section.flag("enabled", usual.enabled),
        tools_allow=section.texts("tools_allow", usual.tools_allow),
    )


def _memory(section: Section, home: Path) -> MemorySettings:
    return MemorySettings(
        path=section.path("path", home / MEMORY_NAME),
        backend=cast('Literal["sqlite"]', section.choice("backend", "sqlite")),
    )


def _limits(section: Section) -> Limits:
    usual = Limits()
    return Limits(
        max_tool_rounds=section.count("max_tool_rounds", usual.max_tool_rounds),
        max_response_bytes=section.count("max_response_bytes", usual.max_response_bytes),
        tools=ToolLimits(
            tool_timeout_s=section.number("tool_timeout_s", usual.tools.tool_timeout_s),
            shell_timeout_s=section.number("shell_timeout_s", usual.tools.shell_timeout_s),
            shell_timeout_max_s=section.number(
                "shell_timeout_max_s", usual.tools.shell_timeout_max_s
            ),
            http_timeout_s=section.number("http_timeout_s", usual.tools.http_timeout_s),
        ),
    )


def _doubt(reading: Reading, config: Config, home: Path) -> None:
    """Say what would work, and is probably not meant."""
    workspace = config.workspace_dir
    user = expand.user_home(reading.environ)
    if workspace == Path("/") or (user and workspace == Path(user)):
        reading.warnings.append(f"workspace_dir is {workspace}: the agent would work in all of it")
    inside = [
        (name, path)
        for name, path in (
            ("our own state", home),
            ("the memory", config.memory.path),
            ("the log of receipts", config.receipts.path),
            *((f"the key of {p.name}", p.api_key_file) for p in config.providers.values()),
        )
        if path is not None and path.is_relative_to(workspace)
    ]
    reading.warnings.extend(f"{name} is inside the workspace: {path}" for name, path in inside)
    if any(workspace.is_relative_to(path) for path in config.security.forbidden_paths):
        reading.warnings.append("workspace_dir is below a forbidden path: every tool is denied")
