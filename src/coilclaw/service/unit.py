"""The unit: a hardened service of the user's own service manager.

What it keeps from the service it also keeps from the commands that the agent runs. So nothing here
may stand in the way of bubblewrap and Landlock, which confine those commands: namespaces stay
possible, and /proc stays whole, since a new one can be mounted only where nothing of it is hidden.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from coilclaw.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "coilclaw.service"
PRIVATE: Final = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - what the unit hides, not uses
_MARK: Final = "# Written by 'coilclaw service install'. Changes go into a drop-in: "
_MARKED: Final = re.compile(
    r"\A" + re.escape(_MARK) + r"systemctl --user edit coilclaw\n# sha256 ([0-9a-f]{64})\n"
)

_UNSAFE: Final = "\"'\\"
_HARDENING: Final = """\
UMask=0077
NoNewPrivileges=yes
PrivateUsers=yes
PrivateTmp=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectControlGroups=yes
ProtectKernelModules=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service @mount
SystemCallFilter=landlock_create_ruleset landlock_add_rule landlock_restrict_self
SystemCallFilter=~@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
"""
_LIMITS: Final = """\
LimitCORE=0
LimitNOFILE=8192
TasksMax=2048
MemoryMax=75%
OOMPolicy=continue
"""


@dataclass(frozen=True, slots=True)
class Unit:
    """What the service runs, and where it may write."""

    command: tuple[str, ...]
    home: Path
    workspace: Path
    jit: bool = False
    """Whether memory may be writable and executable at once, as node and java need it."""

    def text(self) -> str:
        """The whole file, with the mark that tells whether somebody changed it since."""
        body = self._body()
        return f"{_MARK}systemctl --user edit coilclaw\n# sha256 {_hash(body)}\n{body}"

    def _body(self) -> str:
        self._check()
        writable = " ".join(
            quoted(str(path)) for path in dict.fromkeys((self.home, self.workspace))
        )
        # A colon keeps '$' in the words as it is.
        words = " ".join(
            quoted(f":{word}" if index == 0 else word) for index, word in enumerate(self.command)
        )
        jit = "" if self.jit else "MemoryDenyWriteExecute=yes\n"
        home = quoted(f"COILCLAW_HOME={self.home}")
        return (
            "[Unit]\n"
            "Description=CoilClaw, a governed agent runtime\n"
            "StartLimitIntervalSec=60\n"
            "StartLimitBurst=5\n"
            "\n[Service]\n"
            "Type=exec\n"
            f"ExecStart={words}\n"
            f"Environment={home}\n"
            "Restart=on-failure\n"
            "RestartSec=1\n"
            "TimeoutStopSec=30\n"
            "KillMode=mixed\n"
            f"{_HARDENING}{jit}"
            f"ReadWritePaths={writable}\n"
            f"{_LIMITS}"
            "\n[Install]\n"
            "WantedBy=default.target\n"
        )

    def _check(self) -> None:
        """Refuse what the manager would not start, and what the service could not see."""
        if any(char in _UNSAFE for char in self.command[0]):
            raise UsageError(
                f"the program {self.command[0]} has a quote or a backslash in its name, which "
                "systemd does not start",
                rule="service.program",
            )
        named = (("program", self.command[0]), ("home", self.home), ("workspace", self.workspace))
        for what, path in named:
            for hidden in PRIVATE:
                if str(path) == hidden or str(path).startswith(f"{hidden}/"):
                    raise UsageError(
                        f"the {what} {path} is below {hidden}, of which a service has its own",
                        rule="service.private",
                        hint=f"put the {what} somewhere else",
                    )


def quoted(word: str) -> str:
    """Write one word as the service manager reads it back."""
    if not word.isprintable() and any(ord(char) < 0x20 or ord(char) == 0x7F for char in word):
        raise UsageError(f"{word!r} holds a control character", rule="service.path")
    try:
        word.encode("utf-8")
    except UnicodeEncodeError as problem:
        raise UsageError(f"{word!r} is not written in UTF-8", rule="service.path") from problem
    inside = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{inside}"'


def is_ours(text: str) -> bool:
    """Whether a unit is one that we wrote, and nobody changed since."""
    found = _MARKED.match(text)
    return found is not None and found[1] == _hash(text[found.end() :])


def _hash(body: str) -> str:
    return sha256(body.encode("utf-8", "surrogatepass")).hexdigest()
