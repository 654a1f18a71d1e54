"""Command lines are read into every simple command that would run, or are not understood."""

from __future__ import annotations

import shlex

import pytest

from coilclaw.policy.shell import reader, words
from coilclaw.policy.shell.commands import MAX_COMMANDS
from coilclaw.policy.shell.reader import read_script
from coilclaw.policy.shell.script import NotUnderstood, Redirection, Script, Simple, Word


def word_sketch(word: Word) -> str:
    """Return the value quoted, ⟦as written⟧ if only running tells, in ⟪⟫ if it may expand."""
    text = f"⟦{word.raw}⟧" if word.text is None else shlex.quote(word.text)
    return f"⟪{text}⟫" if word.globs else text


def redirection_sketch(redirection: Redirection) -> str:
    """Return descriptor, operator, ``!`` for one that writes, then target and body."""
    parts = [f"{redirection.descriptor or ''}{redirection.operator}{'!' * redirection.writes}"]
    parts += [word_sketch(w) for w in (redirection.target, redirection.body) if w is not None]
    return " ".join(parts)


def sketch(command: Simple) -> str:
    """Return everything about a command but its raw text, in one line.

    The pipeline's number, ``|`` for piped into, ``&`` for background, ``$`` for nested; the
    constructs in parentheses; assignments, words, redirections.
    """
    flags = "|" * command.piped_into + "&" * command.background + "$" * command.nested
    parts = [f"{command.pipeline}{flags}"]
    parts += [f"({kind})" for kind in command.compound]
    parts += [f"{name}={word_sketch(value)}" for name, value in command.assignments]
    parts += [word_sketch(word) for word in command.words]
    parts += [redirection_sketch(redirection) for redirection in command.redirections]
    return " ".join(parts)


def sketches(text: str) -> list[str] | NotUnderstood:
    reading = read_script(text)
    if isinstance(reading, NotUnderstood):
        return reading
    assert all(command.raw in text for command in reading.commands)
    return [sketch(command) for command in reading.commands]


def refusal(text: str) -> str:
    """Return the rule by which a command line is not understood."""
    reading = read_script(text)
    assert isinstance(reading, NotUnderstood), reading
    assert reading.reason
    return reading.rule


# -- not understood --------------------------------------------------------------------------------

CONSTRUCTS = {
    "function": "f(){ rm x; }; f",
    "function with blank": "f () { rm x; }",
    "function of a subshell": "f() (rm x)",
    "function keyword": "function f { rm x; }",
    "fork bomb": ":(){ :|:& };:",
    "alias": "alias ls=rm",
    "escaped alias": "\\alias ls=rm",
    "quoted alias": '"ali"as ls=rm',
    "alias through builtin": "builtin alias ls=rm",
    "alias through command": "command -p alias ls=rm",
    "alias table": "BASH_ALIASES=(x)",
    "alias table element": "BASH_ALIASES[ls]=rm",
    "hash table element": "BASH_CMDS[ls]=/bin/rm",
    "hash of another program": "hash -p /bin/rm ls",
    "loadable builtin": "enable -f x.so ls",
    "coproc": "coproc rm x",
    "coproc group": "coproc { rm x; }",
    "select": "select x in a b; do rm $x; done",
    "prompt transformation": "echo ${x@P}",
    "quoting transformation": 'echo "${x@Q}"',
    "indirection": "echo ${!x}",
    "names by prefix": "echo ${!x*}",
    "assigning expansion": "echo ${x:=y}",
    "assigning expansion of unset": "echo ${PATH=/evil}",
    "computed substring": "echo ${x:$(rm y)}",
    "computed substring of a name": "echo ${x:y}",
    "computed subscript": "echo ${a[$(rm x)]}",
    "named subscript": "echo ${a[i]}",
    "function substitution": "echo ${ rm x; }",
    "value substitution": "echo ${| rm x; }",
    "arithmetic assignment": "echo $((x=1))",
    "arithmetic operation and assignment": "echo $((x+=1))",
    "arithmetic shift and assignment": "echo $((x<<=1))",
    "arithmetic increment": "echo $((x++))",
    "arithmetic decrement": "echo $((--x))",
    "arithmetic subscript": "echo $((a[$(rm x)]))",
    "arithmetic substitution": "echo $(( $(cat f) + 1 ))",
    "arithmetic backticks": "echo $((`cat f`))",
    "arithmetic positional": "echo $(($1))",
    "arithmetic with an unknown variable": "echo $((x+1))",
    "arithmetic with a variable that is read": "x=1; read x; echo $((x+1))",
    "arithmetic with a variable that is printed to": "x=1; printf -v x y; echo $((x))",
    "arithmetic with text": "x='a[$(rm y)]'; echo $((x))",
    "arithmetic with text through another": "x=y; echo $((x))",
    "arithmetic with an output": "x=$(cat f); echo $((x))",
    "arithmetic with an evaluated name": "x=1; eval y; echo $((x))",
    "old arithmetic": "echo $[1+1]",
    "arithmetic command assignment": "((x=1))",
    "arithmetic command increment": "((i++))",
    "arithmetic command subscript": "((a[$(rm x)]))",
    "arithmetic loop": "for ((i=0; i<3; i++)); do rm x; done",
    "not quite arithmetic": "echo $((rm x) )",
    "let": "let 'a[$(rm x)]'",
    "numeric test of text": "[[ 'a[$(rm x)]' -eq 1 ]]",
    "numeric test of an unknown variable": "[[ $x -eq 1 ]]",
    "numeric test of an output": "[[ $(cat f) -gt 1 ]]",
    "variable test with subscript": "[[ -v a[$(rm)] ]]",
    "variable test of a variable": "[[ -v $x ]]",
    "test -v with subscript": "test -v 'a[$(rm x)]'",
    "[ -v with subscript": "[ -v 'a[$(rm x)]' ]",
    "[ -v of a variable": '[ -v "$x" ]',
    "test that a variable may make -v": "x='-v a[$(rm y)]'; [ $x ]",
    "test that a substitution may make -v": "test $(cat f)",
    "test that a default may make -v": "[ ${x:-y} = z ]",
    "test that backticks may make -v": "[ `cat f` ]",
    "test of all elements": "a=(-v 'a[$(rm x)]'); [ \"${a[@]}\" ]",
    "test of all arguments": "set -- -v 'a[$(rm x)]'; test \"$@\"",
    "test of two unknown words": 'test "$x" "$y"',
    "test of an unknown word and a subscript": "test \"$x\" 'a[$(rm y)]'",
    "test that a pattern may make -v": "test *v 'a[$(rm x)]'",
    "test of all files": "[ * ]",
    "test that braces may make -v": "test {-v,'a[$(rm x)]'}",
    "printf of what a pattern may make -v": "printf * 'a[$(rm x)]'",
    "declared pattern": "declare *",
    "options by a pattern": "set *",
    "printf -v with subscript": "printf -v 'a[$(rm x)]' y",
    "read into a subscript": "read 'a[$(rm x)]'",
    "unset of a subscript": "unset 'a[$(rm x)]'",
    "declared subscript": "declare 'a[$(rm x)]=1'",
    "exported backticks": "export 'a[`rm x`]=1'",
    "declared number": "y='a[$(rm x)]'; declare -i z=y",
    "declared reference": "declare -n r=PATH; r=/evil",
    "declared reference among flags": "local -gn r=PATH",
    "declared unknown": "declare $x",
    "exported unknown": 'export "$x"',
    "unset of a variable's value": "unset $x",
    "read into a variable's value": "read $x",
    "read into an element": "read 'a[0]'",
    "callback of mapfile": "mapfile -C 'rm x' -c 1 a",
    "variable of wait": "wait -n -p 'a[$(rm x)]'",
    "unknown words of wait": "wait $x",
    "completion": "compgen -C 'rm x'",
    "key binding": "bind -x '\"a\": rm x'",
    "last command again": "fc -s",
    "printf to a variable's value": 'printf -v "$x" y',
    "printf of what may be an option": "printf $x",
    "assigned element": "a[0]=1",
    "assigned computed element": "a[$(rm x)]=1",
    "array with subscripts": "a=([$(rm x)]=1)",
    "declared array": "declare -a x=(a b)",
    "assignments anywhere": "set -k; ls LD_PRELOAD=x",
    "another mode": "set -o posix",
    "history": "set -H",
    "options from a variable": "set $x",
    "extended patterns on": "shopt -s extglob",
    "aliases on": "shopt -s expand_aliases",
    "extended pattern": "echo @(a|b)",
    "negated pattern": "ls !(a)",
    "negated pattern or subshell": "!(rm x)",
    "locale string": 'echo $"hi"',
    "descriptor in a variable": "ls {fd}>x",
    "descriptor or process substitution": "ls 2>(rm x)",
    "process substitution in a word": "echo a<(rm x)",
    "process number before a parenthesis": 'echo "$$(rm x"',
    "process number before a broken line": 'echo "$$\\\n(rm x"',
    "array that goes on": "a=(x)t ls rm",
    "process number before a brace": "echo $${x}",
    "quoted target that is expanded twice": "ls >& '$(rm x)'",
    "unknown target that is expanded twice": "ls >&$x",
    "duplicated from an unknown descriptor": "ls <&$x",
    "descriptor closed by part of a word": "ls >&-rf",
    "descriptor closed by part of the next word": "ls 2>& -rf",
    "nested backticks": "echo `echo \\`rm x\\``",
    "time of a group": "time { rm x; }",
    "time with an assignment": "time A=1 ls",
    "time with a negation": "time ! ls",
    "broken word": "r\\\nm x",
    "broken operator": "ls &\\\n& rm x",
    "broken substitution": "echo $\\\n(rm x)",
    "broken substitution in quotes": 'echo "$\\\n(rm x)"',
    "broken redirection": "ls 2\\\n>x",
    "here-document in a here-document": "cat <<A\n$(cat <<B\nx\nB\n)\nA",
    "here-document with a strange delimiter": "cat <<$x\n$x",
    "here-document with a split delimiter": "cat <<E'O'F\nx\nEOF",
    "here-document with a doubtful end": "echo $(cat <<EOF\nEOF)\nrm x\nEOF\n)",
    "here-document with a continued line": "cat <<EOF\nx\\\nEOF\nrm x\nEOF",
    "here-document behind a line break": "cat <<EOF $(ls\n)\nx\nEOF",
    "here-document that loses a separator": 'echo "$(cat <<E\nE\nls; rm)"',
    "here-document in a group that loses a separator": "echo $({ cat <<E\nE\nls; rm; })",
    "ampersand that becomes an operator": "for i in q; do q $({ ls \\&\nrm x\n}); done",
    "quotes within a quoted expansion": "echo \"${x:-'$(rm y)'}\"",
    "process substitution within an expansion": "echo ${x:-<(rm y)}",
    "spaces in a regular expression": "[[ $x =~ (a b) ]]",
    "escape without digits": "echo $'\\x'",
}


