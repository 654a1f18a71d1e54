#!/usr/bin/env python3
"""Check a run without CoilClaw.

    verify_run.py [--key PUB.pem] [--journal-key FILE] [--root HASH] [--checkpoint FILE|-]
                  [--unsafe-unkeyed] RUN

RUN is a file made by `coilclaw runs export`, or the directory of a sealed run. What is checked:

  an exported file   it holds plain files and directories only, each once, none outside of it; the
                     envelope is signed by --key; the statement names every file with its SHA-256
  the bundle         the manifest is canonical JSON (RFC 8785) and has its root hash; every file is
                     there with its hash, and nothing else; the events are chained, their times
                     never go back, and they end with the sealed head, RUN_SEALED
  with --journal-key the seal, which only the holder of that key can make
  with --key         the signature in the manifest, if there is one by that key
  with --root        that the root hash is the one that was noted elsewhere
  with --checkpoint  that every checkpoint of the run says the same number of events and root hash;
                     with --key, too, each of them must be signed by that key

Somebody must vouch for what is found: a key, or whoever noted the root hash or a checkpoint. A
bundle that is only whole could have been made whole by anybody; with --unsafe-unkeyed that is
enough.

Needs Python 3.11 or newer; `cryptography` for --key. Nothing is unpacked to the disk.
Exit code: 0 all is well, 1 something is wrong, 2 wrong usage.
"""

import argparse
import base64
import hashlib
import hmac
import json
import os
import re
import stat
import sys
import tarfile

FIRST = "0" * 64
PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:coilclaw:run:v1"
ORIGIN = "coilclaw/runs/"
DASH = "\u2014 "
ENVELOPE, FOLDER, REPOSITORY = "attestation.dsse.json", "bundle", "repo.bundle"
MAX_ENTRIES = 200_000
MAX_PARSED = 64 * 2**20
MAX_LINE = 16 * 2**20
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


class Bad(Exception):
    """Something that does not hold."""


class Number:
    """A number as it is written, which in canonical JSON is the only way to write it."""

    def __init__(self, text):
        self.text = text

    def __eq__(self, other):
        return self.text == (other.text if isinstance(other, Number) else str(other))

    __hash__ = None


def unique(pairs):
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Bad("a key is named twice")
    return found


def parse(data, what):
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=unique,
            parse_float=Number,
            parse_int=Number,
            parse_constant=lambda word: (_ for _ in ()).throw(Bad(f"{word} is no number")),
        )
    except (ValueError, RecursionError, UnicodeDecodeError) as problem:
        raise Bad(f"{what} is not JSON: {problem}") from None
    except Bad as problem:
        raise Bad(f"{what}: {problem}") from None


def canonical(value):
    """RFC 8785 text; numbers stay as they were written."""
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{canonical(n)}:{canonical(value[n])}" for n in names) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    if isinstance(value, Number):
        return value.text
    return json.dumps(value, ensure_ascii=False)


def canonical_bytes(value):
    try:
        return canonical(value).encode("utf-8")
    except UnicodeEncodeError:
        raise Bad("a text is not valid Unicode") from None


def field(value, *names):
    for name in names:
        if not isinstance(value, dict) or name not in value:
            raise Bad(f"there is no {'.'.join(names)}")
        value = value[name]
    return value


class Directory:
    """A bundle in a directory; links are not followed, and audits are not part of it."""

    def __init__(self, root):
        self.root = root
        self.files, self.folders = [], []
        self._walk("")

    def _walk(self, prefix):
        for entry in sorted(os.scandir(os.path.join(self.root, prefix)), key=lambda e: e.name):
            path, mode = prefix + entry.name, entry.stat(follow_symlinks=False).st_mode
            if len(self.files) + len(self.folders) > MAX_ENTRIES:
                raise Bad("there are too many files")
            if stat.S_ISDIR(mode):
                self.folders.append(path)
                if path != "audits":
                    self._walk(path + "/")
            elif stat.S_ISREG(mode):
                self.files.append(path)
            else:
                raise Bad(f"{path} is neither a file nor a directory")

    def open(self, path):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        return open(os.open(os.path.join(self.root, path), flags), "rb")


