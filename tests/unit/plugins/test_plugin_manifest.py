"""The manifest: everything that is wrong in one pass, and what a right one means."""

from __future__ import annotations

from pathlib import Path

import pytest

from coilclaw.agent.plugins.files import PluginFile
from coilclaw.agent.plugins.manifest import (
    MAX_BYTES,
    Declared,
    Example,
    Manifest,
    PluginTool,
    check_files,
    inspect,
    parse,
)
from coilclaw.kernel.document import Document
from coilclaw.kernel.effects import Effect, Fetches, Reads, Runs, Writes
from coilclaw.kernel.errors import UsageError
from coilclaw.kernel.messages import Json
from tests.support.pluginworld import manifest

SPECIFIED = """
name = "echo-plugin"
version = "0.1.0"
capabilities = ["tool"]

[[tools]]
name = "echo"
description = "Echoes input"
command = "./echo-plugin"
schema = { type = "object" }
"""


def problems(text: str) -> list[str]:
    found = inspect(text)[1].problems
    assert found
    return [f"{problem.key}: {problem.message}" for problem in found]


def test_the_manifest_of_the_specification_is_right() -> None:
    assert parse(SPECIFIED) == Manifest(
        "echo-plugin",
        "0.1.0",
        (PluginTool("echo", "Echoes input", ("echo-plugin",), {"type": "object"}),),
    )


def test_everything_that_can_be_said_is_read() -> None:
    text = """
name = "big_one2"
version = "1.0.0-rc.1+x"
description = "All of it"
capabilities = ["tool"]
[[tools]]
name = "a"
description = "A"
command = ["bin/tool", "--mode", "a b"]
timeout_s = 2.5
output_bytes = 1000
network = true
[tools.schema]
type = "object"
properties = { path = { type = "string" }, url = { type = "string" } }
[tools.effects]
reads = ["$path", "docs/fixed.md"]
writes = ["out.txt"]
fetches = ["$url", "api.example.com"]
runs = ["git status"]
[[tools.examples]]
arguments = { path = "x" }
success = false
output = "no"
"""
    assert parse(text) == Manifest(
        "big_one2",
        "1.0.0-rc.1+x",
        (
            PluginTool(
                "a",
                "A",
                ("bin/tool", "--mode", "a b"),
                {
                    "type": "object",
                    "properties": {"path": {"type": "string"}, "url": {"type": "string"}},
                },
                Declared(
                    ("$path", "docs/fixed.md"),
                    ("out.txt",),
                    ("$url", "api.example.com"),
                    ("git status",),
                ),
                network=True,
                timeout_s=2.5,
                output_bytes=1000,
                examples=(Example({"path": "x"}, success=False, output="no"),),
            ),
        ),
        "All of it",
    )


def test_all_problems_are_found_in_one_pass() -> None:
    text = """
nmae = "x"
version = "one"
capabilities = ["tool", "memory"]
[[tools]]
name = "Bad-Name"
descripton = "typo"
command = "../../bin/sh"
schema = { type = "objekt" }
timeout_s = -1
output_bytes = "many"
network = "yes"
[tools.effects]
reeds = ["x"]
writes = "x"
[[tools]]
name = "second"
description = ""
command = []
"""
    assert problems(text) == [
        "name: is missing",
        "nmae: is not a known key; did you mean 'name'?",
        "version: 'one' is not a version such as 0.1.0",
        'capabilities: is not ["tool"], the only supported value',
        "tools[0].description: is missing",
        "tools[0].name: 'Bad-Name' is not made of small letters, digits and '_'",
        "tools[0].descripton: is not a known key; did you mean 'description'?",
        (
            "tools[0].command: path '../../bin/sh' climbs out with '..'; "
            "the program is a file of the plugin"
        ),
        'tools[0].schema: does not have type = "object"',
        "tools[0].timeout_s: is out of bounds: it must be more than 0 and at most 3600",
        "tools[0].output_bytes: must be a number, not a string",
        "tools[0].network: must be true or false, not a string",
        "tools[0].effects.reeds: is not a known key; did you mean 'reads'?",
        "tools[0].effects.writes: must be a list, not a string",
        "tools[1].schema: is missing",
        "tools[1].description: is empty",
        "tools[1].command: is neither a program nor a list of a program and its arguments",
    ]
    with pytest.raises(UsageError) as problem:
        parse(text)
    assert problem.value.rule == "plugin.manifest"
    assert problem.value.message.startswith(
        "manifest.toml has 17 problems:\nname: is missing\nline 2: nmae: "
    )


@pytest.mark.parametrize(
    "name",
    ["", "Echo", "../x", "a/b", ".hidden", "a--b", "-a", "a-", "con", "x" * 65, "a b", "é", "1a"],
)
def test_a_name_that_could_be_something_else_is_refused(name: str) -> None:
    found = problems(SPECIFIED.replace('"echo-plugin"', f'"{name}"', 1))
    assert len(found) == 1
    assert found[0].startswith("name: ")


@pytest.mark.parametrize("name", ["a", "echo-plugin", "a_b-c2", "x" * 64])
def test_other_names_are_not(name: str) -> None:
    found = parse(SPECIFIED.replace('"echo-plugin"', f'"{name}"', 1))
    assert isinstance(found, Manifest)
    assert found.name == name


