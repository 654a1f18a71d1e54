"""The constructs around commands, and the two kinds of test that are not commands."""

from __future__ import annotations

import re
from typing import Final

from coilclaw.policy.shell import expressions
from coilclaw.policy.shell.commands import CASE_END, CommandReader
from coilclaw.policy.shell.script import CommandList, CompoundNode, SimpleNode, Token

_UNSUPPORTED: Final = {
    "select": "a select loop",
    "function": "a function definition",
    "coproc": "a coprocess",
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?=[ \t\n;])")
_CONDITION_SIGN: Final = re.compile(r"&&|\|\||[()]|[<>](?!\()")


class ShellReader(CommandReader):
    """Reads everything of the shell's language that has a meaning here."""

    def compound(self, word: str | None) -> CompoundNode:
        start = self.at
        match word:
            case None:
                kind, node = "subshell", self._read_enclosed("(", ")")
            case "{":
                kind, node = "group", self._read_enclosed("{", "}")
            case "if":
                kind, node = "if", self._if()
            case "while" | "until":
                kind, node = word, self._while(word)
            case "for":
                return self._with_redirects(self._for())
            case "case":
                return self._with_redirects(self._case())
            case _:
                if word in _UNSUPPORTED:
                    self.refuse("shell.construct", _UNSUPPORTED[word])
                self.refuse("shell.syntax", f"{word!r} is out of place")
        return self._with_redirects(CompoundNode(kind, start, self.at, node))

    def _with_redirects(self, node: CompoundNode) -> CompoundNode:
        redirects = self.redirects()
        return CompoundNode(
            node.kind, node.start, node.end, node.bodies, node.sets, node.words, redirects
        )

    def _some(self, *closers: str) -> CommandList:
        """Read commands of which there must be at least one."""
        start = self.at
        commands = self.commands(closers)
        if not commands.entries:
            self.refuse("shell.syntax", "a command is missing", start)
        return commands

    def _read_enclosed(self, opener: str, closer: str) -> tuple[CommandList, ...]:
        start = self.at
        self.operator(opener)
        body = self._some(closer)
        if not self.looking_at(closer):
            self.refuse("shell.syntax", f"{closer!r} is missing", start)
        self.operator(closer)
        return (body,)

    def _if(self) -> tuple[CommandList, ...]:
        self.keyword("if")
        bodies = [self._some("then")]
        self.keyword("then")
        bodies.append(self._some("elif", "else", "fi"))
        while self.reserved_word() == "elif":
            self.keyword("elif")
            bodies.append(self._some("then"))
            self.keyword("then")
            bodies.append(self._some("elif", "else", "fi"))
        if self.reserved_word() == "else":
            self.keyword("else")
            bodies.append(self._some("fi"))
        self.keyword("fi")
        return tuple(bodies)

    def _while(self, word: str) -> tuple[CommandList, ...]:
        self.keyword(word)
        condition = self._some("do")
        return condition, self._do()

    def _do(self) -> CommandList:
        self.keyword("do")
        body = self._some("done")
        self.keyword("done")
        return body

    def _for(self) -> CompoundNode:
        start = self.at
        self.keyword("for")
        self.blank()
        name = _NAME.match(self.text, self.at, self.end)
        if name is None:
            self.refuse("shell.construct", "a loop of an unusual form", start)
        self.at = name.end()
        head_end = self.at
        values = [Token(head_end, head_end, None)]
        self.newlines()
        if self.reserved_word() == "in":
            self.keyword("in")
            listed = self._read_loop_words()
            values = listed or values
            head_end = listed[-1].end if listed else head_end
        if self.looking_at(";") and not self.looking_at(";;"):
            self.operator(";")
        self.newlines()
        body = self._do()
        sets = SimpleNode(start, head_end, tuple((name[0], value) for value in values))
        return CompoundNode("for", start, self.at, (body,), sets=sets)

    def _read_loop_words(self) -> list[Token]:
        """Read the words of a loop, up to the end of its first line."""
        words = []
        self.blank()
        while self.at < self.end and self.text[self.at] not in ";\n":
            token = self.word()
            if token.start == token.end:
                self.refuse("shell.syntax", "something is out of place")
            words.append(token)
            self.blank()
        return words

    def _case(self) -> CompoundNode:
        start = self.at
        self.keyword("case")
        self.blank()
        words = [self.word()]
        if words[0].start == words[0].end:
            self.refuse("shell.syntax", "a case without a subject", start)
        self.newlines()
        self.keyword("in")
        bodies = []
        self.newlines()
        while self.reserved_word() != "esac":
            words += self._patterns()
            bodies.append(self.commands((";;", "esac")))
            end = CASE_END.match(self.text, self.at, self.end)
            if end is None:
                break
            self.operator(end[0])
            self.newlines()
        self.keyword("esac")
        return CompoundNode("case", start, self.at, tuple(bodies), words=tuple(words))

    def _patterns(self) -> list[Token]:
        if self.looking_at("("):
            self.operator("(")
        patterns: list[Token] = []
        while True:
            self.blank()
            token = self.word()
            if token.start == token.end:
                self.refuse("shell.syntax", "a pattern is missing")
            patterns.append(token)
            self.blank()
            if not self.looking_at("|") or self.looking_at("||"):
                break
            self.operator("|")
        if not self.looking_at(")"):
            self.refuse("shell.syntax", "a pattern without an end", patterns[0].start)
        self.operator(")")
        return patterns

    # -- tests -------------------------------------------------------------------------------

    def condition(self) -> SimpleNode:
        start = self.at
        words = [Token(start, start + 2, "[[")]
        self.at += 2
        while self.text[words[-1].start : words[-1].end] != "]]":
            # The shell takes a newline for a blank where a test begins, and nowhere else.
            if len(words) == 1 or words[-1].text in ("&&", "||"):
                self.newlines()
            self.blank()
            words.append(self._condition_word(words[-1].text))
        end = self.at
        self._check_condition(words)
        return SimpleNode(start, end, words=tuple(words), redirects=self.redirects())

    def _condition_word(self, before: str | None) -> Token:
        start = self.at
        sign = _CONDITION_SIGN.match(self.text, start, self.end)
        if before != "=~" and sign is not None:
            self.at = sign.end()
            return Token(start, self.at, sign[0])
        if self.looking_at("=~"):
            self.at += 2
            return Token(start, self.at, "=~")
        token = self.word(regex=before == "=~")
        if token.start == token.end:
            self.refuse("shell.syntax", "a [[ without an end")
        return token

    def _check_condition(self, words: list[Token]) -> None:
        """Refuse a test that evaluates one of its words as arithmetic or as a subscript."""
        raw = [self.text[token.start : token.end] for token in words[1:-1]]
        tests = expressions.read_tests(raw)
        if tests is None:
            self.refuse("shell.syntax", "a [[ that holds no test", words[0].start)
        for test in tests:
            names = expressions.evaluated_names(test)
            if names is None:
                self.refuse("shell.construct", "a test that may run its words", words[0].start)
            self.numbers |= names

    def arithmetic_command(self) -> SimpleNode:
        start = self.at
        self.at += 2
        self.arithmetic(start)
        inner = Token(start + 2, self.at - 2, self.text[start + 2 : self.at - 2].strip())
        if "$" in self.text[start : self.at]:
            inner = Token(inner.start, inner.end, None)
        words = (Token(start, start + 2, "(("), inner, Token(self.at - 2, self.at, "))"))
        end = self.at
        return SimpleNode(start, end, words=words, redirects=self.redirects())
