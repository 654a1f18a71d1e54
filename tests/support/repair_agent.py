"""A stand-alone agent: run the tests of the contract, replace a text in a file, run them again.

It reads the contract from its input, and from the file that is its argument where to put which
text. It uses nothing of the product.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Do the work, and print the result that the contract asks for."""
    contract = json.load(sys.stdin)
    edit = json.loads(Path(sys.argv[1]).read_text())
    command = shlex.split(contract["acceptance_tests"][0]["cmd"])
    before = _exit_code(command)
    source = Path(edit["path"])
    source.write_text(source.read_text().replace(edit["old"], edit["new"]))
    after = _exit_code(command)
    result = {
        "task_id": contract["task_id"],
        "status": "SUCCESS",
        "summary": f"tests {_verdict(before)} before, {_verdict(after)} after",
        "evidence_refs": {},
        "failure": None,
    }
    print(json.dumps(result))


def _exit_code(command: list[str]) -> int:
    # Within one second an edit that keeps the size of a file is not seen through its bytecode.
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, stdout=sys.stderr, env=environ, check=False)
    print(f"exit code {done.returncode}", file=sys.stderr)
    return done.returncode


def _verdict(code: int) -> str:
    return "red" if code else "green"


if __name__ == "__main__":
    main()
