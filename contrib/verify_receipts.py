#!/usr/bin/env python3
"""Check exported receipts with nothing but Python.

    verify_receipts.py [--checkpoint FILE|-] [--key PUB.pem] [--mark FILE] [--intents-mark FILE]
                       RECEIPTS [INTENTS]

Both files are JSON lines, as `coilclaw receipt export` and `coilclaw receipt export --intents` give
them. Every line must be canonical JSON (RFC 8785), carry the SHA-256 of itself without its hash,
and name the hash of the line before it. With the intents, every receipt of a call that began must
name an intent, no two the same. An intent without a receipt is unsettled: there the program died,
unless a settlement in the log of receipts says what became of it. So is a last line that is cut.

A log that was cut off at its end, or rewritten whole, holds all the same. --checkpoint finds that:
it takes what `coilclaw receipt checkpoint` printed and was kept elsewhere, and names every history
that does not extend it; with --key each checkpoint must be signed by that key. A mark, of the
folder `keys` of a home, says with which record a log began: an emptied log is missing.

Needs Python 3.11 or newer; `cryptography` for --key.
Exit code: 0 nothing is broken (what is unsettled is said), 1 something is broken, 2 wrong usage.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import sys

FIRST = "0" * 64
STATUSES = {"allowed", "denied", "failed"}
ORIGIN = "coilclaw/receipts/"
DASH = "\u2014 "
HAPPENED = {"yes", "no", "unknown"}
SIZE, HASH = "(0|[1-9][0-9]{0,15})", "([A-Za-z0-9+/]{43}=)"


class Torn(ValueError):
    """The last line is cut, as a crash leaves it."""


def canonical(record):
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")


def records(path, hash_field):
    """Yield number and record of each line that holds; the first that does not is a ValueError."""
    previous = FIRST
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                raise Torn(f"{number}: the line is not complete")
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


def read_receipts(path, broken, unsettled):
    """Return the intents that are named, the number of receipts, and the hashes of all lines."""
    named, count, hashes = {}, 0, []
    try:
        for number, receipt in records(path, "receipt_hash"):
            hashes.append(receipt["receipt_hash"])
            settles = "settles" in receipt
            count += not settles
            status = receipt.get("happened" if settles else "status")
            intent = receipt.get("settles" if settles else "intent_hash")
            if not isinstance(status, str) or not isinstance(intent, str | None):
                raise ValueError(f"{number}: a status or an intent that is no text")
            if status not in (HAPPENED if settles else STATUSES):
                broken.append(f"receipt {number}: no such status: {status!r}")
            if not intent and (settles or status == "allowed"):
                broken.append(f"receipt {number}: a call was made, and no intent is named")
            # A receipt may follow a settlement, whose author could not see that the call still ran.
            if intent in named and (settles or not named[intent][1]):
                broken.append(f"receipt {number}: names the intent of receipt {named[intent][0]}")
            if intent:
                named[intent] = number, settles
    except ValueError as problem:
        where = unsettled if isinstance(problem, Torn) else broken
        where.append(f"invalid chain at receipt {problem}")
    return named, count, hashes


def match_intents(path, named, broken, unsettled):
    """Take each intent out of those that are named; return the hashes of all of them."""
    waiting, hashes = {}, []
    try:
        for _, intent in records(path, "intent_hash"):
            hashes.append(intent["intent_hash"])
            calls = intent.get("process"), str(intent.get("conversation_id"))
            what = f"{intent.get('id')} {intent.get('tool')} at {intent.get('timestamp')}"
            before = waiting.pop(calls, None)
            if before and not calls[1].startswith("mcp-"):
                broken.append(f"a receipt was lost or removed, for the process went on: {before}")
            if named.pop(intent["intent_hash"], None) is None:
                waiting[calls] = what
                unsettled.append(f"an intent without a receipt: {what}")
    except ValueError as problem:
        where = unsettled if isinstance(problem, Torn) else broken
        where.append(f"invalid chain at intent {problem}")
    broken += [f"receipt {number}: its intent is not there" for number, _ in named.values()]
    return hashes


def verify(receipts, intents):
    """Return what is broken, what is unsettled, how many receipts hold, and both logs' hashes."""
    broken, unsettled, others = [], [], None
    named, count, hashes = read_receipts(receipts, broken, unsettled)
    if intents is not None:
        others = match_intents(intents, named, broken, unsettled)
    return broken, unsettled, count, hashes, others


class PublicKey:
    def __init__(self, pem):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        self._key = load_pem_public_key(pem)
        if not isinstance(self._key, Ed25519PublicKey):
            raise ValueError("this is no Ed25519 key")

    def made(self, name, made, data):
        """Whether this key made a line of a signed note: None where the line is of another key."""
        from cryptography.exceptions import InvalidSignature

        raw = self._key.public_bytes_raw()
        if hashlib.sha256(name.encode() + b"\n\x01" + raw).digest()[:4] != made[:4]:
            return None
        try:
            self._key.verify(made[4:], data)
        except InvalidSignature:
            return False
        return True


