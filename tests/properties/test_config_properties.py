"""Whatever a file holds, reading it ends with a configuration or with problems."""

from __future__ import annotations

import tempfile
import tomllib
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from coilclaw.app.config import edit, sample
from coilclaw.app.config.keys import ANY, TABLES
from coilclaw.app.config.load import examine_config, examine_config_text
from coilclaw.app.config.section import Expanded, escape_path, expand_path
from coilclaw.kernel.errors import UsageError
from tests.support.scale import scaled

HOME = Path("/home/u/.coilclaw")
ENVIRON = {"HOME": "/home/u"}
SAMPLE = sample.text(HOME, ENVIRON)

KEYS = sorted(
    ".".join((*(part for part in table if part != ANY), *([name] if name else []), key))
    for table, keys in TABLES.items()
    for key in keys
    for name in (("local", "openai_compatible", "new") if table[-1:] == (ANY,) else ("",))
)
WORDS = st.one_of(
    st.sampled_from(["true", "0", "-1", "5", "0.5", "nan", "[]", "{}", "[[1]]", "1979-05-27"]),
    st.sampled_from(["''", "'full'", "'/x'", "'~'", "'$HOME'", "'$NO'", "'local'", "'http://h'"]),
    st.sampled_from(["'mock'", "'gemini'", "'reliable'", "'router'", "'recorded'"]),
    st.sampled_from(["['a']", "['/a']", "['local']", "{ a = 'local' }"]),
)


def checked(text: str) -> None:
    result = examine_config_text(text, HOME / "config.toml", home=HOME, environ=ENVIRON)
    assert (result.config is None) == bool(result.problems)
    lines = text.count("\n") + 1
    for problem in result.problems:
        assert problem.line is None or 1 <= problem.line <= lines
        assert problem.message
        assert problem.sentence("f").isprintable()


@settings(max_examples=scaled(full=2000, default=150))
@given(st.dictionaries(st.sampled_from(KEYS), WORDS, max_size=8))
def test_any_values_at_any_keys(values: dict[str, str]) -> None:
    checked("".join(f"{key} = {value}\n" for key, value in values.items()))


@settings(max_examples=scaled(full=1000, default=100))
@given(st.data())
def test_a_sample_with_a_mistake_in_it(data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(SAMPLE)))
    end = data.draw(st.integers(begin, min(begin + 30, len(SAMPLE))))
    checked(SAMPLE[:begin] + data.draw(st.text(max_size=10)) + SAMPLE[end:])


@settings(max_examples=scaled(full=1000, default=60))
@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        path.write_bytes(data)
        result = examine_config(path, home=HOME, environ=ENVIRON)
    assert (result.config is None) == bool(result.problems)


@settings(max_examples=scaled(full=1000, default=100))
@given(st.sampled_from(KEYS), st.one_of(WORDS, st.text(max_size=10)))
def test_setting_one_key_changes_that_one_only(key: str, value: str) -> None:
    try:
        result = edit.set_value(SAMPLE, key, value)
    except UsageError as problem:
        assert problem.rule == "config.edit"  # noqa: PT017 - only this one is an answer
        return
    names = key.split(".")
    expected = tomllib.loads(SAMPLE)
    inner = expected
    for name in names[:-1]:
        inner = inner.setdefault(name, {})
    inner[names[-1]] = edit.parsed_value(tuple(names), value)
    assert tomllib.loads(result) == expected
    comments = [line for line in SAMPLE.splitlines() if line.startswith("#")]
    assert [line for line in result.splitlines() if line.startswith("#")] == comments


@settings(max_examples=scaled(full=1000, default=100))
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20))
def test_an_escaped_path_expands_to_itself(name: str) -> None:
    path = f"/{name}"
    assert expand_path(escape_path(path), ENVIRON) == Expanded(path)
