"""Look up the rule of a program; programs that need the network or act beyond the workspace."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.policy.commands.command_class import (
    Classed,
    CommandClass,
    family_name,
    forbidden,
    harmless,
    make_allowed,
    other,
    program_name,
    strictest,
)
from coilclaw.policy.commands.git_command import GitCommand, is_harmless_setting
from coilclaw.policy.commands.word_paths import check_mentions, check_real_mentions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from coilclaw.policy.commands.rule import Rule
    from coilclaw.policy.commands.word_paths import Scene
    from coilclaw.policy.shell.script import Word


_PIP: Final = ("install", "download", "wheel", "index", "--outdated", "-o")
_NODE: Final = (
    *("install", "i", "ci", "add", "update", "up", "upgrade", "audit", "outdated", "view"),
    *("info", "search", "create", "dlx", "fetch", "import", "dedupe", "install-test"),
)
_SUBCOMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "pip": _PIP,
    "pipx": ("install", "run", "upgrade", "inject"),
    "uv": ("sync", "add", "lock", "pip install", "pip sync", "pip compile", "tool", "python"),
    "poetry": ("install", "add", "update", "lock", "sync"),
    "pdm": ("install", "add", "update", "lock", "sync"),
    "pipenv": ("install", "sync", "update", "lock"),
    **dict.fromkeys(("conda", "mamba", "micromamba"), ("install", "create", "update", "env")),
    **dict.fromkeys(("npm", "yarn", "pnpm", "bun"), _NODE),
    "cargo": ("fetch", "add", "update", "install", "search", "generate-lockfile", "vendor"),
    "go": ("get", "install", "mod download", "mod tidy", "mod vendor", "work sync"),
    "rustup": ("update", "install", "toolchain", "component", "target"),
    "bundle": ("install", "update", "add"),
    "gem": ("install", "fetch", "update"),
    "composer": ("install", "update", "require"),
    "mvn": ("dependency:resolve", "dependency:go-offline", "dependency:get"),
    "dotnet": ("restore", "add"),
    "cabal": ("update", "install"),
    "swift": ("package",),
    **dict.fromkeys(("flutter", "dart"), ("pub",)),
    "terraform": ("init",),
    "playwright": ("install",),
    "pre-commit": ("install-hooks", "autoupdate"),
    "git": ("fetch", "pull", "push", "ls-remote", "submodule", "remote update", "remote show"),
    "gh": ("pr", "issue", "run", "repo", "api", "release", "workflow", "search"),
    "glab": ("mr", "issue", "ci", "repo"),
}
"""What downloads or talks to a server, by the words behind the program's name."""
_TRANSFERS: Final = frozenset({"curl", "wget", "http", "https", "xh", "aria"})
_LOOPBACK: Final = re.compile(
    r"(?:https?://)?(?:localhost|127(?:\.\d{1,3}){3}|\[::1\]|0\.0\.0\.0)(?::\d+)?(?:[/?].*)?"
)
_HOST: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*://.+|[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:/.*)?)")
_REMOTE: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*://|[\w.-]+@)?[\w.-]+:.*|[a-z][a-z0-9+.-]*://.*")
_ON_DEMAND: Final = frozenset({"-y", "--yes"})
_BEYOND: Final = frozenset(
    {
        *("ssh", "scp", "sftp", "telnet", "ftp", "nc", "ncat", "netcat", "socat", "mosh"),
        *("docker", "podman", "nerdctl", "docker-compose", "kubectl", "helm", "oc", "minikube"),
        *("aws", "gcloud", "gsutil", "az", "rclone", "s", "heroku", "fly", "flyctl", "vercel"),
        *("apt", "apt-get", "aptitude", "dpkg", "yum", "dnf", "rpm", "apk", "pacman", "zypper"),
        *("brew", "snap", "flatpak", "port", "systemctl", "service", "loginctl", "journalctl"),
        *("mount", "umount", "modprobe", "insmod", "rmmod", "sysctl", "iptables", "nft", "ip"),
        *("useradd", "userdel", "usermod", "groupadd", "passwd", "chsh", "visudo", "mail"),
        *("sendmail", "mutt", "gpg", "gpg-agent", "ssh-add", "ssh-agent", "ssh-keygen"),
        *("xdg-open", "open", "dbus-send", "gdbus", "busctl", "notify-send", "wall", "write"),
    }
)
_PUBLISHES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(
        ("npm", "yarn", "pnpm", "bun"), ("publish", "unpublish", "login", "adduser", "token")
    ),
    "cargo": ("publish", "yank", "login", "owner"),
    "twine": ("upload",),
    "gem": ("push", "yank", "signin"),
    "poetry": ("publish",),
    "uv": ("publish",),
    "hatch": ("publish",),
    "flit": ("publish",),
    "mvn": ("deploy",),
    "dotnet": ("nuget",),
    "terraform": ("apply", "destroy", "import"),
    "git": ("send-email", "credential", "daemon", "instaweb", "svn", "p4"),
    "gh": ("auth", "secret", "ssh-key", "gpg-key", "codespace", "extension", "alias", "config"),
}
_IRREVERSIBLE: Final = frozenset({"delete", "merge", "archive", "rename", "transfer", "lock"})
_FORCING: Final = re.compile(
    r"--force.*|--delete|--mirror|--prune|-[a-zA-Z]*[fd][a-zA-Z]*|\+.+|:.+"
)


