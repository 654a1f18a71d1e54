"""A stand-in for Modal's SDK: its signatures, with a directory and processes of this machine."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Literal

REMOTE = "/srv/coilclaw"


class Error(Exception):
    pass


class AuthError(Error):
    pass


class SandboxFilesystemNotFoundError(Error):
    pass


@dataclass
class World:
    """Where the sandboxes of a test are, and everything that was asked of the SDK."""

    root: Path
    programs: Path
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    failing: dict[str, Exception] = field(default_factory=dict)
    sandboxes: list[Sandbox] = field(default_factory=list)

    def ask(self, name: str, /, **given: Any) -> None:
        self.asked.append((name, given))
        if name in self.failing:
            raise self.failing[name]

    def of(self, name: str) -> list[dict[str, Any]]:
        return [given for asked, given in self.asked if asked == name]

    def here(self, text: str) -> str:
        return text.replace(REMOTE, str(self.root))

    def there(self, text: str) -> str:
        return text.replace(str(self.root), REMOTE)

    def end(self) -> None:
        for sandbox in self.sandboxes:
            sandbox.kill()
            sandbox.close()


@dataclass
class Secret:
    values: dict[str, str | None] = field(repr=False)

    @staticmethod
    def from_dict(env_dict: dict[str, str | None] = {}) -> Secret:  # noqa: B006 - as Modal has it
        return Secret(env_dict)


class Image:
    def __init__(self, world: World) -> None:
        self._world = world

    def debian_slim(self, python_version: str | None = None) -> Image:
        self._world.ask("debian_slim", python_version=python_version)
        return self

    def apt_install(
        self,
        *packages: str | list[str],
    ) -> Image:
        self._world.ask("apt_install", packages=packages)
        return self

    def pip_install(
        self,
        *packages: str | list[str],
    ) -> Image:
        self._world.ask("pip_install", packages=packages)
        return self

    def pip_install_from_requirements(
        self,
        requirements_txt: str,
        *,
        extra_options: str = "",
    ) -> Image:
        self._world.ask("requirements", file=requirements_txt, extra_options=extra_options)
        return self

    def run_commands(
        self,
        *commands: str | list[str],
        env: dict[str, str | None] | None = None,
    ) -> Image:
        self._world.ask("run_commands", commands=commands, env=env)
        return self

    def add_local_dir(
        self,
        local_path: str | Path,
        remote_path: str,
        *,
        copy: bool = False,
        ignore: Sequence[str] | Callable[[Path], bool] = [],  # noqa: B006 - as Modal has it
    ) -> Image:
        self._world.ask("add_local_dir", source=local_path, target=remote_path, copy=copy)
        assert callable(ignore)
        return self


class App:
    def __init__(self, world: World) -> None:
        self._world = world

    def lookup(
        self,
        name: str,
        *,
        create_if_missing: bool = False,
    ) -> App:
        self._world.ask("lookup", name=name, create_if_missing=create_if_missing)
        return self


@dataclass
class FileInfo:
    name: str
    path: str
    size: int
    modified_time: float
    folder: bool

    def is_file(self) -> bool:
        return not self.folder

    def is_dir(self) -> bool:
        return self.folder


class Filesystem:
    def __init__(self, world: World) -> None:
        self._world = world

    def copy_from_local(self, local_path: str | os.PathLike[str], remote_path: str) -> None:
        self._world.ask("copy_from_local", remote=remote_path, mode=os.stat(local_path).st_mode)
        shutil.copy(local_path, self._world.here(remote_path))

    def copy_to_local(self, remote_path: str, local_path: str | os.PathLike[str]) -> None:
        self._world.ask("copy_to_local", remote=remote_path)
        shutil.copy(self._world.here(remote_path), local_path)

    def list_files(self, remote_path: str) -> list[FileInfo]:
        self._world.ask("list_files", remote=remote_path)
        try:
            entries = list(os.scandir(self._world.here(remote_path)))
        except FileNotFoundError as problem:
            raise SandboxFilesystemNotFoundError(remote_path) from problem
        return [
            FileInfo(
                one.name,
                f"{remote_path}/{one.name}",
                one.stat().st_size,
                one.stat().st_mtime,
                one.is_dir(),
            )
            for one in entries
        ]


class ContainerProcess:
    def __init__(self, world: World, child: subprocess.Popen[str]) -> None:
        self._world = world
        self.child = child

    @property
    def stdout(self) -> Iterable[str]:
        assert self.child.stdout is not None
        return map(self._world.there, self.child.stdout)

    @property
    def stderr(self) -> Iterable[str]:
        assert self.child.stderr is not None
        return map(self._world.there, self.child.stderr)

    def wait(self) -> int:
        code = self.child.wait()
        return code if code >= 0 else 128 - code


class Sandbox:
    def __init__(self, world: World) -> None:
        self._world = world
        self._children: list[subprocess.Popen[str]] = []
        self.object_id = f"sb-{len(world.sandboxes)}"
        self.filesystem = Filesystem(world)

    def start(self, words: Sequence[str], given: dict[str, str | None]) -> subprocess.Popen[str]:
        usual = {"PATH": f"{self._world.programs}:{os.environ['PATH']}"}
        env = {name: self._world.here(value) for name, value in given.items() if value}
        child = subprocess.Popen(
            [self._world.here(word) for word in words],
            env=usual | env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._children.append(child)
        return child

    def exec(
        self,
        *args: str,
        timeout: int | None = None,
        env: dict[str, str | None] | None = None,
        secrets: Collection[Secret] | None = None,
        text: bool = True,
        bufsize: Literal[-1, 1] = -1,
    ) -> ContainerProcess:
        self._world.ask("exec", args=args, env=env, secrets=secrets, timeout=timeout)
        assert text
        assert bufsize in {-1, 1}
        return ContainerProcess(self._world, self.start(args, _environment(env, secrets)))

    def terminate(self, *, wait: bool = False) -> int | None:
        self._world.ask("terminate", wait=wait)
        self.kill()
        return 137 if wait else None

    def detach(self) -> None:
        self._world.ask("detach")

    def kill(self) -> None:
        for child in self._children:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def close(self) -> None:
        for child in self._children:
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()


class Sandboxes:
    def __init__(self, world: World) -> None:
        self._world = world

    def create(
        self,
        *args: str,
        app: App | None = None,
        tags: dict[str, str] | None = None,
        image: Image | None = None,
        env: dict[str, str | None] | None = None,
        secrets: Collection[Secret] | None = None,
        timeout: int | None = 300,
    ) -> Sandbox:
        self._world.ask("create", args=args, tags=tags, env=env, secrets=secrets, timeout=timeout)
        assert app is not None
        assert image is not None
        sandbox = Sandbox(self._world)
        self._world.sandboxes.append(sandbox)
        sandbox.start(args, _environment(env, secrets))
        return sandbox


def _environment(
    env: dict[str, str | None] | None, secrets: Collection[Secret] | None
) -> dict[str, str | None]:
    made = dict(env or {})
    for secret in secrets or ():
        made |= secret.values
    return made


def module(world: World) -> ModuleType:
    """What ``import modal`` gives."""
    made = ModuleType("modal")
    made.__spec__ = ModuleSpec("modal", None)
    made.__dict__.update(
        App=App(world),
        Image=Image(world),
        Sandbox=Sandboxes(world),
        Secret=Secret,
        exception=SimpleNamespace(
            Error=Error,
            AuthError=AuthError,
            SandboxFilesystemNotFoundError=SandboxFilesystemNotFoundError,
        ),
    )
    return made


def program(world: World, script: str) -> None:
    """Let ``python`` in the sandbox be a shell script."""
    path = world.programs / "python"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


def real_program(world: World, source: Path) -> None:
    """Let ``python`` in the sandbox be the one that runs this, with our package."""
    program(world, f'PYTHONPATH={source} exec {sys.executable} "$@"')
