"""A command line read twice, by the shell's own rules and by tree-sitter's grammar of the shell.

Both readings must see the same words, operators, constructs, substitutions and redirections in
the same places; what they see differently is not understood, and neither is anything that only
running could give a meaning to.
"""

from __future__ import annotations

from coilclaw.security import shellmeaning, shelltext, shelltree
from coilclaw.security.shellconstructs import ShellReader
from coilclaw.security.shellfault import Unreadable, excerpt
from coilclaw.security.shellscript import Reading, Script
from coilclaw.security.shellunfold import unfold


def read(command: str) -> Reading:
    """Return every simple command that a command line would run, or why nobody can say."""
    try:
        return _read(command)
    except Unreadable as problem:
        return problem.fault


def _read(command: str) -> Script:
    shelltext.check(command)
    reader = ShellReader(command)
    commands = reader.script()
    differences = shelltree.differences(reader.marks, shelltree.marks(command), reader.bodies)
    if differences:
        first = differences[0]
        raise Unreadable(
            "shell.syntax",
            f"it can be read in two ways: {first.kind} or not",
            excerpt(command, first.start),
        )
    script = Script(unfold(command, commands))
    shellmeaning.check(script, reader.numbers, reader.splitting)
    return script
