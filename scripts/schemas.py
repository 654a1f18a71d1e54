"""Writes or checks schemas/registry.json, the registry of the schemas' hashes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from coilclaw.kernel import schemas

FOLDER = Path(__file__).resolve().parents[1] / "schemas"


def contents(folder: Path = FOLDER) -> dict[str, bytes]:
    """Return the schemas of a folder by the names of their files."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.glob("*.json"))
        if path.name != schemas.REGISTRY
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write the registry anew")
    what.add_argument("--check", action="store_true", help="fail if a schema has changed")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    chosen = parser.parse_args(arguments)
    found = contents(chosen.folder)
    register = chosen.folder / schemas.REGISTRY
    if chosen.write:
        text = json.dumps(schemas.registry_of(found), indent=2) + "\n"
        register.write_text(text, encoding="utf-8")
        return 0
    drift = schemas.find_drift(found, register.read_bytes() if register.exists() else b"")
    if drift.status == "ok":
        return 0
    print(f"schemas/: {drift}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
