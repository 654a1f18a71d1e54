"""``[sandbox]``: what may be shown to every child, and what may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.app.config.load import examine_config_text
from coilclaw.workspace.process.sandbox_view import SandboxView


def problems(home: Path, text: str) -> tuple[list[str], SandboxView | None]:
    own = home / ".coilclaw"
    own.mkdir(exist_ok=True)
    read = examine_config_text(text, own / "config.toml", home=own, environ={"HOME": str(home)})
    view = None if read.config is None else read.config.sandbox
    return [str(problem) for problem in read.problems], view


def test_paths_that_exist_are_taken(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / ".npmrc").touch()
    text = f'[sandbox]\nread = ["~/data", "~/.npmrc"]\nwrite = ["{tmp_path}/data"]\n'
    found = problems(tmp_path, text)
    view = SandboxView(read=(tmp_path / "data", tmp_path / ".npmrc"), write=(tmp_path / "data",))
    assert found == ([], view)


@pytest.mark.parametrize("key", ["read", "write"])
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("data", "a relative path"),
        ("~/missing", "does not exist"),
        ("~/.coilclaw", "lies in our own state"),
        ("~/.coilclaw/keys", "lies in our own state"),
        ("~/link", "lies in our own state"),
        ("~", "holds our own state"),
        ("/", "holds our own state"),
        ("~/.ssh", "a forbidden path"),
        ("~/secrets/inner", "lies in a forbidden path"),
        ("/etc/passwd", "lies in a forbidden path"),
        ("~/vault", "the key of gemini"),
    ],
)
def test_what_no_child_may_see_is_refused(tmp_path: Path, key: str, path: str, reason: str) -> None:
    for folder in (".coilclaw/keys", ".ssh", "secrets/inner", "data", "vault"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "vault/gemini.key").touch()
    (tmp_path / "link").symlink_to(".coilclaw/keys")
    text = (
        '[security]\nforbidden_paths = ["/etc", "~/.ssh", "~/secrets"]\n'
        '[providers.models.gemini]\nkind = "gemini"\nmodel = "g"\n'
        'api_key_file = "~/vault/gemini.key"\n'
        f'[sandbox]\n{key} = ["~/data", "{path}"]\n'
    )
    found, view = problems(tmp_path, text)
    assert view is None
    (said,) = found
    assert f"sandbox.{key}" in said
    assert reason in said
