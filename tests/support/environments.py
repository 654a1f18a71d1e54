"""Submissions for the tests of environments: a store that is right, and stores that are not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BUILD = "#!/bin/sh\nset -eu\ncp kv.py kv\nchmod +x kv\n"

STORE = '''\
#!/usr/bin/env python3
"""A key-value store in one file: a log of changes, each with its lengths."""
import fcntl, os, re, sys

MAX_KEY, MAX_VALUE = 200, 65536


class Store:
    def __init__(self, path):
        self.path, self.data = path, {}
        self.file = open(path, "a+b", buffering=0)
        self.lock(self.file)
        self.load()

    def lock(self, file):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("ERROR locked", flush=True)
            sys.exit(1)

    def load(self):
        self.file.seek(0)
        raw, at = self.file.readall(), 0
        while True:
            end = raw.find(b"\\n", at)
            head = raw[at:end].split() if end >= 0 else []
            if len(head) != 3:
                break
            keys, values = int(head[1]), int(head[2])
            body = raw[end + 1 : end + 2 + keys + values]
            if len(body) < keys + values + 1:
                break
            self.apply(head[0], body[:keys], body[keys:-1])
            at = end + 2 + keys + values
        self.file.truncate(at)

    def apply(self, kind, key, value):
        if kind == b"S":
            self.data[key] = value
        elif kind == b"D":
            self.data.pop(key, None)
        else:
            self.data.clear()

    def change(self, kind, key=b"", value=b""):
        record = b"%s %d %d\\n%s%s\\n" % (kind, len(key), len(value), key, value)
        self.file.write(record)
        self.apply(kind, key, value)

    def compact(self):
        name = self.path + b".tmp"
        new = open(name, "w+b", buffering=0)
        self.lock(new)
        for key, value in self.data.items():
            new.write(b"S %d %d\\n%s%s\\n" % (len(key), len(value), key, value))
        os.fsync(new)
        os.replace(name, self.path)
        self.file = new


ARGUMENTS = dict.fromkeys([b"GET", b"DEL", b"EXISTS", b"INCR"], 1)
ARGUMENTS.update(dict.fromkeys([b"COUNT", b"CLEAR", b"COMPACT"], 0))


def answer(store, line):
    if not line:
        return b"ERROR empty line"
    name, _, rest = line.partition(b" ")
    name = name.upper()
    words = rest.split(b" ") if rest else []
    if name == b"SET":
        key, space, value = rest.partition(b" ")
        if not key or not space:
            return b"ERROR wrong arguments"
        if len(key) > MAX_KEY:  # of SET
            return b"ERROR bad key"
        if len(value) > MAX_VALUE:
            return b"ERROR value too long"
        store.change(b"S", key, value)
        return b"OK"
    if name == b"KEYS":
        if len(words) > 1:
            return b"ERROR wrong arguments"
        found = sorted(key for key in store.data if key.startswith(rest))
        return b" ".join([b"KEYS", *found])
    if name not in ARGUMENTS:
        return b"ERROR unknown command"
    if len(words) != ARGUMENTS[name]:
        return b"ERROR wrong arguments"
    if words and len(words[0]) > MAX_KEY:
        return b"ERROR bad key"
    return simple(store, name, rest)


def simple(store, name, key):
    if name == b"GET":
        return b"VALUE " + store.data[key] if key in store.data else b"NONE"
    if name == b"EXISTS":
        return b"YES" if key in store.data else b"NO"
    if name == b"COUNT":
        return b"COUNT %d" % len(store.data)
    if name == b"DEL":
        if key not in store.data:
            return b"NONE"
        store.change(b"D", key)
        return b"DELETED"
    if name == b"INCR":
        old = store.data.get(key, b"0")
        if not re.fullmatch(rb"-?[0-9]+", old):
            return b"ERROR not an integer"
        new = str(int(old) + 1).encode()
        store.change(b"S", key, new)
        return b"VALUE " + new
    if name == b"CLEAR":
        store.change(b"C")
    else:
        store.compact()
    return b"OK"


def main():
    if len(sys.argv) != 2:
        sys.exit(2)
    store = Store(os.fsencode(sys.argv[1]))
    for line in sys.stdin.buffer:
        line = line.removesuffix(b"\\n").removesuffix(b"\\r")
        if line.upper() == b"QUIT":
            print("BYE", flush=True)
            break
        sys.stdout.buffer.write(answer(store, line) + b"\\n")
        sys.stdout.buffer.flush()


main()
'''


@dataclass(frozen=True)
class Variant:
    """A store that is wrong in one way, and the cases that have to notice."""

    name: str
    old: str
    new: str
    failing: frozenset[str]

    def source(self) -> str:
        assert STORE.count(self.old) == 1, self.name
        return STORE.replace(self.old, self.new)


_TORN = frozenset(f"durability/torn_tail_{n}" for n in (1, 2, 7, 20))

VARIANTS = (
    Variant(
        "keys in the order of their arrival",
        "found = sorted(key for key in store.data if key.startswith(rest))",
        "found = [key for key in store.data if key.startswith(rest)]",
        frozenset({"basics/keys_are_sorted", "basics/keys_by_prefix"}),
    ),
    Variant(
        "an end of the file that is missing stops it",
        "            if len(body) < keys + values + 1:\n                break\n",
        "            if len(body) < keys + values + 1:\n                sys.exit(3)\n",
        _TORN,
    ),
    Variant(
        "compacting does not compact",
        "        os.replace(name, self.path)\n        self.file = new\n",
        "        os.unlink(name)\n",
        frozenset({"durability/compact_makes_it_small"}),
    ),
    Variant(
        "no lock",
        "fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        frozenset({"edge_cases/second_process_is_refused"}),
    ),
    Variant(
        "increments as machine words",
        "new = str(int(old) + 1).encode()",
        "new = str((int(old) + 1) % 2**64).encode()",
        frozenset({"basics/increment", "edge_cases/increment_beyond_64_bits"}),
    ),
    Variant(
        "keys measured in characters",
        "        if len(key) > MAX_KEY:  # of SET\n",
        "        if len(key.decode()) > MAX_KEY:\n",
        frozenset({"edge_cases/key_is_measured_in_bytes"}),
    ),
)


def submit(directory: Path, source: str = STORE, build: str = BUILD) -> Path:
    """Write a submission into a directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "kv.py").write_text(source, encoding="utf-8")
    (directory / "build.sh").write_text(build, encoding="utf-8")
    return directory


def write_environment(directory: Path, source: str) -> Path:
    """Write an environment of one file."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "main.py"
    file.write_text(source, encoding="utf-8")
    return file
