"""A command line, understood: every simple command in it, wherever it stands."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Word:
    """One word. ``text`` is its value after quote removal, or ``None`` if only running tells."""

    raw: str
    text: str | None
    globs: bool = False
    """Unquoted ``*``, ``?``, ``[…]``, a leading ``~``, or braces: it may become other words."""


@dataclass(frozen=True, slots=True)
class Redirection:
    """One redirection. A here-document or here-string has no target; its text is data."""

    operator: str
    """As written: ``<``, ``>``, ``>>``, ``>|``, ``<>``, ``&>``, ``<<``, ``<<<``, ``>&``…"""
    descriptor: str | None
    target: Word | None
    writes: bool
    body: Word | None = None
    """The text of a here-document or here-string."""


@dataclass(frozen=True, slots=True)
class Simple:
    """One simple command, with everything that decides what it does."""

    raw: str
    words: tuple[Word, ...]
    """The command's name first; empty for a bare assignment or redirection."""
    assignments: tuple[tuple[str, Word], ...] = ()
    redirections: tuple[Redirection, ...] = ()
    pipeline: int = 0
    """Commands with the same number feed each other, in order."""
    piped_into: bool = False
    """Whether its input comes from the command before it."""
    background: bool = False
    nested: bool = False
    """Whether it stands inside a command or process substitution."""
    compound: tuple[str, ...] = ()
    """The constructs around it, outermost first: ``subshell``, ``group``, ``if``, ``for``…"""


@dataclass(frozen=True, slots=True)
class Script:
    """All simple commands of a command line, in the order in which they stand."""

    commands: tuple[Simple, ...]


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """A command line with a part whose meaning is not known here."""

    reason: str
    excerpt: str
    rule: Literal["shell.syntax", "shell.construct", "shell.bound", "shell.text"]


Reading: TypeAlias = Script | NotUnderstood


MAX_EXCERPT: Final = 60

FaultRule: TypeAlias = Literal["shell.syntax", "shell.construct", "shell.bound", "shell.text"]


class Unreadable(Exception):
    """Reading ends here; it never leaves ``shellgrammar.read``."""

    def __init__(self, rule: FaultRule, reason: str, excerpt: str = "") -> None:
        super().__init__(reason)
        self.fault = NotUnderstood(reason, excerpt, rule)


def excerpt(text: str, start: int) -> str:
    """Return the rest of the line from a place on, cut to a readable length."""
    line = text[start : start + MAX_EXCERPT + 1].partition("\n")[0]
    return line if len(line) <= MAX_EXCERPT else line[:MAX_EXCERPT] + "…"


@dataclass(frozen=True, slots=True)
class Nested:
    """A command or process substitution."""

    opener: Literal["$(", "`", "<(", ">("]
    body: CommandList


@dataclass(frozen=True, slots=True)
class Token:
    """One word, with the substitutions that stand in it."""

    start: int
    end: int
    text: str | None
    globs: bool = False
    nested: tuple[Nested, ...] = ()


@dataclass(slots=True)
class HereDocument:
    """A here-document; its body is known only when the line that announces it has ended."""

    start: int
    delimiter: str
    literal: bool
    strips_tabs: bool
    body: Token | None = None


@dataclass(frozen=True, slots=True)
class Redirect:
    """One redirection; of ``<<`` and ``<<<``, the target is not a file."""

    start: int
    end: int
    operator: str
    descriptor: str | None
    target: Token | HereDocument


@dataclass(frozen=True, slots=True)
class SimpleNode:
    """A simple command, or a ``[[ ]]`` or ``(( ))`` with its parts as words."""

    start: int
    end: int
    assignments: tuple[tuple[str, Token], ...] = ()
    words: tuple[Token, ...] = ()
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class CompoundNode:
    """A construct around commands."""

    kind: str
    start: int
    end: int
    bodies: tuple[CommandList, ...]
    sets: SimpleNode | None = None
    """The variable of a ``for`` with every value that it takes."""
    words: tuple[Token, ...] = ()
    """The subject and the patterns of a ``case``."""
    redirects: tuple[Redirect, ...] = ()


Element: TypeAlias = SimpleNode | CompoundNode


@dataclass(frozen=True, slots=True)
class Entry:
    """The pipelines that ``&&`` and ``||`` join."""

    pipelines: tuple[tuple[Element, ...], ...]
    background: bool


@dataclass(frozen=True, slots=True)
class CommandList:
    """Entries that ``;``, ``&`` and newlines separate."""

    entries: tuple[Entry, ...]


