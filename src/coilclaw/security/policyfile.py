"""Read the TOML of a policy file into rules; everything that is wrong with it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

from coilclaw.errors import UsageError
from coilclaw.security.commandclass import CONTAINED_RULE
from coilclaw.security.commandrule import Roles, Rule
from coilclaw.security.commandrules import Examples, RuleSet
from coilclaw.security.denyrule import DenyRule
from coilclaw.security.destructive import BUILT_IN
from coilclaw.security.optiontable import ROLES, Role, Style, option_table
from coilclaw.security.secret_files import READINGS, USUAL, SecretFiles
from coilclaw.security.specials import SPECIALS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coilclaw.security.commandrule import RuleClass

VERSION: Final = 1
_TOP: Final = frozenset({"version", "options", "harmless", "allow", "deny", "secrets"})
_STRINGS: Final = (
    "options",
    "refused",
    "operands",
    "instead",
    "needs",
    "special",
    "reason",
    "style",
)
_FLAGS: Final = ("tree", "any_option", "first_ends", "network")
_LISTS: Final = ("commands", "match", "no_match")
_KEYS: Final = frozenset({"id", "least", *_STRINGS, *_FLAGS, *_LISTS})
_DENY_KEYS: Final = frozenset({"id", "reason", *_LISTS})
_CONTAINED_KEYS: Final = frozenset({"id", "reason", "match", "no_match"})
_STYLES: Final[Mapping[str, Style]] = {style: style for style in get_args(Style)}
_ROLES: Final[Mapping[str, Role]] = {role: role for role in ROLES}


def read_policy(text: str) -> tuple[RuleSet | None, list[str]]:
    """Return the rules, or everything that is wrong with the text."""
    import tomllib

    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        return None, [f"it is not TOML: {problem}"]
    reader = _Reader(document)
    rules = reader.read()
    return (None if reader.problems else rules), reader.problems


def read_entry(entry: str) -> Rule:
    """Read one ``binary [flags…]`` of ``allowed_commands``; ``UsageError`` when it is none."""
    words = entry.split()
    names = [word for word in words if not word.startswith("-")]
    if not words or not names or words[0] != names[0] or "/" in names[0]:
        raise UsageError(
            f"allowed_commands has the entry {entry!r}, which does not begin with a program's name",
            rule="policy.entry",
            hint="write the name, its subcommand and the permitted flags, such as 'tox -e=<text>'",
        )
    flags = [word for word in words if word.startswith("-")]
    return Rule(
        id=f"allowed_commands.{names[0]}",
        cls="allow",
        commands=(tuple(names),),
        table=option_table(" ".join(flags)),
        roles=Roles(rest="argument"),
        reason=f"the configuration allows {entry!r}",
    )


class _Reader:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._sets: dict[str, str] = {}
        self._seen: set[str] = set()
        self._examples: list[Examples] = []
        self._contained = False
        self.problems: list[str] = []

    def read(self) -> RuleSet:
        for key in self._document.keys() - _TOP:
            self.problems.append(f"the key {key!r} is not known")
        if self._document.get("version") != VERSION:
            self.problems.append(f"'version' must be {VERSION}")
        self._read_sets()
        harmless = self._rules("harmless")
        allow = self._rules("allow")
        deny = [rule for entry in self._tables("deny") if (rule := self._deny(entry)) is not None]
        if not harmless and not allow and not deny and not self._contained:
            self.problems.append("there is no rule in it")
        return RuleSet(
            _by_name(harmless),
            _by_name(allow),
            tuple(deny),
            tuple(self._examples),
            contained=self._contained,
            secrets=self._secrets(),
        )

    def _secrets(self) -> SecretFiles:
        """Read the table ``secrets``; without it the usual names ask."""
        usual = USUAL
        table = self._document.get("secrets", {})
        if not isinstance(table, dict) or table.keys() - {"read", "names"}:
            self.problems.append("'secrets' must be a table with 'read' and 'names'")
            return usual
        read = next((each for each in READINGS if each == table.get("read", usual.read)), None)
        if read is None:
            self.problems.append(f"secrets: 'read' must be one of {', '.join(READINGS)}")
        names = table.get("names", list(usual.names))
        if not isinstance(names, list) or not all(isinstance(each, str) and each for each in names):
            self.problems.append("secrets: 'names' must be a list of patterns")
            return usual
        return SecretFiles(read or usual.read, tuple(names))

    def _read_sets(self) -> None:
        sets = self._document.get("options", {})
        if not isinstance(sets, dict) or not all(isinstance(each, str) for each in sets.values()):
            self.problems.append("'options' must be a table of strings")
            return
        for name, text in sets.items():
            self._sets[name] = self._expand(text, f"options.{name}")

    def _tables(self, key: str) -> list[dict[str, Any]]:
        tables = self._document.get(key, [])
        if isinstance(tables, list) and all(isinstance(table, dict) for table in tables):
            return tables
        self.problems.append(f"'{key}' must be written as [[{key}]]")
        return []

    def _rules(self, cls: RuleClass) -> list[Rule]:
        found = []
        for entry in self._tables(cls):
            if cls == "allow" and entry.get("id") == CONTAINED_RULE:
                self._contained = self._identify(entry, _CONTAINED_KEYS) and self._typed(entry)
            elif self._identify(entry, _KEYS) and self._typed(entry):
                try:
                    found.append(self._rule(cls, entry))
                except UsageError as problem:
                    self.problems.append(f"{entry['id']}: {problem.message}")
        return found

    def _deny(self, entry: dict[str, Any]) -> DenyRule | None:
        if not self._identify(entry, _DENY_KEYS) or not self._typed(entry):
            return None
        name = entry["id"]
        commands = tuple(tuple(each.split()) for each in entry.get("commands", ()))
        if name in BUILT_IN and commands:
            self.problems.append(f"{name}: it is built in; its commands cannot be changed")
        if name not in BUILT_IN and (not commands or not all(commands)):
            self.problems.append(f"{name}: 'commands' is missing or empty")
        if name.startswith("destructive.") and name not in BUILT_IN:
            self.problems.append(f"{name}: no built-in rule has this id")
        return DenyRule(name, entry.get("reason", "the policy file denies it"), commands)

    def _identify(self, entry: dict[str, Any], keys: frozenset[str]) -> bool:
        name = entry.get("id")
        if not isinstance(name, str) or not name:
            self.problems.append(f"a rule has no 'id': {str(entry)[:80]}")
            return False
        if name in self._seen:
            self.problems.append(f"{name}: there are two rules with this id")
        self._seen.add(name)
        for key in sorted(entry.keys() - keys):
            self.problems.append(f"{name}: the key {key!r} is not known")
        return True

    def _typed(self, entry: dict[str, Any]) -> bool:
        """Check the kinds of all values, and that there are examples of both sorts."""
        name = entry["id"]
        before = len(self.problems)
        for key in _LISTS:
            value = entry.get(key, [])
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                self.problems.append(f"{name}: '{key}' must be a list of strings")
            elif not value and key != "commands":
                self.problems.append(f"{name}: '{key}' has no example")
        for key in _STRINGS:
            if not isinstance(entry.get(key, ""), str):
                self.problems.append(f"{name}: '{key}' must be a string")
        for key in _FLAGS:
            if not isinstance(entry.get(key, False), bool):
                self.problems.append(f"{name}: '{key}' must be true or false")
        if type(entry.get("least", 0)) is not int:
            self.problems.append(f"{name}: 'least' must be a number")
        if len(self.problems) > before:
            return False
        self._examples.append(Examples(name, tuple(entry["match"]), tuple(entry["no_match"])))
        return True

    def _rule(self, cls: RuleClass, entry: dict[str, Any]) -> Rule:
        commands = tuple(tuple(command.split()) for command in entry.get("commands", ()))
        if not commands or not all(commands) or any("/" in command[0] for command in commands):
            raise UsageError("'commands' must name programs, without their directory")
        special = entry.get("special")
        if special is not None and special not in SPECIALS:
            raise UsageError(f"special {special!r} is not one of {', '.join(SPECIALS)}")
        style = entry.get("style", "gnu")
        if style not in _STYLES:
            raise UsageError(f"style {style!r} is not one of {', '.join(_STYLES)}")
        if cls == "harmless" and entry.get("network", False):
            raise UsageError("a harmless command has no network")
        name = entry["id"]
        table = option_table(
            self._expand(entry.get("options", ""), name),
            self._expand(entry.get("refused", ""), name),
            _STYLES[style],
        )
        return Rule(
            id=name,
            cls=cls,
            commands=commands,
            table=table,
            roles=_roles(entry.get("operands", "")),
            instead=tuple(entry.get("instead", "").split()),
            needs=tuple(entry.get("needs", "").split()),
            least=entry.get("least", 0),
            special=special,
            tree=entry.get("tree", False),
            any_option=entry.get("any_option", False),
            first_ends=entry.get("first_ends", False),
            network=entry.get("network", False),
            reason=entry.get("reason", ""),
        )

    def _expand(self, text: str, where: str) -> str:
        """Put the named sets of options in the place of their names."""
        words = []
        for word in text.split():
            if not word.startswith("@"):
                words.append(word)
            elif word[1:] in self._sets:
                words.append(self._sets[word[1:]])
            else:
                self.problems.append(f"{where}: there are no options named {word!r}")
        return " ".join(words)


def _roles(text: str) -> Roles:
    names = text.split()
    for name in names:
        if name.rstrip("*") not in _ROLES:
            raise UsageError(f"operand {name!r} is not one of {', '.join(ROLES)}")
    stars = [index for index, name in enumerate(names) if name.endswith("*")]
    if len(stars) > 1:
        raise UsageError("only one of the operands may be repeated")
    if not stars:
        return Roles(first=tuple(_ROLES[name] for name in names))
    star = stars[0]
    return Roles(
        first=tuple(_ROLES[name] for name in names[:star]),
        rest=_ROLES[names[star].rstrip("*")],
        last=tuple(_ROLES[name] for name in names[star + 1 :]),
    )


def _by_name(rules: Sequence[Rule]) -> dict[str, tuple[Rule, ...]]:
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        for name in dict.fromkeys(command[0] for command in rule.commands):
            found.setdefault(name, []).append(rule)
    return {name: tuple(each) for name, each in found.items()}
