"""The shell reader against the real shell: what bash runs is what was read, or was not understood.

The real bash finds no program: its PATH is an empty directory, and the hook for unknown commands
reports the arguments it was called with. Nothing that was not understood is ever run.
"""

from __future__ import annotations

import select
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from coilclaw.policy.shell.reader import read_script
from coilclaw.policy.shell.script import NotUnderstood, Script, Simple
from tests.support.children import PATIENCE_S
from tests.support.scale import scaled

BASH = shutil.which("bash") or "bash"

# Reads commands from its input, each ended by NUL, and says when one is done; what was started
# goes to the file. ``zdoc`` also reports what it reads.
HARNESS = r"""
exec 9>>"$1"
command_not_found_handle() {
    local body=
    if [[ $1 == zdoc ]]; then IFS= read -r -d '' body; fi
    set -- "$number" "$@" "${V-}" "$body"
    printf '%s\0' "${@//$'\n'/␊}" ␞ >&9
}
# What is made up must not reach a process: kill is then a program like others, which is not there.
enable -n kill suspend
number=0
while IFS= read -r -d '' text; do
    (
        eval "$text"
        wait
    ) </dev/null >/dev/null 2>"$2"
    errors=$(<"$2")
    if [[ $errors == *@("syntax error near"|"syntax error:"|"unexpected EOF"|conditional)* &&
          $errors != *@("[: "|"test: ")* ]]; then
        printf '%s\0' "$number" '' '' ␞ >&9
    fi
    number=$((number + 1))
    echo done
done
"""
RECORD_END = "␞\0".encode()


@dataclass(frozen=True)
class Call:
    """One program that bash would have started; without arguments, bash found an error."""

    argv: tuple[str, ...]
    variable: str
    body: str


