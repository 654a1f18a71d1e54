#!/usr/bin/env python3
"""Check exported receipts with nothing but Python: verify_receipts.py RECEIPTS [INTENTS]

Both files are JSON lines, as `coilclaw receipt export` and `coilclaw receipt export --intents` give
them. Every line must be canonical JSON (RFC 8785), carry the SHA-256 of itself without its hash,
and name the hash of the line before it. With the intents, every receipt of a call that began must
name an intent, no two the same, and intents without a receipt are listed: there the program died.

What this cannot see is a log that was cut off at its end, or rewritten whole: for that, CoilClaw
keeps a keyed anchor, and `coilclaw receipt verify` checks it.

Exit code: 0 all is well, 1 something is wrong, 2 wrong usage.
"""

import hashlib
import json
import sys

FIRST = "0" * 64
STATUSES = {"allowed", "denied", "failed"}


def canonical(record):
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def records(path, hash_field):
    """Yield number and record of each line that holds; the first that does not is a ValueError."""
    previous = FIRST
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                raise ValueError(f"{number}: the line is not complete")
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as problem:
                raise ValueError(f"{number}: not JSON ({problem})") from None
            if not isinstance(record, dict) or not isinstance(record.get(hash_field), str):
                raise ValueError(f"{number}: no {hash_field}")
            if canonical(record) != line[:-1]:
                raise ValueError(f"{number}: the line is not in canonical form")
            body = {name: value for name, value in record.items() if name != hash_field}
            if hashlib.sha256(canonical(body)).hexdigest() != record[hash_field]:
                raise ValueError(f"{number}: its content does not have its {hash_field}")
            if record.get("previous_hash") != previous:
                raise ValueError(f"{number}: it does not follow the line before it")
            previous = record[hash_field]
            yield number, record


def verify(receipts, intents):
    """Return the problems found, and how many receipts hold."""
    problems, named, count = [], {}, 0
    try:
        for number, receipt in records(receipts, "receipt_hash"):
            count = number
            status, intent = receipt.get("status"), receipt.get("intent_hash")
            if status not in STATUSES:
                problems.append(f"receipt {number}: no such status: {status!r}")
            if status == "allowed" and not intent:
                problems.append(f"receipt {number}: a call was made, and no intent is named")
            if intent and intent in named:
                problems.append(f"receipt {number}: names the intent of receipt {named[intent]}")
            if intent:
                named[intent] = number
    except ValueError as problem:
        problems.append(f"invalid chain at receipt {problem}")
    if intents is not None:
        try:
            for _, intent in records(intents, "intent_hash"):
                if named.pop(intent["intent_hash"], None) is None:
                    what = f"{intent.get('id')} {intent.get('tool')} at {intent.get('timestamp')}"
                    problems.append(f"an intent without a receipt: {what}")
        except ValueError as problem:
            problems.append(f"invalid chain at intent {problem}")
        problems += [f"receipt {number}: its intent is not there" for number in named.values()]
    return problems, count


def main(arguments):
    if len(arguments) not in {1, 2}:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        problems, count = verify(arguments[0], arguments[1] if len(arguments) == 2 else None)
    except OSError as problem:
        print(f"cannot read {problem.filename}: {problem.strerror}", file=sys.stderr)
        return 2
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(f"valid: {count} receipts")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
