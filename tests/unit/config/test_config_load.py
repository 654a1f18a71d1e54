"""Reading the configuration: every problem in one pass, with its key, line and allowed values."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import pytest

from coilclaw.agent.checkpoints import CheckpointPlace
from coilclaw.agent.settings import AgentLimits
from coilclaw.agent.tools.contract import ToolLimits
from coilclaw.app.config.keys import ANY, TABLES
from coilclaw.app.config.load import (
    MAX_BYTES,
    Examined,
    examine_config,
    examine_config_text,
    load_config,
)
from coilclaw.app.config.values import (
    DEFAULT_TOOLS,
    CliChannel,
    Config,
    MemorySettings,
    ReceiptSettings,
    Security,
)
from coilclaw.kernel.document import Problem
from coilclaw.kernel.errors import UsageError
from coilclaw.models.endpoint import ProviderSettings
from coilclaw.policy.judgement import Autonomy
from coilclaw.workspace.process.confinement import Kind

HOME = Path("/home/u/.coilclaw")
FILE = HOME / "config.toml"
ENVIRON: Mapping[str, str] = {"HOME": "/home/u", "DATA": "/data", "EMPTY": "", "URL": "http://h/v1"}

GEMINI = "[providers.models.local]\nkind='gemini'\nmodel='g'\n"
LEVELS = ("readonly", "supervised", "full")


def examined(text: str, environ: Mapping[str, str] = ENVIRON) -> Examined:
    return examine_config_text(text, FILE, home=HOME, environ=environ)


def found(text: str, environ: Mapping[str, str] = ENVIRON) -> tuple[Problem, ...]:
    return examined(text, environ).problems


def valid(text: str, environ: Mapping[str, str] = ENVIRON) -> Config:
    result = examined(text, environ)
    assert result.config is not None, result.problems
    return result.config


DEFAULT = Config(
    path=FILE,
    workspace_dir=Path("/home/u/coilclaw-workspace"),
    default_provider="local",
    default_model="mock",
    security=Security(
        autonomy=Autonomy.SUPERVISED,
        workspace_only=True,
        forbidden_paths=(Path("/etc"), Path("/sys"), Path("/boot"), Path("/home/u/.ssh")),
        forbidden_commands=("rm", "shutdown", "reboot", "mkfs", "dd"),
        allowed_commands=(),
        allowed_domains=(),
        harmless_commands=True,
        sandbox="auto",
        audit_log=True,
    ),
    providers={
        "local": ProviderSettings("local", "mock", "mock"),
        "openai_compatible": ProviderSettings(
            "openai_compatible",
            "openai-compatible",
            "local-model",
            base_url="http://localhost:1234/v1",
            api_key_env="OPENAI_API_KEY",
        ),
    },
    memory=MemorySettings(HOME / "memory.sqlite"),
    receipts=ReceiptSettings(HOME / "tool_receipts.log"),
    cli=CliChannel(True, DEFAULT_TOOLS),
    limits=AgentLimits(5, 2**20, ToolLimits(30.0, 15.0, 20.0)),
)


def test_an_empty_file_is_all_defaults() -> None:
    assert valid("") == DEFAULT


def test_a_file_that_is_not_there_is_all_defaults(tmp_path: Path) -> None:
    config = load_config(tmp_path / "config.toml", home=HOME, environ=ENVIRON)
    assert config == load_at(tmp_path, "")
    assert (config.workspace_dir, config.memory) == (DEFAULT.workspace_dir, DEFAULT.memory)


def load_at(folder: Path, text: str) -> Config:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return load_config(path, home=HOME, environ=ENVIRON)


def test_the_specified_shape_is_read() -> None:
    config = valid(
        """
workspace_dir = "~/w"
default_provider = "openai_compatible"
default_model = "gpt"

[security]
autonomy = "full"
workspace_only = false
forbidden_paths = ["/etc", "~/.ssh", "$DATA/x", "${DATA}/y"]
forbidden_commands = ["rm", "rm", "dd"]
allowed_commands = ["make test", "pytest -q"]
allowed_domains = ["example.com", "*.example.org", "10.0.0.0/8"]
harmless_commands = false
sandbox = "landlock"
audit_log = false

