"""The story of ``demo trace``: every part does what it says, and one of them is the mistake."""

from __future__ import annotations

from coilclaw.agents import script
from coilclaw.cli import demotracestory as story


def parts() -> list[dict[str, object]]:
    return [part for turn in story.TURNS for part in turn]


def test_the_script_is_valid_and_has_about_25_parts() -> None:
    import json

    script.read(json.dumps({"turns": story.TURNS}).encode(), where="the story")
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
        text = "".join(
            files[name] for name in (story.LOG_FILE, story.COMMANDS_FILE, story.MAIN_FILE)
        )
        compile(text, f"part {number}", "exec")


def test_the_mistake_is_a_buffer_and_is_taken_back() -> None:
    written = parts()[story.MISTAKE - 1]["write"]
    assert isinstance(written, dict)
    assert "buffering=65536" in written[story.LOG_FILE]
    last = [part["write"] for part in parts() if "write" in part][-1]
    assert isinstance(last, dict)
    assert "buffering=65536" not in last[story.LOG_FILE]
    assert "LOCK_EX" in last[story.LOG_FILE]
