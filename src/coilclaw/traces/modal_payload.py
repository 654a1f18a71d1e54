"""What one recording takes along to a Modal sandbox, and the image that the sandbox is made from.

Nothing secret goes into the image, and nothing of one trajectory: it is made once, and used again.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tarfile
import tomllib
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from coilclaw.kernel import EnvironmentFault, UsageError
from coilclaw.runners import (
    CODEX_HOME,
    MAX_SCRIPT_BYTES,
    OPENCODE_SETTINGS,
    agent_program,
    read_bounded,
    runner,
)
from coilclaw.traces.environments import catalogue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coilclaw.traces.trajectory.plan import TrajectoryPlan

ROOT: Final = "/srv/coilclaw"
"""Not below /tmp, which a sandbox covers."""
HOME: Final = f"{ROOT}/home"
INPUTS: Final = f"{ROOT}/inputs"
ARTIFACTS: Final = f"{ROOT}/artifacts"
STAGE: Final = "/opt/coilclaw"
PACKAGES_VARIABLE: Final = "COILCLAW_MODAL_PACKAGES"
"""Names further Debian packages: what an environment builds with."""
MAX_LIFE_S: Final = 24 * 3600
"""How long Modal lets a sandbox live."""
MARGIN_S: Final = 900
"""Kept free at the end: for tests that still run, uploads, and copies."""
MAX_TEMPLATE_BYTES: Final = 2**20

_KINDS: Final = ("codex", "codex-exec", "opencode", "scripted")
_AWS_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_AWS_SETTINGS: Final = (
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    *("AWS_ENDPOINT", "AWS_ALLOW_HTTP", "AWS_SKIP_SIGNATURE"),
)
_YES: Final = frozenset({"1", "true", "yes", "on"})
_CODEX_FILES: Final = ("config.toml", "auth.json", "AGENTS.md")
_OPENCODE_KEYS: Final = {
    "anthropic": "ANTHROPIC_API_KEY",
    "google": "GEMINI_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}
_VARIABLE: Final = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_HIDDEN: Final = "[redacted]"
_PACKAGES: Final = ("bubblewrap", "build-essential", "ca-certificates", "git")
_NODE: Final = ("nodejs", "npm")
_PACKAGE: Final = re.compile(r"[a-z0-9][a-z0-9+.-]{1,99}")
_MAX_PACKAGES: Final = 200
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")
_AGENTS: Final = {"codex": "codex", "codex-exec": "codex", "opencode": "opencode"}
"""Which program a kind of runner needs."""
_SETTLE: Final = (
    f'cp -r {STAGE}/. "$(python -c \'import sysconfig; print(sysconfig.get_path("purelib"))\')/"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModalExtras:
    """What the command line says beyond the plan."""

    jobs: int | None = None
    preemptible: bool = False
    as_json: bool = False


@dataclass(slots=True)
class ModalPayload:
    """Everything that goes in; its text form shows no secret."""

    words: tuple[str, ...] = ()
    """The command line of the recording."""
    life_s: int = MAX_LIFE_S
    """How long the sandbox may live."""
    env: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict, repr=False)
    files: dict[str, bytes | Path] = field(default_factory=dict, repr=False)
    """Below ``INPUTS``: bytes, or a local file or directory."""

    def redact(self, text: str) -> str:
        """Take the secrets out of a text."""
        for value in sorted(self.secrets.values(), key=len, reverse=True):
            text = text.replace(value, _HIDDEN)
        return text

    def pack(self, path: Path) -> None:
        """Write the files as a tar archive, with the modes and links that they have."""
        try:
            with tarfile.open(path, "w") as archive:
                for name, source in sorted(self.files.items()):
                    if isinstance(source, Path):
                        archive.add(source, name, filter=_strip_member)
                        continue
                    member = tarfile.TarInfo(name)
                    member.size, member.mode = len(source), 0o600
                    archive.addfile(member, io.BytesIO(source))
        except OSError as problem:
            message = f"cannot pack what goes to the sandbox: {problem.strerror}"
            raise EnvironmentFault(message, rule="modal.inputs") from problem

    def take_secrets(self, names: Iterable[object], environ: Mapping[str, str]) -> None:
        """Take those of the named variables along that are set."""
        wanted = [name for name in names if isinstance(name, str)]
        self.secrets.update({name: environ[name] for name in wanted if environ.get(name)})


def load_payload(
    plan: TrajectoryPlan,
    store: str,
    extras: ModalExtras,
    *,
    environ: Mapping[str, str],
    start: Path,
) -> ModalPayload:
    """Put together what a plan needs; ``store`` is a bucket, or empty for a local directory."""
    parsed = runner.parse(plan.agent)
    if parsed.kind not in _KINDS:
        message = f"the agent {parsed.kind} cannot be recorded in a Modal sandbox"
        hint = f"use {', '.join(_KINDS)}, which can be installed there"
        raise UsageError(message, rule="modal.agent", hint=hint)
    cargo = ModalPayload(
        env={"COILCLAW_HOME": HOME, "LANG": "C.UTF-8", "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"},
        files={"prompt.md": plan.prompt.encode("utf-8")},
    )
    agent = plan.agent
    if parsed.kind == "scripted":
        cargo.files["script.json"] = _read(start / parsed.argument, MAX_SCRIPT_BYTES)
        agent = f"scripted:{INPUTS}/script.json"
    elif parsed.kind == "opencode":
        _add_opencode(cargo, plan.model, environ)
    else:
        _add_codex(cargo, environ)
    if store:
        _add_bucket(cargo, environ)
    environment = _add_environment(cargo, plan)
    inside_s: float = MAX_LIFE_S - MARGIN_S
    if plan.timeout_s is not None:
        if plan.timeout_s > inside_s:
            message = f"a recording in a Modal sandbox cannot take {plan.timeout_s:g} s"
            hint = f"give at most --timeout {inside_s}"
            raise UsageError(message, rule="modal.timeout", hint=hint)
        inside_s, cargo.life_s = plan.timeout_s, int(plan.timeout_s) + 1 + MARGIN_S
    said: dict[str, object] = {
        "agent": agent,
        "model": plan.model or None,
        "environment": environment,
        "prompt-file": f"{INPUTS}/prompt.md",
        "max-parts": plan.max_parts,
        "max-turns": plan.max_turns,
        "timeout": f"{inside_s:g}" if inside_s < 1e5 else int(inside_s),
        "sandbox": "local",
        "store": store or ARTIFACTS,
        "trajectory-id": plan.trajectory_id,
        "jobs": extras.jobs,
    }
    flags = {"raw": plan.keep_raw, "preemptible": extras.preemptible, "json": extras.as_json}
    cargo.words = (
        *("python", "-m", "coilclaw", "trace", "run"),
        *(f"--{name}={value}" for name, value in said.items() if value is not None),
        *(f"--{name}" for name, given in flags.items() if given),
    )
    return cargo


def _add_environment(cargo: ModalPayload, plan: TrajectoryPlan) -> str:
    """Return the name of the environment inside; shipped ones are installed there."""
    if "/" not in plan.environment:
        return plan.environment
    place = catalogue.find_environment(plan.environment)
    if place.file.name == catalogue.MAIN:
        cargo.files[f"environments/{place.directory.name}"] = place.directory
        return f"{INPUTS}/environments/{place.directory.name}/{catalogue.MAIN}"
    cargo.files[f"environments/{place.file.name}"] = place.file
    return f"{INPUTS}/environments/{place.file.name}"


def _add_bucket(cargo: ModalPayload, environ: Mapping[str, str]) -> None:
    """Pass on how the bucket is reached; roles of this machine mean nothing over there."""
    keyed = all(environ.get(name) for name in _AWS_KEYS[:2])
    if not keyed and environ.get("AWS_SKIP_SIGNATURE", "").strip().lower() not in _YES:
        raise UsageError(
            "keys for the artifact store are missing that a Modal sandbox could use",
            rule="modal.credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; roles of this machine do not "
            "reach there",
        )
    settings = {name: environ[name] for name in _AWS_SETTINGS if environ.get(name)}
    for name, value in settings.items():
        if "ENDPOINT" in name and _is_local(value):
            message = f"{name} is an address of this machine, which a Modal sandbox cannot reach"
            hint = "use a server that the sandbox can reach, or a directory as --store"
            raise UsageError(message, rule="modal.endpoint", hint=hint)
    cargo.env.update(settings)
    if keyed:
        cargo.take_secrets(_AWS_KEYS, environ)


def _is_local(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return False
    return host in {"localhost", "::1", "0.0.0.0"} or host.startswith("127.")  # noqa: S104 - compared, not bound


def _add_codex(cargo: ModalPayload, environ: Mapping[str, str]) -> None:
    """Take the template of its home along, and the key that its provider is asked with."""
    if not environ.get(CODEX_HOME):
        return
    base = Path(environ[CODEX_HOME])
    found = {
        name: _read(base / name, MAX_TEMPLATE_BYTES)
        for name in _CODEX_FILES
        if (base / name).is_file()
    }
    if not found:
        message = f"the template of the Codex home {str(base)!r} holds none of its files"
        raise UsageError(message, rule="codex.home", hint=f"it has {', '.join(_CODEX_FILES)}")
    cargo.files.update({f"codex/{name}": data for name, data in found.items()})
    cargo.env[CODEX_HOME] = f"{INPUTS}/codex"
    try:
        settings = tomllib.loads(found.get("config.toml", b"").decode("utf-8"))
    except ValueError as problem:
        message = f"config.toml of the template of the Codex home is not TOML: {problem}"
        raise UsageError(message, rule="codex.home") from problem
    providers = settings.get("model_providers")
    provider = (
        providers.get(settings.get("model_provider")) if isinstance(providers, dict) else None
    )
    if isinstance(provider, dict):
        headers = provider.get("env_http_headers")
        named = headers.values() if isinstance(headers, dict) else ()
        cargo.take_secrets((provider.get("env_key"), *named), environ)


def _add_opencode(cargo: ModalPayload, model: str, environ: Mapping[str, str]) -> None:
    """Take its settings along, and the keys that they or the model's provider name."""
    named = [_OPENCODE_KEYS.get(model.partition("/")[0])]
    if environ.get(OPENCODE_SETTINGS):
        data = _read(Path(environ[OPENCODE_SETTINGS]), MAX_TEMPLATE_BYTES)
        cargo.files["opencode.json"] = data
        cargo.env[OPENCODE_SETTINGS] = f"{INPUTS}/opencode.json"
        text = data.decode("utf-8", "replace")
        named += _VARIABLE.findall(text)
        named += [key for name, key in _OPENCODE_KEYS.items() if f'"{name}/' in text and not model]
    cargo.take_secrets(named, environ)


