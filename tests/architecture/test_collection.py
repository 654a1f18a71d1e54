"""The same tests are collected at any time, with any hash seed, in any order, in any locale.

Test processes compare what they collected, and stop when one has other tests than another.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.children import PATIENCE_S
from tests.support.repository import ROOT

# The clock is another one before anything else is imported.
COLLECT = """
import json, sys
import time_machine

class Tell:
    def pytest_collection_finish(self, session):
        print("COLLECTED", json.dumps([item.nodeid for item in session.items]))

with time_machine.travel(float(sys.argv[1])):
    import pytest

    sys.exit(pytest.main(["--collect-only", *sys.argv[2:]], plugins=[Tell()]))
"""
DETERMINED = "def test_it():\n    pass\n"
UNDETERMINED = {
    "clock": "import time\nVALUES = [str(time.time())]\n",
    "hash seed": "VALUES = sorted({'a', 'b', 'c', 'd', 'e', 'f'}, key=hash)\n",
    "order": "import sys\nVALUES = [str('fractions' in sys.modules)]\n",
    "locale": "import os\nVALUES = [os.environ['LC_ALL']]\n",
}
PARAMETRISED = (
    "import pytest\n{values}\n@pytest.mark.parametrize('value', VALUES)\n"
    "def test_it(value):\n    pass\n"
)


def _start(
    root: Path, places: list[str], clock: str, seed: str, locale: str
) -> subprocess.Popen[str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONHASHSEED": seed,
        "LC_ALL": locale,
        "TZ": "Asia/Tokyo" if seed == "1" else "America/Lima",
        "COILCLAW_TEST_SCALE": "full",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", COLLECT, clock, *places],
        cwd=root,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _collected(process: subprocess.Popen[str]) -> dict[str, list[str]]:
    """The tests of each file, in their order."""
    output, _ = process.communicate(timeout=10 * PATIENCE_S)
    assert process.returncode == 0, output
    (line,) = [line for line in output.splitlines() if line.startswith("COLLECTED ")]
    found: dict[str, list[str]] = {}
    for name in json.loads(line.removeprefix("COLLECTED ")):
        found.setdefault(name.partition("::")[0], []).append(name)
    return found


def _differences(root: Path, places: list[str]) -> list[str]:
    """The files of which two collections have other tests, or the same ones in another order."""
    started = [
        _start(root, places, "1000000000", "1", "C"),
        _start(root, places[::-1], "2000000000.5", "2", "C.UTF-8"),
    ]
    one, other = map(_collected, started)
    assert one
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def _write(root: Path, files: dict[str, str]) -> list[str]:
    (root / "pytest.ini").write_text("[pytest]\naddopts = -p no:cacheprovider\n")
    for name, text in files.items():
        (root / name).write_text(text)
    return list(files)


@pytest.mark.slow
@pytest.mark.parametrize("what", UNDETERMINED)
def test_what_would_differ_is_found(tmp_path: Path, what: str) -> None:
    values = PARAMETRISED.format(values=UNDETERMINED[what])
    files = {"test_odd.py": values, "test_beside.py": f"import fractions\n{DETERMINED}"}
    assert _differences(tmp_path, _write(tmp_path, files)) == ["test_odd.py"]


@pytest.mark.slow
def test_what_is_the_same_is_not(tmp_path: Path) -> None:
    places = _write(tmp_path, {"test_a.py": DETERMINED, "test_b.py": DETERMINED})
    assert _differences(tmp_path, places) == []


@pytest.mark.slow
def test_our_own_tests_are_always_the_same() -> None:
    places = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/*"))
    kept = [name for name in places if _is_collected(ROOT / name)]
    assert len(kept) > 100
    assert _differences(ROOT, kept) == []


def _is_collected(path: Path) -> bool:
    if path.is_dir():
        return path.parent.name == "unit"
    return path.name.startswith("test_") and path.suffix == ".py"
