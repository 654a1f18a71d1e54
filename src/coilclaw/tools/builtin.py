"""The tools that every agent has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.tools.applychanges import ApplyChanges
from coilclaw.tools.askuser import AskUser
from coilclaw.tools.clock import Time
from coilclaw.tools.filelist import FileList
from coilclaw.tools.fileread import FileRead
from coilclaw.tools.filewrite import FileWrite
from coilclaw.tools.memorysearch import MemorySearch
from coilclaw.tools.pdfextract import PdfExtract
from coilclaw.tools.shell import Shell
from coilclaw.tools.webget import Http
from coilclaw.tools.websearch import WebSearch

if TYPE_CHECKING:
    from coilclaw.tools.contract import Tool
    from coilclaw.tools.searchsettings import SearchSettings


def builtin(search: SearchSettings | None = None) -> tuple[Tool, ...]:
    """Return one of each, in the order in which they are shown; ``search`` says whom to ask."""
    return (
        Time(),
        FileList(),
        FileRead(),
        FileWrite(),
        ApplyChanges(),
        Shell(),
        Http(),
        MemorySearch(),
        AskUser(),
        PdfExtract(),
        WebSearch(search),
    )
