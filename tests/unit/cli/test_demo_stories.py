"""The story of ``demo trace``: every part does what it says, and one of them is the mistake."""

from __future__ import annotations

from coilclaw.cli.demo.stage import load_story
from coilclaw.runners import script

STORY = load_story("trace")
TURNS = [turn["part"] for turn in STORY["turn"]]


def parts() -> list[dict[str, object]]:
    return [part for turn in TURNS for part in turn]


def test_the_script_is_valid_and_has_about_25_parts() -> None:
    import json

    script.read(json.dumps({"turns": TURNS}).encode(), where="the story")
    assert 22 <= len(parts()) <= 28


def test_every_write_changes_something_and_gives_a_program() -> None:
    files: dict[str, str] = {}
    for number, part in enumerate(parts(), start=1):
        written = part.get("write")
        if not isinstance(written, dict):
            continue
        before = dict(files)
        files.update(written)
        assert files != before, number
        text = "".join(files[name] for name in ("src/log.py", "src/commands.py", "src/main.py"))
        compile(text, f"part {number}", "exec")


def test_the_mistake_is_a_buffer_and_is_taken_back() -> None:
    written = parts()[STORY["mistake"] - 1]["write"]
    assert isinstance(written, dict)
    assert "buffering=65536" in written["src/log.py"]
    last = [part["write"] for part in parts() if "write" in part][-1]
    assert isinstance(last, dict)
    assert "buffering=65536" not in last["src/log.py"]
    assert "LOCK_EX" in last["src/log.py"]
