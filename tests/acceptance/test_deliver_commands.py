"""The commands of delivery, through the real executable."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from coilclaw import __version__
from tests.support.children import PATIENCE_S
from tests.support.command import Command
from tests.support.trees import make, picture

ANSWER = b"^^^new/a.txt\nnew\n^^^end\n^^^b.txt\nB\n^^^end\n^^^c.txt\n^^^delete\n"


@pytest.fixture
def coilclaw(tmp_path: Path) -> Command:
    return Command(tmp_path / "home")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make(tmp_path / "tree", {"b.txt": b"b\n", "c.txt": b"c\n"})


def test_version_and_help(coilclaw: Command) -> None:
    assert coilclaw("--version").stdout.decode() == f"coilclaw {__version__}\n"
    assert b"apply" in coilclaw("--help").stdout
    nothing = coilclaw()
    assert (nothing.returncode, nothing.stdout) == (2, b"")
    assert coilclaw("nonsense").returncode == 2
    assert coilclaw("apply", "--nonsense").returncode == 2


def test_apply_from_standard_input_shows_the_diff_and_can_be_undone(
    coilclaw: Command, tree: Path
) -> None:
    before = picture(tree)
    done = coilclaw("apply", "--root", str(tree), stdin=ANSWER)
    assert done.returncode == 0, done.stderr
    assert b"+new\n" in done.stdout
    assert b"-c\n" in done.stdout
    assert b"\x1b" not in done.stdout + done.stderr
    assert b"applied " in done.stderr
    assert (tree / "new" / "a.txt").read_bytes() == b"new\n"
    assert not (tree / "c.txt").exists()
    undone = coilclaw("undo", "--root", str(tree))
    assert undone.returncode == 0, undone.stderr
    assert picture(tree) == before


def test_the_current_directory_is_the_default_root(coilclaw: Command, tree: Path) -> None:
    assert coilclaw("apply", "-", stdin=ANSWER, cwd=tree).returncode == 0
    assert coilclaw("undo", cwd=tree).returncode == 0


def test_the_commands_that_take_back_work_where_they_are_printed(
    coilclaw: Command, tree: Path
) -> None:
    tree = tree.rename(tree.with_name("my tree"))
    before = picture(tree)
    done = coilclaw("apply", "-", "--root", tree.name, stdin=ANSWER, cwd=tree.parent)
    after = picture(tree)
    for wanted, label in ((before, "revert it with: "), (after, "restore it with: ")):
        said = done.stderr.decode().split(label)[1]
        program, *arguments = shlex.split(said)
        assert program == "coilclaw"
        done = coilclaw(*arguments, cwd=tree.parent)
        assert done.returncode == 0, done.stderr
        assert picture(tree) == wanted


def test_a_dry_run_shows_and_changes_nothing(coilclaw: Command, tree: Path) -> None:
    before = picture(tree)
    done = coilclaw("apply", "--dry-run", "--root", str(tree), stdin=ANSWER)
    assert done.returncode == 0
    assert b"+new\n" in done.stdout
    assert b"would change 3 files" in done.stderr
    assert picture(tree) == before
    assert coilclaw("undo", "--root", str(tree)).returncode == 2


def test_json_is_for_machines(coilclaw: Command, tree: Path) -> None:
    done = json.loads(coilclaw("apply", "--json", "--root", str(tree), stdin=ANSWER).stdout)
    assert done["outcome"] == "applied"
    assert [(file["path"], file["action"]) for file in done["files"]] == [
        ("b.txt", "modify"),
        ("c.txt", "delete"),
        ("new/a.txt", "create"),
    ]
    listed = json.loads(coilclaw("changes", "list", "--json", "--root", str(tree)).stdout)
    assert [entry["id"] for entry in listed] == [done["change"]]
    shown = json.loads(
        coilclaw("changes", "show", done["change"], "--json", "--root", str(tree)).stdout
    )
    assert shown["diff"] == done["diff"]
    undone = json.loads(coilclaw("undo", "--json", "--root", str(tree)).stdout)
    assert (undone["outcome"], undone["undoes"]) == ("undone", [done["change"]])


REFUSALS: dict[str, tuple[bytes, int, str, tuple[str, ...]]] = {
    "denied by policy": (b"^^^build.sh\nx\n^^^end\n", 3, "denied", ("--policy", "code-commit")),
    "refused by the model": (
        b"A patch cannot be safely generated with the information provided.\n",
        3,
        "refused",
        (),
    ),
    "no changes": (b"Hello.\n", 2, "no_changes", ()),
    "malformed": (b"^^^a\nx\n", 2, "error", ()),
    "traversal": (b"^^^../a\nx\n^^^end\n", 3, "error", ()),
    "overlap": (b"^^^a\nx\n^^^end\n^^^a\ny\n^^^end\n", 3, "error", ()),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_bad_input_gets_a_sentence_an_exit_code_and_an_untouched_tree(
    coilclaw: Command, tree: Path, case: str
) -> None:
    answer, code, outcome, flags = REFUSALS[case]
    before = picture(tree)
    plain = coilclaw("apply", "--root", str(tree), *flags, stdin=answer)
    assert (plain.returncode, plain.stdout) == (code, b"")
    assert plain.stderr.startswith(b"coilclaw: ")
    assert plain.stderr.splitlines()[0].endswith(b"]")
    machine = coilclaw("apply", "--json", "--root", str(tree), *flags, stdin=answer)
    assert machine.returncode == code
    assert json.loads(machine.stdout)["outcome"] == outcome
    assert picture(tree) == before


def test_wrong_usage_is_said_in_one_sentence(coilclaw: Command, tree: Path) -> None:
    for arguments in (
        ("apply", "missing.txt"),
        ("apply", str(tree)),
        ("apply", "--root", str(tree / "none")),
        ("apply", "--root", str(tree / "b.txt")),
        ("apply", "--policy", "none"),
        ("apply", "--protect", "../x"),
        ("undo", "nonsense", "--root", str(tree)),
        ("changes", "show", "nonsense", "--root", str(tree)),
        ("snapshot", "diff", "nonsense", "--root", str(tree)),
        ("snapshot", "restore", "nonsense", "--root", str(tree)),
    ):
        done = coilclaw(*arguments, stdin=b"^^^x\n^^^end\n")
        assert done.returncode == 2, (arguments, done.stderr)
        assert done.stderr.startswith(b"coilclaw: "), arguments
        assert b"Traceback" not in done.stderr


def test_a_relative_home_is_refused(tmp_path: Path) -> None:
    done = Command(tmp_path / "home", {"COILCLAW_HOME": "relative"})("changes", "list")
    assert done.returncode == 2
    assert b"not an absolute path" in done.stderr


def test_nothing_of_ours_stays_in_the_tree_and_the_home_is_private(
    coilclaw: Command, tree: Path
) -> None:
    coilclaw("apply", "--root", str(tree), stdin=ANSWER)
    assert sorted(picture(tree)) == ["b.txt", "new", "new/a.txt"]
    assert coilclaw.home.stat().st_mode & 0o077 == 0
    key = coilclaw.home / "keys" / "journal.key"
    assert key.stat().st_mode & 0o777 == 0o600


def test_our_state_inside_the_tree_is_protected(tmp_path: Path, tree: Path) -> None:
    inside = Command(tree / "odd [home]*")
    assert inside("apply", "--root", str(tree), stdin=ANSWER).returncode == 0
    evil = b"^^^odd [home]*/keys/journal.key\nx\n^^^end\n"
    done = inside("apply", "--root", str(tree), stdin=evil)
    assert done.returncode == 3
    assert b"[protected.state]" in done.stderr


def test_an_interrupted_apply_is_finished_by_any_next_command(
    coilclaw: Command, tree: Path
) -> None:
    script = (
        "import os, sys\n"
        "rename = os.rename\n"
        "def dying(*args, **kwargs):\n"
        "    rename(*args, **kwargs)\n"
        "    os._exit(9)\n"
        "os.rename = dying\n"
        "from coilclaw.cli.main import main\n"
        "main(['apply', '--root', sys.argv[1]])\n"
    )
    for command in (
        ("apply", "--dry-run"),
        ("changes", "list"),
        ("snapshot", "take"),
        ("undo",),
    ):
        died = subprocess.run(
            [sys.executable, "-c", script, str(tree)],
            input=ANSWER,
            env=coilclaw.env(),
            capture_output=True,
            check=False,
        )
        assert died.returncode == 9
        stdin = b"^^^unrelated\n^^^end\n"
        done = coilclaw(*command, "--root", str(tree), stdin=stdin)
        assert done.returncode == 0, done.stderr
        assert b"interrupted change" in done.stderr
        if command != ("undo",):
            assert sorted(picture(tree)) == ["b.txt", "new", "new/a.txt"]
            assert coilclaw("undo", "--root", str(tree)).returncode == 0
        assert sorted(picture(tree)) == ["b.txt", "c.txt"]


def test_on_a_terminal_there_is_colour_and_nothing_can_hide(coilclaw: Command, tree: Path) -> None:
    answer = tree.parent / "answer.txt"
    answer.write_bytes("^^^a.txt\n\x1b[2Jevil \u202etxt\n^^^end\n".encode())
    chunks: list[bytes] = []

    def read(fd: int) -> bytes:
        data = os.read(fd, 1024)
        chunks.append(data)
        return data

    arguments = [sys.executable, "-m", "coilclaw", "apply", str(answer), "--root", str(tree)]
    old = dict(os.environ)
    os.environ.clear()
    os.environ.update(coilclaw.env() | {"TERM": "xterm"})
    try:
        status = pty.spawn(arguments, read, lambda _: b"")
    finally:
        os.environ.clear()
        os.environ.update(old)
    shown = b"".join(chunks)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"\x1b[32m+\\x1b[2Jevil \\u202etxt\x1b[0m" in shown


def test_prompts_are_printed_by_name(coilclaw: Command) -> None:
    for name in (
        "aptix",
        "aptix-bundle",
        "aptix-patch",
        "aptix-git",
        "fence",
        "envelope",
        "blocks",
    ):
        done = coilclaw("prompt", name)
        assert done.returncode == 0
        assert len(done.stdout) > 300
    assert coilclaw("prompt", "nonsense").returncode == 2


def test_snapshots_are_taken_compared_and_restored(coilclaw: Command, tree: Path) -> None:
    (tree / "empty").mkdir()
    os.symlink("b.txt", tree / "link")
    before = picture(tree)
    taken = coilclaw("snapshot", "take", "--root", str(tree)).stdout.decode().strip()
    assert coilclaw("snapshot", "diff", taken, "--root", str(tree)).stdout == b""
    (tree / "b.txt").write_bytes(b"other\n")
    (tree / "link").unlink()
    (tree / "c.txt").rename(tree / "d.txt")
    (tree / "empty").rmdir()
    make(tree, {"more/x": b"x"})
    shown = coilclaw("snapshot", "diff", taken, "--root", str(tree)).stdout.decode()
    assert "renamed   c.txt -> d.txt" in shown
    assert "modified  b.txt" in shown
    patch = coilclaw("snapshot", "diff", taken, "--patch", "--root", str(tree)).stdout
    assert patch.startswith(b"diff --git ")
    after = picture(tree)
    dry = coilclaw("snapshot", "restore", taken, "--dry-run", "--root", str(tree))
    assert (dry.returncode, picture(tree)) == (0, after)
    done = coilclaw("snapshot", "restore", taken, "--root", str(tree))
    assert done.returncode == 0, done.stderr
    assert picture(tree) == before
    assert coilclaw("undo", "--root", str(tree)).returncode == 0
    assert (tree / "b.txt").read_bytes() == b"other\n"
    listed = json.loads(coilclaw("snapshot", "list", "--json", "--root", str(tree)).stdout)
    assert taken in listed


def test_doctor_says_whether_hard_requirements_hold(coilclaw: Command, tmp_path: Path) -> None:
    good = coilclaw("doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(good.stdout)["findings"]}
    assert good.returncode == 0
    assert {"python", "git", "home", "locks", "sandbox"} <= set(findings)
    empty = tmp_path / "empty"
    empty.mkdir()
    bad = Command(tmp_path / "home", {"PATH": str(empty)})("doctor")
    assert bad.returncode == 1
    assert b"FAILED   git" in bad.stdout


def test_the_demo_shows_what_it_says(coilclaw: Command) -> None:
    done = coilclaw("demo", "deliver")
    assert done.returncode == 0, done.stderr
    text = done.stdout.decode()
    assert "refused: path 'docs/../../.ssh/authorized_keys' climbs out with '..'" in text
    assert "byte for byte as before: True" in text
    assert not coilclaw.home.exists()


def test_output_into_a_closed_pipe_is_no_error(coilclaw: Command, tree: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m coilclaw prompt aptix | head -c 10",
        shell=True,
        env=coilclaw.env(),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def shell(coilclaw: Command, text: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run ``$CC`` in a shell, for redirections that only a shell can make."""
    command = f"{sys.executable} -m coilclaw"
    return subprocess.run(
        ["bash", "-c", text.replace("$CC", command)],
        env=coilclaw.env() | environment,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("$CC apply --root TREE <&-", 2),
        ("$CC apply ANSWER --root TREE >&-", 0),
        ("$CC undo --root TREE 2>&-", 2),
        ("$CC doctor >&-", 0),
        ("$CC --version >&-", 0),
        ("$CC apply ANSWER --root TREE >/dev/full", 5),
        ("$CC changes list --root TREE --json >/dev/full", 5),
        ("ln -s loop TREE/loop; $CC apply ANSWER --root TREE/loop", 5),
        ("$CC undo '' --root TREE", 2),
        ("$CC changes show '' --root TREE", 2),
    ],
)
def test_odd_streams_and_arguments_never_give_a_traceback(
    coilclaw: Command, tree: Path, text: str, code: int
) -> None:
    answer = tree.parent / "answer.txt"
    answer.write_bytes(ANSWER)
    done = shell(coilclaw, text.replace("TREE", str(tree)).replace("ANSWER", str(answer)))
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr


