"""The stand-in for Modal's SDK is what it stands for, where the real package is installed."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from tests.support import modalstandin as standin


def _pairs() -> Iterator[tuple[str, Any, Any]]:
    modal: Any = importlib.import_module("modal")
    process = importlib.import_module("modal.container_process").ContainerProcess
    filesystem = importlib.import_module("modal.sandbox._filesystem")
    yield "App.lookup", standin.App.lookup, modal.App.lookup
    yield "Secret.from_dict", standin.Secret.from_dict, modal.Secret.from_dict
    yield "Sandbox.create", standin.Sandboxes.create, modal.Sandbox.create
    for name in (
        "debian_slim",
        "apt_install",
        "pip_install",
        "pip_install_from_requirements",
        "run_commands",
        "add_local_dir",
    ):
        yield f"Image.{name}", getattr(standin.Image, name), getattr(modal.Image, name)
    for name in ("exec", "terminate", "detach"):
        yield f"Sandbox.{name}", getattr(standin.Sandbox, name), getattr(modal.Sandbox, name)
    yield "ContainerProcess.wait", standin.ContainerProcess.wait, process.wait
    for name in ("copy_from_local", "copy_to_local", "list_files"):
        real = getattr(filesystem._SandboxFilesystem, name)
        yield f"filesystem.{name}", getattr(standin.Filesystem, name), real


def _parameters(function: Any) -> dict[str, tuple[Any, bool]]:
    return {
        name: (one.kind, one.default is inspect.Parameter.empty)
        for name, one in inspect.signature(function).parameters.items()
        if name != "self"
    }


def test_the_stand_in_has_the_signatures_of_the_real_package() -> None:
    for name, ours, theirs in _pairs():
        mine, real = _parameters(ours), _parameters(theirs)
        assert {one: real.get(one) for one in mine} == mine, name
        left = [one for one, (kind, needed) in real.items() if needed and one not in mine]
        assert not left, name


def test_the_stand_in_has_the_names_of_the_real_package() -> None:
    modal: Any = importlib.import_module("modal")
    info = importlib.import_module("modal.types").FileInfo
    assert {"name", "size", "modified_time"} <= set(inspect.signature(info).parameters)
    assert callable(info.is_file)
    assert callable(info.is_dir)
    assert isinstance(modal.Sandbox.filesystem, property)
    assert hasattr(modal.Sandbox, "object_id")
    for name in ("AuthError", "SandboxFilesystemNotFoundError"):
        assert issubclass(getattr(modal.exception, name), modal.exception.Error)
