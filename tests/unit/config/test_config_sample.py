"""The file that ``init`` writes is complete, valid and all defaults."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from coilclaw.app.config import sample
from coilclaw.app.config.keys import ANY, MODELS, TABLES
from coilclaw.app.config.load import examine_config_text
from coilclaw.kernel.errors import UsageError

BASELINE = Path(__file__).parents[2] / "baselines" / "v1" / "config" / "config.toml"
ENVIRON = {"HOME": "/home/u"}
HOME = Path("/home/u/.coilclaw")


def test_what_the_first_version_wrote_is_still_written_in_its_order() -> None:
    """Keys have been added since; none has gone, or means something else."""
    lines = iter(sample.text(HOME, ENVIRON).splitlines())
    assert [
        line for line in BASELINE.read_text(encoding="utf-8").splitlines() if line not in lines
    ] == []


def test_a_file_of_the_first_version_can_be_read() -> None:
    text = BASELINE.read_text(encoding="utf-8")
    read = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    default = examine_config_text("", HOME / "config.toml", home=HOME, environ=ENVIRON)
    assert read == default
    assert read.config is not None


@pytest.mark.parametrize(
    ("home", "user"),
    [
        ("/opt/claw", "/home/u"),
        ("/a $b/c'\"\\d/é", "/home/u"),
        ("/h/$HOME/~", "/h/$HOME"),
        ("/home/user", "/home/u"),
        ("/home/u", "/home/u"),
        ("/x", "/"),
    ],
)
def test_elsewhere_it_is_all_defaults_too(home: str, user: str) -> None:
    place, environ = Path(home), {"HOME": user}
    text = sample.text(place, environ)
    read = examine_config_text(text, place / "config.toml", home=place, environ=environ)
    default = examine_config_text("", place / "config.toml", home=place, environ=environ)
    assert read.problems == ()
    assert read.config == default.config


@pytest.mark.parametrize("workspace", ["/w", "/home/u/$x", "/home/u", "/home/u/a\nb"])
def test_the_workspace_is_the_one_that_was_asked_for(workspace: str) -> None:
    text = sample.text(HOME, ENVIRON, Path(workspace))
    read = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    if "\n" in workspace:
        assert [p.key for p in read.problems] == ["workspace_dir"]
        return
    assert read.config is not None
    assert read.config.workspace_dir == Path(workspace)


def test_a_path_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        sample.text(Path("/h/\udcff"), ENVIRON)
    assert caught.value.rule == "config.path"


def test_it_is_complete() -> None:
    data = tomllib.loads(sample.text(HOME, ENVIRON))
    for table, keys in TABLES.items():
        if ANY in table or table in {("gateway",), ("web_search",)}:
            continue  # these stand in its comments
        inner = data
        for name in table:
            inner = inner[name]
        assert set(keys) <= set(inner), table


def test_what_reaches_beyond_the_program_stands_in_its_comments() -> None:
    text = sample.text(HOME, ENVIRON)
    begin = text.index("# [gateway]")
    told = [line.removeprefix("#").removeprefix(" ") for line in text[begin:].splitlines()]
    lines = [line for line in told if line.startswith("[") or " = " in line]
    read = examine_config_text("\n".join(lines), HOME / "config.toml", home=HOME, environ=ENVIRON)
    assert read.problems == ()
    data = tomllib.loads("\n".join(lines))
    entries = [data["gateway"], data["web_search"], *data["plugins"].values()]
    servers = data["mcp"]["servers"].values()
    named = {key for entry in entries for key in entry} | {key for one in servers for key in one}
    tables = [("gateway",), ("web_search",), ("plugins", ANY), ("mcp", "servers", ANY)]
    assert named == {key for table in tables for key in TABLES[table]}


def test_the_providers_in_its_comments_are_valid() -> None:
    text = sample.text(HOME, ENVIRON)
    begin = text.index("# [providers.models.gemini]")
    end = text.index("[channels.cli]")
    lines = [line.removeprefix("#").removeprefix(" ") for line in text[begin:end].splitlines()]
    whole = text[:begin] + "\n".join(lines) + "\n" + text[end:]
    read = examine_config_text(whole, HOME / "config.toml", home=HOME, environ=ENVIRON)
    assert read.problems == ()
    assert read.config is not None
    assert {s.kind for s in read.config.providers.values()} == set(
        TABLES[*MODELS, ANY]["kind"].allowed
    )