@pytest.mark.parametrize(
    "command",
    [
        '"/bin/sh"',
        '"python3/../../sh"',
        '["/usr/bin/python3", "x.py"]',
        '""',
        "7",
        '["run", 7]',
        '["run", "a\\u0000b"]',
        '"~/x"',
        '"."',
    ],
)
def test_a_command_is_a_file_of_the_plugin(command: str) -> None:
    (found,) = problems(SPECIFIED.replace('"./echo-plugin"', command))
    assert found.startswith("tools[0].command: ")


def test_a_program_must_be_there_and_executable() -> None:
    def missing(files: dict[str, PluginFile]) -> list[str]:
        document = Document()
        check_files(document, parse(SPECIFIED), files)
        return [str(problem) for problem in document.problems]

    plain = PluginFile("echo-plugin", b"", 0o644)
    right = PluginFile("echo-plugin", b"", 0o755)
    assert missing({}) == ["tools[0].command: the plugin has no file 'echo-plugin'"]
    assert missing({"echo-plugin": plain}) == [
        "tools[0].command: 'echo-plugin' is not executable; run chmod +x"
    ]
    assert missing({"echo-plugin": right}) == []


@pytest.mark.parametrize(
    "schema",
    [
        "{ type = 'array' }",
        "{ type = 'object', properties = { a = { type = 'nope' } } }",
        "{ type = 'object', required = 'a' }",
        "{ type = 'object', '$ref' = 'https://example.com/schema.json' }",
        "{ type = 'object', default = nan }",
        "{ type = 'object', default = 2020-01-01 }",
        "'object'",
    ],
)
def test_a_schema_is_a_schema_of_an_object(schema: str) -> None:
    (found,) = problems(manifest(schema=schema))
    assert found.startswith("tools[0].schema: ")


def test_examples_must_fit_the_schema() -> None:
    text = manifest(
        more="examples = [{ arguments = { n = 'x' } }, { argument = {} }, { arguments = {n = 1} }]",
        schema="{ type = 'object', properties = { n = { type = 'integer' } } }",
    )
    assert problems(text) == [
        'tools[0].examples[0].arguments: /n: the value is not of type "integer"',
        "tools[0].examples[1].arguments: is missing",
        "tools[0].examples[1].argument: is not a known key; did you mean 'arguments'?",
    ]


def test_an_effect_may_not_name_an_argument_that_is_none() -> None:
    assert problems(manifest(more="effects = { reads = ['$pth'] }")) == [
        "tools[0].effects: '$pth' is not a property of the tool's schema"
    ]
    schema = "{ type = 'object', properties = { pth = { type = 'string' } } }"
    right = parse(manifest(more="effects = { reads = ['$pth'] }", schema=schema))
    assert isinstance(right, Manifest)


def test_servers_are_named_only_with_the_network() -> None:
    effects = "effects = { fetches = ['example.com'] }"
    assert problems(manifest(more=effects)) == [
        "tools[0].effects.fetches: names servers, but 'network' is not true"
    ]
    assert isinstance(parse(manifest(more=f"network = true\n{effects}")), Manifest)


@pytest.mark.parametrize(
    "text",
    [
        "not toml",
        "a = " + "[" * 5000,
        "x = 1\nx = 2",
        "# " + "x" * MAX_BYTES,
        "tools = 3",
        "tools = [3]",
        "tools = []",
    ],
)
def test_what_is_no_manifest_at_all_is_said(text: str) -> None:
    assert problems(text)


def test_two_tools_may_not_have_one_name() -> None:
    tool = SPECIFIED[SPECIFIED.index("[[tools]]") :]
    assert problems(SPECIFIED + tool) == ["tools[1].name: 'echo' is used twice"]


@pytest.mark.parametrize(
    ("declared", "args", "effects"),
    [
        (Declared(), {"path": "x"}, ()),
        (Declared(reads=("$path",)), {}, ()),
        (Declared(reads=("$path", "b")), {"path": "a"}, (Reads("a"), Reads("b"))),
        (Declared(reads=("$path",)), {"path": ["a", "b"]}, (Reads("a"), Reads("b"))),
        (Declared(writes=("$path",)), {"path": "../x"}, (Writes("../x"),)),
        (Declared(fetches=("a.example",)), {}, (Fetches("https://a.example/"),)),
        (Declared(fetches=("$u",)), {"u": "http://a/b"}, (Fetches("http://a/b"),)),
        (Declared(runs=("ls -l",)), {}, (Runs(command="ls -l"),)),
        (Declared(runs=("$c",)), {"c": ["ls", "-l"]}, (Runs(argv=("ls", "-l")),)),
        (Declared(runs=("$c",)), {"c": "rm x"}, (Runs(command="rm x"),)),
    ],
)
def test_declared_effects_become_those_of_a_call(
    declared: Declared, args: dict[str, Json], effects: tuple[Effect, ...]
) -> None:
    assert declared.effects(args) == effects


@pytest.mark.parametrize("value", [7, True, {"a": "b"}, ["a", 7], [["a"]], ["x"] * 101])
@pytest.mark.parametrize("verb", ["reads", "writes", "fetches", "runs"])
def test_an_argument_that_names_nothing_readable_is_no_way_round(value: Json, verb: str) -> None:
    with pytest.raises(UsageError) as problem:
        Declared(**{verb: ("$path",)}).effects({"path": value})
    assert problem.value.rule == "plugin.arguments"


def test_the_sample_plugin_is_right() -> None:
    sample = Path(__file__).parents[3] / "contrib" / "echo-plugin" / "manifest.toml"
    found = parse(sample.read_text())
    assert [tool.name for tool in found.tools] == ["echo", "count_lines"]
