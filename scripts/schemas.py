"""Writes or checks what of schemas/ comes from the program: the names of gates and of events, and
registry.json, the registry of the schemas' hashes."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from coilclaw.kernel import schemas
from coilclaw.runs.contracts.event_types import EventType
from coilclaw.runs.gates.table import GATES

FOLDER = Path(__file__).resolve().parents[1] / "schemas"
WORDS = {
    "gate_result.v1.json": (("$defs", "Gate"), tuple(GATES)),
    "task_result.v1.json": (("$defs", "Gate"), tuple(GATES)),
    "orchestrator_event.v1.json": (
        ("properties", "event_type"),
        tuple(str(kind) for kind in EventType),
    ),
}
"""Schemas with the place of an enumeration and the words that it lists."""


def contents(folder: Path = FOLDER) -> dict[str, bytes]:
    """Return the schemas of a folder by the names of their files."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.glob("*.json"))
        if path.name != schemas.REGISTRY
    }


def list_words(name: str, data: bytes) -> bytes:
    """Return a schema with all words of the program; words that it has stay where they are."""
    if name not in WORDS:
        return data
    keys, words = WORDS[name]
    document: Any = json.loads(data)
    place = document
    for key in keys:
        place = place[key]
    published = [word for word in place["enum"] if word in words]
    place["enum"] = list(dict.fromkeys((*published, *words)))
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", action="store_true", help="write names and registry anew")
    what.add_argument("--check", action="store_true", help="fail if a schema has changed")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    chosen = parser.parse_args(arguments)
    found = contents(chosen.folder)
    wanted = {name: list_words(name, data) for name, data in found.items()}
    stale = [name for name, data in found.items() if wanted[name] != data]
    register = chosen.folder / schemas.REGISTRY
    if chosen.write:
        for name in stale:
            (chosen.folder / name).write_bytes(wanted[name])
        text = json.dumps(schemas.registry_of(wanted), indent=2) + "\n"
        register.write_text(text, encoding="utf-8")
        return 0
    drift = schemas.find_drift(found, register.read_bytes() if register.exists() else b"")
    if drift.status == "ok" and not stale:
        return 0
    said = drift if drift.status != "ok" else f"{', '.join(stale)} lacks names of the program"
    print(f"schemas/: {said}; run scripts/schemas.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
