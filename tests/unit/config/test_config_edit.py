"""Changing one key: comments stay, nothing else changes, and nonsense is refused."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pytest

from coilclaw.app.config import edit, sample
from coilclaw.app.config.load import load_config
from coilclaw.kernel.errors import EnvironmentFault, UsageError

ENVIRON = {"HOME": "/home/u"}
TEXT = """\
# mine
default_model = "mock"   # the model

[security]  # careful
autonomy = "supervised" # not full
forbidden_paths = [
  "/etc",  # the system
]

[providers.models]
local = { kind = "mock", model = "mock" } # inline
[providers.models.x]
kind = "mock"
# the end
"""


@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("security.autonomy", "full", '"supervised" # not', '"full" # not'),
        ("security.autonomy", "'full'", '"supervised" # not', '"full" # not'),
        ("default_model", "4", '"mock"   #', '"4"   #'),
        ("default_model", "true", '"mock"   #', '"true"   #'),
        ("default_model", '"a b"', '"mock"   #', '"a b"   #'),
        ("default_model", "x\ny = 1", '"mock"   #', '"x\\ny = 1"   #'),
        ("providers.models.local.model", "m", 'model = "mock" }', 'model = "m" }'),
        ('providers.models."x".kind', "gemini", 'kind = "mock"\n# the', 'kind = "gemini"\n# the'),
        ("security.forbidden_paths", '["/a"]', '[\n  "/etc",  # the system\n]', '["/a"]'),
    ],
)
def test_one_value_changes_and_the_rest_stays(key: str, value: str, old: str, new: str) -> None:
    assert TEXT.count(old) == 1
    assert edit.set_value(TEXT, key, value) == TEXT.replace(old, new)


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("limits.max_tool_rounds", "7", ("limits", "max_tool_rounds", 7)),
        ("security.audit_log", "false", ("security", "audit_log", False)),
        ("workspace_dir", "/w", ("workspace_dir", "/w")),
        ("providers.models.new.kind", "mock", ("providers", "models", "new", "kind", "mock")),
        ("channels.cli.tools_allow", "['time']", ("channels", "cli", "tools_allow", ["time"])),
        (
            "providers.models.x.routes",
            "{ a = 'local' }",
            ("providers", "models", "x", "routes", {"a": "local"}),
        ),
    ],
)
def test_a_key_that_was_not_there_is_added(key: str, value: str, place: tuple[object, ...]) -> None:
    result = edit.set_value(TEXT, key, value)
    expected = tomllib.loads(TEXT)
    inner = expected
    for name in place[:-2]:
        inner = inner.setdefault(str(name), {})
    inner[str(place[-2])] = place[-1]
    assert tomllib.loads(result) == expected
    comments = [line for line in TEXT.splitlines() if "#" in line]
    assert [line for line in result.splitlines() if "#" in line] == comments


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("security.autonmy", "did you mean 'autonomy'?"),
        ("securty.autonomy", "did you mean 'security'?"),
        ("providers.models.x.modell", "did you mean 'model'?"),
        ("providers.model.x.kind", "did you mean 'models'?"),
        ("channels.http.enabled", "known there: cli"),
        ("security", "is a table; name one of its keys"),
        ("providers.models.x", "is a table"),
        ("security.autonomy.x", "is not a known key"),
        ("", "is not a dotted key"),
        ("a b", "is not a dotted key"),
        ("x = 1\ndefault_model", "is not a dotted key"),
        ("default_model = 1 #", "is not a dotted key"),
        ("[security]\nautonomy", "is not a dotted key"),
        ("a.b.c.d.e.f.g.h.i", "is not a dotted key"),
        ("a" + ".a" * 50_000, "is not a dotted key"),
        ("providers.models.x.api_key", "api_key_env"),
    ],
)
def test_a_key_without_a_meaning_is_refused(key: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        edit.set_value(TEXT, key, "canary-31")
    assert caught.value.rule == "config.key"
    assert words in caught.value.message
    assert "canary" not in caught.value.message


def test_what_is_no_toml_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        edit.set_value("a = ", "default_model", "x")
    assert caught.value.rule == "config.invalid"


@pytest.mark.parametrize(
    ("value", "read"),
    [("1", 1), ("1 # one", 1), ("1\nsecurity = 2", "1\nsecurity = 2"), ("1\n[x]", "1\n[x]")],
)
def test_a_value_is_one_value_and_no_more(value: str, read: object) -> None:
    assert edit.parsed_value(("limits", "max_tool_rounds"), value) == read


def test_a_result_that_says_something_else_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        edit.set_value("", "limits.tool_timeout_s", "nan")  # is not even what it is itself
    assert caught.value.rule == "config.edit"


def test_a_value_with_too_many_dots_is_a_string() -> None:
    value = "{a" + ".a" * 2000 + " = 1}"
    assert edit.parsed_value(("default_model",), value) == value
    with pytest.raises(UsageError) as caught:
        edit.set_value(value, "default_model", "x")
    assert caught.value.rule == "config.invalid"


def test_a_value_that_is_too_long_is_refused() -> None:
    edit.set_value("", "default_model", "x" * edit.MAX_VALUE_CHARS)
    with pytest.raises(UsageError) as caught:
        edit.set_value("", "default_model", "x" * (edit.MAX_VALUE_CHARS + 1))
    assert caught.value.rule == "config.value"


@pytest.mark.parametrize(
    "text",
    [
        "security = 3\n",
        "[[security]]\nautonomy = 'full'\n",
        "security = []\n",
    ],
)
def test_a_place_that_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        edit.set_value(text, "security.autonomy", "full")
    assert caught.value.rule == "config.edit"


@pytest.mark.parametrize(
    "text",
    [
        "security.audit_log = true\n[limits]\n",
        "security = { audit_log = true }\n",
        "[limits]\n[security]\naudit_log = true\n[providers.models.x]\nkind = 'mock'\n",
        "[providers.models.a]\nkind='mock'\n[security]\n[providers.models.b]\nkind='mock'\n",
        "",
        "# only this",
        "default_model = 'x'\r\n",
    ],
)
def test_any_layout_can_be_changed(text: str) -> None:
    result = edit.set_value(text, "security.autonomy", "full")
    expected = tomllib.loads(text)
    expected.setdefault("security", {})["autonomy"] = "full"
    assert tomllib.loads(result) == expected


def write(path: Path, key: str, value: str, home: Path) -> None:
    planned = edit.plan(
        path, lambda text: edit.set_value(text, key, value), home=home, environ=ENVIRON
    )
    edit.write(planned, home=home)


def test_the_file_is_written_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# mine\n", encoding="utf-8")
    path.chmod(0o664)
    write(path, "security.autonomy", "full", tmp_path)
    assert path.read_text(encoding="utf-8") == '# mine\n\n[security]\nautonomy = "full"\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert {p.name for p in tmp_path.iterdir()} == {"config.toml", "config.lock"}


def test_a_change_that_makes_it_wrong_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# mine\n", encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        write(path, "security.autonomy", "godmode", tmp_path)
    assert "(allowed: readonly, supervised, full)" in caught.value.message
    assert path.read_text(encoding="utf-8") == "# mine\n"


def test_a_wrong_file_can_be_mended_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("security.autonomy = 'x'\nsecurity.sandbox = 'y'\n", encoding="utf-8")
    write(path, "security.autonomy", "full", tmp_path)
    with pytest.raises(UsageError):
        write(path, "security.autonomy", "z", tmp_path)
    write(path, "security.sandbox", "none", tmp_path)
    assert load_config(path, home=tmp_path, environ=ENVIRON).security.sandbox == "none"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "coilclaw.toml"
    real.parent.mkdir()
    real.write_text("", encoding="utf-8")
    path = tmp_path / "config.toml"
    path.symlink_to(real)
    write(path, "default_model", "m", tmp_path)
    assert path.is_symlink()
    assert real.read_text(encoding="utf-8") == 'default_model = "m"\n'


def test_a_change_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("# one\n", encoding="utf-8")
    planned = edit.plan(
        path,
        lambda text: edit.set_value(text, "default_model", "m"),
        home=tmp_path,
        environ=ENVIRON,
    )
    path.write_text("# two\n", encoding="utf-8")
    with pytest.raises(EnvironmentFault) as caught:
        edit.write(planned, home=tmp_path)
    assert caught.value.rule == "config.changed"
    assert path.read_text(encoding="utf-8") == "# two\n"


@pytest.mark.parametrize("kind", ["directory", "encoding"])
def test_what_cannot_be_read_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "config.toml"
    if kind == "directory":
        path.mkdir()
    else:
        path.write_bytes(b"\xff")
    with pytest.raises(UsageError) as caught:
        write(path, "default_model", "m", tmp_path)
    assert caught.value.rule == "config.invalid"


def test_a_file_that_is_not_there_begins_as_the_sample(tmp_path: Path) -> None:
    planned = edit.plan(
        tmp_path / "config.toml",
        lambda text: edit.set_value(text, "default_model", "m"),
        home=tmp_path,
        environ=ENVIRON,
        initial=sample.text(tmp_path, ENVIRON),
    )
    assert planned.before is None
    assert planned.after.startswith("# The configuration of CoilClaw")
    assert planned.after.count("#") == sample.text(tmp_path, ENVIRON).count("#")