class LiveBash:
    """One bash for many command lines: starting it takes longer than all the rest."""

    def __init__(self, folder: Path) -> None:
        (folder / "empty").mkdir()
        (folder / "log").touch()
        argv = [BASH, "--norc", "--noprofile", "-c", HARNESS, "bash"]
        self._process = subprocess.Popen(
            [*argv, str(folder / "log"), str(folder / "errors")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder / "empty",
            env={"PATH": str(folder / "nothing"), "LC_ALL": "C.UTF-8", "HOME": "/home/zz"},
            start_new_session=True,
        )
        self._log = (folder / "log").open("rb")
        self._number = 0
        self._rest = b""

    def run(self, command: str) -> list[Call]:
        """Return the programs that a command line starts."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(command.encode() + b"\0")
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], PATIENCE_S)[0], command
        assert self._process.stdout.readline() == b"done\n", command
        number, self._number = self._number, self._number + 1
        *records, self._rest = (self._rest + self._log.read()).split(RECORD_END)
        calls = []
        for record in records:
            # One write each, and so whole, as long as no newline is in it.
            owner, *fields = record.decode().replace("␊", "\n").split("\0")[:-1]
            if int(owner) == number:
                calls.append(Call(tuple(fields[:-2]), fields[-2], fields[-1]))
        return calls

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE_S)
        self._log.close()


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBash]:
    live = LiveBash(tmp_path_factory.mktemp("bash"))
    yield live
    live.close()


def is_static(command: Simple) -> bool:
    return all(word.text is not None and not word.globs for word in command.words)


def known(command: Simple) -> tuple[str, ...]:
    """Return the words up to the first that only running tells."""
    texts: list[str] = []
    for word in command.words:
        if word.text is None or word.globs:
            break
        texts.append(word.text)
    return tuple(texts)


def admits(command: Simple, call: Call) -> bool:
    """Tell whether a call is one that a command as read can lead to."""
    texts = known(command)
    if not call.argv or call.argv[: len(texts)] != texts:
        return False
    if is_static(command) and call.argv != texts:
        return False
    values = [value.text for name, value in command.assignments if name == "V"]
    if values and values[-1] is not None and values[-1] != call.variable:
        return False
    # Only what is fed to standard input is read by the command.
    fed = [r for r in command.redirections if r.descriptor in (None, "0")]
    bodies = [r.body.text for r in fed if r.body is not None]
    return call.argv[0] != "zdoc" or not bodies or bodies[-1] is None or _same(bodies[-1], call)


def _same(body: str, call: Call) -> bool:
    return call.body in (body, body + "\n")


def _runs_often(command: Simple, script: Script) -> bool:
    """Tell whether a command is in a loop, or in a word that is expanded more than once."""
    doubling = any(
        each.redirections or any(word.globs for word in each.words) for each in script.commands
    )
    return "for" in command.compound or (command.nested and doubling)


def unexplained(calls: Sequence[Call], script: Script) -> list[Call]:
    """Return the calls that no command of the script accounts for, each used once."""
    often = [
        command for command in script.commands if command.words and _runs_often(command, script)
    ]
    calls = [call for call in calls if not any(admits(command, call) for command in often)]
    sources = [command for command in script.commands if command.words and command not in often]
    taken: dict[int, int] = {}

    def place(number: int, tried: set[int]) -> bool:
        for index, source in enumerate(sources):
            if index not in tried and admits(source, calls[number]):
                tried.add(index)
                if index not in taken or place(taken[index], tried):
                    taken[index] = number
                    return True
        return False

    return [call for number, call in enumerate(calls) if not place(number, set())]


# -- command lines ---------------------------------------------------------------------------------

LETTERS = "qwz"
SPECIAL = " '\"\\$`*?[]{}~#!=;&|<>()\t\n-,%@^é12+.:"


def _single(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _double(text: str) -> str:
    return '"' + "".join("\\" + c if c in '$`"\\' else c for c in text) + '"'


def _escaped(text: str) -> str:
    return "".join(c if c in LETTERS else "'\n'" if c == "\n" else "\\" + c for c in text)


def _ansi(text: str) -> str:
    return "$'" + "".join(c if c in LETTERS else _escape(c) for c in text) + "'"


def _escape(char: str) -> str:
    if not char.isascii():
        return char
    return {"\n": "\\n", "\t": "\\t", "'": "\\'"}.get(char, f"\\x{ord(char):02x}")


plain_text = st.text(LETTERS + "-,%@^", min_size=1, max_size=4).map(lambda t: "q" + t)
any_text = st.text(LETTERS + SPECIAL, max_size=5)
piece = st.one_of(
    plain_text,
    any_text.map(_single),
    any_text.map(_double),
    any_text.filter(bool).map(_escaped),
    any_text.map(_ansi),
)
word = st.lists(piece, min_size=1, max_size=3).map("".join)
name = st.tuples(st.sampled_from(["q", "w", "z"]), st.lists(piece, max_size=1)).map(
    lambda parts: parts[0] + "".join(parts[1])
)
dynamic = st.sampled_from(
    ["$V", '"$V"', "${V:-q}", "$(w q)", '"$(q; w)"', "`z`", "$((1+2))", "*", "~", "{q,w}", "<(q)"]
)
redirection = st.sampled_from(
    [">null", "2>null", "2>&1", ">>null", "&>null", "<<<q", ">|null", "2>&-", "< null2"]
).filter(lambda text: text != "< null2")
assignment = word.map(lambda text: "V=" + text)
blank = st.sampled_from([" ", "  ", "\t", " \\\n "])


@st.composite
def simple_commands(draw: st.DrawFn, *, only_static: bool = False) -> str:
    parts = [*draw(st.lists(assignment, max_size=1)), draw(name)]
    parts += draw(st.lists(word if only_static else word | word | dynamic, max_size=3))
    parts += draw(st.lists(redirection, max_size=1))
    return draw(blank).join(parts)


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joint = st.sampled_from(
        ["; ", " && ", " | ", " |& ", "\n", " & ", "&&\n", "|\n", " # q\n", "||"]
    )
    return st.one_of(
        st.tuples(inner, joint, inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"{{ {text}\n}}"),
        inner.map(lambda text: f"! {text}"),
        inner.map(lambda text: f"if {text}\nthen {text}; fi"),
        inner.map(lambda text: f"for i in q; do {text}; done"),
        inner.map(lambda text: f"case q in w) z;; q) {text};; esac"),
        inner.map(lambda text: f"if [[ q == w ]]; then {text}; fi"),
        inner.map(lambda text: f"q $({text})"),
        inner.map(lambda text: f'w "q$({text})"'),
    )


here_documents = st.builds(
    lambda quote, body, after: f"zdoc <<{quote}E{quote}\n{body}E\n{after}",
    st.sampled_from(["", "'", '"']),
    st.lists(any_text.map(lambda t: t.replace("\n", "") + "\n"), max_size=3).map("".join),
    simple_commands(),
)
lines = st.recursive(simple_commands() | here_documents, _combined, max_leaves=4)
all_run = st.recursive(
    simple_commands().filter(lambda text: "<(" not in text),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["; ", " && ", " | ", " |& ", "\n"]), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"{{ {text}; }}"),
        inner.map(lambda text: f"q $( {text})"),
        inner.map(lambda text: f"if {text}\nthen w; fi"),
    ),
    max_leaves=4,
)


@st.composite
def mutations(draw: st.DrawFn) -> str:
    """A good command line with a few characters taken out, put in or doubled."""
    text = draw(lines)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        end = at + draw(st.integers(0, 2))
        text = text[:at] + draw(st.text(LETTERS + SPECIAL, max_size=2)) + text[end:]
    return text


# -- properties ------------------------------------------------------------------------------------


def examples(full: int, default: int) -> settings:
    return settings(
        max_examples=scaled(full=full, default=default),
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


@given(command=simple_commands(only_static=True))
@examples(full=8_000, default=500)
def test_a_simple_command_gets_the_words_that_bash_gives_it(bash: LiveBash, command: str) -> None:
    script = read_script(command)
    if isinstance(script, Script):
        (simple,) = script.commands
        (call,) = bash.run(command)
        assert tuple(word.text for word in simple.words) == call.argv
        assert [value.text for _, value in simple.assignments] in ([], [call.variable])


def check(bash: LiveBash, text: str) -> None:
    script = read_script(text)
    if isinstance(script, Script):
        assert unexplained(bash.run(text), script) == []


@given(text=lines)
@examples(full=8_000, default=500)
def test_bash_runs_nothing_that_was_not_read(bash: LiveBash, text: str) -> None:
    check(bash, text)


@given(text=all_run)
@examples(full=5_000, default=300)
def test_bash_runs_all_that_was_read(bash: LiveBash, text: str) -> None:
    script = read_script(text)
    if isinstance(script, Script):
        assert len(bash.run(text)) == len(script.commands)


@given(text=mutations())
@example(text="zdoc 1<<E\nq\nE\n")
@examples(full=15_000, default=800)
def test_a_changed_command_is_read_as_bash_runs_it_or_not_at_all(bash: LiveBash, text: str) -> None:
    check(bash, text)


@given(st.text() | st.text(LETTERS + SPECIAL, max_size=40) | mutations())
@examples(full=8_000, default=600)
def test_reading_never_raises(text: str) -> None:
    assert isinstance(read_script(text), Script | NotUnderstood)