class Archive:
    """An exported file, read in place."""

    def __init__(self, file):
        self._tar = tarfile.TarFile(fileobj=file)
        self.members, self.folders = {}, []
        for count, member in enumerate(self._tar):
            name = member.name
            if count > MAX_ENTRIES or name in self.members or name in self.folders:
                raise Bad(f"{name!r} is in the file twice, or too much is")
            if not {"", ".", ".."}.isdisjoint(name.split("/")) or "\\" in name:
                raise Bad(f"{name!r} leads out of the file")
            if member.isdir():
                self.folders.append(name)
            elif member.type == tarfile.REGTYPE and not member.sparse:
                self.members[name] = member
            else:
                raise Bad(f"{name!r} is neither a file nor a directory")
        self._check_bytes(file)

    def _check_bytes(self, file):
        """Between the files stands only what must: no time, owner, or hidden byte."""
        rest = sorted(name for name in self.members if name != ENVELOPE)
        file.seek(0)
        for name in [ENVELOPE, *sorted(self.folders), *rest]:
            info = tarfile.TarInfo(name)
            member = self.members.get(name)
            info.type = tarfile.DIRTYPE if member is None else tarfile.REGTYPE
            info.mode = 0o755 if member is None else 0o644
            info.size = 0 if member is None else member.size
            header = info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
            if file.read(len(header)) != header:
                raise Bad(f"the entry of {name!r} is not as an export writes it")
            file.seek(info.size, 1)
            padding = -info.size % tarfile.BLOCKSIZE
            if file.read(padding) != bytes(padding):
                raise Bad(f"something is hidden after {name!r}")
        end = 2 * tarfile.BLOCKSIZE
        end += -(file.tell() + end) % tarfile.RECORDSIZE
        if file.read(end + 1) != bytes(end):
            raise Bad("the file does not end as an export does")

    def open(self, name):
        return self._tar.extractfile(self.members[name])


class Inside:
    """The bundle in an exported file."""

    def __init__(self, archive):
        self._archive = archive
        start = FOLDER + "/"
        self.files = sorted(n.removeprefix(start) for n in archive.members if n.startswith(start))
        self.folders = sorted(n.removeprefix(start) for n in archive.folders if n.startswith(start))

    def open(self, path):
        return self._archive.open(f"{FOLDER}/{path}")


def hash_of(file):
    digest, size = hashlib.sha256(), 0
    with file:
        while piece := file.read(2**20):
            digest.update(piece)
            size += len(piece)
    return digest.hexdigest(), size


def read(source, path):
    with source.open(path) as file:
        data = file.read(MAX_PARSED + 1)
    if len(data) > MAX_PARSED:
        raise Bad(f"{path} is larger than {MAX_PARSED} bytes")
    return data


def check_envelope(archive, key):
    """Return the statement, if the key signed it and it names every file."""
    if ENVELOPE not in archive.members:
        raise Bad(f"there is no {ENVELOPE}")
    envelope = parse(read(archive, ENVELOPE), ENVELOPE)
    kind, payload = field(envelope, "payloadType"), field(envelope, "payload")
    signatures = field(envelope, "signatures")
    if set(envelope) != {"payload", "payloadType", "signatures"} or len(signatures) != 1:
        raise Bad("the envelope has not the fields of one")
    if kind != PAYLOAD_TYPE or canonical_bytes(envelope) + b"\n" != read(archive, ENVELOPE):
        raise Bad("the envelope is not in its one form")
    body, made = decoded(payload), decoded(field(signatures[0], "sig"))
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(body), body)
    if field(signatures[0], "keyid") != key.name or not key.made(made, signed):
        raise Bad("the envelope was not signed with this key")
    statement = parse(body, "the statement")
    if (field(statement, "_type"), field(statement, "predicateType")) != (STATEMENT, PREDICATE):
        raise Bad("the statement is not about a run")
    named = {field(s, "name"): field(s, "digest", "sha256") for s in field(statement, "subject")}
    there = set(archive.members) - {ENVELOPE}
    if set(named) != there or len(named) != len(statement["subject"]):
        odd = sorted(set(named) ^ there)
        raise Bad(f"the statement and the file do not hold the same: {', '.join(odd[:5])}")
    for name, expected in sorted(named.items()):
        if hash_of(archive.open(name))[0] != expected:
            raise Bad(f"{name} is not what the statement says")
    for name in archive.folders:
        if name != FOLDER and not name.startswith(FOLDER + "/"):
            raise Bad(f"the directory {name} is not part of a run")
    return statement


def decoded(text):
    try:
        data = base64.b64decode(text, validate=True)
    except (ValueError, TypeError):
        raise Bad("a text is not base64") from None
    if base64.b64encode(data).decode() != text:
        raise Bad("a text is not base64 in its one form")
    return data


class PublicKey:
    def __init__(self, pem):
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        self._key = load_pem_public_key(pem)
        if not isinstance(self._key, Ed25519PublicKey):
            raise ValueError("this is no Ed25519 key")
        self._raw = self._key.public_bytes_raw()
        self.name = hashlib.sha256(self._raw).hexdigest()

    def noted(self, name, made, data):
        """Whether this key made a line of a signed note."""
        known = hashlib.sha256(name.encode() + b"\n\x01" + self._raw).digest()[:4]
        return made[:4] == known and self.made(made[4:], data)

    def made(self, signature, data):
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            return False
        return True