def test_a_refusal_names_file_line_and_rule(coilclaw: Command, tree: Path) -> None:
    os.symlink("/tmp", tree / "out")
    for body, rule in (
        (b"^^^../x\na\n^^^end\n", b"path.parent"),
        (b"^^^out/x\na\n^^^end\n", b"path.symlink"),
        (b"^^^.coilclaw/x\na\n^^^end\n", b"protected.state"),
        (b"^^^b.txt/x\na\n^^^end\n", b"path.directory"),
        (b"^^^none\n^^^delete\n", b"plan.missing"),
        (b"^^^x\n", b"fence.unclosed"),
    ):
        answer = tree.parent / "answer.md"
        answer.write_bytes(b"Hello\n\n\n" + body)
        said = coilclaw("apply", str(answer), "--root", str(tree)).stderr.splitlines()[0]
        assert said.startswith(b"coilclaw: %s: line 4: " % os.fsencode(answer)), said
        assert said.endswith(b"[%s]" % rule), said


def test_names_are_utf_8_whatever_the_locale(coilclaw: Command, tree: Path) -> None:
    answer = tree.parent / "answer.txt"
    answer.write_bytes("^^^d\u00e9j\u00e0/\u20ac.txt\nx\n^^^end\n".encode())
    latin = {"LC_ALL": "en_US.ISO-8859-1", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    text = f"$CC apply '{answer}' --root '{tree}'"
    done = shell(coilclaw, text, **latin)
    assert done.returncode == 0, done.stderr
    names = [os.fsencode(name) for name in picture(tree)]
    assert "d\u00e9j\u00e0/\u20ac.txt".encode() in names


def test_changes_verify_finds_tampering(coilclaw: Command, tree: Path) -> None:
    assert coilclaw("changes", "verify", "--root", str(tree)).returncode == 0
    coilclaw("apply", "--root", str(tree), stdin=ANSWER)
    good = coilclaw("changes", "verify", "--json", "--root", str(tree))
    assert (good.returncode, json.loads(good.stdout)["records"]) == (0, 1)
    (contents,) = coilclaw.home.glob("trees/*/changes/*/contents")
    (journal,) = coilclaw.home.glob("trees/*/changes.jsonl")
    for victim in (contents, journal):
        whole = victim.read_bytes()
        victim.write_bytes(whole[:-3] + b"x" + whole[-2:])
        bad = coilclaw("changes", "verify", "--root", str(tree))
        assert bad.returncode == 1, victim
        assert b"[changes.tampered]" in bad.stderr
        victim.write_bytes(whole)
    assert coilclaw("changes", "verify", "--root", str(tree)).returncode == 0


def test_a_fifo_called_gitignore_is_refused_at_once(coilclaw: Command, tree: Path) -> None:
    os.mkfifo(tree / ".gitignore")
    done = coilclaw("apply", "--policy", "code-commit", "--root", str(tree), stdin=ANSWER)
    assert done.returncode == 5
    assert b".gitignore" in done.stderr


def test_a_link_may_not_leave_by_way_of_another(coilclaw: Command, tree: Path) -> None:
    os.symlink("/tmp", tree / "ext")
    patch = (
        "diff --git a/m b/m\nnew file mode 120000\n--- /dev/null\n+++ b/m\n"
        "@@ -0,0 +1 @@\n+TARGET\n\\ No newline at end of file\n"
    )
    for target, code in (("ext/red", 3), ("b.txt", 0)):
        answer = patch.replace("TARGET", target).encode()
        done = coilclaw("apply", "--links", "--root", str(tree), stdin=answer)
        assert done.returncode == code, done.stderr
    assert os.readlink(tree / "m") == "b.txt"


def _interrupted(
    coilclaw: Command, tree: Path, number: signal.Signals, count: int
) -> tuple[int, bytes, bool]:
    """Send a signal once the first of so many files is written; say whether the tree stayed."""
    files = {f"f{n:04}": b"old\n" for n in range(count)}
    make(tree, dict(files))
    before = picture(tree)
    answer = tree.parent / "answer.txt"
    answer.write_text("".join(f"^^^{name}\nnew\n^^^end\n" for name in files))
    inode = (tree / "f0000").stat().st_ino
    child = subprocess.Popen(
        [sys.executable, "-m", "coilclaw", "apply", str(answer), "--root", str(tree)],
        env=coilclaw.env(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    while (tree / "f0000").stat().st_ino == inode and child.poll() is None:
        pass
    child.send_signal(number)
    _, said = child.communicate(timeout=PATIENCE_S)
    return child.returncode, said, picture(tree) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_takes_the_whole_change_back(
    coilclaw: Command, tree: Path, number: signal.Signals
) -> None:
    found = (_interrupted(coilclaw, tree, number, count) for count in (1500, 4000, 8000))
    # More to write, where the change was over before the signal came.
    code, said, same = next(one for one in found if one[0] != 0)
    assert (code, same) == (3, True)
    assert b"stopped; the tree is as it was [stopped]" in said
