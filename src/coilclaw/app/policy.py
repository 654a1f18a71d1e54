"""The policy of a workspace, from configuration and policy file; loaded when it is first asked.

A text-only conversation needs no rule, so that it does not pay for reading them. A policy file that
cannot be loaded denies every command, and a file of the user's own is checked at the start.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Final

from coilclaw.kernel import EnvironmentFault, Runs, UsageError, canonical_json, digest_bytes
from coilclaw.policy import USUAL, SecuritySettings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from coilclaw.app.config.values import Config
    from coilclaw.kernel import Effect, Json
    from coilclaw.policy import Autonomy, CommandRules, Judgement
    from coilclaw.workspace import PathLookup, SandboxSupport

NAME: Final = "policy.toml"
TRUSTED_LANDLOCK: Final = 3
MAX_BYTES: Final = 2**20


class Policy:
    """Judges effects in one workspace; ``harmless`` only where a sandbox really holds."""

    def __init__(
        self,
        config: Config,
        home: Path,
        environ: Mapping[str, str],
        *,
        autonomy: Autonomy | None = None,
    ) -> None:
        self._config = config
        self._home = home
        self._user_home = environ.get("HOME")
        self._autonomy = autonomy or config.security.autonomy
        self._own_text = _read(home / NAME)
        self._is_own = self._own_text is not None and self._own_text != _read_shipped()
        if self._is_own:
            _ = self.rules

    @property
    def path(self) -> Path:
        """Where the rules stand, if the user has any of their own."""
        return self._home / NAME

    @cached_property
    def rules(self) -> CommandRules:
        """The rules about commands, with all their examples checked."""
        from coilclaw.policy import policy_rules

        if self._own_text is None:
            return policy_rules.load_rules(policy_rules.read_shipped_policy())
        try:
            return policy_rules.load_rules(self._own_text)
        except UsageError as problem:
            problem.where = str(self.path)
            raise

    @cached_property
    def places(self) -> PathLookup:
        """Looks paths up, from the workspace on."""
        from pathlib import Path

        from coilclaw.workspace import PathLookup

        return PathLookup(Path(self.settings.workspace), home=self._user_home)

    @cached_property
    def support(self) -> SandboxSupport:
        """What this machine can enforce; looked up once, since that starts a process."""
        from coilclaw.workspace import sandbox

        return sandbox.probe_sandboxes()

    @cached_property
    def settings(self) -> SecuritySettings:
        """Everything but what only commands need."""
        security = self._config.security
        own = (self._home, *_files(self._config))
        return SecuritySettings(
            workspace=os.path.realpath(self._config.workspace_dir),
            rules=None,
            autonomy=self._autonomy,
            workspace_only=security.workspace_only,
            forbidden_paths=_both(security.forbidden_paths),
            own_paths=_both(own),
            forbidden_commands=security.forbidden_commands,
            allowed_commands=security.allowed_commands,
            allowed_domains=security.allowed_domains,
            harmless_commands=False,
            # What the shipped file says is known without reading it.
            secrets=self.rules.rules.secrets if self._is_own else USUAL,
        )

    @cached_property
    def command_settings(self) -> SecuritySettings:
        """With the rules, and with harmless commands where they can be contained."""
        from dataclasses import replace

        return replace(
            self.settings,
            rules=self.rules,
            harmless_commands=self._holds_reading,
            contained=self._config.security.sandbox in {"auto", "bubblewrap"}
            and bool(self.support.bubblewrap),
        )

    @property
    def _holds_reading(self) -> bool:
        security = self._config.security
        if not security.harmless_commands or security.sandbox == "none":
            return False
        support = self.support
        # Before this version Landlock cannot keep files from being emptied.
        landlock = support.landlock_abi >= TRUSTED_LANDLOCK and support.seccomp
        wanted = security.sandbox
        return (wanted != "landlock" and bool(support.bubblewrap)) or (
            wanted != "bubblewrap" and landlock
        )

    def judge(self, effects: tuple[Effect, ...]) -> Judgement:
        """Judge the effects of one call."""
        from coilclaw.policy import gate

        commands = any(isinstance(effect, Runs) for effect in effects)
        settings = self.command_settings if commands else self.settings
        return gate.judge_effects(effects, settings, self.places.locate)

    @cached_property
    def hash(self) -> str:
        """Names the policy in receipts: what the rules and the settings say, nothing else."""
        settings = self.settings
        text = self._own_text if self._own_text is not None else _read_shipped()
        value: dict[str, Json] = {
            "rules": digest_bytes(text.encode("utf-8")),
            "workspace": settings.workspace,
            "autonomy": settings.autonomy.value,
            "workspace_only": settings.workspace_only,
            "forbidden_paths": list(settings.forbidden_paths),
            "forbidden_commands": list(settings.forbidden_commands),
            "allowed_commands": list(settings.allowed_commands),
            "allowed_domains": list(settings.allowed_domains),
            "harmless_commands": self._config.security.harmless_commands,
            "sandbox": self._config.security.sandbox,
            "sandbox_read": [str(path) for path in self._config.sandbox.read],
            "sandbox_write": [str(path) for path in self._config.sandbox.write],
        }
        return canonical_json.hash_json(value)


def _files(config: Config) -> tuple[Path, ...]:
    """Files of ours that the configuration may place anywhere, with those that belong to them."""
    from pathlib import Path

    from coilclaw.agent import intents_path
    from coilclaw.kernel import anchor_path

    memory, receipts = config.memory.path, config.receipts.path
    logs = (receipts, intents_path(receipts))
    place = config.receipts.checkpoint
    return (
        *(memory.with_name(memory.name + end) for end in ("", "-wal", "-shm", "-journal")),
        *logs,
        *(anchor_path(log) for log in logs),
        *((Path(place.target),) if place is not None and place.kind == "file" else ()),
    )


def find_missing_rules(home: Path) -> tuple[str, ...]:
    """Return the names of the shipped rules that the user's own policy file does not have."""
    from coilclaw.policy import policy_rules

    text = _read(home / NAME)
    if text is None or text == _read_shipped():
        return ()
    return policy_rules.find_missing(policy_rules.load_rules(text))


def describe_missing(rules: Iterable[str]) -> str:
    """Say which shipped rules a policy file does not have, and how to get them."""
    return (
        f"{NAME} does not have these rules of this version: {', '.join(rules)}. To get them, move "
        "the file aside, run 'coilclaw init', and copy your own rules over."
    )


def _read_shipped() -> str:
    from coilclaw.policy import policy_rules

    return policy_rules.read_shipped_policy()


def _read(path: Path) -> str | None:
    """Return the user's own rules; ``None`` where the file is missing."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise EnvironmentFault(
            f"cannot read {path}: {problem.strerror}", rule="policy.read"
        ) from problem
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path} is larger than {MAX_BYTES} bytes", rule="policy.large")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path} is not UTF-8", rule="policy.encoding") from problem


def _both(paths: tuple[Path, ...]) -> tuple[str, ...]:
    """Each path as it is written and where it leads."""
    return tuple(
        dict.fromkeys(
            text for path in paths for text in (os.path.normpath(path), os.path.realpath(path))
        )
    )