@pytest.mark.parametrize("text", CONSTRUCTS.values(), ids=CONSTRUCTS.keys())
def test_a_construct_without_a_safe_meaning_is_refused(text: str) -> None:
    assert refusal(text) == "shell.construct"


@pytest.mark.parametrize(
    ("neighbour", "expected"),
    [
        ("f x", ["0 f x"]),
        ("echo alias ls=rm", ["0 echo alias ls=rm"]),
        ("hash -r", ["0 hash -r"]),
        ("echo coproc select function", ["0 echo coproc select function"]),
        ("echo ${x}", ["0 echo ⟦${x}⟧"]),
        ("echo ${x:-y}", ["0 echo ⟦${x:-y}⟧"]),
        ("echo ${x:1:2} ${x: -3}", ["0 echo ⟦${x:1:2}⟧ ⟦${x: -3}⟧"]),
        ("echo ${a[0]} ${a[@]}", ["0 echo ⟦${a[0]}⟧ ⟦${a[@]}⟧"]),
        ("echo $((1+2))", ["0 echo ⟦$((1+2))⟧"]),
        ("x=1; echo $((x == 1))", ["0 x=1", "1 echo ⟦$((x == 1))⟧"]),
        (
            "x=1; x=$((x+1)); echo $((x * ($x - 1)))",
            ["0 x=1", "1 x=⟦$((x+1))⟧", "2 echo ⟦$((x * ($x - 1)))⟧"],
        ),
        ("(( 1 < 2 ))", ["0 '((' '1 < 2' '))'"]),
        ("[[ $# -eq 1 ]]", ["0 '[[' ⟦$#⟧ -eq 1 ']]'"]),
        ("[[ -v x ]]", ["0 '[[' -v x ']]'"]),
        ("[ -v x ]", ["0 '[' -v x ']'"]),
        ('[ "$x" = "$y" ]', ["0 '[' ⟦\"$x\"⟧ = ⟦\"$y\"⟧ ']'"]),
        ("i=1; [ $i -lt 3 ]", ["0 i=1", "1 '[' ⟦$i⟧ -lt 3 ']'"]),
        ("[ $? -eq $((1)) ]", ["0 '[' ⟦$?⟧ -eq ⟦$((1))⟧ ']'"]),
        ('[ -n "$(ls "$x")" ]', ["0 '[' -n ⟦\"$(ls \"$x\")\"⟧ ']'", '1$ ls ⟦"$x"⟧']),
        ("[ -e *.py ]", ["0 '[' -e ⟪'*.py'⟫ ']'"]),
        ("set -- *", ["0 set -- ⟪'*'⟫"]),
        ('printf "n: $n\\n"', ['0 printf ⟦"n: $n\\n"⟧']),
        ("printf -v x y", ["0 printf -v x y"]),
        ("printf '%s' 'a[$(rm x)]'", ["0 printf %s 'a[$(rm x)]'"]),
        ("printf '%s' $x", ["0 printf %s ⟦$x⟧"]),
        ("unset x", ["0 unset x"]),
        ("declare -r x=1", ["0 declare -r x=1"]),
        ('export PATH="$PATH:x"', ['0 export ⟦PATH="$PATH:x"⟧']),
        ("local x=$y", ["0 local ⟦x=$y⟧"]),
        ("read -r x y", ["0 read -r x y"]),
        ("mapfile -t a", ["0 mapfile -t a"]),
        ("wait $!", ["0 wait ⟦$!⟧"]),
        ("a=(b c)", ["0 a=⟦(b c)⟧"]),
        ("set -eu -o pipefail", ["0 set -eu -o pipefail"]),
        ("set -- a b", ["0 set -- a b"]),
        ("shopt -s globstar", ["0 shopt -s globstar"]),
        ("echo 'a b'", ["0 echo 'a b'"]),
        ("ls {fd} >x", ["0 ls '{fd}' >! x"]),
        ("ls > >(wc)", ["0 ls >! ⟦>(wc)⟧", "0|$ wc"]),
        ('echo $$ "$$" $$-x', ['0 echo ⟦$$⟧ ⟦"$$"⟧ ⟦$$-x⟧']),
        ("ls &> '$(rm x)'", ["0 ls &>! '$(rm x)'"]),
        ("ls >& a-b.txt", ["0 ls >&! a-b.txt"]),
        ("ls 2>&- -rf", ["0 ls -rf 2>& -"]),
        ("echo `date`", ["0 echo ⟦`date`⟧", "1$ date"]),
        ("time ls", ["0 time ls"]),
        ("ls \\\n  x", ["0 ls x"]),
        ("ls &&\\\n wc", ["0 ls", "1 wc"]),
        ("cat <<'EOF'\nx\\\nEOF\nls", ["0 cat << 'x\\\n'", "1 ls"]),
        ('echo "$(cat <<E\nx\nE\n)"', ['0 echo ⟦"$(cat <<E\nx\nE\n)"⟧', "1$ cat << 'x\n'"]),
        ("q $(ls \\&x)", ["0 q ⟦$(ls \\&x)⟧", "1$ ls '&x'"]),
        ("[[ $x =~ (a|b) ]]", ["0 '[[' ⟦$x⟧ '=~' '(a|b)' ']]'"]),
    ],
)
def test_its_neighbour_is_read(neighbour: str, expected: list[str]) -> None:
    assert sketches(neighbour) == expected