_WRITES: Final = frozenset({">", ">>", ">|", "<>", "&>", "&>>"})
_FEEDS: Final = frozenset({"<", "<<", "<<-", "<<<", "<&", "<>"})
_DUPLICATED: Final = re.compile(r"[0-9]+-?|-")


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What holds for a command because of where it stands."""

    shared: int | None = None
    """The pipeline it is a part of, when its output or input is that of an outer one."""
    fed: bool = False
    background: bool = False
    nested: bool = False
    compound: tuple[str, ...] = ()


def unfold(text: str, commands: CommandList) -> tuple[Simple, ...]:
    """Return every simple command, in the order in which they stand."""
    unfolding = _Unfolding(text)
    unfolding.commands(commands, _Surroundings())
    found = [simple for _, simple in sorted(unfolding.found, key=lambda pair: pair[0])]
    order = {number: index for index, number in enumerate(dict.fromkeys(s.pipeline for s in found))}
    return tuple(replace(simple, pipeline=order[simple.pipeline]) for simple in found)


class _Unfolding:
    __slots__ = ("_pipelines", "_text", "found")

    def __init__(self, text: str) -> None:
        self._text = text
        self._pipelines = 0
        self.found: list[tuple[int, Simple]] = []

    def commands(self, commands: CommandList, around: _Surroundings) -> None:
        for entry in commands.entries:
            inner = replace(around, background=around.background or entry.background)
            for pipeline in entry.pipelines:
                self._pipeline(pipeline, inner)

    def _pipeline(self, elements: tuple[Element, ...], around: _Surroundings) -> None:
        number = around.shared
        if number is None:
            self._pipelines += 1
            number = self._pipelines
        if len(elements) > 1:
            around = replace(around, shared=number)
        for index, element in enumerate(elements):
            inner = replace(around, fed=around.fed or index > 0)
            if isinstance(element, CompoundNode):
                self._compound(element, number, inner)
            else:
                self._simple(element, number, inner)

    def _compound(self, node: CompoundNode, number: int, around: _Surroundings) -> None:
        around = replace(around, compound=(*around.compound, node.kind))
        if node.redirects:
            start, end = node.redirects[0].start, node.redirects[-1].end
            self._simple(SimpleNode(start, end, redirects=node.redirects), number, around)
        if any(
            each.operator in _FEEDS and each.descriptor in (None, "0") for each in node.redirects
        ):
            around = replace(around, fed=True)
        if node.sets is not None:
            self._simple(node.sets, number, around)
        self._add_nested(node.words, number, around)
        for body in node.bodies:
            self.commands(body, around)

    def _simple(self, node: SimpleNode, number: int, around: _Surroundings) -> None:
        simple = Simple(
            raw=self._text[node.start : node.end],
            words=tuple(map(self._word, node.words)),
            assignments=tuple((name, self._word(value)) for name, value in node.assignments),
            redirections=tuple(map(self._redirection, node.redirects)),
            pipeline=number,
            piped_into=around.fed,
            background=around.background,
            nested=around.nested,
            compound=around.compound,
        )
        self.found.append((node.start, simple))
        self._add_nested(_tokens(node), number, around)

    def _add_nested(self, tokens: Iterable[Token], number: int, around: _Surroundings) -> None:
        inner = replace(around, nested=True)
        for token in tokens:
            for nested in token.nested:
                fed = replace(inner, fed=True, shared=number)
                self.commands(nested.body, fed if nested.opener == ">(" else inner)

    def _word(self, token: Token) -> Word:
        return Word(self._text[token.start : token.end], token.text, token.globs)

    def _redirection(self, redirect: Redirect) -> Redirection:
        target = redirect.target
        operator, descriptor = redirect.operator, redirect.descriptor
        if isinstance(target, HereDocument):
            assert target.body is not None
            return Redirection(operator, descriptor, None, False, self._word(target.body))
        if operator == "<<<":
            return Redirection(operator, descriptor, None, False, self._word(target))
        writes = operator in _WRITES or (
            operator == ">&" and not _DUPLICATED.fullmatch(target.text or "")
        )
        return Redirection(operator, descriptor, self._word(target), writes)


def _tokens(node: SimpleNode) -> list[Token]:
    """Return every word of a command, the bodies of its here-documents too."""
    tokens = [*node.words, *(value for _, value in node.assignments)]
    for redirect in node.redirects:
        target = redirect.target
        if isinstance(target, HereDocument):
            assert target.body is not None
            tokens.append(target.body)
        else:
            tokens.append(target)
    return tokens
