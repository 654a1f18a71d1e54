"""Code that ends the tests or notices them: blocked where it is new; its neighbours are not."""

from __future__ import annotations

import pytest

from coilclaw.runs.roles import rule_review
from tests.unit.orchestrator.planning import changed, evidence

PY = "src/app/a.py"


def blocking(path: str, before: str | None, after: str) -> list[int]:
    found = rule_review.findings(evidence(changed(path, before, after)))
    return [each.line or 0 for each in found if each.severity == "blocking"]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("import os\nos._exit(0)\n", 2),
        ("import os\ndef f():\n    os._exit(0)\n", 3),
        ("import os as o\ndef f():\n    o._exit(0)\n", 3),
        ("from os import _exit as leave\nleave(0)\n", 2),
        ("import os\nrun = os.\\\n  _exit\n", 2),
        ("import sys\nsys.exit(0)\n", 2),
        ("import sys\ntry:\n    sys.exit(0)\nfinally:\n    pass\n", 3),
        ("import sys\nclass A:\n    sys.exit()\n", 3),
        ("import sys\ndef f(a=sys.exit()):\n    pass\n", 2),
        ("from sys import exit as leave\nleave()\n", 2),
        ("import sys\nif __name__ != '__main__':\n    sys.exit(0)\n", 3),
        ("import sys\nif __name__ == '__main__':\n    pass\nelse:\n    sys.exit(0)\n", 5),
        ("exit()\n", 1),
        ("quit(0)\n", 1),
        ("raise SystemExit(0)\n", 1),
        ("raise SystemExit\n", 1),
        ("import atexit\natexit.register(print)\n", 2),
        ("import atexit\n@atexit.register\ndef f():\n    pass\n", 2),
        ("import sys\nT = 'pytest' in sys.modules\n", 2),
        ("import sys\ndef f():\n    return 'unittest' not in sys.modules\n", 3),
        ("from sys import modules\nT = 'pytest' in modules.keys()\n", 2),
        ("import sys\nT = sys.modules.get('unittest.case')\n", 2),
        ("import sys\nT = sys.modules['_pytest']\n", 2),
        ("import os\nT = os.environ.get('PYTEST_CURRENT_TEST')\n", 2),
        ("import os\nT = 'PYTEST_CURRENT_TEST' in os.environ\n", 2),
        ("import unittest\nunittest.TestCase.assertEqual = print\n", 2),
        ("import unittest as u\ndef f():\n    u.TestCase.assertEqual = print\n", 3),
        ("from unittest import TestCase as T\nT.assertEqual = print\n", 2),
        ("import unittest.case\nunittest.case.TestCase.run: object = print\n", 2),
        ("import unittest\nT = unittest.TestCase\nT.fail = print\n", 3),
        ("import unittest\nx, unittest.TestCase.fail = 1, print\n", 2),
        ("import unittest\ndel unittest.TestCase.fail\n", 2),
        ("import unittest\nsetattr(unittest.TestCase, 'fail', print)\n", 2),
        ("import unittest\ntype.__setattr__(unittest.TestCase, 'fail', print)\n", 2),
        ("import unittest\nvars(unittest)['main'] = print\n", 2),
        ("import unittest\nunittest.__dict__['main'] = print\n", 2),
        ("__import__('unittest').TestCase.fail = print\n", 1),
        ("import importlib\nu = importlib.import_module('unittest')\nu.main = print\n", 3),
        ("import pytest\npytest.raises = print\n", 2),
        ("import _pytest.runner\n_pytest.runner.call_runtest_hook = print\n", 2),
        ("from _pytest import outcomes\noutcomes.Failed = ValueError\n", 2),
        ("from unittest.mock import patch\npatch('unittest.TestCase.fail').start()\n", 2),
        ("import pytest\nfrom unittest import mock\nmock.patch.object(pytest, 'raises')\n", 3),
        ("import builtins\nbuiltins.AssertionError = ValueError\n", 2),
        ("import builtins\nsetattr(builtins, 'AssertionError', ValueError)\n", 2),
        ("__builtins__['AssertionError'] = ValueError\n", 1),
        ("import sys\nsys.modules['pytest'] = None\n", 2),
        ("import sys\nm = sys.modules\nm['unittest'].TestCase.fail = print\n", 3),
        ("import unittest\nunittest.__dict__.update(main=print)\n", 2),
        ("import unittest\nt, x = unittest.TestCase, 1\nt.fail = print\n", 3),
        ("import unittest\n(t := unittest.TestCase).fail = print\n", 2),
        ("import unittest\nfor c in unittest.TestCase.__subclasses__():\n    c.run = print\n", 3),
        ("import unittest\n[setattr(c, 'run', print) for c in [unittest.TestCase]]\n", 2),
        ("import unittest\ngetattr(unittest, 'Test' + 'Case').fail = print\n", 2),
        ("import os\ngetattr(os, '_ex' + 'it')(0)\n", 2),
        ("import posix\ndef f():\n    posix._exit(0)\n", 3),
        ("import pytest\ndef f():\n    pytest.exit('done', 0)\n", 3),
        ("import os\nT = os.environ.get('PYTEST_CURRENT_' + 'TEST')\n", 2),
        ("import sys\nT = 'py' + 'test' in sys.modules\n", 2),
        ("exec('import unittest\\nunittest.TestCase.fail = print')\n", 1),
    ],
)
def test_it_is_blocked(code: str, line: int) -> None:
    assert blocking(PY, None, code) == [line]
    assert blocking(PY, "a = 1\n", code) == [line]
    assert blocking(PY, code, code + "a = 1\n") == []


