"""Read the TOML of a policy file into rules; everything that is wrong with it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from coilclaw.kernel import Document, UsageError
from coilclaw.policy.commands.command_class import CONTAINED_RULE
from coilclaw.policy.commands.destructive import BUILT_IN
from coilclaw.policy.commands.options import ROLES, Role, Style, option_table
from coilclaw.policy.commands.rule import DenyRule, Examples, Roles, Rule, RuleSet
from coilclaw.policy.commands.specials import SPECIALS
from coilclaw.policy.settings import READINGS, USUAL, SecretFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from coilclaw.kernel import Table
    from coilclaw.policy.commands.rule import RuleClass

VERSION: Final = 1
_STYLES: Final[Mapping[str, Style]] = {style: style for style in get_args(Style)}
_ROLES: Final[Mapping[str, Role]] = {role: role for role in ROLES}


def read_policy(text: str) -> tuple[RuleSet | None, list[str]]:
    """Return the rules, or everything that is wrong with the text."""
    document = Document(text)
    rules = _Reader(document.read_toml()).read()
    problems = [str(problem) for problem in document.problems]
    return (None if problems else rules), problems


def read_entry(entry: str) -> Rule:
    """Parse one ``binary [flags…]`` of ``allowed_commands``; raise if it is malformed."""
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
    """Reads the tables of a file; a rule with a problem is of no use, as the file will not load."""

    def __init__(self, top: Table) -> None:
        self._top = top
        self._sets: dict[str, str] = {}
        self._seen: set[str] = set()
        self._examples: list[Examples] = []
        self._contained = False

    def read(self) -> RuleSet:
        top = self._top
        if top.take("version") != VERSION:
            top.note("version", f"must be {VERSION}")
        for name, text in top.pairs("options").items():
            self._sets[name] = self._expand(text, top, "options")
        harmless = _by_name(self._read_rules("harmless"))
        allow = _by_name(self._read_rules("allow"))
        deny = tuple(map(self._read_deny, top.tables("deny")))
        if not harmless and not allow and not deny and not self._contained:
            top.document.note((), "it has no rule")
        secrets = self._read_secrets(top.table("secrets"))
        top.refuse_unknown()
        return RuleSet(
            harmless, allow, deny, tuple(self._examples), contained=self._contained, secrets=secrets
        )

    def _read_secrets(self, table: Table) -> SecretFiles:
        """Read the table ``secrets``; without it the usual names ask."""
        chosen = table.choice("read", USUAL.read, READINGS)
        names = table.texts("names", USUAL.names)
        table.refuse_unknown()
        return SecretFiles(next(each for each in READINGS if each == chosen), names)

    def _read_head(self, table: Table) -> str:
        """Read what every rule has: its id, and examples of both sorts."""
        name = table.text("id", required=True)
        if name in self._seen:
            table.note("id", f"there are two rules with the id {name!r}")
        self._seen.add(name)
        examples = [table.texts(key) for key in ("match", "no_match")]
        for key, listed in zip(("match", "no_match"), examples, strict=True):
            if not listed:
                table.note(key, "has no example")
        self._examples.append(Examples(name, *examples))
        return name

    def _read_rules(self, cls: RuleClass) -> Iterable[Rule]:
        for table in self._top.tables(cls):
            name = self._read_head(table)
            reason = table.text("reason")
            if cls == "allow" and name == CONTAINED_RULE:
                self._contained = True
            else:
                try:
                    yield self._read_rule(name, reason, cls, table)
                except UsageError as problem:
                    table.document.note(table.place, problem.message)
            table.refuse_unknown()

    def _read_deny(self, table: Table) -> DenyRule:
        name = self._read_head(table)
        commands = tuple(tuple(each.split()) for each in table.texts("commands"))
        reason = table.text("reason", "the policy file denies it")
        if name in BUILT_IN and commands:
            table.note("commands", f"{name} is built in; its commands cannot be changed")
        if name not in BUILT_IN and not commands:
            table.note("commands", "is missing or empty")
        if name.startswith("destructive.") and name not in BUILT_IN:
            table.note("id", f"no built-in rule is called {name!r}")
        table.refuse_unknown()
        return DenyRule(name, reason, commands)

    def _read_rule(self, name: str, reason: str, cls: RuleClass, table: Table) -> Rule:
        commands = tuple(tuple(command.split()) for command in table.texts("commands"))
        if not commands or any("/" in command[0] for command in commands):
            table.note("commands", "must name programs, without their directory")
        network = table.flag("network")
        if cls == "harmless" and network:
            table.note("network", "a harmless command has no network")
        style = table.choice("style", "gnu", _STYLES)
        special = table.choice("special", None, SPECIALS)
        permitted, refused, operands, instead, needs = (
            self._expand(table.text(key, blank=True), table, key)
            for key in ("options", "refused", "operands", "instead", "needs")
        )
        flags = {key: table.flag(key) for key in ("tree", "any_option", "first_ends")}
        return Rule(
            id=name,
            cls=cls,
            commands=commands,
            table=option_table(permitted, refused, _STYLES[style]),
            roles=_read_roles(operands),
            instead=tuple(instead.split()),
            needs=tuple(needs.split()),
            least=table.integer("least", 0, least=0, most=100),
            special=special,
            network=network,
            reason=reason,
            **flags,
        )

    def _expand(self, text: str, table: Table, key: str) -> str:
        """Put the named sets of options in the place of their names."""
        words = []
        for word in text.split():
            if word.startswith("@") and word[1:] not in self._sets:
                table.note(key, f"no set of options is named {word!r}")
            words.append(self._sets.get(word[1:], "") if word.startswith("@") else word)
        return " ".join(words)


def _read_roles(text: str) -> Roles:
    names = text.split()
    for name in names:
        if name.rstrip("*") not in _ROLES:
            raise UsageError(f"operand {name!r} is not one of {', '.join(ROLES)}")
    roles = tuple(_ROLES[name.rstrip("*")] for name in names)
    stars = [index for index, name in enumerate(names) if name.endswith("*")]
    if len(stars) > 1:
        raise UsageError("only one of the operands may be repeated")
    if not stars:
        return Roles(first=roles)
    return Roles(roles[: stars[0]], roles[stars[0]], roles[stars[0] + 1 :])


def _by_name(rules: Iterable[Rule]) -> dict[str, tuple[Rule, ...]]:
    found: dict[str, tuple[Rule, ...]] = {}
    for rule in rules:
        for name in dict.fromkeys(command[0] for command in rule.commands):
            found[name] = (*found.get(name, ()), rule)
    return found
