"""Where agents are: the one that a variable names, on PATH, or installed by us.

Never the script that a package manager puts on PATH, where a native program stands behind it: the
script starts that as a child of its own, which then outlives it.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, UsageError
from coilclaw.workspace import environment, toolchain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from coilclaw.runners.runner import RunnerName

FOLDER: Final = "agents"
"""Below our home: one directory for each agent that we installed."""

VERSION_S: Final = 60.0
_MAX_VERSION_BYTES: Final = 2**16
_MAX_PACKAGE_BYTES: Final = 2**20
_VERSION: Final = re.compile(r"\d+\.\d+[\w.+-]*")
_SCRIPT_START: Final = b"#!"
_MAX_PARENTS: Final = 6


@dataclass(frozen=True, slots=True)
class KnownAgent:
    """What is known of an agent; of one that is not known, only its name."""

    name: str
    title: str
    program: str
    """What it is called on PATH."""
    variable: str = ""
    """Names the program, or a directory that it was installed into."""
    packages: tuple[str, ...] = ()
    """Of the npm registry, each with its version; without any, it is not ours to install."""
    native: tuple[str, ...] = ()
    """Below ``node_modules``: where the native program is, if there is one; the best first."""
    wheel: str = ""
    """Below ``site-packages``: where a wheel puts the native program."""
    runner: str = ""
    """How it is named as a runner."""
    keys: tuple[str, ...] = ()
    """Variables that hold its key. Commands that the agent starts can read them."""
    address: str = ""
    """The variable that holds the address of its model."""
    hosts: tuple[str, ...] = ()
    """Where its model is, if the variable is not set."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Variables that keep it from doing what was not asked for."""
    folder: tuple[str, str] | None = None
    """The variable that names the directory of its state, and its name below the home."""


OPENAI_HOSTS: Final = ("api.openai.com", "auth.openai.com", "chatgpt.com")
AGENTS: Final = (
    KnownAgent(
        "codex",
        "Codex",
        "codex",
        "COILCLAW_CODEX",
        ("@openai/codex@0.166.0",),
        tuple(
            f"{place}/vendor/*/{program}"
            for place in (
                "@openai/codex-*",
                "@openai/codex",
                "@openai/codex/node_modules/@openai/codex-*",
            )
            for program in ("bin/codex", "codex/codex")
        ),
        wheel="codex_cli_bin/bin/codex",
        runner="codex",
    ),
    KnownAgent(
        "opencode",
        "opencode",
        "opencode",
        "COILCLAW_OPENCODE",
        ("opencode-ai@1.18.33",),
        ("opencode-linux-{cpu}/bin/opencode", "opencode-linux-{cpu}-*/bin/opencode"),
        runner="opencode",
    ),
    KnownAgent(
        "claude",
        "Claude Code",
        "claude-agent-acp",
        "COILCLAW_CLAUDE",
        ("@anthropic-ai/claude-code@2.1.197", "@agentclientprotocol/claude-agent-acp@0.49.0"),
        runner='acp:"claude-agent-acp"',
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        address="ANTHROPIC_BASE_URL",
        hosts=("api.anthropic.com",),
        fixed={
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # It is in one; as root it would not start without being told so.
            "IS_SANDBOX": "1",
        },
        folder=("CLAUDE_CONFIG_DIR", ".claude"),
    ),
    KnownAgent(
        "gemini",
        "Gemini CLI",
        "gemini",
        "COILCLAW_GEMINI",
        ("@google/gemini-cli@0.61.0",),
        runner='acp:"gemini --acp --skip-trust"',
        keys=("GEMINI_API_KEY",),
        address="GOOGLE_GEMINI_BASE_URL",
        hosts=("generativelanguage.googleapis.com",),
    ),
    KnownAgent(
        *("codex-acp", "Codex", "codex-acp"),
        keys=("OPENAI_API_KEY", "CODEX_API_KEY"),
        hosts=OPENAI_HOSTS,
    ),
)
"""Every agent that something is known of: a new one is one entry."""
KNOWN: Final[Mapping[str, KnownAgent]] = {each.name: each for each in AGENTS if each.packages}
"""Those that can be installed, by their names."""
_CPUS: Final = {"x86_64": "x64", "aarch64": "arm64"}


def find_known_agent(name: str) -> KnownAgent:
    """Return the agent of a name; an unknown one is answered with the list."""
    if name not in KNOWN:
        raise UsageError(
            f"the agent {name[:100]!r} is not known",
            rule="agent.unknown",
            hint=f"use {', '.join(KNOWN)}",
        )
    return KNOWN[name]


def installed_at(home: Path, name: str) -> Path:
    """Return where an agent is installed by us, or would be."""
    return home / FOLDER / name


def find(
    agent: KnownAgent,
    environ: Mapping[str, str],
    home: Path | None = None,
    given: Path | None = None,
) -> Path:
    """Return the program of an agent: given, named by its variable, on PATH, or installed."""
    named = environ.get(agent.variable, "") if given is None else str(given)
    starts = [Path(named)] if named else [on_path(agent.program, environ)]
    if not named and home is not None:
        starts.append(installed_at(home, agent.name))
    for start in filter(None, starts):
        for candidate in _candidates(agent, start):
            if is_program(candidate) and not _is_shim(agent, candidate):
                return Path(os.path.realpath(candidate)) if agent.native else candidate.absolute()
    where = f"at {named!r}" if named else "on PATH or among the programs that coilclaw installed"
    raise EnvironmentFault(
        f"{agent.title} was not found {where}.",
        rule="agent.missing",
        hint=f"Install it with: coilclaw agents install {agent.name}; or set {agent.variable}.",
    )


