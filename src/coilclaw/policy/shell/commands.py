"""Commands as the shell reads them: lists, pipelines, simple commands, redirections."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from coilclaw.policy.shell.script import (
    CommandList,
    Element,
    Entry,
    HereDocument,
    Nested,
    Redirect,
    SimpleNode,
    Token,
)
from coilclaw.policy.shell.words import WordReader

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_COMMANDS: Final = 256
"""How many simple commands and constructs one command line may hold."""

_RESERVED: Final = frozenset(
    {"if", "then", "elif", "else", "fi", "while", "until", "for", "do", "done", "case", "esac"}
    | {"in", "select", "function", "coproc", "time", "{", "}", "!", "[[", "]]"}
)
_RESERVED_WORD: Final = re.compile(
    "(?:" + "|".join(map(re.escape, sorted(_RESERVED))) + r")(?=[ \t\n;&|()]|[<>](?!\()|\Z)"
)
_REDIRECT: Final = re.compile(
    r"(?P<descriptor>[0-9]*)(?P<operator><<<|<<-|<<|<&|<>|<(?!\()|>>|>&|>\||>(?!\())"
    r"|(?P<both>&>>?)"
)
_ASSIGNMENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?=|\[)")
_DESCRIPTOR: Final = re.compile(r"[0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\}")
# Behind ``>&`` the shell takes a dash for a word of its own, and expands any other word twice:
# what quotes protect the first time runs the second time.
_DUPLICABLE: Final = re.compile(r"-|[A-Za-z0-9_./][A-Za-z0-9_./-]*")
_DELIMITER: Final = re.compile(r"(\\?)([A-Za-z0-9_.-]+)|'([A-Za-z0-9_.-]+)'|\"([A-Za-z0-9_.-]+)\"")
_SEPARATOR: Final = re.compile(r";(?![;&])|&(?![&>])")
CASE_END: Final = re.compile(r";;&|;;|;&")


class CommandReader(WordReader):
    """Reads a whole command line into the parts it is made of."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._count = 0
        self._pending: list[HereDocument] = []
        self._in_body = False
        self._documents = 0

    def script(self) -> CommandList:
        """Read all of the text."""
        commands = self.commands(())
        if self.at < self.end:
            self.refuse("shell.syntax", "something is out of place")
        return commands

    def compound(self, word: str | None) -> Element:
        """Read the construct that a reserved word or a parenthesis opens."""
        raise NotImplementedError

    def condition(self) -> SimpleNode:
        """Read ``[[ ]]``."""
        raise NotImplementedError

    def arithmetic_command(self) -> SimpleNode:
        """Read ``(( ))``."""
        raise NotImplementedError

    # -- between commands --------------------------------------------------------------------

    def blank(self) -> None:
        """Go past blanks, continued lines and a comment."""
        while self.at < self.end:
            if self.text[self.at] in " \t":
                self.at += 1
            elif self.looking_at("\\\n"):
                before = self.text[self.at - 1] if self.at else ""
                self.at += 2
                after = self.text[self.at : min(self.at + 1, self.end)]
                if before and before in ";&|<>(){}" and after and after in ";&|<>()#\\":
                    self.refuse("shell.construct", "an operator that a line continuation breaks")
            elif self.text[self.at] == "#":
                newline = self.text.find("\n", self.at, self.end)
                self.at = self.end if newline < 0 else newline
            else:
                return

    def newlines(self) -> None:
        """Go past blanks and newlines; the bodies of here-documents stand behind a newline."""
        self.blank()
        while self.looking_at("\n"):
            self._newline()
            self.blank()

    def _newline(self) -> None:
        if self._pending and "\n" in self.text[self._pending[0].start : self.at]:
            self.refuse("shell.construct", "a here-document that begins on a line of several lines")
        self.at += 1
        for document in self._pending:
            self._body(document)
        self._pending = []

    def reserved_word(self) -> str | None:
        """Skip blanks and return the reserved word here, without consuming it.

        Call it only where a command may begin.
        """
        self.blank()
        word = _RESERVED_WORD.match(self.text, self.at, self.end)
        return None if word is None else word[0]

    def keyword(self, word: str) -> None:
        """Go past a reserved word that must stand here."""
        if self.reserved_word() != word:
            self.refuse("shell.syntax", f"{word!r} is missing")
        self.at += len(word)

    def operator(self, text: str) -> None:
        self.at += len(text)

    # -- lists and pipelines -----------------------------------------------------------------

    def commands(self, closers: Iterable[str]) -> CommandList:
        """Read commands up to a closer, which stays: ``)``, ``;;`` or a reserved word."""
        closers = frozenset(closers)
        start, documents = self.at, self._documents
        outer_pending, self._pending = self._pending, []
        entries: list[Entry] = []
        self.newlines()
        while not self._is_closed(closers):
            pipelines = [self._pipeline()]
            self.blank()
            while self.looking_at("&&") or self.looking_at("||"):
                self.at += 2
                self.newlines()
                pipelines.append(self._pipeline())
                self.blank()
            separator = _SEPARATOR.match(self.text, self.at, self.end)
            if separator is not None:
                self.operator(separator[0])
            entries.append(Entry(tuple(pipelines), separator is not None and separator[0] == "&"))
            self.blank()
            if separator is None and not self.looking_at("\n") and not self._is_closed(closers):
                self.refuse("shell.syntax", "something is out of place")
            self.newlines()
        if self._pending:
            self.refuse("shell.syntax", "a here-document without a body", self._pending[0].start)
        self._pending = outer_pending
        # The shell prints and reads again what stands in a substitution, and then loses the
        # separator behind a here-document: two commands become one.
        if self._inside and self._documents > documents and not _stands_alone(entries):
            self.refuse(
                "shell.construct", "a here-document among commands of a substitution", start
            )
        return CommandList(tuple(entries))

    def _is_closed(self, closers: frozenset[str]) -> bool:
        if self.at >= self.end:
            return True
        if ")" in closers and self.looking_at(")"):
            return True
        if ";;" in closers and CASE_END.match(self.text, self.at, self.end):
            return True
        return self.reserved_word() in closers

    def _pipeline(self) -> tuple[Element, ...]:
        while self.reserved_word() == "!":
            self.operator("!")
            if self.looking_at("("):
                self.refuse("shell.construct", "an extended pattern")
        elements = [self._command()]
        self.blank()
        while self.looking_at("|") and not self.looking_at("||"):
            self.operator("|&" if self.looking_at("|&") else "|")
            self.newlines()
            elements.append(self._command())
            self.blank()
        return tuple(elements)

    # -- simple commands ---------------------------------------------------------------------

    def _command(self) -> Element:
        self._count += 1
        if self._count > MAX_COMMANDS:
            self.refuse("shell.bound", f"it holds more than {MAX_COMMANDS} commands")
        word = self.reserved_word()
        if self.looking_at("(("):
            return self.arithmetic_command()
        if word == "[[":
            return self.condition()
        if word == "time" or (word is None and not self.looking_at("(")):
            return self._simple()
        self.deeper()
        compound = self.compound(word)
        self.depth -= 1
        return compound

    def _simple(self) -> SimpleNode:
        start = self.at
        end = start
        assignments: list[tuple[str, Token]] = []
        words: list[Token] = []
        redirects: list[Redirect] = []
        while not self._at_command_end():
            if (redirect := self._redirect()) is not None:
                redirects.append(redirect)
            elif not words and (assignment := self._assignment()) is not None:
                assignments.append(assignment)
            else:
                words.append(self._plain_word(first=not words))
            end = self.at
        if start == end:
            self.refuse("shell.syntax", "a command is missing")
        return SimpleNode(start, end, tuple(assignments), tuple(words), tuple(redirects))

    def _at_command_end(self) -> bool:
        self.blank()
        if self.looking_at("("):
            self.refuse("shell.construct", "a function definition or an extended pattern")
        if self.at >= self.end or self.text[self.at] in ";|)\n":
            return True
        return self.looking_at("&") and not self.looking_at("&>")

    def _plain_word(self, *, first: bool) -> Token:
        token = self.word()
        raw = self.text[token.start : token.end]
        if first and raw in _RESERVED and raw != "time":
            self.refuse("shell.syntax", f"{raw!r} is out of place", token.start)
        if self._is_descriptor(token):
            self.refuse("shell.construct", "a descriptor kept in a variable", token.start)
        if (
            first
            and raw == "time"
            and (self.reserved_word() or _ASSIGNMENT.match(self.text, self.at, self.end))
        ):
            self.refuse("shell.construct", "time before more than a simple command", token.start)
        return token

    def _assignment(self) -> tuple[str, Token] | None:
        head = _ASSIGNMENT.match(self.text, self.at, self.end)
        if head is None:
            return None
        if head[2] == "[":
            self.refuse("shell.construct", "an element of an array is assigned")
        self.at = head.end()
        value = self._array() if self.looking_at("(") else self.word()
        if head[2] == "+=":
            value = Token(value.start, value.end, None, value.globs, value.nested)
        return head[1], value

    def _array(self) -> Token:
        start = self.at
        self.at += 1
        globs = False
        nested: list[Nested] = []
        self.newlines()
        while not self.looking_at(")"):
            token = self.word()
            if token.start == token.end or self.text[token.start] == "[":
                self.refuse("shell.construct", "an array of an unusual form", start)
            globs = globs or token.globs
            nested += token.nested
            self.newlines()
        self.at += 1
        if self.at < self.end and self.text[self.at] not in " \t\n;&|<>)":
            self.refuse("shell.construct", "an array of an unusual form", start)
        return Token(start, self.at, None, globs, tuple(nested))

    # -- redirections ------------------------------------------------------------------------

    def redirects(self) -> tuple[Redirect, ...]:
        redirects = []
        self.blank()
        while (redirect := self._redirect()) is not None:
            redirects.append(redirect)
            self.blank()
        return tuple(redirects)

    def _redirect(self) -> Redirect | None:
        start = self.at
        head = _REDIRECT.match(self.text, self.at, self.end)
        if head is None:
            return None
        operator = head["both"] or head["operator"]
        self.at = head.end()
        self.blank()
        target: Token | HereDocument
        if operator in ("<<", "<<-"):
            target = self._here_document(operator)
        else:
            target = self.word()
            if target.start == target.end or self._is_descriptor(target, operator):
                self.refuse("shell.syntax", "a redirection to nowhere", start)
            if operator in ("<&", ">&") and not _DUPLICABLE.fullmatch(
                self.text, target.start, target.end
            ):
                self.refuse("shell.construct", "a descriptor that is more than a name", start)
        return Redirect(start, self.at, operator, head["descriptor"] or None, target)

    def _is_descriptor(self, token: Token, operator: str = "") -> bool:
        """Tell whether the shell takes what was just read for a part of the next redirection."""
        if self.at >= self.end or self.text[self.at] not in "<>" or operator in ("<&", ">&"):
            return False
        return _DESCRIPTOR.fullmatch(self.text, token.start, token.end) is not None

    def _here_document(self, operator: str) -> HereDocument:
        start = self.at
        head = _DELIMITER.match(self.text, self.at, self.end)
        after = self.text[head.end() : min(head.end() + 1, self.end)] if head else "?"
        if head is None or self._in_body or (after and after not in " \t\n;&|<>)"):
            self.refuse("shell.construct", "a here-document of an unusual form")
        self.at = head.end()
        delimiter = head[2] or head[3] or head[4]
        literal = head[0] != delimiter
        document = HereDocument(start, delimiter, literal, strips_tabs=operator == "<<-")
        self._pending.append(document)
        self._documents += 1
        return document

    def _body(self, document: HereDocument) -> None:
        start = self.at
        while True:
            if self.at >= self.end:
                self.refuse("shell.syntax", "a here-document without an end", document.start)
            newline = self.text.find("\n", self.at, self.end)
            line_end = self.end if newline < 0 else newline
            line = self.text[self.at : line_end]
            line = line.lstrip("\t") if document.strips_tabs else line
            if line == document.delimiter:
                break
            # A shell may take such a line for the end, when the document is in a substitution.
            if line.startswith(document.delimiter):
                self.refuse("shell.construct", "a here-document with a doubtful end")
            if not document.literal and (len(line) - len(line.rstrip("\\"))) % 2:
                self.refuse("shell.construct", "a here-document with a continued line")
            self.at = min(line_end + 1, self.end)
        body_end, after = self.at, min(line_end + 1, self.end)
        self.at = start
        document.body = self._body_token(document, body_end)
        self.at = after

    def _body_token(self, document: HereDocument, end: int) -> Token:
        if not document.literal:
            self._in_body = True
            token = self.expanding(end, line_starts_strip=document.strips_tabs)
            self._in_body = False
            return token
        text = self.text[self.at : end]
        if document.strips_tabs:
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        return Token(self.at, end, text)


def _stands_alone(entries: list[Entry]) -> bool:
    """Tell whether commands are a single list of simple commands."""
    elements = [node for entry in entries for pipeline in entry.pipelines for node in pipeline]
    simple = all(isinstance(node, SimpleNode) for node in elements)
    return simple and len(entries) == 1 and not entries[0].background