def checkpoints(text):
    """Yield origin, size, hash, more lines, signed text and signatures of each checkpoint."""
    body, signatures, ended = [], [], False
    for line in [*text.split("\n"), "", "end"]:
        if line.startswith(DASH) and ended:
            name, _, made = line.removeprefix(DASH).partition(" ")
            signatures.append((name, base64.b64decode(made, validate=True)))
        elif not line:
            ended = bool(body)
        else:
            if ended:
                if not re.match(f".*\n{SIZE}\n{HASH}\n", "\n".join([*body, ""])):
                    raise ValueError(f"this is no checkpoint: {body[0]!r}")
                root = base64.b64decode(body[2], validate=True).hex()
                data = "".join(f"{one}\n" for one in body).encode()
                yield body[0], int(body[1]), root, body[3:], data, signatures
                body, signatures, ended = [], [], False
            body.append(line)


def compare(text, key, receipts, intents):
    """Return what a history lacks or has instead of what checkpoints say, and how many there are.

    `receipts` and `intents` are the hashes of the lines that hold; intents may be None.
    """
    problems, count, origin = [], 0, ORIGIN + (receipts[0][:32] if receipts else "")
    for name, size, root, more, data, signatures in checkpoints(text):
        if not name.startswith(ORIGIN):
            continue
        count += 1
        what = f"the checkpoint of {size} receipts"
        if receipts and name != origin:
            problems.append(f"{what} is of another log, or all of it was rewritten")
            continue
        stated = [("receipt", receipts, size, root)]
        for line in more:
            said = re.fullmatch(f"intents {SIZE} {HASH}", line)
            if said and intents is not None:
                there = base64.b64decode(said[2]).hex()
                stated.append(("intent", intents, int(said[1]), there))
            elif line.startswith("intents ") and not said:
                problems.append(f"{what} says nothing readable about intents")
        for kind, there, number, expected in stated:
            if len(there) < number:
                problems.append(f"{what}: there are only {len(there)} {kind}s: rolled back")
            elif number and there[number - 1] != expected:
                problems.append(f"{what}: {kind} {number} is another: forked or rewritten")
        found = [key.made(signer, made, data) for signer, made in signatures] if key else []
        if False in found or (key and True not in found):
            problems.append(f"{what} was not signed by the key")
    if not count:
        problems.append("none of the checkpoints is about receipts")
    return problems, count


def read(path):
    if path == "-":
        return sys.stdin.buffer.read(2**24)
    with open(path, "rb") as file:
        return file.read(2**24)


def existing(path, mark):
    """A log that a mark is about, and that is gone, is as good as an empty one."""
    return os.devnull if mark and path and not os.path.exists(path) else path


def begins_as_marked(path, hashes, what):
    """Return a problem where a log does not begin with the record that a mark names."""
    try:
        first = json.loads(read(path))["first_hash"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return [f"{path} is not a mark"]
    if not hashes:
        return [f"the {what}s are missing: {path} says there were some"]
    return [] if hashes[0] == first else [f"the log of {what}s was begun anew, by {path}"]


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("receipts")
    parser.add_argument("intents", nargs="?")
    parser.add_argument("--checkpoint", help="compare with the checkpoints of this file, or of -")
    parser.add_argument("--key", help="the public key that signed each of them, as PEM")
    parser.add_argument("--mark", help="the mark of the log of receipts")
    parser.add_argument("--intents-mark", help="the mark of the log of intents")
    options = parser.parse_args(arguments)
    marks = [(options.mark, "receipt"), (options.intents_mark, "intent")]
    try:
        key = PublicKey(read(options.key)) if options.key else None
        text = read(options.checkpoint).decode() if options.checkpoint else None
        broken, unsettled, count, receipts, intents = verify(
            existing(options.receipts, options.mark),
            existing(options.intents, options.intents_mark),
        )
        for (mark, what), hashes in zip(marks, (receipts, intents or []), strict=True):
            broken += begins_as_marked(mark, hashes, what) if mark else []
        compared = 0
        if text is not None:
            more, compared = compare(text, key, receipts, intents)
            broken += more
    except OSError as problem:
        print(f"cannot read {problem.filename}: {problem.strerror}", file=sys.stderr)
        return 2
    except ImportError:
        print("--key needs the package 'cryptography'", file=sys.stderr)
        return 2
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    for word, found in (("broken", broken), ("unsettled", unsettled)):
        for sentence in found:
            print(f"{word}: {sentence}", file=sys.stderr)
    if not broken:
        said = f", as {compared} checkpoints say" if compared else ""
        print(f"valid: {count} receipts{said}" if receipts else "nothing to verify")
        if compared and key is None:
            print("who signed the checkpoints was not checked: give --key", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