def network_need(words: Sequence[Word]) -> str:
    """Say why a command needs the network; an empty text when it does not by nature."""
    name, rest = _split(words)
    if name in _TRANSFERS:
        return _transfer(name, rest)
    if name in {"python", "pypy"} and rest[:2] == ["-m", "pip"]:
        name, rest = "pip", rest[2:]
    if name in {"npx", "bunx", "uvx", "pipx"} and (
        name == "uvx" or _ON_DEMAND & set(rest) or any(each.startswith("create-") for each in rest)
    ):
        return f"`{name}` downloads what it runs"
    if name == "mix" and rest[:1] and rest[0].startswith("deps."):
        return f"`mix {rest[0]}` downloads"
    if name == "yarn" and not [each for each in rest if not each.startswith("-")]:
        return "`yarn` downloads packages"
    if name == "git" and rest[:1] == ["clone"]:
        return "`git clone` downloads" if any(map(_REMOTE.fullmatch, rest[1:])) else ""
    found = _subcommand(rest, _SUBCOMMANDS.get(name, ()))
    if found is None or "--no-index" in rest or "--offline" in rest:
        return ""
    what = "sends to a server" if (name, found) == ("git", "push") else "talks to a server"
    return f"`{name} {found}` {what if name in {'git', 'gh', 'glab'} else 'downloads'}"


def beyond_workspace(words: Sequence[Word]) -> list[Classed]:
    """Say which programs act on another machine, or on this one outside of any sandbox."""
    name, rest = _split(words)
    reason = ""
    if name in _BEYOND and rest not in (["--version"], ["-v"], ["-V"], ["version"]):
        reason = f"{name} acts on other machines, or on this one beyond the workspace"
    elif (found := _subcommand(rest, _PUBLISHES.get(name, ()))) is not None:
        reason = f"{name} {found} acts for the user on other machines"
    elif name == "rsync" and any(map(_REMOTE.fullmatch, rest)):
        reason = "rsync would reach another machine"
    elif name == "gh" and _IRREVERSIBLE & set(rest):
        reason = "gh would do what cannot be taken back"
    elif name == "git" and rest[:1] == ["push"] and any(map(_FORCING.fullmatch, rest[1:])):
        reason = "git push would overwrite or remove what others have"
    elif name == "git" and rest[:1] == ["config"] and not is_harmless_setting(rest[1:]):
        reason = "git config may make git run other programs, also outside of the sandbox"
    return [other("command.beyond", reason)] if reason else []


def _split(words: Sequence[Word]) -> tuple[str, list[str]]:
    """Return a program's plain name and the texts behind it; git's own options are left out."""
    if not words or words[0].text is None:
        return "", []
    name = family_name(program_name(words[0].text))
    if name == "git":
        command = GitCommand.read(words)
        words = command.words if isinstance(command, GitCommand) else words
    return name, [word.text or word.raw for word in words[1:]]