def require(
    runner: RunnerName, environ: Mapping[str, str], home: Path, base: Path | None = None
) -> Path | None:
    """Return the program that a runner starts; ``None`` for one that starts none.

    What is missing is a ``UsageError`` before anything begins, which says how to get it.
    ``base`` is what a program that is named by a relative path is relative to.
    """
    try:
        match runner.kind:
            case "codex" | "codex-exec":
                return find(KNOWN["codex"], environ, home)
            case "opencode":
                return find(KNOWN["opencode"], environ, home)
            case "acp":
                return find_named_program(runner.argv[0], environ, home, base)
            case _:
                return None
    except EnvironmentFault as missing:
        raise UsageError(missing.message, rule=missing.rule, hint=missing.hint) from missing


def look(
    environ: Mapping[str, str], home: Path
) -> Iterator[tuple[KnownAgent, Path | EnvironmentFault]]:
    """Yield every known agent with its program, or with what is missing and how to get it."""
    for agent in KNOWN.values():
        try:
            yield agent, find(agent, environ, home)
        except EnvironmentFault as missing:
            yield agent, missing


def find_named_program(
    word: str, environ: Mapping[str, str], home: Path | None = None, base: Path | None = None
) -> Path:
    """Return the program that a command line begins with: a path, on PATH, or installed by us."""
    if "/" in word:
        found = Path(os.path.join(base or "/", word))
        if is_program(found):
            return found
    else:
        there = on_path(word, environ)
        if there is not None:
            return there
        for agent in KNOWN.values():
            if agent.program == word:
                return find(agent, environ, home)
    raise EnvironmentFault(
        f"The program {word[:200]!r}, which is to start as an agent, was not found.",
        rule="acp.missing",
        hint="Name it by its path, or put it on PATH.",
    )


def on_path(program: str, environ: Mapping[str, str]) -> Path | None:
    """Return a program of PATH; an entry that is not absolute could be brought by the tree."""
    for entry in environ.get("PATH", environment.DEFAULT_PATH).split(":"):
        if entry.startswith("/") and is_program(found := Path(entry, program)):
            return found
    return None


def is_program(path: Path) -> bool:
    """Whether it is a file that can be run."""
    return path.is_file() and os.access(path, os.X_OK)


def _candidates(agent: KnownAgent, start: Path) -> Iterator[Path]:
    if start.is_dir():
        for modules in (start / "node_modules", start / "lib" / "node_modules"):
            yield from _native(agent, modules)
        yield from _from_wheel(agent, start)
        yield start / "node_modules" / ".bin" / agent.program
        yield start / "bin" / agent.program
        yield start / agent.program
        return
    for parent in list(Path(os.path.realpath(start)).parents)[:_MAX_PARENTS]:
        if parent.name == "node_modules":
            yield from _native(agent, parent)
    yield from _from_wheel(agent, start.parent.parent)
    yield start


def _native(agent: KnownAgent, modules: Path) -> Iterator[Path]:
    cpu = _CPUS.get(os.uname().machine, os.uname().machine)
    for pattern in agent.native:
        yield from sorted(modules.glob(pattern.format(cpu=cpu)))


def _from_wheel(agent: KnownAgent, prefix: Path) -> Iterator[Path]:
    if agent.wheel:
        yield from sorted(prefix.glob(f"lib/python*/site-packages/{agent.wheel}"))


def _is_shim(agent: KnownAgent, path: Path) -> bool:
    """Whether it is the script of a package before a native program."""
    if not agent.native or "node_modules" not in Path(os.path.realpath(path)).parts:
        return False
    with path.open("rb") as file:
        return file.read(len(_SCRIPT_START)) == _SCRIPT_START


def version_of(program: Path, environ: Mapping[str, str]) -> str:
    """Ask a program for its version; empty if it does not tell one."""
    from tempfile import TemporaryDirectory

    from coilclaw.workspace import Sandbox, command

    with TemporaryDirectory(prefix="coilclaw-") as place:
        result = command.run(
            [str(program), "--version"],
            cwd=place,
            timeout_s=VERSION_S,
            env={
                "PATH": environ.get("PATH", environment.DEFAULT_PATH),
                # Some make a directory for temporary files before they say anything.
                "HOME": place,
                "TMPDIR": place,
            },
            limit_bytes=_MAX_VERSION_BYTES,
            # It is asked for a word: there is nothing else that it should do.
            sandbox=Sandbox("auto", writable=(Path(place),)).showing(program),
        )
    found = _VERSION.search(result.stdout.text()) if result.exit_code == 0 else None
    return found[0] if found else ""


def told_version(agent: KnownAgent, program: Path) -> str:
    """Return the version that a package says it has, without running anything of it."""
    place = toolchain.find_installation(toolchain.FollowedPath(os.path.realpath(program)))
    return version_of_package(Path(place or "/"), agent.packages[-1].rpartition("@")[0])


def version_of_package(place: Path, name: str) -> str:
    """Return the version that a package of an installation says it has, or nothing."""
    path = place / "node_modules" / name / "package.json"
    try:
        with path.open("rb") as file:
            said = json.loads(file.read(_MAX_PACKAGE_BYTES))
    except (OSError, ValueError, RecursionError):
        return ""
    version = said.get("version") if isinstance(said, dict) else None
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else ""
