"""The tools that every agent has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coilclaw.agent.tools.consultation import AskUser, MemorySearch, Time
from coilclaw.agent.tools.file_read import FileList, FileRead
from coilclaw.agent.tools.file_write import ApplyChanges, FileWrite
from coilclaw.agent.tools.pdf_extract import PdfExtract
from coilclaw.agent.tools.shell import Shell
from coilclaw.agent.tools.web_tools import Http, WebSearch

if TYPE_CHECKING:
    from coilclaw.agent.settings import SearchSettings
    from coilclaw.agent.tools.contract import Tool


def builtin_tools(search: SearchSettings | None = None) -> tuple[Tool, ...]:
    """Return the built-in tools in display order; ``search`` configures ``web_search``."""
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
