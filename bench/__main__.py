"""``python -m bench``: every benchmark of this directory, measured against its target."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.measurement import Measurement

_SUFFIX = "_bench"


def benchmarks() -> tuple[str, ...]:
    """Return the names of the benchmarks; ``startup`` is the module ``startup_bench``."""
    modules = Path(__file__).parent.glob(f"*{_SUFFIX}.py")
    return tuple(sorted(module.stem.removesuffix(_SUFFIX) for module in modules))


def measure(names: Sequence[str]) -> list[Measurement]:
    """Run the benchmarks in turn, telling on stderr which one is at work."""
    measurements: list[Measurement] = []
    for name in names:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        measurements.extend(importlib.import_module(f"bench.{name}{_SUFFIX}").run())
    return measurements


def table(measurements: Sequence[Measurement]) -> str:
    """Return the measurements as aligned text, with a closing line that counts the missed ones."""
    rows = [("measurement", "ratio", "target", "", "detail")]
    rows += [
        (m.name, f"{m.value:.2f}", m.target, "ok" if m.ok else "MISSED", m.detail)
        for m in measurements
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        f"{name:<{widths[0]}}  {value:>{widths[1]}}  {target:>{widths[2]}}  "
        f"{verdict:<{widths[3]}}  {detail}".rstrip()
        for name, value, target, verdict, detail in rows
    ]
    missed = sum(not m.ok for m in measurements)
    lines.append(
        f"{missed} of {len(measurements)} targets missed" if missed else "every target met"
    )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print; a missed target fails the command only when ``--strict`` asks for it."""
    parser = argparse.ArgumentParser(prog="scripts/bench.sh", description=__doc__)
    parser.add_argument("--only", action="append", choices=benchmarks(), metavar="NAME")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    options = parser.parse_args(argv)
    measurements = measure(options.only or benchmarks())
    if options.json:
        print(json.dumps([dataclasses.asdict(m) for m in measurements], indent=2))
    else:
        print(table(measurements))
    return 1 if options.strict and not all(m.ok for m in measurements) else 0


if __name__ == "__main__":
    sys.exit(main())