@pytest.mark.parametrize(
    "code",
    [
        "import sys\ndef main():\n    sys.exit(0)\n",
        "from unittest.mock import Mock\nm = Mock()\nm.return_value = 3\n",
        "import sys\nfor name in list(sys.modules):\n    print(name)\n",
        "import os\nrun = getattr(os, 'sys' + 'tem')\nexec('a = 1')\n",
        "x = " + " + ".join(["'a'"] * 200) + "\n",
        "import sys\nif __name__ == '__main__':\n    sys.exit(0)\n",
        "import sys\nif '__main__' == __name__:\n    raise SystemExit(0)\n",
        "leave = lambda: exit()\n",
        "def exit():\n    pass\nexit()\n",
        "import sys\nT = 'json' in sys.modules\n",
        "import os\nT = os.environ.get('HOME')\n",
        "NAMES = ['pytest', 'unittest']\nT = 'pytest' in NAMES\n",
        '"""PYTEST_CURRENT_TEST is not looked at."""\n',
        "def register():\n    pass\nregister()\n",
        "raise ValueError('no')\n",
        "import pytest\n@pytest.fixture\ndef thing():\n    return pytest.importorskip('x')\n",
        "import unittest\nclass Case(unittest.TestCase):\n    maxDiff = None\n",
        "import unittest\nclass C(unittest.TestCase):\n    def setUp(self):\n        self.a = 1\n",
        "from unittest import mock\ndef f(a):\n    return mock.patch.object(a, 'b')\n",
        "from unittest.mock import patch\nWITH = patch('app.a.now')\n",
        "import builtins\nbuiltins._ = str\n",
        "import builtins\nreal = builtins.AssertionError\n",
        "class unittest:\n    pass\nunittest.x = 1\n",
        "setattr(object(), 'fail', print)\n",
        "VALUES = {}\nVALUES['unittest'] = 1\n",
        "from .unittest import Case\nCase.x = 1\n",
    ],
)
def test_its_neighbour_is_allowed(code: str) -> None:
    assert blocking(PY, None, code) == []


def test_where_it_stands_decides() -> None:
    code = "import sys\nsys.exit(0)\n"
    assert blocking("src/app/test_a.py", None, code) == []
    assert blocking("src/app/__main__.py", None, code) == []
    assert blocking("src/app/__main__.py", None, "import os\nos._exit(0)\n") == [2]
    assert blocking("src/app/a.txt", None, code) == []


def test_a_line_that_moves_to_where_it_counts() -> None:
    before = "import sys\nif True:\n    def f():\n        sys.exit(0)\n"
    after = "import sys\nif True:\n    if True:\n        sys.exit(0)\n"
    assert blocking(PY, before, after) == [4]
    assert blocking(PY, after, "\n" + after) == []
