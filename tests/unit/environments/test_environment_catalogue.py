"""Finding environments, and their versions."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.kernel.errors import UsageError
from coilclaw.traces.environments import catalogue
from tests.support.environments import write_environment
from tests.support.repository import ROOT


@pytest.mark.parametrize("name", ["", "nothing", "kv_store/main", "../kv_store", "a\0b"])
def test_an_environment_that_is_not_there_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        catalogue.find_environment(name)
    assert caught.value.rule == "environment.unknown"


def test_those_that_ship_are_found_by_name() -> None:
    assert "kv_store" in catalogue.names()
    place = catalogue.find_environment("kv_store")
    assert place in catalogue.list_environments()
    assert place.file == ROOT / "environments" / "kv_store" / "main.py"
    assert place.workspace == ROOT / "environments" / "kv_store" / "workspace"
    assert place.task.startswith("# Build a key-value store")


def test_one_is_found_by_its_directory_and_by_its_file(tmp_path: Path) -> None:
    file = write_environment(tmp_path / "mine", "x = 1")
    place = catalogue.find_environment(str(tmp_path / "mine"))
    assert place == catalogue.find_environment(str(file))
    assert (place.name, place.task, place.workspace) == ("mine", "", None)


def test_a_file_of_another_name_stands_alone(tmp_path: Path) -> None:
    file = tmp_path / "alone.py"
    file.write_text("x = 1", encoding="utf-8")
    before = catalogue.find_environment(str(file))
    (tmp_path / "task.md").write_text("not its own", encoding="utf-8")
    assert catalogue.find_environment(str(file)) == before
    assert (before.name, before.task) == ("alone", "")


def test_any_change_of_the_environment_is_another_version(tmp_path: Path) -> None:
    write_environment(tmp_path, "x = 1")
    seen = [catalogue.find_environment(str(tmp_path)).version]

    def changed() -> str:
        seen.append(catalogue.find_environment(str(tmp_path)).version)
        return seen[-1]

    (tmp_path / "task.md").write_text("do it", encoding="utf-8")
    assert changed() not in seen[:-1]
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "build.sh").write_text("true", encoding="utf-8")
    assert changed() not in seen[:-1]
    (tmp_path / "workspace" / "build.sh").chmod(0o755)
    assert changed() not in seen[:-1]
    os.symlink("build.sh", tmp_path / "workspace" / "link")
    assert changed() not in seen[:-1]
    (tmp_path / "main.py").write_text("x = 2", encoding="utf-8")
    assert changed() not in seen[:-1]


def test_what_tools_leave_behind_is_no_change(tmp_path: Path) -> None:
    write_environment(tmp_path, "x = 1")
    before = catalogue.find_environment(str(tmp_path)).version
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "main.pyc").write_bytes(b"x")
    os.utime(tmp_path / "main.py", (1, 1))
    assert catalogue.find_environment(str(tmp_path)).version == before


def test_a_task_that_is_too_long_or_no_text_is_refused(tmp_path: Path) -> None:
    write_environment(tmp_path, "x = 1")
    (tmp_path / "task.md").write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(UsageError) as caught:
        catalogue.find_environment(str(tmp_path))
    assert caught.value.rule == "environment.bounds"
    (tmp_path / "task.md").write_bytes(b"\xff")
    with pytest.raises(UsageError) as caught:
        catalogue.find_environment(str(tmp_path))
    assert caught.value.rule == "environment.task"