[providers.models.local]
kind = "mock"
fixture = "answers.json"

[providers.models.openai_compatible]
kind = "openai-compatible"
base_url = "$URL"
api_key_env = "OPENAI_API_KEY"
timeout_s = 3
temperature = 0.5

[providers.models.anthropic]
kind = "anthropic"
model = "claude"
api_key_file = "~/key"

[providers.models.steady]
kind = "reliable"
providers = ["anthropic", "local"]

[providers.models.chosen]
kind = "router"
routes = { fast = "local", "slow one" = "steady" }
default = "anthropic"

[providers.models.taped]
kind = "recorded"
provider = "chosen"
file = "tape.jsonl"
mode = "play"

[channels.cli]
enabled = false
tools_allow = ["time", "file_read"]

[memory]
backend = "sqlite"
path = "$DATA/m.sqlite"

[receipts]
enabled = false
path = "~/r.log"

[limits]
max_tool_rounds = 50
max_response_bytes = 2048
tool_timeout_s = 1
shell_timeout_s = 2.5
http_timeout_s = 3
"""
    )
    assert config == Config(
        path=FILE,
        workspace_dir=Path("/home/u/w"),
        default_provider="openai_compatible",
        default_model="gpt",
        security=Security(
            autonomy=Autonomy.FULL,
            workspace_only=False,
            forbidden_paths=(
                Path("/etc"),
                Path("/home/u/.ssh"),
                Path("/data/x"),
                Path("/data/y"),
            ),
            forbidden_commands=("rm", "dd"),
            allowed_commands=("make test", "pytest -q"),
            allowed_domains=("example.com", "*.example.org", "10.0.0.0/8"),
            harmless_commands=False,
            sandbox="landlock",
            audit_log=False,
        ),
        providers={
            "local": ProviderSettings("local", "mock", "gpt", fixture=HOME / "answers.json"),
            "openai_compatible": ProviderSettings(
                "openai_compatible",
                "openai-compatible",
                "gpt",
                base_url="http://h/v1",
                api_key_env="OPENAI_API_KEY",
                timeout_s=3.0,
                temperature=0.5,
            ),
            "anthropic": ProviderSettings(
                "anthropic", "anthropic", "claude", api_key_file=Path("/home/u/key")
            ),
            "steady": ProviderSettings("steady", "reliable", providers=("anthropic", "local")),
            "chosen": ProviderSettings(
                "chosen",
                "router",
                routes={"fast": "local", "slow one": "steady"},
                default="anthropic",
            ),
            "taped": ProviderSettings(
                "taped", "recorded", provider="chosen", file=HOME / "tape.jsonl", mode="play"
            ),
        },
        memory=MemorySettings(Path("/data/m.sqlite")),
        receipts=ReceiptSettings(Path("/home/u/r.log"), enabled=False),
        cli=CliChannel(False, ("time", "file_read")),
        limits=AgentLimits(50, 2048, ToolLimits(1.0, 2.5, 3.0)),
    )


def test_a_wrong_autonomy_lists_the_allowed_values() -> None:
    assert found('[security]\nautonomy = "godmode"\n') == (
        Problem("security.autonomy", "is 'godmode'", 2, LEVELS),
    )


def test_all_problems_come_in_one_pass_in_the_order_of_lines() -> None:
    text = """\
workspace_dir = "w"
default_model = 3
default_provder = "x"

[security]
autonomy = "supervise"
forbidden_paths = [
  "/ok",
  "relative",   # here
  7,
]
sandbox = "chroot"

[limits]
max_tool_rounds = 0

