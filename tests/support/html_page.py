"""A parsed HTML page, and what must hold for every page that shows hostile text."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from html.parser import HTMLParser

EVIL = (
    "</pre></style></script><script>alert(1)</script><img src=x onerror=alert(1)>"
    '" onclick=\'alert(1)\' <a href="https://evil.example/">x</a> &amp; \x00\x07\x1b[2J\r\x85'
    "\u202e\u2066\u200b\u2028\ud800 javascript:alert(1)"
)
"""Text that tries to be anything but text."""
VOID = frozenset({"meta", "col"})
TAGS = frozenset(
    {"html", "head", "meta", "title", "style", "body", "main", "header", "footer", "nav"}
    | {"section", "article", "h1", "h2", "h3", "h4", "p", "a", "ul", "ol", "li", "dl", "dt", "dd"}
    | {"pre", "code", "b", "small", "span", "div", "table", "colgroup", "col", "thead", "tbody"}
    | {"tr", "th", "td", "details", "summary", "ins", "del"}
)
ATTRIBUTES = frozenset(
    {"class", "id", "href", "title", "colspan", "open", "lang", "role", "charset", "name"}
    | {"content", "http-equiv"}
)


class Page(HTMLParser):
    """Tags, attributes and texts of a page; an element that is not closed in order fails."""

    def __init__(self, data: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.source = data.decode("utf-8")
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.sections: dict[str, str] = {}
        self.style = ""
        self._open: list[str] = []
        self._section = ""
        self.feed(self.source)
        self.close()
        assert self._open == [], self._open

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)
        if tag == "section":
            self._section = dict(attrs)["id"] or ""

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["style"]:
            self.style += data
            return
        self.texts.append(data)
        if self._section:
            self.sections[self._section] = self.sections.get(self._section, "") + data + " "

    def check(self) -> Page:
        """Assert that the page can do nothing, and loads nothing from anywhere."""
        assert set(self.tags) <= TAGS, set(self.tags) - TAGS
        names = {name for _, name, _ in self.attributes}
        assert names <= ATTRIBUTES, names - ATTRIBUTES
        links = [value for _, name, value in self.attributes if name == "href"]
        ids = {value for _, name, value in self.attributes if name == "id"}
        assert {link.removeprefix("#") for link in links} <= ids
        assert all(link.startswith("#") for link in links)
        assert not re.search(r"url\(|@import|expression|//", self.style)
        (policy,) = [
            value for tag, name, value in self.attributes
            if (tag, name) == ("meta", "content") and "default-src" in value
        ]  # fmt: skip
        digest = base64.b64encode(sha256(self.style.encode()).digest()).decode()
        assert policy == (
            f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
        )
        hidden = re.search(
            "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]", self.source
        )
        assert hidden is None, hidden
        return self
