"""Side-by-side diffs as HTML; pure, like ``report_parts``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from coilclaw.domain.visible_text import escape_html as text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coilclaw.orchestrator.patch_view import DiffRow, DiffSide, FileDiff
    from coilclaw.orchestrator.run_report import ChangeView

FOLDED_ROWS: Final = 400
"""A file with more rows is folded."""
_COLUMNS: Final = '<colgroup><col class="n"><col><col class="n"><col></colgroup>'


def render_changes(changes: Sequence[ChangeView]) -> str:
    """Every change, the accepted one first."""
    return "".join(map(render_change, changes)) or '<p class="nothing">Nothing was changed.</p>'


def render_change(change: ChangeView) -> str:
    """One patch, file by file."""
    notes = "".join(
        f'<p class="note">{text(note)}</p>' for note in (change.note, change.patch.note) if note
    )
    files = "".join(map(render_file, change.patch.files))
    return (
        f'<article class="change {change.tone}"><h3>{text(change.title)}</h3>'
        f'<p class="meta"><code>{text(change.path)}</code></p>{notes}{files}</article>'
    )


def render_file(file: FileDiff) -> str:
    """One file: before on the left, after on the right."""
    moved = f"{text(file.old_path)} → " if file.old_path != file.path else ""
    title = (
        f"<code>{moved}{text(file.path)}</code> <small>{text(file.change)}</small> "
        f'<span class="good">+{file.added}</span> <span class="bad">−{file.removed}</span>'
    )
    notes = "".join(f'<p class="note">{text(note)}</p>' for note in file.notes)
    rows = "".join(map(_row, file.rows))
    table = f'<table class="diff">{_COLUMNS}<tbody>{rows}</tbody></table>' if rows else ""
    opened = " open" if len(file.rows) <= FOLDED_ROWS else ""
    return f'<details class="file"{opened}><summary>{title}</summary>{notes}{table}</details>'


def _row(row: DiffRow) -> str:
    if row.heading:
        return f'<tr class="hunk"><td colspan="4">{text(row.heading)}</td></tr>'
    if not row.changed:
        same = text(row.old.text)
        return f"<tr>{_cell(row.old, '', same)}{_cell(row.new, '', same)}</tr>"
    old, new = _marked(row.old, row.new)
    return f"<tr>{_cell(row.old, 'gone', old)}{_cell(row.new, 'came', new)}</tr>"


def _cell(side: DiffSide, kind: str, content: str) -> str:
    if side.number is None:
        return '<td class="n none"></td><td class="none"></td>'
    named = f' class="{kind}"' if kind else ""
    return f'<td class="n {kind}">{side.number}</td><td{named}>{content}</td>'


def _marked(old: DiffSide, new: DiffSide) -> tuple[str, str]:
    """Both lines, with the part that differs marked if they have anything else in common."""
    if old.number is None or new.number is None:
        return text(old.text), text(new.text)
    before = _count_shared(old.text, new.text)
    after = _count_shared(old.text[before:][::-1], new.text[before:][::-1])
    if not before + after:
        return text(old.text), text(new.text)
    return _split(old.text, before, after, "del"), _split(new.text, before, after, "ins")


def _count_shared(one: str, other: str) -> int:
    """Return how many characters two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _split(line: str, before: int, after: int, mark: str) -> str:
    end = len(line) - after
    middle = f"<{mark}>{text(line[before:end])}</{mark}>" if end > before else ""
    return f"{text(line[:before])}{middle}{text(line[end:])}"