def _strip_member(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is made by running, and who owns a file here."""
    made = "__pycache__" in member.name or member.name.endswith((".pyc", ".pyo"))
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if made else member


def _read(path: Path, limit: int) -> bytes:
    return read_bounded(path, limit, "modal.inputs")


def make_image(sdk: Any, kind: str, environ: Mapping[str, str]) -> Any:
    """Return the image for a kind of runner; it is built when a sandbox asks for it.

    It is Debian with Python, git, bubblewrap, this very CoilClaw and the agent.
    """
    agent = _AGENTS.get(kind)
    further = environ.get(PACKAGES_VARIABLE, "").split()
    if len(further) > _MAX_PACKAGES or not all(map(_PACKAGE.fullmatch, further)):
        message = f"{PACKAGES_VARIABLE} does not name Debian packages"
        hint = "write their names with spaces between them"
        raise UsageError(message, rule="modal.packages", hint=hint)
    image = sdk.Image.debian_slim(python_version="{}.{}".format(*sys.version_info))
    image = image.apt_install(*_PACKAGES, *(_NODE if agent else ()), *further)
    # What we need comes in the versions that are pinned: by a source tree, or by being here.
    here = package()
    tree = here.parent.parent
    locked = tree / "requirements.txt"
    if locked.is_file() and (tree / "pyproject.toml").is_file():
        image = image.pip_install_from_requirements(str(locked), extra_options="--require-hashes")
    else:
        image = image.pip_install(*pins("coilclaw"))
    # The package, and what a source tree links into it: Modal follows no such link.
    places = {here: f"{STAGE}/coilclaw"}
    for folder, names, _ in os.walk(here):
        for path in (Path(folder, name) for name in sorted(names)):
            if path.is_symlink():
                inside = path.relative_to(here).as_posix()
                places[Path(os.path.realpath(path))] = f"{STAGE}/coilclaw/{inside}"
    for source, target in places.items():
        image = image.add_local_dir(source, target, copy=True, ignore=_is_generated)
    commands = [_SETTLE, f"mkdir -p {HOME}", "python -m coilclaw --version"]
    if agent is not None:
        commands.append(
            f"python -m coilclaw agents install {agent_program.find_known_agent(agent).name}"
        )
    return image.run_commands(*commands, env={"COILCLAW_HOME": HOME})


def package() -> Path:
    """Return the directory of the running package."""
    import coilclaw

    return Path(os.path.realpath(coilclaw.__path__[0]))


def pins(name: str) -> tuple[str, ...]:
    """Return everything that a distribution needs, each in the version that is installed here."""
    found: dict[str, str] = {}
    waiting = [name]
    while waiting:
        try:
            distribution = metadata.distribution(waiting.pop())
        except metadata.PackageNotFoundError:
            continue  # for another platform, or another Python
        if distribution.name != name:
            found[_normalize_name(distribution.name)] = distribution.version
        for text in distribution.requires or ():
            match = _REQUIREMENT.match(text)
            if (
                match is not None
                and "extra ==" not in text
                and _normalize_name(match[1]) not in found
            ):
                waiting.append(_normalize_name(match[1]))
    return tuple(sorted(f"{one}=={version}" for one, version in found.items()))


def _normalize_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _is_generated(path: Path) -> bool:
    """Return whether a file is generated; Modal gives its path below the folder."""
    return path.suffix == ".pyc" or any(
        part == "__pycache__" or (part.startswith(".") and part.endswith("_cache"))
        for part in path.parts
    )
