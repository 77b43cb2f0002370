"""A page read back: elements with their attributes and text, as a browser would nest them."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_EMPTY = {"meta", "link", "br", "input", "img", "hr"}


@dataclass
class Element:
    """One element."""

    tag: str
    attributes: dict[str, str]
    text: str = ""
    children: list[Element] = field(default_factory=list)

    @property
    def classes(self) -> set[str]:
        """Of the class attribute."""
        return set(self.attributes.get("class", "").split())

    @property
    def whole(self) -> str:
        """Text of it and of all within, with blanks between."""
        parts = (one.text or one.whole for one in self.children)
        return " ".join(" ".join(parts).split())

    def all(self, tag: str = "", of_class: str = "") -> list[Element]:
        """Elements within, in order."""
        found = []
        for one in self.children:
            if one.tag == "#text":
                continue
            if (not tag or one.tag == tag) and (not of_class or of_class in one.classes):
                found.append(one)
            found += one.all(tag, of_class)
        return found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Element("root", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].children.append(element)
        if tag not in _EMPTY:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        if tag in _EMPTY:
            return
        last = self._open.pop()
        if last.tag != tag:
            raise AssertionError(f"<{last.tag} {last.attributes}> is closed by </{tag}>")

    def handle_data(self, data: str) -> None:
        self._open[-1].children.append(Element("#text", {}, data))


def read_page(text: str) -> Element:
    """The root of a page; an element that is closed by another one's end is an error."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.root
