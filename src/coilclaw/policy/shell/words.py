"""Words as the shell reads them: where each ends, what is quoted in it, what it will be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from coilclaw.policy.shell import expressions
from coilclaw.policy.shell.script import CommandList, FaultRule, Nested, Token, Unreadable, excerpt

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_DEPTH: Final = 24
"""How deep quotes, substitutions and constructs may stand in each other."""

_ENDS_WORD: Final = frozenset(" \t\n;&|<>()")
_PLAIN: Final = re.compile(r"[^ \t\n;&|<>()\\'\"$`]+")
_QUOTED: Final = re.compile(r"[^\\\"$`]+")
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_PARAMETER: Final = re.compile(rf"\$(?:{_NAME}|[0-9@*#?$!_-])")
_NUMBERS: Final = frozenset({"$#", "$?", "$$", "$!"})
_MAY_BELONG: Final = re.compile(r"[({\[$]|\\\n")
_BRACED: Final = re.compile(
    rf"\$\{{(?:#(?:{_NAME}|[0-9]+|[@*])?(?:\[(?:[@*]|[0-9]+)\])?"
    rf"|(?:{_NAME}|[0-9]+|[@*?$!-])(?:\[(?:[@*]|[0-9]+)\])?"
    r"(?::(?:[0-9]+| -?[0-9]+)(?::[ ]?-?[0-9]+)?"
    r"|(?P<operator>:?[-+?]|##?|%%?|//?[#%]?|\^\^?|,,?))?)"
)
_BRACED_PLAIN: Final = re.compile(r"[^\\'\"$`{}<>\n]+|\\[^'\"$`{}\\\n]|[<>](?!\()")

# How a word looks without its values: quoted characters and expansions stand as one sign each.
_QUOTED_SIGN: Final = "\0"
_EXPANSION_SIGN: Final = "\1"
_TILDE: Final = re.compile(r"(?:\A|[=:])~")


class Piece:
    """A word while it is read."""

    __slots__ = ("known", "nested", "shape", "splits", "text")

    def __init__(self) -> None:
        self.text: list[str] = []
        self.shape: list[str] = []
        self.nested: list[Nested] = []
        self.known = True
        self.splits = False

    def bare(self, text: str) -> None:
        self.text.append(text)
        self.shape.append(text)

    def add_quoted(self, text: str | None) -> None:
        """Add quoted text; ``None`` when it is known only at run time."""
        if text is None:
            self.expansion()
            return
        self.text.append(text)
        self.shape.append(_QUOTED_SIGN * max(1, len(text)))

    def expansion(self, *, splits: bool = False) -> None:
        """Add what only running tells; unquoted text may split into words."""
        self.known = False
        self.splits = self.splits or splits
        self.shape.append(_EXPANSION_SIGN)

    def token(self, start: int, end: int) -> Token:
        text = "".join(self.text) if self.known else None
        return Token(start, end, text, _expands("".join(self.shape)), tuple(self.nested))


def _expands(shape: str) -> bool:
    """Tell whether a word has unquoted signs that may make other words of it."""
    if "*" in shape or "?" in shape or 0 <= shape.find("[") < shape.rfind("]"):
        return True
    braces = shape[shape.find("{") + 1 : shape.rfind("}")] if "{" in shape and "}" in shape else ""
    return "," in braces or ".." in braces or _TILDE.search(shape) is not None


class WordReader:
    """Reads words from ``at`` on, up to ``end``; substitutions are left to ``commands``."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.end = len(text)
        self.depth = 0
        self._inside = 0
        """How many substitutions are open."""
        self.numbers: set[str] = set()
        """The variables that arithmetic evaluates."""
        self.splitting: set[str] = set()
        """The words with an expansion outside of quotes, which may become several words."""

    def commands(self, closers: Iterable[str]) -> CommandList:
        """Read commands up to one of the closers, which stays."""
        raise NotImplementedError

    # -- places ------------------------------------------------------------------------------

    def refuse(self, rule: FaultRule, reason: str, at: int | None = None) -> NoReturn:
        raise Unreadable(rule, reason, excerpt(self.text, self.at if at is None else at))

    def looking_at(self, text: str) -> bool:
        return self.text.startswith(text, self.at, self.end)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.refuse("shell.bound", f"it nests deeper than {MAX_DEPTH} levels")

    # -- words -------------------------------------------------------------------------------

    def word(self, *, regex: bool = False) -> Token:
        """Read one word, which may be empty; a regular expression may hold ``(a|b)``."""
        start = self.at
        piece = Piece()
        open_groups = 0
        while self.at < self.end:
            char = self.text[self.at]
            if char in _ENDS_WORD:
                group = self._group(char, start, open_groups) if regex else None
                if group is not None:
                    open_groups = group
                    piece.bare(char)
                    self.at += 1
                    continue
                if not self._process_substitution(char, start, piece):
                    break
            elif char == "\\" and self._continues_line():
                break
            else:
                self._part(char, piece)
        if open_groups:
            self.refuse("shell.construct", "a regular expression with spaces", start)
        # The shell prints and reads again what stands in a substitution, and then takes this for
        # an operator: the word would swallow the command that follows.
        if self._inside and self.text.endswith("\\&", start, self.at):
            self.refuse("shell.construct", "a word that ends with \\& in a substitution", start)
        if piece.splits:
            self.splitting.add(self.text[start : self.at])
        return piece.token(start, self.at)

    def _group(self, char: str, start: int, open_groups: int) -> int | None:
        """Return how many groups of a regular expression are open behind a character of it."""
        if char == "(":
            return open_groups + 1
        if char == ")" and open_groups:
            return open_groups - 1
        if char == "|" and open_groups:
            return open_groups
        if char not in " \t\n)":
            self.refuse("shell.construct", "a regular expression with shell signs", start)
        return None

    def _process_substitution(self, char: str, start: int, piece: Piece) -> bool:
        """Read ``<( )`` or ``>( )``; tell whether there was one."""
        if char == "(" and self.at > start:
            self.refuse("shell.construct", "a function definition or an extended pattern", start)
        opener: Literal["<(", ">("] = "<(" if char == "<" else ">("
        if char not in "<>" or not self.looking_at(opener):
            return False
        if self.at > start:
            self.refuse("shell.construct", "a process substitution within a word", start)
        self._substitution(opener, piece, quoted=True)
        return True

    def _continues_line(self) -> bool:
        """Tell whether the line goes on in the next one, which ends a word if a blank follows."""
        if not self.looking_at("\\\n"):
            return False
        after = self.text[self.at + 2 : min(self.at + 3, self.end)]
        if after not in ("", " ", "\t", "\n"):
            self.refuse("shell.construct", "a word that a line continuation breaks")
        return True

    def _part(self, char: str, piece: Piece) -> None:
        """Read what stands at one place of a word: plain text, a quotation, an expansion."""
        match char:
            case "\\":
                if self.at + 1 >= self.end:
                    self.refuse("shell.syntax", "a backslash with nothing behind it")
                piece.add_quoted(self.text[self.at + 1])
                self.at += 2
            case "'":
                close = self.text.find("'", self.at + 1, self.end)
                if close < 0:
                    self.refuse("shell.syntax", "a quotation without an end")
                piece.add_quoted(self.text[self.at + 1 : close])
                self.at = close + 1
            case '"':
                self._double_quotes(piece)
            case "$":
                self._dollar(piece, quoted=False)
            case "`":
                self._backticks(piece, quoted=False)
            case _:
                plain = _PLAIN.match(self.text, self.at, self.end)
                assert plain is not None
                piece.bare(plain[0])
                self.at = plain.end()

    def _double_quotes(self, piece: Piece) -> None:
        start = self.at
        self.at += 1
        piece.add_quoted("")
        self.deeper()
        while self.at < self.end and self.text[self.at] != '"':
            self._quoted_part(piece, '$`"\\')
        self.depth -= 1
        if self.at >= self.end:
            self.refuse("shell.syntax", "a quotation without an end", start)
        self.at += 1

    def expanding(self, end: int, line_starts_strip: bool) -> Token:
        """Read the body of a here-document, in which expansions work and quotes do not."""
        start, outer_end, self.end = self.at, self.end, end
        piece = Piece()
        while self.at < self.end:
            if line_starts_strip and self.text[self.at - 1] == "\n":
                while self.looking_at("\t"):
                    self.at += 1
            if self.looking_at('"'):
                piece.add_quoted('"')
                self.at += 1
            elif self.at < self.end:
                newline = self.text.find("\n", self.at, self.end)
                self.end = end if newline < 0 or not line_starts_strip else newline + 1
                self._quoted_part(piece, "$`\\")
                self.end = end
        self.end = outer_end
        return piece.token(start, end)

    def _quoted_part(self, piece: Piece, escapable: str) -> None:
        char = self.text[self.at]
        if char == "\\":
            following = self.text[self.at + 1 : min(self.at + 2, self.end)]
            if not following:
                self.refuse("shell.syntax", "a backslash with nothing behind it")
            if following != "\n":
                piece.add_quoted(following if following in escapable else char + following)
            self.at += 2
        elif char == "$":
            self._dollar(piece, quoted=True)
        elif char == "`":
            self._backticks(piece, quoted=True)
        else:
            plain = _QUOTED.match(self.text, self.at, self.end)
            assert plain is not None
            piece.add_quoted(plain[0])
            self.at = plain.end()

    # -- expansions --------------------------------------------------------------------------

    def _dollar(self, piece: Piece, *, quoted: bool) -> None:
        following = self.text[self.at + 1 : min(self.at + 2, self.end)]
        if following == "(":
            if self.looking_at("$(("):
                self._arithmetic_expansion(piece)
            else:
                self._substitution("$(", piece, quoted=quoted)
        elif following == "{":
            self._read_braced(piece, quoted=quoted)
        elif following == "[":
            self.refuse("shell.construct", "arithmetic written as $[…]")
        elif following == "\\" and self.text.startswith("\n", self.at + 2):
            self.refuse("shell.construct", "a word that a line continuation breaks")
        elif following == "'" and not quoted:
            value, self.at = expressions.read_ansi_string(self.text, self.at, self.end)
            piece.add_quoted(value)
        elif following == '"' and not quoted:
            self.refuse("shell.construct", "a string that the locale translates")
        else:
            parameter = _PARAMETER.match(self.text, self.at, self.end)
            if parameter is None:
                piece.add_quoted("$")
                self.at += 1
                return
            splits = parameter[0] == "$@" or (not quoted and parameter[0] not in _NUMBERS)
            piece.expansion(splits=splits)
            start, self.at = self.at, parameter.end()
            # Between quotes the shell looks for the end of "$$(…" as if it were a substitution.
            if parameter[0] == "$$" and _MAY_BELONG.match(self.text, self.at, self.end):
                self.refuse("shell.construct", "$$ before a sign that may belong to it", start)

    def _read_braced(self, piece: Piece, *, quoted: bool) -> None:
        """Read ``${…}``: only forms that neither assign nor evaluate anything a second time."""
        start = self.at
        head = _BRACED.match(self.text, self.at, self.end)
        if head is None:
            self.refuse("shell.construct", "a parameter expansion of an unusual form")
        self.at = head.end()
        self.deeper()
        while head["operator"] and self.at < self.end and self.text[self.at] != "}":
            self._braced_part(piece, quoted=quoted)
        self.depth -= 1
        if not self.looking_at("}"):
            self.refuse("shell.construct", "a parameter expansion of an unusual form", start)
        self.at += 1
        counts = self.text.startswith("${#", start)
        piece.expansion(splits=not counts and (not quoted or "@" in head[0]))

    def _braced_part(self, piece: Piece, *, quoted: bool) -> None:
        char = self.text[self.at]
        if char in "'\"" and quoted:
            self.refuse("shell.construct", "quotes within a quoted parameter expansion")
        if char == "$":
            self._dollar(piece, quoted=quoted)
        elif char == "`":
            self._backticks(piece, quoted=quoted)
        elif char in "'\"":
            self._part(char, piece)
        else:
            plain = _BRACED_PLAIN.match(self.text, self.at, self.end)
            if plain is None:
                self.refuse("shell.construct", "a parameter expansion of an unusual form")
            self.at = plain.end()

    def _arithmetic_expansion(self, piece: Piece) -> None:
        start = self.at
        piece.expansion()
        self.at += 3
        self.arithmetic(start)

    def arithmetic(self, start: int) -> None:
        """Read the expression at ``at`` and its ``))``."""
        read = expressions.read_arithmetic(self.text, self.at, self.end)
        if read is None:
            self.refuse("shell.construct", "arithmetic that may do more than compute", start)
        names, close = read
        self.numbers |= names
        self.at = close + 2

    def _substitution(
        self, opener: Literal["$(", "<(", ">("], piece: Piece, *, quoted: bool
    ) -> None:
        start = self.at
        self.at += len(opener)
        self.deeper()
        self._inside += 1
        body = self.commands((")",))
        self._inside -= 1
        self.depth -= 1
        if not self.looking_at(")"):
            self.refuse("shell.syntax", "a substitution without an end", start)
        self.at += 1
        piece.nested.append(Nested(opener, body))
        piece.expansion(splits=not quoted)

    def _backticks(self, piece: Piece, *, quoted: bool) -> None:
        start, outer_end = self.at, self.end
        close = self.text.find("`", start + 1, self.end)
        if close < 0:
            self.refuse("shell.syntax", "a substitution without an end")
        if "\\" in self.text[start:close]:
            self.refuse("shell.construct", "a backslash within backticks")
        self.at, self.end = start + 1, close
        self.deeper()
        body = self.commands(())
        self.depth -= 1
        self.at, self.end = close + 1, outer_end
        piece.nested.append(Nested("`", body))
        piece.expansion(splits=not quoted)
