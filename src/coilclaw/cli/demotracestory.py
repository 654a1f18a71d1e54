"""What the scripted agent of ``demo trace`` does: a key-value store, with one mistake on the way.

The program is put together from three files by ``build.sh``; the agent writes them again as they
grow.
"""

from __future__ import annotations

from typing import Any, Final

BUILD: Final = """\
#!/bin/sh
set -eu
cat src/log.py src/commands.py src/main.py > kv
chmod +x kv
"""

LOG_IN_MEMORY: Final = """\
#!/usr/bin/env python3
import fcntl
import os
import re
import sys


class Log:
    def __init__(self, path):
        self.data = {}

    def change(self, kind, key=b"", value=b""):
        if kind == b"set":
            self.data[key] = value
        elif kind == b"del":
            del self.data[key]
        else:
            self.data.clear()
"""

LOG_OF_LINES: Final = """\
#!/usr/bin/env python3
import fcntl
import os
import re
import sys


class Log:
    def __init__(self, path):
        self.path = path
        self.data = {}
        self.file = open(path, "a+b", buffering=0)
        self.file.seek(0)
        for line in self.file.readall().splitlines():
            self.apply(*line.split(b" ", 2))

    def apply(self, kind, key=b"", value=b""):
        if kind == b"set":
            self.data[key] = value
        elif kind == b"del":
            self.data.pop(key, None)
        else:
            self.data.clear()

    def change(self, kind, key=b"", value=b""):
        self.file.write(b"%s %s %s\\n" % (kind, key, value))
        self.apply(kind, key, value)
"""

# Each record is preceded by its length, so that one that was cut off is known.
LOG: Final = """\
#!/usr/bin/env python3
import fcntl
import os
import re
import sys


class Log:
    def __init__(self, path):
        self.path = path
        self.data = {}
        self.file = open(path, "a+b", buffering=0)
        self.file.seek(0)
        raw, start = self.file.read(), 0
        while (colon := raw.find(b":", start)) >= 0:
            end = colon + 1 + int(raw[start:colon])
            if end > len(raw):
                break
            self.apply(*raw[colon + 1 : end].split(b" ", 2))
            start = end
        self.file.truncate(start)

    def apply(self, kind, key=b"", value=b""):
        if kind == b"set":
            self.data[key] = value
        elif kind == b"del":
            self.data.pop(key, None)
        else:
            self.data.clear()

    def change(self, kind, key=b"", value=b""):
        self.file.write(record(kind, key, value))
        self.apply(kind, key, value)


def record(kind, key=b"", value=b""):
    said = b"%s %s %s" % (kind, key, value)
    return b"%d:%s" % (len(said), said)
"""

_COMPACT: Final = """
    def compact(self):
        new = open(self.path + b".tmp", "w+b", buffering=0)
        for key, value in self.data.items():
            new.write(record(b"set", key, value))
        os.fsync(new.fileno())
        os.replace(self.path + b".tmp", self.path)
        self.file = new
"""
_LOCK: Final = """
    def lock(self, file):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("ERROR locked", flush=True)
            sys.exit(1)
"""
_END_OF_CLASS: Final = "        self.apply(kind, key, value)\n\n\ndef record"

LOG_COMPACTED: Final = LOG.replace(
    _END_OF_CLASS, f"        self.apply(kind, key, value)\n{_COMPACT}\n\ndef record"
)
LOG_LOCKED: Final = (
    LOG.replace(
        _END_OF_CLASS, f"        self.apply(kind, key, value)\n{_COMPACT}{_LOCK}\n\ndef record"
    )
    .replace(
        "        self.file.seek(0)\n", "        self.lock(self.file)\n        self.file.seek(0)\n"
    )
    .replace('"w+b", buffering=0)\n', '"w+b", buffering=0)\n        self.lock(new)\n')
)
# The mistake: faster, but what was answered is still in a buffer when the process is killed.
LOG_BUFFERED: Final = LOG_COMPACTED.replace('"a+b", buffering=0)', '"a+b", buffering=65536)')
LOG_LOCKED_BUFFERED: Final = LOG_LOCKED.replace('"a+b", buffering=0)', '"a+b", buffering=65536)')

COMMANDS_FIRST: Final = """

def answer(log, line):
    name, _, rest = line.partition(b" ")
    if name == b"SET":
        key, _, value = rest.partition(b" ")
        log.change(b"set", key, value)
        return b"OK"
    if name == b"GET":
        return b"VALUE " + log.data[rest] if rest in log.data else b"NONE"
    return b"ERROR unknown command"
"""

