"""The worked example of docs/environments.md works."""

from __future__ import annotations

import os
import re
from pathlib import Path

from coilclaw.traces.environments import catalogue
from coilclaw.traces.environments.judge import Judge
from coilclaw.workspace.process.sandbox import probe_sandboxes
from tests.support.environments import write_environment
from tests.support.repository import text

RIGHT = "#!/usr/bin/env python3\nimport sys\nfor line in sys.stdin:\n    print(line[-2::-1])\n"


def test_the_worked_example_judges_as_it_says(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", text("docs/environments.md"), re.DOTALL)
    (said,) = re.findall(r"It has the cases (.*?)\.\n", text("docs/environments.md"), re.DOTALL)
    write_environment(tmp_path / "rev", example)
    work = tmp_path / "work"
    work.mkdir()
    (work / "build.sh").write_text("cp rev.py rev; chmod +x rev", encoding="utf-8")
    (work / "rev.py").write_text(RIGHT, encoding="utf-8")
    judge = Judge(
        catalogue.find_environment(str(tmp_path / "rev")),
        support=probe_sandboxes(),
        home=tmp_path / "home",
        environ=os.environ,
        jobs=2,
    )
    result = judge.test(work)
    assert {case.id: case.log for case in result.every_case() if not case.passed} == {}
    assert [case.id for case in result.every_case()] == re.findall(r"`([^`]+)`", said)
    (work / "rev.py").write_text(RIGHT.replace("-2::-1", ":-1"), encoding="utf-8")
    assert judge.test(work).statuses() == {
        "basics/one_line": "failed",
        "basics/nothing": "passed",
        "texts/accents": "passed",
        "texts/long": "passed",
        "load/lines_10": "failed",
        "load/lines_1000": "failed",
    }
