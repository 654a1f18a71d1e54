"""Every key that a configuration may hold: its form, its bounds and what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from coilclaw.models import KINDS, SERVICES
from coilclaw.policy import Autonomy

if TYPE_CHECKING:
    from collections.abc import Mapping

Form: TypeAlias = Literal[
    "text", "choice", "path", "url", "variable", "flag", "count", "number", "list", "map"
]
TEXTUAL: Final = frozenset({"text", "choice", "path", "url", "variable"})
"""Forms that are written as strings."""


class Key(NamedTuple):  # read at every start: a dataclass takes three times as long to make
    """One key; ``least`` and ``most`` bound a number, and ``least`` itself may be excluded."""

    form: Form
    meaning: str
    allowed: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    exclusive: bool = False


MODELS: Final = ("providers", "models")
PLUGINS: Final = ("plugins",)
SERVERS: Final = ("mcp", "servers")
NAMED: Final = (MODELS, PLUGINS, SERVERS)
"""The tables whose entries, one per provider, plugin or server, are named by the user."""

ANY: Final = "*"

_MAX_TIMEOUT_S: Final = 3600


def _seconds(meaning: str) -> Key:
    return Key("number", meaning, most=_MAX_TIMEOUT_S, exclusive=True)


_TOP: Final = {
    "workspace_dir": Key("path", "where the agent works; tools are kept inside"),
    "default_provider": Key("text", "which of the providers below is asked"),
    "default_model": Key("text", "asked of a provider that names no model of its own"),
}
_SECURITY: Final = {
    "autonomy": Key(
        "choice",
        "readonly: nothing is changed; supervised: medium risk asks, high is denied; "
        "full: only what a rule forbids is denied",
        tuple(level.value for level in Autonomy),
    ),
    "workspace_only": Key("flag", "deny every path outside workspace_dir"),
    "forbidden_paths": Key("list", "paths that are denied with all that is below them"),
    "forbidden_commands": Key("list", "commands that are denied, by the name of the program"),
    "allowed_commands": Key(
        "list", 'commands of medium risk beside those of policy.toml, as "binary [flags…]"'
    ),
    "allowed_domains": Key("list", "hosts that the http tool may ask"),
    "harmless_commands": Key("flag", "run commands that only read without asking"),
    "sandbox": Key(
        "choice",
        "what contains commands; auto takes the best there is",
        ("auto", "bubblewrap", "landlock", "none"),
    ),
    "audit_log": Key("flag", "log the events of tools; receipts are written in any case"),
}
_SANDBOX: Final = {
    "read": Key("list", "paths that every child may read beside the system, tools and its work"),
    "write": Key("list", "paths that every child may write beside its work"),
}
_PROVIDER: Final = {
    "kind": Key("choice", "how the model is spoken to", KINDS),
    "model": Key("text", "the model that is asked"),
    "base_url": Key("url", "the address, where it is not the vendor's"),
    "api_key_env": Key("variable", "the variable that holds the key"),
    "api_key_file": Key("path", "the file that holds the key"),
    "timeout_s": _seconds("seconds until an answer must be complete"),
    "temperature": Key("number", "how much chance there is in an answer", most=2),
    "fixture": Key("path", "of mock: the answers to play"),
    "providers": Key("list", "of reliable: who is asked, in order"),
    "routes": Key("map", "of router: hint = provider"),
    "default": Key("text", "of router: who is asked without a hint"),
    "provider": Key("text", "of recorded: whose exchanges are recorded"),
    "file": Key("path", "of recorded: where they are kept"),
    "mode": Key("choice", "of recorded: what to do", ("record", "play")),
}
_CLI: Final = {
    "enabled": Key("flag", "whether the agent can be used from the terminal"),
    "tools_allow": Key("list", "the tools that the model may call"),
}
_MEMORY: Final = {
    "backend": Key("choice", "how conversations are kept", ("sqlite",)),
    "path": Key("path", "where conversations are kept"),
}
_RECEIPTS: Final = {
    "enabled": Key("flag", "without receipts every tool call is denied"),
    "path": Key("path", "where the receipts of tool calls are kept"),
    "checkpoint": Key(
        "text",
        'where checkpoints go: a file, "git-ref REF [DIRECTORY]" or an address; "" writes none',
    ),
    "checkpoint_every": Key(
        "count", "receipts from one checkpoint to the next", least=1, most=10**6
    ),
    "checkpoint_token_env": Key("variable", "the variable with the bearer token of that address"),
}
_LIMITS: Final = {
    "max_tool_rounds": Key("count", "rounds of tool calls in one turn", least=1, most=1000),
    "max_response_bytes": Key("count", "largest answer of a model", least=1024, most=64 * 2**20),
    "tool_timeout_s": _seconds("seconds that a tool may take"),
    "shell_timeout_s": _seconds("seconds that a command may take"),
    "shell_timeout_max_s": _seconds("seconds that the model may ask for one command at most"),
    "http_timeout_s": _seconds("seconds that a request of the http tool may take"),
}
_RISKS: Final = ("low", "medium", "high")
_GATEWAY: Final = {
    "host": Key("text", "where `coilclaw serve` listens"),
    "port": Key("count", "its port; 0 picks a free one", least=0, most=65535),
    "tls_cert": Key("path", "certificate, for listening beyond this machine"),
    "tls_key": Key("path", "its key"),
    "allowed_hosts": Key("list", "more names under which clients reach it, as name or name:port"),
    "requests_per_minute": Key("count", "of all clients together", least=1, most=10**6),
    "max_body_bytes": Key("count", "largest request", least=1024, most=64 * 2**20),
    "self_approval": Key("flag", "let a client approve what it asked for itself"),
    "completions_approval": Key(
        "choice",
        "what /v1 does with a call that needs an approval: say so and wait, or refuse it",
        ("notice", "refuse"),
    ),
    "completions_wait_s": _seconds("seconds that /v1 waits for an approval"),
}
_SEARCH: Final = {
    "provider": Key("choice", "whom web_search asks", ("brave", "tavily", "searxng")),
    "api_key_env": Key("variable", "the variable that holds the key"),
    "base_url": Key("url", "the address, where it is not the vendor's"),
}
_PLUGIN: Final = {
    "risk": Key("choice", "how far the plugin is trusted", _RISKS),
    "network": Key("flag", "let its tools that declare it use the network"),
    "memory_mb": Key("count", "MiB of memory that a call may use", least=16, most=2**20),
    "processes": Key("count", "processes that a call may have at once", least=1, most=4096),
}
_SERVER: Final = {
    "command": Key("list", "the program and its arguments"),
    "url": Key("url", "the address, where it is not a program"),
    "env": Key("list", "names of variables that the program gets"),
    "token_env": Key("variable", "the variable that is sent as bearer token"),
    "headers": Key("map", "header = name of the variable that holds its value"),
    "risk": Key("choice", "how risky its calls are", _RISKS),
    "network": Key("flag", "let the program use the network"),
    "writable": Key("list", "paths that the program may write beside the workspace"),
    "timeout_s": _seconds("seconds that a call may take"),
    "start_timeout_s": _seconds("seconds until it must be there"),
    "enabled": Key("flag", "whether its tools are offered"),
}
TABLES: Final[Mapping[tuple[str, ...], Mapping[str, Key]]] = {
    (): _TOP,
    ("security",): _SECURITY,
    ("sandbox",): _SANDBOX,
    (*MODELS, ANY): _PROVIDER,
    ("channels", "cli"): _CLI,
    ("memory",): _MEMORY,
    ("receipts",): _RECEIPTS,
    ("limits",): _LIMITS,
    ("gateway",): _GATEWAY,
    ("web_search",): _SEARCH,
    (*PLUGINS, ANY): _PLUGIN,
    (*SERVERS, ANY): _SERVER,
}

_WIRE: Final = ("base_url", "api_key_env", "api_key_file", "timeout_s", "temperature")
BELONGING: Final[Mapping[str, tuple[str, ...]]] = {
    "mock": ("fixture", "timeout_s"),
    **dict.fromkeys(SERVICES, _WIRE),
    "reliable": ("providers", "temperature"),
    "router": ("routes", "default", "temperature"),
    "recorded": ("provider", "file", "mode", "temperature"),
}
"""Kind of provider → the keys that count beside ``kind`` and ``model``."""

NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    **{kind: ("base_url",) for kind, service in SERVICES.items() if not service.base_url},
    "reliable": ("providers",),
    "recorded": ("file",),
}
SECRETS: Final = frozenset(
    {"api_key", "apikey", "key", "token", "api_token", "access_token", "auth_token", "secret"}
    | {"password", "authorization", "bearer", "credentials"}
)
"""Names under which a key would stand in the file itself."""


def known_names(table: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names that may stand in a table: its keys, and the tables below it."""
    depth = len(table)
    below = [path[depth] for path in TABLES if len(path) > depth and path[:depth] == table]
    return tuple(dict.fromkeys([*TABLES.get(table, ()), *below]))


def find(names: tuple[str, ...]) -> Key | None:
    """Return the key of that name, if there is one."""
    return TABLES.get(general(names[:-1]), {}).get(names[-1]) if names else None


def general(table: tuple[str, ...]) -> tuple[str, ...]:
    """Return the table that says which keys a table has: entries of one kind have the same."""
    for named in NAMED:
        if len(table) == len(named) + 1 and table[: len(named)] == named:
            return (*named, ANY)
    return table


def is_secret(name: str) -> bool:
    """Tell whether a name is one under which a key would be written down."""
    return name.lower().replace("-", "_") in SECRETS
