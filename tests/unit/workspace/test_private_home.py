"""The private home of a child holds a few settings of the user, and no secret."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coilclaw.workspace.process import toolchain
from coilclaw.workspace.process.confinement import Sandbox, resolve
from coilclaw.workspace.process.private_home import fill_home, find_tool_variables, open_home
from coilclaw.workspace.process.sandbox_view import find_git_places
from tests.support.snapshot_trees import git

SECRET = "canary"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def user(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "user"
    made.mkdir()
    return made


def filled(user: Path) -> dict[str, str]:
    with open_home({"HOME": str(user), "PATH": os.environ["PATH"]}) as home:
        files = sorted(path for path in home.rglob("*") if path.is_file())
        return {str(path.relative_to(home)): path.read_text() for path in files}


def test_name_and_address_are_there_and_nothing_else_of_git(user: Path) -> None:
    name = 'Ann "A" \\ Éxample'
    git(user, "config", "--file", str(user / ".gitconfig"), "user.name", name)
    write(
        user / "more",
        f'[user]\n email = a@example.org\n[url "https://u:{SECRET}@h/"]\n insteadOf = h\n',
    )
    git(user, "config", "--file", str(user / ".gitconfig"), "include.path", str(user / "more"))
    git(user, "config", "--file", str(user / ".gitconfig"), "alias.x", f"!echo {SECRET}")
    with open_home({"HOME": str(user), "PATH": os.environ["PATH"]}) as home:
        at = str(home / ".gitconfig")
        told = git(home, "config", "--file", at, "--list").decode().splitlines()
    assert told == [f"user.name={name}", "user.email=a@example.org"]


def test_where_packages_are_is_told_and_what_opens_a_registry_is_not(user: Path) -> None:
    write(
        user / ".config/pip/pip.conf",
        "[global]\nindex-url = https://mirror/simple\nextra-index-url =\n  https://one/simple\n"
        f"  https://u:{SECRET}@two/simple\nproxy = http://u:{SECRET}@proxy\n"
        "find-links = /opt/wheels\n",
    )
    write(
        user / ".npmrc",
        "registry=https://mirror/\n@team:registry=https://team/\n"
        f"//team/:_authToken={SECRET}\n_auth={SECRET}\nemail=a@example.org\n",
    )
    write(user / ".cargo/config.toml", '[registries.mine]\nindex = "sparse+https://mine/"\n')
    write(user / ".cargo/credentials.toml", f'[registry]\ntoken = "{SECRET}"\n')
    write(
        user / ".m2/settings.xml",
        f"<settings><servers><password>{SECRET}</password></servers></settings>",
    )
    write(user / ".pypirc", SECRET)
    found = filled(user)
    assert found == {
        ".cargo/config.toml": '[registries.mine]\nindex = "sparse+https://mine/"\n',
        ".config/pip/pip.conf": (
            "[global]\nindex-url = https://mirror/simple\nextra-index-url =\n"
            "  https://one/simple\nfind-links = /opt/wheels\n"
        ),
        ".npmrc": "registry=https://mirror/\n@team:registry=https://team/\n",
    }


def test_what_an_agent_left_in_its_home_is_not_written_through(user: Path, tmp_path: Path) -> None:
    write(user / ".npmrc", "registry=https://mirror/\n")
    write(user / ".cargo/config.toml", "[net]\noffline = true\n")
    write(user / ".config/uv/uv.toml", "offline = true\n")
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    outside.mkdir()
    (home / ".npmrc").symlink_to(outside / "npmrc")
    (home / ".cargo").symlink_to(outside)
    (home / ".config").write_text("a file")
    fill_home(home, {"HOME": str(user), "PATH": os.environ["PATH"]})
    assert list(outside.iterdir()) == []
    assert (home / ".config").read_text() == "a file"


def test_tools_that_look_in_the_home_are_told_where_they_are(user: Path) -> None:
    for name in (".pyenv/shims", ".volta/bin", ".cargo/bin", ".rustup"):
        (user / name).mkdir(parents=True)
    path = f"{user}/.pyenv/shims:{user}/.cargo/bin:/usr/bin"
    assert find_tool_variables({"HOME": str(user)}, path) == {
        "PYENV_ROOT": f"{user}/.pyenv",
        "RUSTUP_HOME": f"{user}/.rustup",
    }


def test_packages_that_the_user_installed_for_themselves_show(user: Path) -> None:
    for name in (".local/bin", ".local/lib/python3.11/site-packages", ".local/share/keyrings"):
        (user / name).mkdir(parents=True)
    path = f"{user}/.local/bin:/usr/bin"
    shown = resolve(Sandbox("auto"), path).shown
    own = [one for one in shown if one.startswith(str(user))]
    assert own == [f"{user}/.local/bin", f"{user}/.local/lib/python3.11"]
    found = find_tool_variables({"HOME": str(user)}, path)
    assert found == {"PYTHONUSERBASE": f"{user}/.local"}


@pytest.mark.parametrize(
    ("entry", "beside", "shown"),
    [
        (".pyenv/shims", ".pyenv/.git", ".pyenv"),
        (".nvm/versions/node/v20/bin", ".nvm/.git", ".nvm/versions/node/v20"),
        (".cargo/bin", ".cargo/registry", ".cargo/bin"),
        ("go/bin", "go/src", "go/bin"),
        ("sdk/go/bin", "sdk/go/VERSION", "sdk/go"),
        ("project/bin", "project/.git", "project/bin"),
        ("project/node_modules/.bin", "project/x", "project/node_modules"),
        ("tools/bin", "tools/lib", "tools"),
    ],
)
def test_of_what_is_on_path_the_installation_shows_and_no_project(
    user: Path, entry: str, beside: str, shown: str
) -> None:
    (user / entry).mkdir(parents=True)
    if beside.endswith("VERSION"):
        (user / beside).touch()
    else:
        (user / beside).mkdir(exist_ok=True)
    found = toolchain.follow(str(user / entry))
    assert found is not None
    assert toolchain.find_installation(found, named=False) == str(user / shown)


def test_credentials_of_an_installation_are_named(user: Path) -> None:
    write(user / "conda/.condarc", SECRET)
    write(user / "conda/bin/conda", "")
    assert toolchain.credentials_in(str(user / "conda")) == [f"{user}/conda/.condarc"]


def test_a_linked_worktree_shows_its_repository_and_a_forged_one_does_not(user: Path) -> None:
    main, linked, forged = user / "main", user / "linked", user / "forged"
    main.mkdir()
    git(main, "init", "-q")
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-q", str(linked))
    assert find_git_places(linked) == (main / ".git",)
    forged.mkdir()
    for way in (f"{main}/.git", f"{main}/.git/worktrees/linked", "/nonexistent", "x" * 5000):
        (forged / ".git").write_text(f"gitdir: {way}\n")
        assert find_git_places(forged) == ()


def test_a_part_of_a_repository_shows_its_git_directory(user: Path) -> None:
    inner = user / "repo" / "packages" / "one"
    inner.mkdir(parents=True)
    assert find_git_places(inner) == ()
    git(user / "repo", "init", "-q")
    assert find_git_places(inner) == (user / "repo" / ".git",)
    assert find_git_places(user / "repo") == ()