def check_manifest(source, key, journal_key, expected_root):
    """Return the manifest, if its hash, seal and signature hold; and who vouches for it."""
    if "manifest.json" not in source.files:
        raise Bad("there is no manifest.json")
    data = read(source, "manifest.json")
    manifest = parse(data, "manifest.json")
    if canonical_bytes(manifest) + b"\n" != data:
        raise Bad("manifest.json is not in canonical form")
    integrity = field(manifest, "integrity")
    outside = {"root_hash", "seal", "signature"}
    covered = {k: v for k, v in integrity.items() if k not in outside}
    root = hashlib.sha256(canonical_bytes({**manifest, "integrity": covered})).hexdigest()
    if field(integrity, "root_hash") != root:
        raise Bad("the manifest does not have its root hash")
    if expected_root is not None and expected_root.lower() != root:
        raise Bad(f"the root hash is {root}")
    signature = integrity.get("signature")
    vouching = [] if expected_root is None else ["the root hash"]
    if journal_key is not None:
        if field(integrity, "key_id") != hashlib.sha256(journal_key).hexdigest()[:16]:
            raise Bad("the seal was made with another journal key")
        signed = "" if signature is None else f"{signature['keyid']}:{signature['sig']}"
        text = f"coilclaw.run.seal.v1\n{root}\n{signed}".encode()
        made = hmac.new(journal_key, text, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(made, str(field(integrity, "seal"))):
            raise Bad("the seal was not made over this manifest")
        vouching.append("the journal key")
    if key is not None and signature is not None and field(signature, "keyid") == key.name:
        made = decoded(field(signature, "sig"))
        if not key.made(made, f"coilclaw.run.signature.v1\n{root}".encode()):
            raise Bad("the manifest's signature does not hold")
        vouching.append("the signing key")
    return manifest, root, vouching


def check_files(source, manifest):
    hashes, artifacts = field(manifest, "evidence_hashes"), field(manifest, "artifacts")
    if [(field(a, "path"), field(a, "sha256")) for a in artifacts] != sorted(hashes.items()):
        raise Bad("the manifest lists other artifacts than hashes")
    there = set(source.files) - {"manifest.json"}
    for path in sorted(there ^ set(hashes)):
        raise Bad(f"{path} is {'not in the manifest' if path in there else 'not there'}")
    sizes = {artifact["path"]: artifact.get("size_bytes") for artifact in artifacts}
    for path in sorted(hashes):
        actual, size = hash_of(source.open(path))
        if actual != hashes[path] or (sizes[path] is not None and sizes[path] != size):
            raise Bad(f"{path} is not what the manifest says")
    if sorted(field(manifest, "directories")) != sorted(source.folders):
        raise Bad("the directories are not those of the manifest")


def check_events(source, manifest):
    """Follow the chain; return how many events there are."""
    previous, before, count, last = FIRST, "", 0, None
    with source.open("events.jsonl") as file:
        while line := file.readline(MAX_LINE + 1):
            count += 1
            event = parse(line, f"event {count}")
            if not line.endswith(b"\n") or canonical_bytes(event) + b"\n" != line:
                raise Bad(f"event {count} is not one line of canonical JSON")
            own = field(event, "event_hash")
            body = {name: value for name, value in event.items() if name != "event_hash"}
            if hashlib.sha256(canonical_bytes(body)).hexdigest() != own:
                raise Bad(f"event {count} does not have its hash")
            if field(event, "previous_hash") != previous:
                raise Bad(f"event {count} does not follow the one before it")
            if field(event, "run_id") != field(manifest, "run_id"):
                raise Bad(f"event {count} is of another run")
            time = field(event, "ts")
            if not isinstance(time, str) or not TIME.fullmatch(time) or time < before:
                raise Bad(f"event {count} has a time before the one before it")
            if last == "RUN_SEALED":
                raise Bad(f"event {count} comes after the seal")
            previous, before, last = own, time, field(event, "event_type")
    integrity = manifest["integrity"]
    if last != "RUN_SEALED" or previous != field(integrity, "events_head"):
        raise Bad("the events do not end with the one that was sealed")
    if field(integrity, "events_count") != count:
        raise Bad(f"there are {count} events, and another number was sealed")
    return count


def check_contract(source, manifest):
    data = read(source, "contract.json") if "contract.json" in source.files else b""
    digest = hashlib.sha256(data.removesuffix(b"\n")).hexdigest()
    if field(manifest, "integrity", "contract_sha256") != digest:
        raise Bad("the contract is not the one that was sealed")


def checkpoints(text):
    """Yield the lines, the signed text and the signatures of each checkpoint."""
    body, signatures, ended = [], [], False
    for line in [*text.split("\n"), "", "end"]:
        if line.startswith(DASH) and ended:
            name, _, made = line.removeprefix(DASH).partition(" ")
            signatures.append((name, decoded(made)))
        elif not line:
            ended = bool(body)
        else:
            if ended:
                if len(body) < 3:
                    raise Bad(f"this is no checkpoint: {body[0]!r}")
                yield body, "".join(f"{one}\n" for one in body).encode(), signatures
                body, signatures, ended = [], [], False
            body.append(line)


def check_checkpoints(text, key, run_id, count, root):
    """Compare with each checkpoint that is about this run."""
    own = [one for one in checkpoints(text) if one[0][0] == ORIGIN + run_id]
    if not own:
        raise Bad(f"none of the checkpoints is about run {run_id}")
    for body, data, signatures in own:
        if body[1] != str(count) or decoded(body[2]).hex() != root:
            raise Bad(f"a checkpoint says {body[1]} events and {decoded(body[2]).hex()}")
        if key is not None and not any(key.noted(name, made, data) for name, made in signatures):
            raise Bad("a checkpoint was not signed by this key")


def verify(path, key, journal_key, expected_root, statements=None):
    """Return a sentence about a run that holds, and who vouches for it; or raise ``Bad``."""
    if os.path.isdir(path):
        return check_bundle(Directory(path), None, key, journal_key, expected_root, statements)
    if key is None:
        raise Bad("an exported file is only worth its signature: give --key")
    with open(path, "rb") as file:
        archive = Archive(file)
        statement = check_envelope(archive, key)
        inside = Inside(archive)
        return check_bundle(inside, statement, key, journal_key, expected_root, statements)


def check_bundle(source, statement, key, journal_key, expected_root, statements):
    vouching = [] if statement is None else ["the signed statement"]
    manifest, root, others = check_manifest(source, key, journal_key, expected_root)
    check_files(source, manifest)
    count = check_events(source, manifest)
    check_contract(source, manifest)
    if statements is not None:
        check_checkpoints(statements, key, manifest["run_id"], count, root)
        others.append("a checkpoint")
    if statement is not None:
        told = field(statement, "predicate")
        for name in ("run_id", "status"):
            if field(told, name) != manifest[name]:
                raise Bad(f"the statement is about another {name}")
        if field(told, "root_hash") != root:
            raise Bad("the statement is about another root hash")
    return f"run {manifest['run_id']}, {count} events, root {root}", vouching + others


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run")
    parser.add_argument("--key", help="the public key of who exported or sealed it, as PEM")
    parser.add_argument("--journal-key", help="the file with the key of the journals")
    parser.add_argument("--root", help="the root hash that is expected")
    parser.add_argument("--checkpoint", help="the file with checkpoints, or -")
    parser.add_argument(
        "--unsafe-unkeyed", action="store_true", help="accept what nobody vouches for"
    )
    options = parser.parse_args(arguments)
    try:
        key = journal_key = None
        if options.key:
            with open(options.key, "rb") as file:
                key = PublicKey(file.read(2**16))
        if options.journal_key:
            with open(options.journal_key, "rb") as file:
                journal_key = file.read(2**16)
        statements = None
        if options.checkpoint == "-":
            statements = sys.stdin.buffer.read(2**24).decode()
        elif options.checkpoint:
            with open(options.checkpoint, "rb") as file:
                statements = file.read(2**24).decode()
        os.stat(options.run)
    except OSError as problem:
        print(f"cannot read {problem.filename}: {problem.strerror}", file=sys.stderr)
        return 2
    except ImportError:
        print("--key needs the package 'cryptography'", file=sys.stderr)
        return 2
    except ValueError as problem:
        print(f"{options.key or options.checkpoint}: {problem}", file=sys.stderr)
        return 2
    try:
        sentence, vouching = verify(options.run, key, journal_key, options.root, statements)
        if not vouching and not options.unsafe_unkeyed:
            raise Bad("it is whole, but nobody vouches for it: give --key, --journal-key or --root")
        print(f"valid: {sentence}, vouched for by {' and '.join(vouching) or 'nobody'}")
    except (Bad, OSError, EOFError, tarfile.TarError, TypeError, AttributeError) as problem:
        # What is no text, list or object where one must be shows in many ways.
        print(f"not valid: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
