"""Every example contract is carried out, in a repository that it fits."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs import Answering, opened, split, task

EXAMPLES = Path(__file__).parents[2] / "contracts" / "examples"
UNITTEST = (
    b"import unittest\n\n\nclass Starts(unittest.TestCase):\n    def test(self):\n        pass\n"
)


def _test(body: str) -> str:
    return (
        "import unittest\n\n\nclass Works(unittest.TestCase):\n"
        f"    def test(self):\n        {body}\n"
    )


REPOSITORIES: Mapping[str, Mapping[str, bytes]] = {
    "single_worker": {
        "calculator.py": b"def add(a, b):\n    return a + b\n",
        "tests/test_add.py": UNITTEST,
    },
    "from_request": {"README.md": b"# Greeting\n", "tests/test_starts.py": UNITTEST},
    "docs_only": {"README.md": b"# Tool\n", "docs/usage.md": b"# Use\n"},
    "read_only_audit": {
        "service/handlers.py": b"def handle(text):\n    return text\n",
        "tests/test_starts.py": UNITTEST,
    },
    "strict_fix": {
        "storage/names.py": b"def safe_name(text):\n    return text\n",
        "tests/test_starts.py": UNITTEST,
    },
    "node_project": {
        "package.json": b'{"name": "x", "type": "module", '
        b'"scripts": {"lint": "node --check src/slugify.js"}}\n',
        "src/slugify.js": b"export const slugify = (text) => text;\n",
        "test/starts.test.js": b"import test from 'node:test';\n\ntest('starts', () => {});\n",
    },
    "tech_lead_split": {"converters/__init__.py": b"", "tests/test_starts.py": UNITTEST},
}
WORK: Mapping[str, Mapping[str, str]] = {
    "single_worker": {
        "calculator.py": "def add(a, b):\n    return a + b\n\n\n"
        "def divide(a, b):\n    return a / b\n",
        "tests/test_divide.py": _test(
            "from calculator import divide; self.assertEqual(divide(4, 2), 2)"
        ),
    },
    "from_request": {
        "greeting.py": 'def greet(name):\n    return f"Hello, {name}!" if name else "Hello!"\n',
        "tests/test_greeting.py": _test(
            "from greeting import greet; self.assertEqual(greet('Ada'), 'Hello, Ada!')"
        ),
    },
    "docs_only": {"README.md": "# Tool\n\n## Usage\n\n    tool run\n"},
    "strict_fix": {
        "storage/names.py": "def safe_name(text):\n    if '..' in text:\n"
        "        raise ValueError(text)\n    return text\n",
        "tests/test_names.py": _test(
            "from storage.names import safe_name; self.assertRaises(ValueError, safe_name, '../x')"
        ),
    },
    "node_project": {
        "src/slugify.js": "export const slugify = (text) => text.replace(/ +/g, '-');\n",
        "test/slugify.test.js": "import assert from 'node:assert';\nimport test from 'node:test';\n"
        "import { slugify } from '../src/slugify.js';\n\n"
        "test('dashes', () => assert.equal(slugify('a  b'), 'a-b'));\n",
    },
}
CONVERTERS = {
    "length": ("metres_to_feet", "3.28084"),
    "weight": ("kilograms_to_pounds", "2.20462"),
}


def _names() -> Sequence[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.json"))


def test_there_is_a_repository_for_every_example() -> None:
    assert sorted(REPOSITORIES) == _names()


@pytest.mark.parametrize("name", [name for name in _names() if name != "tech_lead_split"])
def test_an_example_runs(name: str) -> None:
    if name == "node_project" and shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    with opened(REPOSITORIES[name]) as world:
        written = WORK.get(name)
        turn: list[dict[str, Any]] = [{"text": "Looked at it."}]
        if written is not None:
            turn.append({"write": dict(written)})
        contract = (EXAMPLES / f"{name}.json").read_bytes()
        outcome = world.ended(world.run(contract, world.script(turn), merge=True))
        assert (outcome.status, outcome.merge, outcome.reason) == ("passed", "merged", "")
        for path, content in (written or {}).items():
            assert (world.repo / path).read_text() == content


def test_the_split_example_runs() -> None:
    with opened(REPOSITORIES["tech_lead_split"]) as world:
        tests = "python3 -m unittest discover -s tests"
        tasks = [
            task(kind, (f"converters/{kind}.py", f"tests/test_{kind}.py"), (tests,))
            for kind in CONVERTERS
        ]
        world.models["TECH_LEAD"] = Answering(split(*tasks))
        scripts = {
            f"*{kind}": [
                [
                    {
                        "write": {
                            f"converters/{kind}.py": f"def {name}(x):\n    return x * {factor}\n",
                            f"tests/test_{kind}.py": _test(
                                f"from converters.{kind} import {name}; "
                                f"self.assertEqual({name}(1), {factor})"
                            ),
                        }
                    }
                ]
            ]
            for kind, (name, factor) in CONVERTERS.items()
        }
        contract = (EXAMPLES / "tech_lead_split.json").read_bytes()
        outcome = world.ended(world.run(contract, world.script_for(scripts), merge=True))
        assert (outcome.status, outcome.merge, outcome.reason) == ("passed", "merged", "")
        assert sorted(path.name for path in (world.repo / "converters").glob("*t*.py")) == [
            "__init__.py",
            "length.py",
            "weight.py",
        ]
