#!/usr/bin/env python3
"""Write the stubs of package pages from their tables; ``--check`` only compares."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.pages import pages, render_stub  # noqa: E402


def main() -> int:
    """Write or compare every stub; return 1 where one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    stale = 0
    for page in pages():
        if not page.offered:
            continue
        path, text = page.path.with_suffix(".pyi"), render_stub(page)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale = 1
            print(f"{path.relative_to(ROOT)} is not what its page says")
            if not check:
                path.write_text(text, encoding="utf-8")
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main())