[[unheard]]
"""
    assert [(p.line, p.key) for p in found(text)] == [
        (1, "workspace_dir"),
        (2, "default_model"),
        (3, "default_provder"),
        (6, "security.autonomy"),
        (9, "security.forbidden_paths[1]"),
        (10, "security.forbidden_paths[2]"),
        (12, "security.sandbox"),
        (15, "limits.max_tool_rounds"),
        (17, "unheard"),
    ]


def test_the_error_of_load_says_all_of_them(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_at(tmp_path, '[security]\nautonomy = "godmode"\naudit_log = "no"\n')
    assert caught.value.rule == "config.invalid"
    assert caught.value.message == (
        "the configuration has 2 problems:\n"
        "config.toml:2: security.autonomy: is 'godmode' (allowed: readonly, supervised, full)\n"
        "config.toml:3: security.audit_log: must be true or false, not a string"
    )


@pytest.mark.parametrize(
    ("text", "key", "message"),
    [
        ('workspace_dir = ""', "workspace_dir", "is empty"),
        ('workspace_dir = "a/b"', "workspace_dir", "is a relative path; it must be absolute, or "),
        ('workspace_dir = "~root/x"', "workspace_dir", "begins with ~ and a name; only"),
        ('workspace_dir = "/a/$NOPE"', "workspace_dir", "names the variable NOPE, which is not"),
        ('workspace_dir = "/a/${EMPTY}"', "workspace_dir", "names the variable EMPTY, which is em"),
        ('workspace_dir = "/a/$"', "workspace_dir", "has a $ that names no variable; a dollar"),
        ('workspace_dir = "/a/${x"', "workspace_dir", "has a $ that names no variable"),
        ("workspace_dir = 2020-01-01", "workspace_dir", "must be a string, not a date or a time"),
        ('default_provider = "lokal"', "default_provider", "is 'lokal', which no provider is call"),
        ('default_model = "a\\u0007"', "default_model", "holds control characters"),
        ("security = 3", "security", "must be a table"),
        ("channels = 3", "channels", "must be a table"),
        ("channels.cli = []", "channels.cli", "must be a table"),
        ("providers.models = 'x'", "providers.models", "must be a table"),
        ("providers.models.a = 'x'", "providers.models.a", "must be a table"),
        ("channels.http.enabled = true", "channels.http", "is not a known key"),
        ("providers.modles = 1", "providers.modles", "is not a known key; did you mean 'models'?"),
        ("securty = 1", "securty", "is not a known key; did you mean 'security'?"),
        ("memory.backend = 'json'", "memory.backend", "is 'json'"),
        ("memory.path = ''", "memory.path", "is empty; it must be a path"),
        ('memory.path = "/a\\u0000b"', "memory.path", "holds a NUL character"),
        ("receipts.path = '~/.coilclaw/memory.sqlite'", "receipts.path", "is the same file as"),
        ("receipts.enabled = 1", "receipts.enabled", "must be true or false, not a whole number"),
        ("receipts.checkpoint = 'cp'", "receipts.checkpoint", "is a relative path"),
        ("receipts.checkpoint = 'git-ref'", "receipts.checkpoint", "must name a ref"),
        ("receipts.checkpoint = 'git-ref refs/a/..'", "receipts.checkpoint", "must name a ref"),
        ("receipts.checkpoint = 'git-ref main'", "receipts.checkpoint", "must name a ref"),
        ("receipts.checkpoint = 'git-ref refs/a/b c'", "receipts.checkpoint", "is a relative"),
        ("receipts.checkpoint = 'ftp://a/b'", "receipts.checkpoint", "is not an http or https"),
        ("receipts.checkpoint = 'https://u:p@a/b'", "receipts.checkpoint", "holds credentials"),
        (
            "receipts.checkpoint = '~/coilclaw-workspace/c'",
            "receipts.checkpoint",
            "is inside the w",
        ),
        (
            "receipts.checkpoint = 'git-ref refs/a/b ~/coilclaw-workspace'",
            "receipts.checkpoint",
            "is inside the workspace, where the agent can change it",
        ),
        (
            "receipts.checkpoint = '/var/tmp/c'\nsandbox.write = ['/var/tmp']",
            "receipts.checkpoint",
            "is inside sandbox.write, where the agent can change it",
        ),
        ("receipts.checkpoint = '~/.coilclaw/memory.sqlite'", "receipts.checkpoint", "is the same"),
        ("receipts.checkpoint_every = 0", "receipts.checkpoint_every", "is out of bounds"),
        ("receipts.checkpoint_token_env = '1'", "receipts.checkpoint_token_env", "is not the name"),
        (
            "receipts = {checkpoint='http://a/b',checkpoint_token_env='T'}",
            "receipts.checkpoint",
            "would send the token in clear text",
        ),
        ("limits.max_tool_rounds = true", "limits.max_tool_rounds", "must be a whole number, not "),
        ("limits.max_tool_rounds = 5.0", "limits.max_tool_rounds", "must be a whole number, not a"),
        ("limits.max_tool_rounds = 1001", "limits.max_tool_rounds", "is out of bounds: it must be"),
        ("limits.max_response_bytes = 1023", "limits.max_response_bytes", "is out of bounds"),
        ("limits.max_response_bytes = 67108865", "limits.max_response_bytes", "is out of bounds"),
        ("limits.tool_timeout_s = 0", "limits.tool_timeout_s", "is out of bounds: it must be more"),
        ("limits.shell_timeout_s = nan", "limits.shell_timeout_s", "is out of bounds"),
        ("limits.http_timeout_s = inf", "limits.http_timeout_s", "is out of bounds"),
        ("limits.http_timeout_s = 3600.1", "limits.http_timeout_s", "is out of bounds"),
        ("limits.http_timeout_s = '3'", "limits.http_timeout_s", "must be a number, not a string"),
        (
            "channels.cli.tools_allow = ['time', 'file_raed']",
            "channels.cli.tools_allow[1]",
            "is 'file_raed', no known tool; did you mean 'file_read'?",
        ),
        ("channels.cli.tools_allow = 'time'", "channels.cli.tools_allow", "must be a list, not a"),
        ("security.forbidden_paths = ['a']", "security.forbidden_paths[0]", "is 'a', a relative"),
        ("security.forbidden_paths = ['/a/../b']", "security.forbidden_paths[0]", "climbs with .."),
        ("security.forbidden_paths = ['$NO']", "security.forbidden_paths[0]", "names the variable"),
        ("security.forbidden_commands = ['/bin/rm']", "security.forbidden_commands[0]", "is '/bin"),
        ("security.forbidden_commands = ['rm -rf']", "security.forbidden_commands[0]", "is 'rm -r"),
        ("security.allowed_commands = ['']", "security.allowed_commands[0]", "is empty"),
        ("security.allowed_domains = ['http://a/']", "security.allowed_domains[0]", ""),
        ("security.allowed_domains = ['a b']", "security.allowed_domains[0]", ""),
    ],
)
def test_a_wrong_value_is_refused(text: str, key: str, message: str) -> None:
    (problem,) = found(text)
    assert (problem.key, problem.line) == (key, 1)
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("checkpoint = ''", None),
        ("checkpoint = '/var/cp'", CheckpointPlace("file", "/var/cp")),
        ("checkpoint = '~/.coilclaw/cp'", CheckpointPlace("file", "/home/u/.coilclaw/cp")),
        ("checkpoint = 'git-ref refs/a/b'", CheckpointPlace("git-ref", "refs/a/b")),
        (
            "checkpoint = 'git-ref refs/a/b ~/a repo'",
            CheckpointPlace("git-ref", "refs/a/b", Path("/home/u/a repo")),
        ),
        (
            "checkpoint = 'https://a/b?c=d'\ncheckpoint_token_env = 'T'",
            CheckpointPlace("url", "https://a/b?c=d", token_env="T"),
        ),
        (
            "checkpoint = 'http://127.0.0.1:1/b'\ncheckpoint_token_env = 'T'",
            CheckpointPlace("url", "http://127.0.0.1:1/b", token_env="T"),
        ),
    ],
)
def test_checkpoints_go_where_the_file_says(text: str, place: CheckpointPlace | None) -> None:
    read = examine_config_text(f"[receipts]\n{text}\n", FILE, home=HOME, environ=ENVIRON)
    assert read.problems == ()
    assert read.config is not None
    assert read.config.receipts.checkpoint == place


@pytest.mark.parametrize(
    "text",
    [
        "limits.max_tool_rounds = 1000",
        "limits.max_tool_rounds = 1",
        "limits.max_response_bytes = 1024",
        "limits.http_timeout_s = 3600",
        "limits.http_timeout_s = 0.001",
        "channels.cli.tools_allow = []",
        "security.forbidden_paths = []",
        "security.forbidden_paths = ['/a..b']",
        "security.allowed_domains = ['localhost:8080']",
        "workspace_dir = '/a$$b'",
        "workspace_dir = '~'",
        "default_model = '~/$NOPE'",  # no path: nothing is expanded
        "channels = {}",
        "providers = {}",
        "providers.models = {}",
    ],
)
def test_its_neighbour_is_allowed(text: str) -> None:
    valid(text)


def test_only_paths_and_addresses_are_expanded() -> None:
    config = valid("default_model = '$DATA'\nworkspace_dir = '/a$$b/$DATA'\nmemory.path = 'm.db'")
    assert config.default_model == "$DATA"
    assert config.workspace_dir == Path("/a$b//data")
    assert config.memory.path == HOME / "m.db"


def test_what_a_variable_holds_is_not_expanded_again() -> None:
    config = valid("workspace_dir = '$W'", {"HOME": "/h", "W": "/x/$HOME/~"})
    assert config.workspace_dir == Path("/x/$HOME/~")


def test_without_a_home_variable_the_user_still_has_a_home() -> None:
    config = valid("workspace_dir = '~/w'", {})
    assert config.workspace_dir == Path(pwd.getpwuid(os.getuid()).pw_dir) / "w"


WRONG_ENCODINGS = [
    (b'workspace_dir = "\xff"\n', Problem("", "is not written in UTF-8", 1)),
    (b"\n\n# \xe9\n", Problem("", "is not written in UTF-8", 3)),
    (
        b"\xef\xbb\xbfdefault_model = 'x'\n",
        Problem("", "begins with a byte order mark; save the file without it", 1),
    ),
    ("default_model = 'x'".encode("utf-16"), Problem("", "is not written in UTF-8", 1)),
    (b"a = \n", Problem("", "is not valid TOML: invalid value", 1)),
    (
        b"\n[a\n",
        Problem("", "is not valid TOML: expected ']' at the end of a table declaration", 2),
    ),
    (b"x = 'a", Problem("", "", None)),
    (b"x = " + b"[" * 5000, Problem("", "is nested too deeply", None)),
    (b"a" + b".a" * 1001 + b" = 1", Problem("", "has a line with more than 1000 dots", 1)),
    (b"\nx = {a" + b".a" * 1001 + b" = 1}", Problem("", "has a line with more than 1000 dots", 2)),
    (b"x = " + b"9" * 5000, Problem("", "", None)),
    (b"a = 1\na = 2\n", Problem("", "is not valid TOML: cannot overwrite a value", 2)),
    (b"a\0b = 1", Problem("", "", 1)),
    (b"a = 1\rb = 2", Problem("", "", 1)),
    (b"#" * (MAX_BYTES + 1), Problem("", f"is larger than {MAX_BYTES} bytes", None)),
]


@pytest.mark.parametrize(("data", "expected"), WRONG_ENCODINGS)
def test_a_file_that_cannot_be_read_is_a_problem(
    tmp_path: Path, data: bytes, expected: Problem
) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(data)
    (problem,) = examine_config(path, home=tmp_path, environ=ENVIRON).problems
    if expected.message:
        assert problem == expected
    else:
        assert problem.message.startswith("is not valid TOML: ")


def test_a_byte_order_mark_does_not_hide_the_other_problems(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbfx = 1\n")
    assert [p.key for p in examine_config(path, home=tmp_path, environ=ENVIRON).problems] == [
        "",
        "x",
    ]


def test_a_file_at_the_bound_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"#" * MAX_BYTES)
    assert examine_config(path, home=tmp_path, environ=ENVIRON).problems == ()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("directory", "is a directory"),
        ("fifo", "is no regular file"),
        ("dangling", "is a link that leads nowhere"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
    ],
)
def test_something_else_in_place_of_the_file_is_a_problem(
    tmp_path: Path, kind: str, message: str
) -> None:
    path = tmp_path / "config.toml"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere" if kind == "dangling" else path)
    assert examine_config(path, home=tmp_path, environ=ENVIRON).problems == (
        Problem("", message, None),
    )


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("default_model = 'x'", encoding="utf-8")
    (tmp_path / "config.toml").symlink_to("real.toml")
    config = load_config(tmp_path / "config.toml", home=tmp_path, environ=ENVIRON)
    assert config.default_model == "x"


@pytest.mark.parametrize(
    ("mode", "warnings"),
    [
        (0o666, ("config.toml can be changed by everybody; chmod 600 makes it yours alone",)),
        (0o620, ("config.toml can be changed by its group; chmod 600 makes it yours alone",)),
        (0o644, ()),
        (0o600, ()),
    ],
)
def test_a_file_that_others_can_change_is_doubtful(
    tmp_path: Path, mode: int, warnings: tuple[str, ...]
) -> None:
    path = tmp_path / "config.toml"
    path.write_text("", encoding="utf-8")
    path.chmod(mode)
    result = examine_config(path, home=tmp_path / "h", environ=ENVIRON)
    assert (result.problems, result.warnings) == ((), warnings)
    assert result.config is not None
    assert result.config.warnings == warnings


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_doubtful(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("", encoding="utf-8")
    os.chown(path, 65534, 65534)
    result = examine_config(path, home=tmp_path / "h", environ=ENVIRON)
    assert result.warnings == ("config.toml belongs to another user",)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workspace_dir = '/'", "the agent would work in all of it"),
        ("workspace_dir = '~'", "our own state is inside the workspace"),
        ("workspace_dir = '~/.coilclaw'", "our own state is inside the workspace"),
        ("workspace_dir = '/etc/x'", "below a forbidden path"),
        ("workspace_dir = '/w'\nmemory.path = '/w/m'", "the memory is inside the workspace: /w/m"),
        ("workspace_dir = '/w'\nreceipts.path = '/w/r'", "the log of receipts is inside"),
        (
            f"workspace_dir='/w'\n{GEMINI}api_key_file='/w/k'",
            "the key of local is inside the workspace: /w/k",
        ),
        (
            f"{GEMINI}base_url='http://h'\napi_key_env='K'",
            "the key of local would travel in clear text",
        ),
    ],
)
def test_what_works_and_is_probably_not_meant_is_doubtful(text: str, words: str) -> None:
    assert any(words in warning for warning in valid(text).warnings)


def test_the_usual_is_not_doubtful() -> None:
    assert valid("").warnings == ()


def test_many_problems_are_bounded() -> None:
    assert len(found("\n".join(f"k{n} = 1" for n in range(500)))) == 100


def test_a_long_name_is_shortened() -> None:
    (problem,) = found("x" * 1000 + " = 1")
    assert problem.key == "x" * 64 + "…"
    (problem,) = found("'a\tb' = 1")
    assert problem.key == '"a\\tb"'


def test_a_long_line_of_values_is_read() -> None:
    domains = ", ".join(f"'d{n}.example.org'" for n in range(500))
    assert len(valid(f"security.allowed_domains = [{domains}]").security.allowed_domains) == 500


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_known_key_is_read(table: tuple[str, ...]) -> None:
    """A value of a type that no key has is noticed at each of them."""
    place = (*table[:-1], "local") if table[-1:] == (ANY,) else table
    for name in TABLES[table]:
        lines = [f"[{'.'.join(place)}]"] if place else []
        lines.append(f"{name} = 2020-01-01")
        keys = {p.key for p in found("\n".join(lines))}
        assert ".".join((*place, name)) in keys


def test_the_sandboxes_are_those_there_are() -> None:
    assert sorted(TABLES["security",]["sandbox"].allowed) == sorted(get_args(Kind))
