"""Binary patches: bounded before anything is unpacked, and both ids must hold."""

from __future__ import annotations

import base64
import subprocess
import tracemalloc
import zlib
from dataclasses import replace

import pytest

from coilclaw.changes.formats import git_binary, git_patch
from coilclaw.changes.operations import AnswerOptions, AnswerSource, Format, PatchBinary
from coilclaw.kernel.errors import AnswerError, PlanRefused
from coilclaw.kernel.tree_path import TreePath
from tests.support.answer_rendering import render_binary

OLD, NEW = b"old\0content" * 9, b"new\0content"


def operation(**changes: object) -> PatchBinary:
    made = PatchBinary(
        TreePath.parse("x.bin"),
        "literal",
        NEW,
        len(NEW),
        git_binary.blob_id(OLD),
        git_binary.blob_id(NEW),
        source=AnswerSource(Format.GIT, 7),
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields are given by name


def section(*body: str, ids: tuple[str, str] = ("1" * 40, "2" * 40)) -> str:
    head = ("diff --git a/x b/x", f"index {ids[0]}..{ids[1]} 100644", "GIT binary patch")
    return "".join(f"{line}\n" for line in (*head, *body))


def parsed(text: str) -> PatchBinary:
    (found,) = git_patch.parse(text, first_line=1, options=AnswerOptions(binary=True))
    assert isinstance(found, PatchBinary)
    return found


def refused(text: str) -> tuple[str, int | None]:
    with pytest.raises(AnswerError) as caught:
        parsed(text)
    return caught.value.rule, caught.value.line


def packed(data: bytes) -> list[str]:
    return render_binary(*("literal", data))[2:]


# Inflating.


def test_a_decompression_bomb_is_stopped_at_the_stated_size() -> None:
    bomb = zlib.compress(b"\0" * (64 * 2**20), 9)
    tracemalloc.start()
    with pytest.raises(AnswerError) as caught:
        git_binary.inflate(bomb, 1000, line=3, path="x")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (caught.value.rule, caught.value.line, caught.value.path) == ("git.corrupt", 3, "x")
    assert peak < 2**20


def test_a_stated_size_beyond_the_bound_is_refused_before_unpacking() -> None:
    with pytest.raises(AnswerError, match="more than the bound"):
        git_binary.inflate(b"", git_binary.MAX_BYTES + 1)
    assert refused(section("literal 9999999999", *packed(b"x"))) == ("git.corrupt", 4)
    assert refused(section("literal 99999999999", *packed(b"x"))) == ("git.corrupt", 4)


def test_the_inflated_sum_of_a_patch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = render_binary(*("literal", b"\0" * git_binary.MAX_BYTES))
    text = section(*bomb[1:]) * 9
    with pytest.raises(AnswerError) as caught:
        git_patch.parse(text, first_line=1, options=AnswerOptions(binary=True))
    assert caught.value.rule == "git.long"


@pytest.mark.parametrize("size", [0, 10, 12, 1000])
def test_data_of_another_size_than_stated_is_refused(size: int) -> None:
    with pytest.raises(AnswerError):
        git_binary.inflate(zlib.compress(NEW), size)
    assert git_binary.inflate(zlib.compress(NEW), len(NEW)) == NEW
    assert git_binary.inflate(zlib.compress(b""), 0) == b""


def test_damaged_cut_or_trailing_data_is_refused() -> None:
    data = zlib.compress(NEW)
    for broken in (data[:-1], data + b"x", b"", b"x" * 20, data[:5] + b"\xff" + data[6:]):
        with pytest.raises(AnswerError):
            git_binary.inflate(broken, len(NEW))


# Reading.


def test_lines_are_base_85_of_the_length_they_state() -> None:
    line = packed(b"x" * 20)[0]
    assert parsed(section("literal 20", line)).data == b"x" * 20
    assert refused(section("literal 20", line + "0")) == ("git.corrupt", 5)
    assert refused(section("literal 20", "0" + line[1:])) == ("git.corrupt", 5)
    assert refused(section("literal 20", "ä" + line[1:])) == ("git.corrupt", 5)
    assert refused(section("literal 20", line[0] + '"' + line[2:])) == ("git.corrupt", 5)
    assert refused(section("literal 20", line[0] + "ä" + line[2:])) == ("git.corrupt", 5)
    assert refused(section("literal 20", line[0] + "~~~~~" + line[6:])) == ("git.corrupt", 5)
    assert refused(section("literal 20")) == ("git.corrupt", 4)
    assert refused(section("liter 20", line)) == ("git.corrupt", 4)


def test_the_way_back_is_checked_and_not_used() -> None:
    way_back = ["literal 1", *packed(b"o")]
    assert parsed(section("literal 1", *packed(b"n"), *way_back)).data == b"n"
    broken = ["literal 2", *packed(b"o")]
    assert refused(section("literal 1", *packed(b"n"), *broken)) == ("git.corrupt", 7)


def test_text_after_a_binary_patch_is_refused() -> None:
    assert refused(section("literal 1", *packed(b"n"), "prose")) == ("git.garbage", 7)


def test_a_deletion_has_no_content() -> None:
    text = section("literal 1", *packed(b"n"), ids=("1" * 40, "0" * 40))
    gone = text.replace("index", "deleted file mode 100644\nindex")
    assert refused(gone) == ("git.corrupt", 1)


# Results.


def refusal(base: bytes | None, patch: PatchBinary) -> tuple[str, str | None, int | None]:
    with pytest.raises(PlanRefused) as caught:
        git_binary.result(base, patch)
    return caught.value.rule, caught.value.path, caught.value.line


def test_the_base_must_be_the_one_the_patch_was_made_for() -> None:
    patch = operation()
    assert refusal(OLD + b"!", patch) == ("binary.base", "x.bin", 7)
    assert refusal(None, patch) == ("binary.base", "x.bin", 7)
    fresh = operation(old_id=git_binary.ABSENT, new=True)
    assert refusal(b"", fresh) == ("binary.base", "x.bin", 7)
    assert git_binary.result(OLD, patch) == NEW
    assert git_binary.result(None, fresh) == NEW


def test_the_result_must_be_the_one_the_patch_states() -> None:
    patch = operation(new_id=git_binary.blob_id(b"other"))
    assert refusal(OLD, patch) == ("binary.result", "x.bin", 7)
    with pytest.raises(AnswerError):
        git_binary.result(OLD, operation(new_id=git_binary.ABSENT))
    gone = operation(new_id=git_binary.ABSENT, delete=True, data=b"", size=0)
    assert git_binary.result(OLD, gone) == b""


def test_blob_ids_are_git_s() -> None:
    command = ["git", "hash-object", "--stdin"]
    for content in (b"", OLD):
        made = subprocess.run(command, input=content, capture_output=True, check=True).stdout
        assert git_binary.blob_id(content) == made.decode().strip()


# Deltas.

BASE = bytes(range(256)) * 2


def delta(*instructions: bytes, base: int = len(BASE), size: int) -> bytes:
    return varint(base) + varint(size) + b"".join(instructions)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.parametrize(
    ("instructions", "size"),
    [
        pytest.param(b"\0", 0, id="reserved"),
        pytest.param(b"\x05abc", 5, id="insert cut off"),
        pytest.param(b"\x91\x00", 4, id="copy cut off"),
        pytest.param(b"\x93\xff\x02\x08", 8, id="copy beyond the base"),
        pytest.param(b"\x90\x08", 4, id="more than stated"),
        pytest.param(b"\x90\x08", 9, id="less than stated"),
        pytest.param(b"\x80", 0x10000, id="default length beyond the base"),
        pytest.param(b"", git_binary.MAX_BYTES + 1, id="beyond the bound"),
        pytest.param(b"", 2**40, id="size out of range"),
    ],
)
def test_deltas_out_of_bounds_are_refused(instructions: bytes, size: int) -> None:
    with pytest.raises(AnswerError) as caught:
        git_binary.apply_delta(BASE, delta(instructions, size=size))
    assert caught.value.rule == "git.corrupt"


def test_a_delta_for_another_base_is_refused() -> None:
    with pytest.raises(PlanRefused) as caught:
        git_binary.apply_delta(BASE[1:], delta(b"\x90\x08", size=8))
    assert caught.value.rule == "binary.base"


@pytest.mark.parametrize("cut", [b"", b"\x80", b"\xff\xff", varint(len(BASE))])
def test_a_delta_without_its_sizes_is_refused(cut: bytes) -> None:
    with pytest.raises((AnswerError, PlanRefused)):
        git_binary.apply_delta(BASE, cut)


def test_a_delta_copies_and_inserts() -> None:
    made = delta(b"\x91\x10\x04", b"\x02hi", b"\xb3\x00\x01\x00\x01", size=6 + 256)
    assert git_binary.apply_delta(BASE, made) == BASE[16:20] + b"hi" + BASE[256:512]
    large = b"z" * 0x10000
    assert git_binary.apply_delta(large, delta(b"\x80", base=0x10000, size=0x10000)) == large
    assert git_binary.apply_delta(b"", delta(base=0, size=0)) == b""


def test_rendered_lines_are_what_git_writes() -> None:
    data = bytes(range(200))
    lines = render_binary(*("literal", data))
    assert lines[:2] == ["GIT binary patch", "literal 200"]
    joined = b"".join(base64.b85decode(line[1:]) for line in lines[2:-1])
    assert zlib.decompressobj().decompress(joined) == data
    assert all(line[0] == "z" and len(line) == 66 for line in lines[2:-2])
