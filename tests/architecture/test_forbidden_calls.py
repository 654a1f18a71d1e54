"""Pure packages reach nothing outside, and processes start in one place."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator

import pytest

from tests.support.repository import ROOT, modules

# Where processes are started; everybody else asks `workspace.process`.
PROCESS_MODULES = frozenset(
    {
        "coilclaw.workspace.process.launch",  # does the work of `process`
        "coilclaw.cli.traces.detachment",  # goes on behind the terminal, as itself
        "coilclaw.cli.main",  # replaces itself, once, to have file names in UTF-8
        "coilclaw.workspace.process.bubblewrap",  # asks bwrap whether it works here
    }
)

_PROCESS_LIBRARIES = frozenset({"subprocess", "multiprocessing", "pty", "_posixsubprocess"})
_START_CALLS = frozenset({"system", "popen", "fork", "forkpty", "startfile"})
_OUTSIDE = frozenset({"open", "print", "input", "breakpoint", "exec", "eval", "__import__"})


def _is_start(name: str) -> bool:
    return name in _START_CALLS or name.startswith(("exec", "spawn", "posix_spawn"))


def _at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield every node but those that only the type checker sees."""
    for node in ast.iter_child_nodes(tree):
        yield node
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                for statement in otherwise:
                    yield statement
                    yield from _at_run_time(statement)
            case _:
                yield from _at_run_time(node)


def _starts_processes(tree: ast.Module) -> list[str]:
    """Return what in a module could start a process; an import for types only could not."""
    found = []
    for node in _at_run_time(tree):
        match node:
            case ast.Import(names=aliases, lineno=line):
                found += [
                    (line, alias.name)
                    for alias in aliases
                    if alias.name.split(".")[0] in _PROCESS_LIBRARIES
                ]
            case ast.ImportFrom(module="os", names=aliases, lineno=line):
                found += [(line, f"os.{alias.name}") for alias in aliases if _is_start(alias.name)]
            case ast.ImportFrom(module=str(name), level=0, lineno=line):
                if name.split(".")[0] in _PROCESS_LIBRARIES:
                    found.append((line, name))
            case ast.Attribute(value=ast.Name(id="os" | "posix"), attr=name, lineno=line):
                if _is_start(name):
                    found.append((line, f"os.{name}"))
    return [f"{line}: {name}" for line, name in found]


_PERMISSIONS = frozenset(
    {"Assignment", "BindingCapability", "PackCeilings", "RolePermissions", "ToolPermissions"}
)


def _uses_a_shell(tree: ast.Module) -> list[int]:
    """Return the lines that pass ``shell=`` anything but a literal False.

    In a contract it is a permission, and starts nothing.
    """
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and not (isinstance(node.func, ast.Name) and node.func.id in _PERMISSIONS)
    ]
    return [
        call.lineno
        for call in calls
        for keyword in call.keywords
        if keyword.arg == "shell"
        and not (isinstance(keyword.value, ast.Constant) and keyword.value.value is False)
    ]


def _reaches_outside(tree: ast.Module) -> list[str]:
    """Return the calls of built-in functions that a pure package has no use for."""
    return [
        f"{node.lineno}: {node.func.id}()"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _OUTSIDE
    ]


def _pure_packages() -> frozenset[str]:
    """Return the packages that the import contract calls pure."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    (pure,) = (c["source_modules"] for c in contracts if c["name"].startswith("Pure packages"))
    return frozenset(name.removeprefix("coilclaw.") for name in pure)


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess",
        "import subprocess as s",
        "from subprocess import run",
        "from multiprocessing import Process",
        "import pty",
        "os.system('ls')",
        "os.popen('ls')",
        "os.execvp('ls', ['ls'])",
        "os.spawnl(0, 'ls')",
        "os.posix_spawn('ls', [], {})",
        "os.fork()",
        "start = os.execve",
        "from os import execvp",
        "def f() -> None:\n    import subprocess",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import subprocess",
    ],
)
def test_a_way_to_start_a_process_is_found(source: str) -> None:
    assert _starts_processes(ast.parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "import os",
        "os.stat('x')",
        "from os import stat",
        "process.run(argv)",
        "exec_id",
        "if TYPE_CHECKING:\n    import subprocess",
    ],
)
def test_what_starts_no_process_is_not(source: str) -> None:
    assert _starts_processes(ast.parse(source)) == []


@pytest.mark.parametrize("value", ["True", "1", "chosen"])
def test_a_shell_is_found(value: str) -> None:
    assert _uses_a_shell(ast.parse(f"run('ls', shell={value})")) == [1]


def test_a_permission_is_no_shell() -> None:
    assert _uses_a_shell(ast.parse("ToolPermissions(shell='deny')")) == []
    assert _uses_a_shell(ast.parse("other.ToolPermissions(shell='deny')")) == [1]


def test_no_shell_is_not() -> None:
    assert _uses_a_shell(ast.parse("run(['ls'], shell=False)\nrun(['ls'])")) == []


@pytest.mark.parametrize("name", sorted(_OUTSIDE))
def test_a_call_to_the_outside_is_found(name: str) -> None:
    assert _reaches_outside(ast.parse(f"def f() -> None:\n    {name}('x')")) == [f"2: {name}()"]


def test_only_the_process_modules_start_processes() -> None:
    starters = {m.name for m in modules() if _starts_processes(m.tree)}
    assert starters == PROCESS_MODULES


def test_nobody_uses_a_shell() -> None:
    assert {m.name: found for m in modules() if (found := _uses_a_shell(m.tree))} == {}


def test_pure_packages_reach_nothing_outside() -> None:
    pure = tuple(f"coilclaw.{name}." for name in _pure_packages())
    assert {"coilclaw.policy.", "coilclaw.changes."} <= set(pure)
    inside = [m for m in modules() if m.name.startswith(pure)]
    assert {m.name: found for m in inside if (found := _reaches_outside(m.tree))} == {}


# Who reads the environment beside `cli` and `app`, which hand it down; each with its reason.
ENVIRONMENT_READERS = {
    "coilclaw.workspace.process.environment": "what a child inherits from this process",
    "coilclaw.models.connection": "certificates, beside proxies that urllib reads from there too",
    "coilclaw.traces.environments.worker": "a program of its own, started with what it may see",
}
_ENVIRONMENT = frozenset({"environ", "environb", "getenv", "getenvb"})


def _reads_environment(tree: ast.Module) -> list[str]:
    found = []
    for node in _at_run_time(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="os" | "posix"), attr=name, lineno=line):
                found += [f"{line}: os.{name}"] if name in _ENVIRONMENT else []
            case ast.ImportFrom(module="os" | "posix", names=aliases, lineno=line):
                names = [alias.name for alias in aliases]
                found += [f"{line}: os.{name}" for name in names if name in _ENVIRONMENT]
    return found


@pytest.mark.parametrize(
    "source", ["os.environ['A']", "os.getenv('A')", "from os import environ", "dict(os.environ)"]
)
def test_a_reader_of_the_environment_is_found(source: str) -> None:
    assert _reads_environment(ast.parse(source))


def test_the_environment_is_read_in_cli_and_app_only() -> None:
    found = {
        module.name: reads
        for module in modules()
        if not module.name.startswith(("coilclaw.cli.", "coilclaw.app."))
        and (reads := _reads_environment(module.tree))
    }
    assert found.keys() == ENVIRONMENT_READERS.keys(), found
