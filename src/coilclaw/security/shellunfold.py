"""From the parts of a command line to the flat list of simple commands that it would run."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from coilclaw.security.shellnodes import CompoundNode, HereDocument, SimpleNode, Token
from coilclaw.security.shellscript import Redirection, Simple, Word

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coilclaw.security.shellnodes import Commands, Element, Nested, Redirect

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


def unfold(text: str, commands: Commands) -> tuple[Simple, ...]:
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

    def commands(self, commands: Commands, around: _Surroundings) -> None:
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
        if any(_is_input(redirect) for redirect in node.redirects):
            around = replace(around, fed=True)
        if node.sets is not None:
            self._simple(node.sets, number, around)
        self._nested(node.words, number, around)
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
        self._nested(_tokens(node), number, around)

    def _nested(self, tokens: Iterable[Token], number: int, around: _Surroundings) -> None:
        for token in tokens:
            for substitution in token.nested:
                self._substitution(substitution, number, around)

    def _substitution(self, nested: Nested, number: int, around: _Surroundings) -> None:
        inner = replace(around, nested=True)
        if nested.opener == ">(":
            inner = replace(inner, fed=True, shared=number)
        self.commands(nested.body, inner)

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


def _is_input(redirect: Redirect) -> bool:
    return redirect.operator in _FEEDS and redirect.descriptor in (None, "0")
