"""What tree-sitter's grammar of the shell sees in a command line, as marks on its text.

A node of a kind that is not in the tables below means that nobody here knows what it stands for:
the command line is not understood then. The places of the tree are bytes; the marks are
characters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from coilclaw.security.shellfault import Unreadable, excerpt
from coilclaw.security.shellnodes import Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tree_sitter import Language, Node

MAX_NODES: Final = 40_000

_OPERATORS: Final = frozenset(
    {";", "&", "&&", "||", "|", "|&", ";;", ";&", ";;&", "!", "(", ")", "{", "}"}
)
_KEYWORDS: Final = frozenset(
    {"if", "then", "elif", "else", "fi", "while", "until", "for", "do", "done", "in"}
    | {"case", "esac"}
)
_COMPOUNDS: Final = {
    "if_statement": "if",
    "for_statement": "for",
    "case_statement": "case",
    "subshell": "subshell",
}
# Nodes that only hold others: their children say what there is to say.
_TRANSPARENT: Final = frozenset(
    {"program", "list", "pipeline", "redirected_statement", "negated_command", "do_group"}
    | {"elif_clause", "else_clause", "variable_assignments"}
)
_LEAVES: Final = frozenset(
    {"word", "number", "raw_string", "ansi_c_string", "string_content", "regex", "variable_name"}
    | {"special_variable_name", "test_operator", "extglob_pattern", "heredoc_content"}
)
_WORD_HOLDERS: Final = frozenset({"string", "concatenation", "brace_expression"})
_WORDS: Final = (
    _LEAVES
    | _WORD_HOLDERS
    | {
        "simple_expansion",
        "expansion",
        "command_substitution",
        "process_substitution",
        "arithmetic_expansion",
    }
)
_REDIRECTS: Final = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect"})
_REDIRECT_OPERATORS: Final = frozenset({"<", ">", ">>", ">|", "&>", "&>>", "<&", ">&"})
_TEST_SIGNS: Final = frozenset({"&&", "||", "(", ")", "<", ">"})
_EXPRESSIONS: Final = frozenset(
    {"unary_expression", "binary_expression", "parenthesized_expression", "postfix_expression"}
)


@lru_cache(maxsize=1)
def _language() -> Language:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def marks(text: str) -> list[Mark]:
    """Return what the grammar sees; refuse what it, or this module, does not know."""
    from tree_sitter import Parser

    data = text.encode()
    root = Parser(_language()).parse(data).root_node
    walk = _Walk(text, data)
    if root.has_error:
        raise Unreadable("shell.syntax", "the grammar finds an error", _first_error(root, walk))
    walk.run(root)
    return walk.marks


def _first_error(root: Node, walk: _Walk) -> str:
    node = root
    while not (node.is_error or node.is_missing):
        below = next((c for c in node.children if c.has_error or c.is_missing), None)
        if below is None:
            break
        node = below
    return excerpt(walk.text, walk.place(node.start_byte))


class _Walk:
    """Goes over a tree without recursion: its depth is that of the command line."""

    def __init__(self, text: str, data: bytes) -> None:
        self.text = text
        self.marks: list[Mark] = []
        self._data = data
        self._places = None if len(data) == len(text) else _places(text)
        self._waiting: list[Node] = []
        self._handlers: dict[str, Callable[[Node], None]] = {
            "comment": self._comment,
            "command": self._command,
            "declaration_command": self._builtin,
            "unset_command": self._builtin,
            "test_command": self._test,
            "compound_statement": self._group,
            "while_statement": self._while,
            "case_item": self._case_item,
            "variable_assignment": self._assignment,
            "array": self._array,
            "simple_expansion": self._parameter,
            "expansion": self._parameter,
            "subscript": self._inside,
            "command_substitution": self._substitution,
            "process_substitution": self._substitution,
            "arithmetic_expansion": self._arithmetic,
            "file_redirect": self._file_redirect,
            "herestring_redirect": self._here_string,
            "heredoc_redirect": self._here_document,
            "heredoc_body": self._inside,
        }

    def run(self, root: Node) -> None:
        self._waiting = [root]
        seen = 0
        while self._waiting:
            node = self._waiting.pop()
            seen += 1
            if seen > MAX_NODES:
                raise Unreadable("shell.bound", f"it has more than {MAX_NODES} parts")
            if node.type in _LEAVES:
                continue
            if node.type in _WORD_HOLDERS:
                self._inside(node)
            elif node.type in _TRANSPARENT or node.type in _COMPOUNDS:
                self._construct(node)
            elif node.type in self._handlers:
                self._handlers[node.type](node)
            else:
                self._unknown(node)

    def place(self, byte: int) -> int:
        return byte if self._places is None else self._places[byte]

    def _mark(self, kind: str, start: int, end: int) -> None:
        self.marks.append(Mark(kind, self.place(start), self.place(end)))

    def _mark_node(self, kind: str, node: Node) -> None:
        self._mark(kind, node.start_byte, node.end_byte)

    def _unknown(self, node: Node) -> None:
        raise Unreadable(
            "shell.construct",
            f"the construct {node.type!r} has no meaning here",
            excerpt(self.text, self.place(node.start_byte)),
        )

    # -- constructs --------------------------------------------------------------------------

    def _construct(self, node: Node) -> None:
        if node.type in _COMPOUNDS:
            self._mark_node(_COMPOUNDS[node.type], node)
        words: list[Node] = []
        for index, child in enumerate(node.children):
            field = node.field_name_for_child(index)
            if node.type == "for_statement" and field == "variable":
                self._mark_node("variable", child)
            elif node.type == "for_statement" and field == "value":
                words.append(child)
            elif node.type == "case_statement" and field == "value":
                self._mark_node("subject", child)
                self._waiting.append(child)
            else:
                self._child(child)
        self._words("word", words)

    def _child(self, child: Node) -> None:
        """Note an operator or reserved word; put anything else on the way."""
        if child.is_named:
            self._waiting.append(child)
        elif child.type in _OPERATORS:
            self._mark_node("operator", child)
        elif child.type in _KEYWORDS:
            self._mark_node("keyword", child)
        elif child.type != "\n":
            self._unknown(child)

    def _group(self, node: Node) -> None:
        if node.children[0].type == "((":
            self._arithmetic(node)
            return
        self._mark_node("group", node)
        for child in node.children:
            self._child(child)

    def _while(self, node: Node) -> None:
        self._mark_node(node.children[0].type, node)
        for child in node.children:
            self._child(child)

    def _case_item(self, node: Node) -> None:
        for index, child in enumerate(node.children):
            if node.field_name_for_child(index) == "value":
                self._mark_node("pattern", child)
                self._waiting.append(child)
            else:
                self._child(child)

    def _comment(self, node: Node) -> None:
        self._mark_node("comment", node)

    # -- simple commands ---------------------------------------------------------------------

    def _command(self, node: Node) -> None:
        words: list[Node] = []
        for child in node.children:
            if child.type == "command_name":
                self._words("name", child.children)
            elif child.type == "variable_assignment" or child.type in _REDIRECTS:
                self._waiting.append(child)
            else:
                words.append(child)
        self._words("word", words)

    def _builtin(self, node: Node) -> None:
        """``export`` and the like: what they assign are words of a command like any other."""
        self._mark_node("name", node.children[0])
        words = []
        for child in node.children[1:]:
            if child.type in _REDIRECTS:
                self._waiting.append(child)
            elif child.type == "variable_assignment":
                self._mark_node("word", child)
                self._value(child)
            else:
                words.append(child)
        self._words("word", words)

    def _words(self, kind: str, nodes: Sequence[Node]) -> None:
        """Note words; nodes that touch each other are one."""
        start = end = -1
        for node in nodes:
            if node.is_named and node.type not in _WORDS:
                self._unknown(node)
            if node.start_byte != end:
                if end >= 0:
                    self._mark(kind, start, end)
                start = node.start_byte
            end = node.end_byte
            if node.is_named:
                self._waiting.append(node)
        if end >= 0:
            self._mark(kind, start, end)

    def _test(self, node: Node) -> None:
        """``[`` and ``[[``: every sign and word between the brackets is a word."""
        self._mark_node("name", node.children[0])
        waiting = list(reversed(node.children[1:]))
        run: list[Node] = []
        while waiting:
            part = waiting.pop()
            if part.type in _EXPRESSIONS:
                waiting += reversed(part.children)
            elif part.type in _TEST_SIGNS:
                self._words("word", run)
                self._words("word", [part])
                run = []
            elif part.type != "\n":
                run.append(part)
        self._words("word", run)

    def _assignment(self, node: Node) -> None:
        self._mark_node("assignment", node)
        self._value(node)

    def _value(self, node: Node) -> None:
        for child in node.children:
            if child.is_named and child.type not in _WORDS and child.type != "array":
                self._unknown(child)
            if child.is_named:
                self._waiting.append(child)

    def _array(self, node: Node) -> None:
        self._words("word", [child for child in node.children if child.is_named])

    # -- words -------------------------------------------------------------------------------

    def _inside(self, node: Node) -> None:
        self._waiting += [child for child in node.children if child.is_named]

    def _mark_expansion(self, kind: str, node: Node) -> None:
        """Note an expansion; within quotes, the grammar counts the blanks before it to it."""
        start = node.start_byte
        while self._data[start] in b" \t\n":
            start += 1
        self._mark(kind, start, node.end_byte)

    def _parameter(self, node: Node) -> None:
        self._mark_expansion("parameter", node)
        self._inside(node)

    def _arithmetic(self, node: Node) -> None:
        self._mark_expansion("arithmetic", node)

    def _substitution(self, node: Node) -> None:
        self._mark_expansion("substitution", node)
        for child in node.children[1:-1]:
            self._child(child)

    # -- redirections ------------------------------------------------------------------------

    def _file_redirect(self, node: Node) -> None:
        own = 1
        targets: list[Node] = []
        for child in node.children:
            if child.type == "file_descriptor":
                self._mark_node("descriptor", child)
            elif child.type in ("<&-", ">&-"):
                own = 0
                self._mark("redirect", child.start_byte, child.end_byte - 1)
                self._mark("target", child.end_byte - 1, child.end_byte)
            elif child.type in _REDIRECT_OPERATORS:
                self._mark_node("redirect", child)
            else:
                targets.append(child)
        # The grammar takes the words that follow for further targets.
        self._words("target", targets[:own])
        self._words("word", targets[own:])

    def _here_string(self, node: Node) -> None:
        for child in node.children:
            if child.type == "file_descriptor":
                self._mark_node("descriptor", child)
            elif child.type == "<<<":
                self._mark_node("redirect", child)
            else:
                self._words("target", [child])

    def _here_document(self, node: Node) -> None:
        """The grammar hangs the rest of the line into the here-document."""
        words: list[Node] = []
        for child in node.children:
            match child.type:
                case "file_descriptor":
                    self._mark_node("descriptor", child)
                case "<<" | "<<-":
                    self._mark_node("redirect", child)
                    self._swallowed_dash(node.start_byte)
                case "heredoc_start":
                    self._mark_node("delimiter", child)
                case "heredoc_end":
                    self._mark_node("body", child)
                case _ if child.type in _WORDS:
                    words.append(child)
                case _:
                    self._child(child)
        self._words("word", words)

    def _swallowed_dash(self, before: int) -> None:
        """Note a ``-`` in front of a here-document, which the grammar drops without a node."""
        rest = self._data[:before].rstrip(b" \t")
        if rest.endswith((b" -", b"\t-")) and len(rest) < before:
            self._mark("word", len(rest) - 1, len(rest))


def _places(text: str) -> list[int]:
    """Return, for every byte of the text, which character it belongs to."""
    places: list[int] = []
    for at, char in enumerate(text):
        places += [at] * len(char.encode())
    return [*places, len(text)]


def differences(
    ours: Iterable[Mark], theirs: Iterable[Mark], bodies: Sequence[tuple[int, int]]
) -> list[Mark]:
    """Return what only one of two readings saw, by place.

    The grammar overlooks variables in the bodies of here-documents, which are data.
    """
    return sorted(
        (
            mark
            for mark in set(ours) ^ set(theirs)
            if mark.kind != "parameter"
            or not any(start <= mark.start < end for start, end in bodies)
        ),
        key=lambda mark: (mark.start, mark.end, mark.kind),
    )