@pytest.mark.parametrize(
    "text",
    [
        "ls;;rm x",
        "ls ; ; rm x",
        "ls &&& rm x",
        "ls | | rm x",
        "ls | ! rm x",
        "&& ls",
        "ls |",
        "ls &&",
        ";",
        "( rm x",
        "rm x )",
        "{ rm x; ",
        "}",
        "{ rm x }",
        "if rm; fi",
        "if then rm x; fi",
        "then rm x",
        "A=1 if x",
        "while x; done",
        "for x in a; do<(rm x); done",
        "for x in a; rm; done",
        "case x in a) rm x",
        "'rm",
        '"rm',
        "$'rm",
        "`rm",
        "echo $(rm",
        "rm \\",
        "ls >",
        "ls > ; rm x",
        "ls < 2>x",
        "cat <<EOF",
        "cat <<EOF\nx",
        "cat <<EOF; rm x",
        "[[ -f x",
        "[[ ]]",
        "[[ -n\nx ]]",
        "[[ x\n== y ]]",
        "[[ a b ]]",
        "[[ a $x b ]]",
        "[[ -f ]]",
        "[[ -f == x ]]",
        "[[ ( a ]]",
        "[[ a ) ]]",
        "[[ a && ]]",
        "[[ q<1 == w ]]",
        "[ x",
    ],
)
def test_broken_syntax_is_refused(text: str) -> None:
    assert refusal(text) == "shell.syntax"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ls\rrm x", "U+000D"),
        ("ls\0rm", "U+0000"),
        ("ls \x1b[31m", "U+001B"),
        ("ls \x7f", "U+007F"),
        ("ls \x0b x", "U+000B"),
        ("ls \x85 x", "U+0085"),
        ("ls\u00a0x", "U+00A0"),
        ("ls\u3000x", "U+3000"),
        ("ls\u2028rm", "U+2028"),
        ("ls \u202egnp.exe", "U+202E"),
        ("ls \u2066x", "U+2066"),
        ("l\u200bs", "U+200B"),
        ("echo 'a\u200db'", "U+200D"),
        ("\ufeffls", "U+FEFF"),
        ("ls \U000e0041", "U+E0041"),
        ("ls \u00ad", "U+00AD"),
        ("ls \u3164", "U+3164"),
        ("ls x\ufe0f", "U+FE0F"),
        ("ls \U000e0101", "U+E0101"),
        ("ls \ud800", "U+D800"),
        ("ls \ue000", "U+E000"),
    ],
)
def test_characters_that_do_not_show_are_refused(text: str, shown: str) -> None:
    reading = read_script(text)
    assert isinstance(reading, NotUnderstood)
    assert (reading.rule, reading.excerpt) == ("shell.text", shown)


def test_characters_that_show_are_read() -> None:
    assert sketches("echo é 日本 ✓ ❤\ufe0f 🎉\tx") == ["0 echo 'é' '日本' '✓' '❤\ufe0f' '🎉' x"]


@pytest.mark.parametrize("text", ["ls $'a\\0b'", "ls $'\\x00'", "ls $'\\xff'"])
def test_strings_that_are_no_text_are_refused(text: str) -> None:
    assert refusal(text) == "shell.text"


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("x" * reader.MAX_BYTES, "x"),
        ("é" * (reader.MAX_BYTES // 2), "x"),
        ("a;" * MAX_COMMANDS, "a"),
        ("$(" * words.MAX_DEPTH + "a" + ")" * words.MAX_DEPTH, None),
    ],
)
def test_bounds_hold_exactly(text: str, more: str | None) -> None:
    assert isinstance(read_script(text), Script)
    assert refusal(text + more if more else f"$({text})") == "shell.bound"


def test_every_kind_of_nesting_is_bounded() -> None:
    for opener, closer in [("$(", ")"), ("( ", ")"), ("{ ", ";}"), ("if ", ""), ("${x:-", "}")]:
        depth = words.MAX_DEPTH + 1
        assert refusal("a " * (opener == "${x:-") + opener * depth + "a" + closer * depth) == (
            "shell.bound"
        )
    assert refusal("a | " * MAX_COMMANDS + "a") == "shell.bound"


# What a grammar of the shell sees otherwise than the shell does.
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("cat <<EOF\n`rm x`\nEOF", ["cat", "rm"]),
        ("echo ${x//a/`rm y`}", ["echo", "rm"]),
        ("1a=b ls", ["1a=b"]),
        ("! ! ls", ["ls"]),
        ("cat <<A <<B\nx\nA\n`rm y`\nB", ["cat", "rm"]),
    ],
)
def test_what_is_easily_read_otherwise_is_read_as_the_shell_does(
    text: str, names: list[str]
) -> None:
    reading = read_script(text)
    assert isinstance(reading, Script)
    assert [command.words[0].text for command in reading.commands] == names


@pytest.mark.parametrize("text", ["f() { ls; }", "a[0]=1", "for ((;;)); do ls; done"])
def test_a_construct_that_has_no_meaning_here_is_refused(text: str) -> None:
    assert refusal(text) == "shell.construct"


def test_a_case_without_a_subject_is_refused() -> None:
    assert refusal("case \n in q) ls;; esac") == "shell.syntax"


def test_a_refusal_says_what_and_where() -> None:
    assert read_script("ls; f() { rm x; }") == NotUnderstood(
        "a function definition or an extended pattern", "f() { rm x; }", "shell.construct"
    )
    assert read_script("echo ${!" + "x" * 80 + "}") == NotUnderstood(
        "a parameter expansion of an unusual form", "${!" + "x" * 57 + "…", "shell.construct"
    )


# -- understood ------------------------------------------------------------------------------------


def test_a_command_line_is_read_with_everything_that_decides_what_it_does() -> None:
    text = 'A=1 ls -l \'a b\' *.py "$x" 2>&1 <in | wc > "out" &'
    assert read_script(text) == Script(
        (
            Simple(
                raw="A=1 ls -l 'a b' *.py \"$x\" 2>&1 <in",
                words=(
                    Word("ls", "ls"),
                    Word("-l", "-l"),
                    Word("'a b'", "a b"),
                    Word("*.py", "*.py", globs=True),
                    Word('"$x"', None),
                ),
                assignments=(("A", Word("1", "1")),),
                redirections=(
                    Redirection(">&", "2", Word("1", "1"), writes=False),
                    Redirection("<", None, Word("in", "in"), writes=False),
                ),
                background=True,
            ),
            Simple(
                raw='wc > "out"',
                words=(Word("wc", "wc"),),
                redirections=(Redirection(">", None, Word('"out"', "out"), writes=True),),
                piped_into=True,
                background=True,
            ),
        )
    )