_SIMPLE: Final = """

def get(log, key):
    return b"VALUE " + log.data[key] if key in log.data else b"NONE"


def delete(log, key):
    if key not in log.data:
        return b"NONE"
    log.change(b"del", key)
    return b"DELETED"


def exists(log, key):
    return b"YES" if key in log.data else b"NO"


def count(log, _):
    return b"COUNT %d" % len(log.data)


def clear(log, _):
    log.change(b"clear")
    return b"OK"


def keys(log, prefix):
    return b" ".join([b"KEYS", *sorted(key for key in log.data if key.startswith(prefix))])


def increase(log, key):
    new = b"%d" % (int(log.data.get(key, b"0")) + 1)
    log.change(b"set", key, new)
    return b"VALUE " + new


ONE_KEY = {b"GET": get, b"DEL": delete, b"EXISTS": exists, b"INCR": increase}
NO_KEY = {b"COUNT": count, b"CLEAR": clear}
"""
COMMANDS_ALL: Final = f"""{_SIMPLE}

def answer(log, line):
    name, _, rest = line.partition(b" ")
    if name == b"SET":
        key, _, value = rest.partition(b" ")
        log.change(b"set", key, value)
        return b"OK"
    if name == b"KEYS":
        return keys(log, rest)
    act = ONE_KEY.get(name) or NO_KEY.get(name)
    return act(log, rest) if act else b"ERROR unknown command"
"""
COMMANDS_CHECKED: Final = f"""{_SIMPLE}

def answer(log, line):
    if not line:
        return b"ERROR empty line"
    name, _, rest = line.partition(b" ")
    name = name.upper()
    words = rest.split(b" ") if rest else []
    if name == b"SET":
        key, space, value = rest.partition(b" ")
        if not key or not space:
            return b"ERROR wrong arguments"
        log.change(b"set", key, value)
        return b"OK"
    if name not in (b"KEYS", *ONE_KEY, *NO_KEY):
        return b"ERROR unknown command"
    if name == b"KEYS":
        return keys(log, rest) if len(words) < 2 else b"ERROR wrong arguments"
    if len(words) != (name in ONE_KEY):
        return b"ERROR wrong arguments"
    return (ONE_KEY.get(name) or NO_KEY[name])(log, rest)
"""
COMMANDS_COMPACT: Final = COMMANDS_CHECKED.replace(
    'NO_KEY = {b"COUNT": count, b"CLEAR": clear}',
    'NO_KEY = {b"COUNT": count, b"CLEAR": clear, b"COMPACT": compact}',
).replace(
    "\n\ndef keys(", '\n\ndef compact(log, _):\n    log.compact()\n    return b"OK"\n\n\ndef keys('
)
COMMANDS: Final = (
    COMMANDS_COMPACT.replace(
        '    new = b"%d" % (int(log.data.get(key, b"0")) + 1)\n',
        '    old = log.data.get(key, b"0")\n'
        '    if not re.fullmatch(rb"-?[0-9]+", old):\n'
        '        return b"ERROR not an integer"\n'
        '    new = b"%d" % (int(old) + 1)\n',
    )
    .replace(
        '        log.change(b"set", key, value)\n        return b"OK"\n    if name not',
        "        if len(key) > 200:\n"
        '            return b"ERROR bad key"\n'
        "        if len(value) > 65536:\n"
        '            return b"ERROR value too long"\n'
        '        log.change(b"set", key, value)\n        return b"OK"\n    if name not',
    )
    .replace(
        "    return (ONE_KEY.get(name)",
        '    if len(rest) > 200:\n        return b"ERROR bad key"\n    return (ONE_KEY.get(name)',
    )
)

MAIN_FIRST: Final = """

log = Log(os.fsencode(sys.argv[1]))
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(answer(log, line.rstrip(b"\\n")) + b"\\n")
    sys.stdout.buffer.flush()
"""
MAIN_PROTOCOL: Final = """

log = Log(os.fsencode(sys.argv[1]))
for line in sys.stdin.buffer:
    line = line.removesuffix(b"\\n").removesuffix(b"\\r")
    if line.upper() == b"QUIT":
        print("BYE", flush=True)
        break
    sys.stdout.buffer.write(answer(log, line) + b"\\n")
    sys.stdout.buffer.flush()
"""
MAIN: Final = MAIN_PROTOCOL.replace(
    "\n\nlog =", "\n\nif len(sys.argv) != 2:\n    sys.exit(2)\nlog ="
)

LOG_FILE: Final = "src/log.py"
COMMANDS_FILE: Final = "src/commands.py"
MAIN_FILE: Final = "src/main.py"

TURNS: Final[list[list[dict[str, Any]]]] = [
    [
        {"reasoning": "First the commands, with the data in memory; durability comes later."},
        {
            "write": {
                "build.sh": BUILD,
                LOG_FILE: LOG_IN_MEMORY,
                COMMANDS_FILE: COMMANDS_FIRST,
                MAIN_FILE: MAIN_FIRST,
            }
        },
        {"run_tests": "basics"},
        {"write": {COMMANDS_FILE: COMMANDS_ALL}},
        {"run_tests": "basics"},
        {"write": {COMMANDS_FILE: COMMANDS_CHECKED}},
        {"write": {MAIN_FILE: MAIN_PROTOCOL}},
        {"run_tests": "protocol"},
        {"text": "The commands and the protocol are there. Nothing is written to disk yet."},
    ],
    [
        {"reasoning": "A log of changes: one line each, read again at the start."},
        {"write": {LOG_FILE: LOG_OF_LINES}},
        {"run_tests": "durability"},
        {"reasoning": "A line that was cut off cannot be told from a whole one. Lengths can."},
        {"write": {LOG_FILE: LOG}},
        {"write": {LOG_FILE: LOG_COMPACTED, COMMANDS_FILE: COMMANDS_COMPACT}},
        {"run_tests": "durability"},
        {"text": "It survives kill -9 and a torn file, and COMPACT keeps it small."},
    ],
    [
        {"write": {COMMANDS_FILE: COMMANDS, MAIN_FILE: MAIN}},
        {"write": {LOG_FILE: LOG_BUFFERED}},
        {"run_tests": "load"},
        {"write": {LOG_FILE: LOG_LOCKED_BUFFERED}},
        {"run_tests": "edge_cases"},
        {"run_tests": ""},
        {"reasoning": "With a buffer, what was answered may not be in the file. Back to none."},
        {"write": {LOG_FILE: LOG_LOCKED}},
        {"run_tests": ""},
        {"text": "Every case passes."},
    ],
]
"""Three turns; the second part of the last one is the mistake."""

MISTAKE: Final = 19
"""The number of the part that breaks what worked."""
CASE: Final = "durability/survives_kill"
"""A case that shows it."""
