"""``Cargo``: what one recording takes along to a Modal sandbox: files, secrets, a command line."""

from __future__ import annotations

import io
import re
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from coilclaw.agents import naming
from coilclaw.app.modalimage import HOME, ROOT
from coilclaw.app.runners import CODEX_HOME, MAX_SCRIPT_BYTES, OPENCODE_SETTINGS
from coilclaw.environments import catalogue
from coilclaw.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coilclaw.trajectory.plan import Plan

INPUTS: Final = f"{ROOT}/inputs"
ARTIFACTS: Final = f"{ROOT}/artifacts"
MAX_LIFE_S: Final = 24 * 3600
"""How long Modal lets a sandbox live."""
MARGIN_S: Final = 900
"""Kept free at the end: for tests that still run, uploads, and copies."""
MAX_TEMPLATE_BYTES: Final = 2**20

_KINDS: Final = ("codex", "codex-exec", "opencode", "scripted")
_AWS_KEYS: Final = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_AWS_SETTINGS: Final = (
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "AWS_ALLOW_HTTP",
    "AWS_SKIP_SIGNATURE",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Extras:
    """What the command line says beyond the plan."""

    jobs: int | None = None
    preemptible: bool = False
    as_json: bool = False


@dataclass(frozen=True, slots=True)
class Cargo:
    """Everything that goes in; its text form shows no secret."""

    words: tuple[str, ...]
    """The command line of the recording."""
    life_s: int
    """How long the sandbox may live."""
    env: Mapping[str, str]
    secrets: Mapping[str, str] = field(repr=False)
    files: Mapping[str, bytes | Path] = field(repr=False)
    """Below ``INPUTS``: bytes of ours, or a file or directory."""

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
                        archive.add(source, name, filter=_plain)
                        continue
                    member = tarfile.TarInfo(name)
                    member.size, member.mode = len(source), 0o600
                    archive.addfile(member, io.BytesIO(source))
        except OSError as problem:
            raise EnvironmentFault(
                f"cannot pack what goes to the sandbox: {problem.strerror}", rule="modal.inputs"
            ) from problem


def load(
    plan: Plan, store: str, extras: Extras, *, environ: Mapping[str, str], start: Path
) -> Cargo:
    """Put together what a plan needs; ``store`` is a bucket, or empty for a local directory."""
    parsed = naming.parse(plan.agent)
    if parsed.kind not in _KINDS:
        raise UsageError(
            f"the agent {parsed.kind} cannot be recorded in a Modal sandbox",
            rule="modal.agent",
            hint=f"use {', '.join(_KINDS)}, which can be installed there",
        )
    files: dict[str, bytes | Path] = {"prompt.md": plan.prompt.encode("utf-8")}
    env = {
        "COILCLAW_HOME": HOME,
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",
    }
    secrets: dict[str, str] = {}
    agent = plan.agent
    if parsed.kind == "scripted":
        files["script.json"] = _read(start / parsed.argument, MAX_SCRIPT_BYTES)
        agent = f"scripted:{INPUTS}/script.json"
    elif parsed.kind == "opencode":
        _opencode(plan.model, environ, files, env, secrets)
    else:
        _codex(environ, files, env, secrets)
    if store:
        _bucket(environ, env, secrets)
    environment = _environment(plan, files)
    inside_s, life_s = _times(plan.timeout_s)
    words = _words(plan, agent, environment, store or ARTIFACTS, inside_s, extras)
    return Cargo(words, life_s, env, secrets, files)


def _words(
    plan: Plan, agent: str, environment: str, store: str, inside_s: float, extras: Extras
) -> tuple[str, ...]:
    said: dict[str, object] = {
        "agent": agent,
        "model": plan.model or None,
        "environment": environment,
        "prompt-file": f"{INPUTS}/prompt.md",
        "max-parts": plan.max_parts,
        "max-turns": plan.max_turns,
        "timeout": f"{inside_s:g}" if inside_s < 1e5 else int(inside_s),
        "sandbox": "local",
        "store": store,
        "trajectory-id": plan.trajectory_id,
        "jobs": extras.jobs,
    }
    flags = {"raw": plan.keep_raw, "preemptible": extras.preemptible, "json": extras.as_json}
    return (
        *("python", "-m", "coilclaw", "trace", "run"),
        *(f"--{name}={value}" for name, value in said.items() if value is not None),
        *(f"--{name}" for name, given in flags.items() if given),
    )


def _times(timeout_s: float | None) -> tuple[float, int]:
    """How long the recording may take, and how long the sandbox lives."""
    most = MAX_LIFE_S - MARGIN_S
    if timeout_s is None:
        return float(most), MAX_LIFE_S
    if timeout_s > most:
        raise UsageError(
            f"a recording in a Modal sandbox cannot take {timeout_s:g} s",
            rule="modal.timeout",
            hint=f"give at most --timeout {most}",
        )
    return timeout_s, int(timeout_s) + 1 + MARGIN_S


def _environment(plan: Plan, files: dict[str, bytes | Path]) -> str:
    """How the environment is named inside: what comes with us is there already."""
    if "/" not in plan.environment:
        return plan.environment
    place = catalogue.find(plan.environment)
    if place.file.name == catalogue.MAIN:
        files[f"environments/{place.directory.name}"] = place.directory
        return f"{INPUTS}/environments/{place.directory.name}/{catalogue.MAIN}"
    files[f"environments/{place.file.name}"] = place.file
    return f"{INPUTS}/environments/{place.file.name}"


def _bucket(environ: Mapping[str, str], env: dict[str, str], secrets: dict[str, str]) -> None:
    """Pass on how the bucket is reached; roles of this machine mean nothing over there."""
    keyed = all(environ.get(name) for name in _AWS_KEYS[:2])
    if not keyed and environ.get("AWS_SKIP_SIGNATURE", "").strip().lower() not in _YES:
        raise UsageError(
            "there are no keys for the artifact store that a Modal sandbox could use",
            rule="modal.credentials",
            hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; roles of this machine do not "
            "reach there",
        )
    settings = {name: environ[name] for name in _AWS_SETTINGS if environ.get(name)}
    for name, value in settings.items():
        if "ENDPOINT" in name and _is_here(value):
            raise UsageError(
                f"{name} is an address of this machine, which a Modal sandbox cannot reach",
                rule="modal.endpoint",
                hint="use a server that the sandbox can reach, or a directory as --store",
            )
    env.update(settings)
    if keyed:
        secrets.update({name: environ[name] for name in _AWS_KEYS if environ.get(name)})


def _is_here(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return False
    return host in {"localhost", "::1", "0.0.0.0"} or host.startswith("127.")  # noqa: S104 - compared, not bound


def _codex(
    environ: Mapping[str, str],
    files: dict[str, bytes | Path],
    env: dict[str, str],
    secrets: dict[str, str],
) -> None:
    """Take the template of its home along, and the key that its provider is asked with."""
    import tomllib

    if not environ.get(CODEX_HOME):
        return
    base = Path(environ[CODEX_HOME])
    if not any((base / name).is_file() for name in _CODEX_FILES):
        raise UsageError(
            f"the template of the Codex home {str(base)!r} holds none of its files",
            rule="codex.home",
            hint=f"it has {', '.join(_CODEX_FILES)}",
        )
    for name in _CODEX_FILES:
        if (base / name).is_file():
            files[f"codex/{name}"] = _read(base / name, MAX_TEMPLATE_BYTES)
    env[CODEX_HOME] = f"{INPUTS}/codex"
    config = files.get("codex/config.toml", b"")
    try:
        settings = tomllib.loads(config.decode("utf-8") if isinstance(config, bytes) else "")
    except ValueError as problem:
        raise UsageError(
            f"config.toml of the template of the Codex home is not TOML: {problem}",
            rule="codex.home",
        ) from problem
    providers = settings.get("model_providers")
    chosen = settings.get("model_provider")
    provider = providers.get(chosen) if isinstance(providers, dict) else None
    if not isinstance(provider, dict):
        return
    headers = provider.get("env_http_headers")
    named = [provider.get("env_key"), *(headers.values() if isinstance(headers, dict) else ())]
    _take([one for one in named if isinstance(one, str)], environ, secrets)


def _opencode(
    model: str,
    environ: Mapping[str, str],
    files: dict[str, bytes | Path],
    env: dict[str, str],
    secrets: dict[str, str],
) -> None:
    """Take its settings along, and the keys that they or the model's provider name."""
    named: list[str] = []
    if environ.get(OPENCODE_SETTINGS):
        data = _read(Path(environ[OPENCODE_SETTINGS]), MAX_TEMPLATE_BYTES)
        files["opencode.json"] = data
        env[OPENCODE_SETTINGS] = f"{INPUTS}/opencode.json"
        text = data.decode("utf-8", "replace")
        named += _VARIABLE.findall(text)
        named += [key for name, key in _OPENCODE_KEYS.items() if f'"{name}/' in text and not model]
    provider = model.partition("/")[0]
    if provider in _OPENCODE_KEYS:
        named.append(_OPENCODE_KEYS[provider])
    _take(named, environ, secrets)


def _take(names: list[str], environ: Mapping[str, str], secrets: dict[str, str]) -> None:
    secrets.update({name: environ[name] for name in names if environ.get(name)})


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out what is made by running, and who owns a file here."""
    made = "__pycache__" in member.name or member.name.endswith((".pyc", ".pyo"))
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if made else member


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as problem:
        raise UsageError(
            f"cannot read {path}: {problem.strerror}", rule="modal.inputs"
        ) from problem
    if len(data) > limit:
        raise UsageError(f"{path} is larger than {limit} bytes", rule="modal.inputs")
    return data