def test_a_here_document_is_read_with_its_body() -> None:
    assert read_script("sh -s <<'E' 2>log\nrm $x\nE\n") == Script(
        (
            Simple(
                raw="sh -s <<'E' 2>log",
                words=(Word("sh", "sh"), Word("-s", "-s")),
                redirections=(
                    Redirection("<<", None, None, writes=False, body=Word("rm $x\n", "rm $x\n")),
                    Redirection(">", "2", Word("log", "log"), writes=True),
                ),
            ),
        )
    )


READ = {
    "semicolon": ("ls;rm x", ["0 ls", "1 rm x"]),
    "and": ("ls&&rm x", ["0 ls", "1 rm x"]),
    "or": ("ls||rm x", ["0 ls", "1 rm x"]),
    "pipe": ("ls|rm x", ["0 ls", "0| rm x"]),
    "pipe of both": ("ls|&rm x", ["0 ls", "0| rm x"]),
    "background": ("ls&rm x", ["0& ls", "1 rm x"]),
    "background of a list": ("ls && rm x | wc &", ["0& ls", "1& rm x", "1|& wc"]),
    "background of a construct": (
        "(ls; rm $(x)) &",
        ["0& (subshell) ls", "1& (subshell) rm ⟦$(x)⟧", "2&$ (subshell) x"],
    ),
    "newline": ("ls\nrm x", ["0 ls", "1 rm x"]),
    "newlines and comments": ("\n# a\nls # b; c\n\n  rm x\n", ["0 ls", "1 rm x"]),
    "comment that seems continued": ("ls #\\\nrm x", ["0 ls", "1 rm x"]),
    "no comment": ("ls a#b", ["0 ls 'a#b'"]),
    "nothing": ("", []),
    "only a comment": (" # rm x", []),
    "substitution": ("echo $(rm x)", ["0 echo ⟦$(rm x)⟧", "1$ rm x"]),
    "substitution as the name": ("$(rm x) y", ["0 ⟦$(rm x)⟧ y", "1$ rm x"]),
    "substitution in quotes": ('echo "a$(rm x)b"', ['0 echo ⟦"a$(rm x)b"⟧', "1$ rm x"]),
    "no substitution in quotes": ("echo '$(rm x)' \"\\$(rm x)\"", ["0 echo '$(rm x)' '$(rm x)'"]),
    "nested substitution": (
        'echo "$(echo "$(rm x)")"',
        ['0 echo ⟦"$(echo "$(rm x)")"⟧', '1$ echo ⟦"$(rm x)"⟧', "2$ rm x"],
    ),
    "substitution of a subshell": (
        "echo $( (rm x) )",
        ["0 echo ⟦$( (rm x) )⟧", "1$ (subshell) rm x"],
    ),
    "backticks": ("echo `rm x`", ["0 echo ⟦`rm x`⟧", "1$ rm x"]),
    "backticks in quotes": ('echo "`rm x`"', ['0 echo ⟦"`rm x`"⟧', "1$ rm x"]),
    "substitution in an assignment": ("A=$(rm x) ls", ["0 A=⟦$(rm x)⟧ ls", "1$ rm x"]),
    "substitution in an array": ("a=(1 $(rm x))", ["0 a=⟦(1 $(rm x))⟧", "1$ rm x"]),
    "substitution in a target": ('ls > "a$(rm x)"', ['0 ls >! ⟦"a$(rm x)"⟧', "1$ rm x"]),
    "substitution in a default": ("echo ${x:-$(rm y)}", ["0 echo ⟦${x:-$(rm y)}⟧", "1$ rm y"]),
    "substitution in a quoted default": (
        'echo "${x:-$(rm y)}"',
        ['0 echo ⟦"${x:-$(rm y)}"⟧', "1$ rm y"],
    ),
    "substitution in a replacement": (
        "echo ${x/a/$(rm y)}",
        ["0 echo ⟦${x/a/$(rm y)}⟧", "1$ rm y"],
    ),
    "substitution in a here-string": ("cat <<< $(rm x)", ["0 cat <<< ⟦$(rm x)⟧", "1$ rm x"]),
    "substitution in a here-document": (
        "cat <<E\n$(rm x)\nE",
        ["0 cat << ⟦$(rm x)\n⟧", "1$ rm x"],
    ),
    "substitution in a loop": (
        "for x in $(rm y); do ls; done",
        ["0 (for) x=⟦$(rm y)⟧", "1$ (for) rm y", "2 (for) ls"],
    ),
    "substitution in a case": (
        "case $(a) in $(b)) c;; esac",
        ["0$ (case) a", "1$ (case) b", "2 (case) c"],
    ),
    "substitution in a test": ("[[ -n $(rm x) ]]", ["0 '[[' -n ⟦$(rm x)⟧ ']]'", "1$ rm x"]),
    "input substitution": ("cat <(rm x)", ["0 cat ⟦<(rm x)⟧", "1$ rm x"]),
    "output substitution": ("cat x >(rm y)", ["0 cat x ⟦>(rm y)⟧", "0|$ rm y"]),
    "subshell": ("(rm x)", ["0 (subshell) rm x"]),
    "subshells": ("( (rm x) )", ["0 (subshell) (subshell) rm x"]),
    "group": ("{ rm x; }", ["0 (group) rm x"]),
    "negation": ("! rm x", ["0 rm x"]),
    "if": (
        "if a; then b; elif c; then d; else e; fi",
        ["0 (if) a", "1 (if) b", "2 (if) c", "3 (if) d", "4 (if) e"],
    ),
    "while": ("while a; do b; done", ["0 (while) a", "1 (while) b"]),
    "until": ("until a; do b; done", ["0 (until) a", "1 (until) b"]),
    "for sets a variable": (
        "for PATH in /evil; do ls; done",
        ["0 (for) PATH=/evil", "1 (for) ls"],
    ),
    "for over the arguments": ("for x; do ls; done", ["0 (for) x=⟦⟧", "1 (for) ls"]),
    "case": ("case x in a|b) c;; (*) d;& e) f; esac", ["0 (case) c", "1 (case) d", "2 (case) f"]),
    "redirected construct": ("if a; then b; fi > x", ["0 (if) a", "1 (if) b", "2 (if) >! x"]),
    "construct that is fed": ("{ sh; } < x", ["0| (group) sh", "1 (group) < x"]),
    "construct fed by a document": ("{ sh; } <<E\nx\nE", ["0| (group) sh", "1 (group) << 'x\n'"]),
    "construct in a pipe": (
        "curl x | (cat; sh)",
        ["0 curl x", "0| (subshell) cat", "0| (subshell) sh"],
    ),
    "construct into a pipe": (
        "(curl x; ls) | sh",
        ["0 (subshell) curl x", "0 (subshell) ls", "0| sh"],
    ),
    "substitution in a pipe": ("curl x | echo $(sh)", ["0 curl x", "0| echo ⟦$(sh)⟧", "0|$ sh"]),
    "pipe into a substitution": ("curl x > >(sh)", ["0 curl x >! ⟦>(sh)⟧", "0|$ sh"]),
    "here-document": ("cat <<E | sh\nrm x\nE\nls", ["0 cat << 'rm x\n'", "0| sh", "1 ls"]),
    "here-document before and": ("cat <<E && rm x\nE\nls", ["0 cat << ''", "1 rm x", "2 ls"]),
    "literal here-document": ("cat <<\\E\n$(rm x)\nE", ["0 cat << '$(rm x)\n'"]),
    "indented here-document": ("cat <<-E\n\t\tx\n\ty\n\tE\nls", ["0 cat <<- 'x\ny\n'", "1 ls"]),
    "here-document with escapes": ('cat <<E\na \\$x "q" \\b\nE', ["0 cat << 'a $x \"q\" \\b\n'"]),
    "here-document after a dash": ("sh - <<E\nx\nE", ["0 sh - << 'x\n'"]),
    "here-string": ("sh <<< 'rm x'", ["0 sh <<< 'rm x'"]),
    "output": ("ls > x", ["0 ls >! x"]),
    "appended output": ("ls >> x", ["0 ls >>! x"]),
    "forced output": ("ls >| x", ["0 ls >|! x"]),
    "both outputs": ("ls &> x", ["0 ls &>! x"]),
    "both outputs appended": ("ls &>> x", ["0 ls &>>! x"]),
    "both outputs, old form": ("ls >& x", ["0 ls >&! x"]),
    "duplicated output": ("ls >&2 2>&1", ["0 ls >& 2 2>& 1"]),
    "closed output": ("ls >&- 2>&-", ["0 ls >& - 2>& -"]),
    "input": ("ls < x 3< y <&3-", ["0 ls < x 3< y <& 3-"]),
    "redirection in front": (">x ls -l", ["0 ls -l >! x"]),
    "redirection in the middle": ("ls >x -l", ["0 ls -l >! x"]),
    "only a redirection": ("> x", ["0 >! x"]),
    "word before a redirection": ("echo a2>x", ["0 echo a2 >! x"]),
    "quoted descriptor": ('echo "2">x', ["0 echo 2 >! x"]),
    "assignment prefixes": (
        "PATH=/evil LD_PRELOAD='a b' ls",
        ["0 PATH=/evil LD_PRELOAD='a b' ls"],
    ),
    "bare assignment": ("IFS=", ["0 IFS=''"]),
    "appending assignment": ("PATH+=:x ls", ["0 PATH=⟦:x⟧ ls"]),
    "assignment behind a redirection": (">x A=1 ls", ["0 A=1 ls >! x"]),
    "no assignment": ("ls A=1", ["0 ls A=1"]),
    "no assignment by its name": ("a-b=c ls", ["0 a-b=c ls"]),
    "exported assignment": ("export PATH=/evil", ["0 export PATH=/evil"]),
    "env -S": ("env -S 'rm x'", ["0 env -S 'rm x'"]),
    "reserved words as words": ("echo if then } done", ["0 echo if then '}' done"]),
    "quoted reserved word": ('"if" x; i\\f y', ["0 if x", "1 if y"]),
    "tests": ("[ -f a ] && [[ -f b ]]", ["0 '[' -f a ']'", "1 '[[' -f b ']]'"]),
    "test with groups": (
        "[[ ! ( $a < b || c > d ) && e == *f ]]",
        ["0 '[[' '!' '(' ⟦$a⟧ '<' b '||' c '>' d ')' '&&' e == ⟪'*f'⟫ ']]'"],
    ),
    "test over several lines": (
        "[[ -f a &&\n -f b ]]",
        ["0 '[[' -f a '&&' -f b ']]'"],
    ),
    "redirected test": ("[[ -f a ]] > x", ["0 '[[' -f a ']]' >! x"]),
}


