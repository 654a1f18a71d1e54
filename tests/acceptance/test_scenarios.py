"""One directory per case: an answer, the tree before it, and the tree after it or the refusal."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from coilclaw.cli.main import main
from tests.support.trees import picture

SCENARIOS = Path(__file__).parents[1] / "scenarios" / "changes"
CASES = sorted(path.name for path in SCENARIOS.iterdir())


@pytest.mark.parametrize("case", CASES)
def test_scenario(
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = SCENARIOS / case
    expect = json.loads((folder / "expect.json").read_text())
    root, home = tmp_path / "tree", tmp_path / "home"
    shutil.copytree(folder / "before", root, symlinks=True)
    before = picture(root)
    monkeypatch.setenv("COILCLAW_HOME", str(home))

    code = main(["apply", str(folder / "answer.txt"), "--root", str(root), *expect.get("args", [])])

    said = capsys.readouterr().err
    assert code == expect["exit"], said
    if code == 0:
        assert picture(root) == picture(folder / "after")
        main(["undo", "--root", str(root)])
        assert picture(root) == before
    else:
        assert f"[{expect['rule']}]" in said
        assert picture(root) == before
        first = said.splitlines()[0]
        assert first.startswith("coilclaw: ")
        assert first.isprintable()


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 80