def _subcommand(rest: Sequence[str], wanted: Sequence[str]) -> str | None:
    plain = [each for each in rest if not each.startswith("-")]
    for each in wanted:
        names = each.split()
        if plain[: len(names)] == names or (each.startswith("-") and each in rest):
            return each
    return None


def _transfer(name: str, rest: Sequence[str]) -> str:
    hosts = [each for each in rest if _HOST.fullmatch(each) or _LOOPBACK.fullmatch(each)]
    remote = [each for each in hosts if "://" in each and not _LOOPBACK.fullmatch(each)]
    if hosts and not remote and any(map(_LOOPBACK.fullmatch, hosts)):
        return ""
    return f"`{name}` talks to a server"


_PYTHON: Final = re.compile(r"python3\.\d+")
_WITH_PATTERNS: Final = frozenset(
    {"sed", "grep", "egrep", "fgrep", "rg", "ag", "jq", "find", "tr", "expr", "echo", "printf"}
    | {"awk", "gawk", "mawk", "nawk"}
)
"""Programs whose words are often patterns or texts that only look like a path."""
_WITH_SUBCOMMANDS: Final = frozenset(
    {
        *("git", "docker", "podman", "npm", "yarn", "pnpm", "kubectl", "helm", "pip", "pip3"),
        *("cargo", "go", "conda", "apt", "apt-get", "brew", "dnf", "yum", "svn", "hg", "aws"),
        *("gcloud", "gsutil", "az", "rclone", "nerdctl", "systemctl", "uv", "poetry", "make"),
        *("gh", "glab", "jj", "terraform", "nix", "snap", "flatpak", "bazel", "nx", "dvc"),
    }
)


def judge_by_rules(words: Sequence[Word], scene: Scene) -> Classed:
    """Return the class of a program that runs no other, by the first rule that permits it."""
    name = rule_name(words[0].text or "")
    tried: list[Classed] = []
    for rule, rest in _candidates(name, words, scene):
        against = rule.check(rest, scene)
        if all(each.level <= CommandClass.ALLOWED for each in against):
            return strictest([_permits(rule), *against])
        tried += against
    # What no rule permits may read and write every path in its words.
    check = check_real_mentions if name in _WITH_PATTERNS else check_mentions
    mentioned = [each for word in words[1:] for each in check(word, scene)]
    beyond = [*mentioned, *beyond_workspace(words)]
    if tried:
        return strictest([*tried, *beyond])
    found = [other("command.other", f"no rule names {name!r}"), *beyond]
    return strictest([*found, *_names_forbidden(name, words, scene)])


def rule_name(text: str) -> str:
    """Return the name by which rules know a program."""
    name = program_name(text)
    return "python3" if _PYTHON.fullmatch(name) else name


def _permits(rule: Rule) -> Classed:
    name = " ".join(rule.commands[0])
    if rule.cls == "harmless":
        return harmless(rule.id, rule.reason or f"{name} only reads, with these words")
    reason = rule.reason or f"{name} is on the list of allowed commands"
    return make_allowed(rule.id, reason, network=rule.network)


def _candidates(
    name: str, words: Sequence[Word], scene: Scene
) -> Iterator[tuple[Rule, Sequence[Word]]]:
    rules = scene.rules
    listed = tuple(rule for rule in scene.entries if rule.commands[0][0] == name)
    for rule in (*rules.harmless.get(name, ()), *rules.allow.get(name, ()), *listed):
        for command in rule.commands:
            following = words[1 : len(command)]
            if command[0] == name and command[1:] == tuple(word.text for word in following):
                yield rule, words[len(command) :]


def _names_forbidden(name: str, words: Sequence[Word], scene: Scene) -> Iterator[Classed]:
    """An unknown program may run what its words name."""
    if name in _WITH_SUBCOMMANDS:
        return
    for word in words[1:]:
        text = program_name(word.text or "")
        if text in scene.settings.forbidden_commands:
            yield forbidden(
                "command.forbidden", f"{name} is not known, and may run {text!r} that it is given"
            )