@pytest.mark.parametrize(("text", "expected"), READ.values(), ids=READ.keys())
def test_every_simple_command_is_found(text: str, expected: list[str]) -> None:
    assert sketches(text) == expected


# What developers type and agents run.
EVERYDAY = {
    'ls': ['0 ls'],
    'ls -la src tests': ['0 ls -la src tests'],
    'cat README.md | head -20': ['0 cat README.md', '0| head -20'],
    'rg -n "def main" src --glob \'*.py\'': ["0 rg -n 'def main' src --glob '*.py'"],
    "grep -rn 'TODO' . --include=*.py | wc -l": [
        "0 grep -rn TODO . ⟪'--include=*.py'⟫",
        '0| wc -l',
    ],
    'git status --short': ['0 git status --short'],
    'git log --oneline -n 20': ['0 git log --oneline -n 20'],
    'git log --pretty=format:\'%h %an %s\' --since="2 weeks ago" | head': [
        "0 git log '--pretty=format:%h %an %s' '--since=2 weeks ago'",
        '0| head',
    ],
    'git diff HEAD~1 -- src/': ["0 git diff 'HEAD~1' -- src/"],
    'git show HEAD:README.md': ['0 git show HEAD:README.md'],
    'git show HEAD@{1}': ["0 git show 'HEAD@{1}'"],
    'git diff --stat main...HEAD': ['0 git diff --stat main...HEAD'],
    'git blame -L 10,20 src/a.py': ['0 git blame -L 10,20 src/a.py'],
    'git commit -m "fix: don\'t crash (issue #4)"': [
        '0 git commit -m \'fix: don\'"\'"\'t crash (issue #4)\'',
    ],
    "git commit -am 'x; y && z'": ["0 git commit -am 'x; y && z'"],
    "git branch -a | grep -v '^\\*' | xargs -n1 git log -1": [
        '0 git branch -a',
        "0| grep -v '^\\*'",
        '0| xargs -n1 git log -1',
    ],
    "find . -name '*.py' -not -path './.venv/*' | xargs wc -l | sort -n | tail -5": [
        "0 find . -name '*.py' -not -path './.venv/*'",
        '0| xargs wc -l',
        '0| sort -n',
        '0| tail -5',
    ],
    'find . -type f -name "*.md" -print0 | xargs -0 grep -l foo': [
        "0 find . -type f -name '*.md' -print0",
        '0| xargs -0 grep -l foo',
    ],
    'find src -name "*.pyc" -exec ls -l {} \\;': [
        "0 find src -name '*.pyc' -exec ls -l '{}' ';'",
    ],
    'find src -name "*.pyc" -exec ls -l {} +': ["0 find src -name '*.pyc' -exec ls -l '{}' +"],
    'find . \\( -name a -o -name b \\) -print': ["0 find . '(' -name a -o -name b ')' -print"],
    "sed -n '10,20p' src/a.py": ['0 sed -n 10,20p src/a.py'],
    'sed -n \'s/^version = "\\(.*\\)"$/\\1/p\' pyproject.toml': [
        '0 sed -n \'s/^version = "\\(.*\\)"$/\\1/p\' pyproject.toml',
    ],
    "sed -i 's/foo/bar/g' file.txt": ['0 sed -i s/foo/bar/g file.txt'],
    "awk '{print $1, $NF}' file | sort | uniq -c | sort -rn": [
        "0 awk '{print $1, $NF}' file",
        '0| sort',
        '0| uniq -c',
        '0| sort -rn',
    ],
    "awk -F: '$3 >= 1000 {print $1}' /etc/passwd": [
        "0 awk -F: '$3 >= 1000 {print $1}' /etc/passwd",
    ],
    "jq '.dependencies | keys[]' package.json": ["0 jq '.dependencies | keys[]' package.json"],
    'jq -r \'.[] | select(.a == "b") | .c\' x.json': [
        '0 jq -r \'.[] | select(.a == "b") | .c\' x.json',
    ],
    'curl -s https://example.com/api | jq .': ['0 curl -s https://example.com/api', '0| jq .'],
    "python -c 'import sys; print(sys.version)'": [
        "0 python -c 'import sys; print(sys.version)'",
    ],
    "python3 -m pytest -q tests/unit -k 'not slow' 2>&1 | tail -20": [
        "0 python3 -m pytest -q tests/unit -k 'not slow' 2>& 1",
        '0| tail -20',
    ],
    "python3 - <<'EOF'\nimport os\nprint(os.getcwd())\nEOF": [
        "0 python3 - << 'import os\nprint(os.getcwd())\n'",
    ],
    'cat > out.txt <<EOF\nhello\nworld\nEOF': ["0 cat >! out.txt << 'hello\nworld\n'"],
    'cat <<\'EOF\' > a.py\nx = {"a": 1}\nprint(f"{x[\'a\']}")\nEOF': [
        '0 cat << \'x = {"a": 1}\nprint(f"{x[\'"\'"\'a\'"\'"\']}")\n\' >! a.py',
    ],
    'cat <<EOF | tee a.txt\nhi $USER\nEOF': ['0 cat << ⟦hi $USER\n⟧', '0| tee a.txt'],
    'for f in *.py; do echo "$f"; wc -l "$f"; done': [
        "0 (for) f=⟪'*.py'⟫",
        '1 (for) echo ⟦"$f"⟧',
        '2 (for) wc -l ⟦"$f"⟧',
    ],
    'for i in 1 2 3; do echo $i; done': ['0 (for) i=1 i=2 i=3', '1 (for) echo ⟦$i⟧'],
    'for i in $(seq 1 5); do echo "n=$i"; done': [
        '0 (for) i=⟦$(seq 1 5)⟧',
        '1$ (for) seq 1 5',
        '2 (for) echo ⟦"n=$i"⟧',
    ],
    'for d in */; do (cd "$d" && git status -s); done': [
        "0 (for) d=⟪'*/'⟫",
        '1 (for) (subshell) cd ⟦"$d"⟧',
        '2 (for) (subshell) git status -s',
    ],
    'while read -r line; do echo "$line"; done < file.txt': [
        '0| (while) read -r line',
        '1| (while) echo ⟦"$line"⟧',
        '2 (while) < file.txt',
    ],
    "ps aux | grep python | grep -v grep | awk '{print $2}'": [
        '0 ps aux',
        '0| grep python',
        '0| grep -v grep',
        "0| awk '{print $2}'",
    ],
    'if [ -f setup.py ]; then echo yes; else echo no; fi': [
        "0 (if) '[' -f setup.py ']'",
        '1 (if) echo yes',
        '2 (if) echo no',
    ],
    'if [[ -f a && -f b ]]; then echo both; fi': [
        "0 (if) '[[' -f a '&&' -f b ']]'",
        '1 (if) echo both',
    ],
    'if ! grep -q foo file; then echo none; fi': ['0 (if) grep -q foo file', '1 (if) echo none'],
    '[ -d build ] && ls build || echo "no build"': [
        "0 '[' -d build ']'",
        '1 ls build',
        "2 echo 'no build'",
    ],
    'cd src && ls': ['0 cd src', '1 ls'],
    'cd "$(git rev-parse --show-toplevel)" && make test': [
        '0 cd ⟦"$(git rev-parse --show-toplevel)"⟧',
        '1$ git rev-parse --show-toplevel',
        '2 make test',
    ],
    'make -j4 test 2>&1 | tee build.log': ['0 make -j4 test 2>& 1', '0| tee build.log'],
    'npm install && npm run build': ['0 npm install', '1 npm run build'],
    'export FOO=bar; echo $FOO': ['0 export FOO=bar', '1 echo ⟦$FOO⟧'],
    'FOO=bar BAZ="a b" env | sort': ["0 FOO=bar BAZ='a b' env", '0| sort'],
    'PYTHONPATH=src python -m foo --bar=1': ['0 PYTHONPATH=src python -m foo --bar=1'],
    'echo "hello" > a.txt': ['0 echo hello >! a.txt'],
    'command -v rg >/dev/null 2>&1 && echo found': [
        '0 command -v rg >! /dev/null 2>& 1',
        '1 echo found',
    ],
    'ls *.py 2>/dev/null | head': ["0 ls ⟪'*.py'⟫ 2>! /dev/null", '0| head'],
    'tail -n +5 file | cut -d, -f1,3 | tr a-z A-Z': [
        '0 tail -n +5 file',
        '0| cut -d, -f1,3',
        '0| tr a-z A-Z',
    ],
    'diff <(sort a) <(sort b)': ['0 diff ⟦<(sort a)⟧ ⟦<(sort b)⟧', '1$ sort a', '2$ sort b'],
    "wc -l $(git ls-files '*.py')": [
        "0 wc -l ⟦$(git ls-files '*.py')⟧",
        "1$ git ls-files '*.py'",
    ],
    'echo ${HOME} ${x:-default} ${f%.py} ${f##*/}': [
        '0 echo ⟦${HOME}⟧ ⟦${x:-default}⟧ ⟦${f%.py}⟧ ⟦${f##*/}⟧',
    ],
    'x=$(date +%Y); echo "$x"': ['0 x=⟦$(date +%Y)⟧', '1$ date +%Y', '2 echo ⟦"$x"⟧'],
    'files=$(ls); echo $files': ['0 files=⟦$(ls)⟧', '1$ ls', '2 echo ⟦$files⟧'],
    'tar czf - src | wc -c': ['0 tar czf - src', '0| wc -c'],
    'du -sh * | sort -h': ["0 du -sh ⟪'*'⟫", '0| sort -h'],
    "printf '%s\\n' a b c": ["0 printf '%s\\n' a b c"],
    'printf "%-10s|%5d\\n" foo 3': ["0 printf '%-10s|%5d\\n' foo 3"],
    'echo $((1+2))': ['0 echo ⟦$((1+2))⟧'],
    'i=0; while [ $i -lt 3 ]; do echo $i; i=$((i+1)); done': [
        '0 i=0',
        "1 (while) '[' ⟦$i⟧ -lt 3 ']'",
        '2 (while) echo ⟦$i⟧',
        '3 (while) i=⟦$((i+1))⟧',
    ],
    'mkdir -p a/b/{c,d}': ["0 mkdir -p ⟪'a/b/{c,d}'⟫"],
    'cp a.txt{,.bak}': ["0 cp ⟪'a.txt{,.bak}'⟫"],
    'mv "my file.txt" other\\ file.txt': ["0 mv 'my file.txt' 'other file.txt'"],
    'rm -rf build/ dist/ *.egg-info': ["0 rm -rf build/ dist/ ⟪'*.egg-info'⟫"],
    'true && false || true': ['0 true', '1 false', '2 true'],
    'sleep 1 & wait': ['0& sleep 1', '1 wait'],
    '(cd a && ls) ; ls': ['0 (subshell) cd a', '1 (subshell) ls', '2 ls'],
    '{ echo a; echo b; } | sort': ['0 (group) echo a', '0 (group) echo b', '0| sort'],
    "xargs -I{} sh -c 'echo {}' < list": ["0 xargs '-I{}' sh -c 'echo {}' < list"],
    "rg --files | rg '\\.py$' | head": ['0 rg --files', "0| rg '\\.py$'", '0| head'],
    "rg 'foo\\(' -t py -A 3": ["0 rg 'foo\\(' -t py -A 3"],
    'rg "TODO|FIXME" -g \'!node_modules\'': ["0 rg 'TODO|FIXME' -g '!node_modules'"],
    "ls -l | awk 'NR>1 {s+=$5} END {print s}'": [
        '0 ls -l',
        "0| awk 'NR>1 {s+=$5} END {print s}'",
    ],
    'git log --graph --all --oneline --decorate': [
        '0 git log --graph --all --oneline --decorate',
    ],
    "git diff --name-only | grep -E '\\.(py|md)$'": [
        '0 git diff --name-only',
        "0| grep -E '\\.(py|md)$'",
    ],
    'cat a.txt | while read l; do echo $l; done': [
        '0 cat a.txt',
        '0| (while) read l',
        '0| (while) echo ⟦$l⟧',
    ],
    'case "$1" in start) echo s;; stop|halt) echo t;; *) echo u;; esac': [
        '0 (case) echo s',
        '1 (case) echo t',
        '2 (case) echo u',
    ],
    'set -euo pipefail; ls': ['0 set -euo pipefail', '1 ls'],
    'set -e\ncd src\nls': ['0 set -e', '1 cd src', '2 ls'],
    'echo "a\\\\b \\$x \\"q\\""': ['0 echo \'a\\b $x "q"\''],
    "echo it\\'s": ['0 echo \'it\'"\'"\'s\''],
    "echo 'it'\\''s'": ['0 echo \'it\'"\'"\'s\''],
    'echo "$(ls | wc -l) files"': ['0 echo ⟦"$(ls | wc -l) files"⟧', '1$ ls', '1|$ wc -l'],
    'echo `date`': ['0 echo ⟦`date`⟧', '1$ date'],
    "sed -e 's/a/b/' -e '/x/d' f | head -n 3": ['0 sed -e s/a/b/ -e /x/d f', '0| head -n 3'],
    'grep -E "^(def|class) " src/a.py': ["0 grep -E '^(def|class) ' src/a.py"],
    "cargo build --release 2>&1 | grep -E 'error|warning' | head -50": [
        '0 cargo build --release 2>& 1',
        "0| grep -E 'error|warning'",
        '0| head -50',
    ],
    'ls -la; echo "---"; cat package.json | head': [
        '0 ls -la',
        '1 echo ---',
        '2 cat package.json',
        '2| head',
    ],
    'node -e "console.log(require(\'./package.json\').version)"': [
        '0 node -e \'console.log(require(\'"\'"\'./package.json\'"\'"\').version)\'',
    ],
    'nohup python x.py > log 2>&1 &': ['0& nohup python x.py >! log 2>& 1'],
    'cat file.txt 1>&2': ['0 cat file.txt 1>& 2'],
    'cmd >/dev/null 2>&1': ['0 cmd >! /dev/null 2>& 1'],
    'cmd &> all.log': ['0 cmd &>! all.log'],
    'cmd 2>&1 | less': ['0 cmd 2>& 1', '0| less'],
    'grep foo <<< "$bar"': ['0 grep foo <<< ⟦"$bar"⟧'],
    'read -r a b <<< "1 2"': ["0 read -r a b <<< '1 2'"],
    '[[ "$x" =~ ^[0-9]+$ ]] && echo num': [
        '0 \'[[\' ⟦"$x"⟧ \'=~\' ⟪\'^[0-9]+$\'⟫ \']]\'',
        '1 echo num',
    ],
    '[[ $x == *.py ]] && echo py': ["0 '[[' ⟦$x⟧ == ⟪'*.py'⟫ ']]'", '1 echo py'],
    '[ "$a" = "b" ] || [ "$a" != c ]': [
        '0 \'[\' ⟦"$a"⟧ = b \']\'',
        '1 \'[\' ⟦"$a"⟧ \'!=\' c \']\'',
    ],
    '[ -z "$x" -o -n "$y" ]': ['0 \'[\' -z ⟦"$x"⟧ -o -n ⟦"$y"⟧ \']\''],
    'test "$(id -u)" -eq 0': ['0 test ⟦"$(id -u)"⟧ -eq 0', '1$ id -u'],
    'echo "${arr[@]}" ${#arr[@]}': ['0 echo ⟦"${arr[@]}"⟧ ⟦${#arr[@]}⟧'],
    'arr=(a b "c d"); echo "${arr[1]}"': ['0 arr=⟦(a b "c d")⟧', '1 echo ⟦"${arr[1]}"⟧'],
    'echo "$@" $# $? $$ $!': ['0 echo ⟦"$@"⟧ ⟦$#⟧ ⟦$?⟧ ⟦$$⟧ ⟦$!⟧'],
    "ls | grep -v '^#' # list": ['0 ls', "0| grep -v '^#'"],
    '# just a comment': [],
    'ls # a comment; rm -rf /': ['0 ls'],
    'ls \\\n  -l \\\n  src': ['0 ls -l src'],
    'git log \\\n  --oneline | \\\n  head': ['0 git log --oneline', '0| head'],
    'ls &&\n  pwd': ['0 ls', '1 pwd'],
    'ls |\n  wc -l': ['0 ls', '0| wc -l'],
    'awk \'BEGIN { while ((getline line < "f") > 0) print line }\'': [
        '0 awk \'BEGIN { while ((getline line < "f") > 0) print line }\'',
    ],
    'echo a{1..3} {a,b}c': ["0 echo ⟪'a{1..3}'⟫ ⟪'{a,b}c'⟫"],
    'ls [a-z]*.py ?.txt': ["0 ls ⟪'[a-z]*.py'⟫ ⟪'?.txt'⟫"],
    'ls ~ ~/src': ["0 ls ⟪'~'⟫ ⟪'~/src'⟫"],
    'echo {} {a} a}': ["0 echo '{}' '{a}' 'a}'"],
    'echo a#b c##d': ["0 echo 'a#b' 'c##d'"],
    'echo foo=bar --opt=val': ['0 echo foo=bar --opt=val'],
    'git config user.name "A B"': ["0 git config user.name 'A B'"],
    'git show --stat HEAD^ HEAD~2 HEAD^{tree}': [
        "0 git show --stat 'HEAD^' 'HEAD~2' 'HEAD^{tree}'",
    ],
    'IFS=, read -r a b c < f': ['0 IFS=, read -r a b c < f'],
    'if grep -q x f; then echo 1; elif grep -q y f; then echo 2; fi': [
        '0 (if) grep -q x f',
        '1 (if) echo 1',
        '2 (if) grep -q y f',
        '3 (if) echo 2',
    ],
    'until curl -sf localhost:8080; do sleep 1; done': [
        '0 (until) curl -sf localhost:8080',
        '1 (until) sleep 1',
    ],
    '! grep foo bar': ['0 grep foo bar'],
    "ls -1 | sed 's/^/  - /'": ['0 ls -1', "0| sed 's/^/  - /'"],
    'grep -o \'"[^"]*"\' f | tr -d \'"\'': ['0 grep -o \'"[^"]*"\' f', '0| tr -d \'"\''],
    'cat f | python3 -c "import json,sys; print(json.load(sys.stdin)[\'a\'])"': [
        '0 cat f',
        '0| python3 -c \'import json,sys; print(json.load(sys.stdin)[\'"\'"\'a\'"\'"\'])\'',
    ],
    'grep -rn "foo" --include="*.{js,ts}" src | head -50': [
        "0 grep -rn foo '--include=*.{js,ts}' src",
        '0| head -50',
    ],
    'echo "Exit: $?"': ['0 echo ⟦"Exit: $?"⟧'],
    'ls nonexist || { echo failed; exit 1; }': [
        '0 ls nonexist',
        '1 (group) echo failed',
        '2 (group) exit 1',
    ],
    'unset FOO': ['0 unset FOO'],
    'echo é "日本語" ✓': ["0 echo 'é' '日本語' '✓'"],
    "tree -L 2 -I 'node_modules|.git'": ["0 tree -L 2 -I 'node_modules|.git'"],
    "grep -P '\\t' file": ["0 grep -P '\\t' file"],
    "grep 'x$' f; grep x$ f": ["0 grep 'x$' f", "1 grep 'x$' f"],
    'ls -d .*/ | cut -c3-': ["0 ls -d ⟪'.*/'⟫", '0| cut -c3-'],
    'git commit -m "$(cat <<\'EOF\'\nfeat: x\n\nIt\'s `y` $z.\nEOF\n)"': [
        '0 git commit -m ⟦"$(cat <<\'EOF\'\nfeat: x\n\nIt\'s `y` $z.\nEOF\n)"⟧',
        '1$ cat << \'feat: x\n\nIt\'"\'"\'s `y` $z.\n\'',
    ],
    'echo "$x $y"': ['0 echo ⟦"$x $y"⟧'],
    'echo " $(x) ${y}  $((1))"': ['0 echo ⟦" $(x) ${y}  $((1))"⟧', '1$ x'],
    'cat <<EOF\n  $x $(y)  ${z}\n  $HOME\nEOF': ['0 cat << ⟦  $x $(y)  ${z}\n  $HOME\n⟧', '1$ y'],
    'cat > Dockerfile <<EOF\nFROM $BASE\nRUN pip install -r x\n$EXTRA\nEOF': [
        '0 cat >! Dockerfile << ⟦FROM $BASE\nRUN pip install -r x\n$EXTRA\n⟧',
    ],
    'git log --format="%H %s" "$a" "$b $c"': ['0 git log \'--format=%H %s\' ⟦"$a"⟧ ⟦"$b $c"⟧'],
    'echo "Done: $n of $m files ($p%)"': ['0 echo ⟦"Done: $n of $m files ($p%)"⟧'],
    'for f in $(git ls-files | grep py); do if ! head -1 "$f" | grep -q x; then ls; fi; done': [
        "0 (for) f=⟦$(git ls-files | grep py)⟧",
        '1$ (for) git ls-files',
        '1|$ (for) grep py',
        '2 (for) (if) head -1 ⟦"$f"⟧',
        '2| (for) (if) grep -q x',
        '3 (for) (if) ls',
    ],
    'find . -name \'*.ts\' | while read -r f; do grep -c import "$f"; done | paste -sd+ | bc': [
        "0 find . -name '*.ts'",
        '0| (while) read -r f',
        '0| (while) grep -c import ⟦"$f"⟧',
        '0| paste -sd+',
        '0| bc',
    ],
    "rg -l foo | xargs -I {} sed -n '1,3p' {}": [
        '0 rg -l foo',
        "0| xargs -I '{}' sed -n 1,3p '{}'",
    ],
    "awk '/^## /{p=0} /^## Foo/{p=1} p' README.md": [
        "0 awk '/^## /{p=0} /^## Foo/{p=1} p' README.md",
    ],
    'grep -n "^\\s*def " a.py | sed \'s/(.*//\' | awk -F: \'{print $1": "$2}\'': [
        "0 grep -n '^\\s*def ' a.py",
        "0| sed 's/(.*//'",
        '0| awk -F: \'{print $1": "$2}\'',
    ],
    'diff <(git show HEAD:a.py) a.py || true': [
        '0 diff ⟦<(git show HEAD:a.py)⟧ a.py',
        '1$ git show HEAD:a.py',
        '2 true',
    ],
    'git log -1 --format=%cd --date=short -- "src/a b.py"': [
        "0 git log -1 --format=%cd --date=short -- 'src/a b.py'",
    ],
    '[ -n "$(git status --porcelain)" ] && echo dirty': [
        '0 \'[\' -n ⟦"$(git status --porcelain)"⟧ \']\'',
        '1$ git status --porcelain',
        '2 echo dirty',
    ],
    'if [ "$(uname)" = "Darwin" ]; then echo mac; fi': [
        '0 (if) \'[\' ⟦"$(uname)"⟧ = Darwin \']\'',
        '1$ (if) uname',
        '2 (if) echo mac',
    ],
    "test -x ./run && ./run --help 2>&1 | sed -n '1,5p'": [
        '0 test -x ./run',
        '1 ./run --help 2>& 1',
        '1| sed -n 1,5p',
    ],
    '(cd sub && git log -1) 2>/dev/null': [
        '0 (subshell) cd sub',
        '1 (subshell) git log -1',
        '2 (subshell) 2>! /dev/null',
    ],
    'git grep -nE "foo|bar" -- \'*.py\' \':!tests\'': [
        "0 git grep -nE 'foo|bar' -- '*.py' ':!tests'",
    ],
    "git diff --unified=0 | grep '^[+-]' | grep -v '^\\(+++\\|---\\)'": [
        '0 git diff --unified=0',
        "0| grep '^[+-]'",
        "0| grep -v '^\\(+++\\|---\\)'",
    ],
    "tr '[:upper:]' '[:lower:]' < a | sort -u": [
        "0 tr '[:upper:]' '[:lower:]' < a",
        '0| sort -u',
    ],
    'comm -13 <(sort a) <(sort b)': [
        '0 comm -13 ⟦<(sort a)⟧ ⟦<(sort b)⟧',
        '1$ sort a',
        '2$ sort b',
    ],
    'python -m json.tool < f.json': ['0 python -m json.tool < f.json'],
    'ls -lt | head -n 5; date; pwd': ['0 ls -lt', '0| head -n 5', '1 date', '2 pwd'],
    "cat a.py | sed -e 's/#.*$//' -e '/^$/d' | wc -l": [
        '0 cat a.py',
        "0| sed -e 's/#.*$//' -e '/^$/d'",
        '0| wc -l',
    ],
    "find . -newer a -type f ! -name '*.o' -size +1M -print": [
        "0 find . -newer a -type f '!' -name '*.o' -size +1M -print",
    ],
    'git rev-parse --abbrev-ref HEAD': ['0 git rev-parse --abbrev-ref HEAD'],
    "git for-each-ref --sort=-committerdate refs/heads --format='%(refname:short)'": [
        "0 git for-each-ref --sort=-committerdate refs/heads '--format=%(refname:short)'",
    ],
    "git log --author='^A. B' --no-merges --stat -- . ':(exclude)vendor'": [
        "0 git log '--author=^A. B' --no-merges --stat -- . ':(exclude)vendor'",
    ],
    'seq 1 3 | xargs -n 1 -P 2 echo': ['0 seq 1 3', '0| xargs -n 1 -P 2 echo'],
    '[ $# -eq 0 ] && echo none': ["0 '[' ⟦$#⟧ -eq 0 ']'", '1 echo none'],
    'export PATH="$PATH:$HOME/bin"': ['0 export ⟦PATH="$PATH:$HOME/bin"⟧'],
    'mkdir -p out && cp -r src/* out/': ['0 mkdir -p out', "1 cp -r ⟪'src/*'⟫ out/"],
    'while :; do date; sleep 1; done': ['0 (while) :', '1 (while) date', '2 (while) sleep 1'],
    'for i in {1..3}; do echo $i $((i*2)); done': [
        "0 (for) i=⟪'{1..3}'⟫",
        '1 (for) echo ⟦$i⟧ ⟦$((i*2))⟧',
    ],
    'kill -9 $(pgrep -f foo)': ['0 kill -9 ⟦$(pgrep -f foo)⟧', '1$ pgrep -f foo'],
    'echo "a" | tee -a f > /dev/null': ['0 echo a', '0| tee -a f >! /dev/null'],
    'cd /tmp && ls -la && cd -': ['0 cd /tmp', '1 ls -la', '2 cd -'],
    'ls -l \'file with spaces\' "other one" third\\ one': [
        "0 ls -l 'file with spaces' 'other one' 'third one'",
    ],
    'git commit -m "feat(x): add y" -m "Closes #12"': [
        "0 git commit -m 'feat(x): add y' -m 'Closes #12'",
    ],
    'docker run --rm -v "$PWD":/w -w /w node:20 npm ci': [
        '0 docker run --rm -v ⟦"$PWD":/w⟧ -w /w node:20 npm ci',
    ],
    'pytest -k "a and not b" --maxfail=1 -p no:warnings': [
        "0 pytest -k 'a and not b' --maxfail=1 -p no:warnings",
    ],
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), EVERYDAY.items())
def test_an_everyday_command_is_read(text: str, expected: list[str]) -> None:
    assert sketches(text) == expected
