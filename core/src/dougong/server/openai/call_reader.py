"""Text of an answer on its way in, words and calls of tools on their way out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from typing import NamedTuple

from dougong.server.openai.call_object import CallObject, CallPart


class CallNews(NamedTuple):
    """What became known of a call; ``number`` counts them from 0."""

    number: int
    name: str | None
    arguments: str


class News(NamedTuple):
    """What a piece of text brought."""

    content: str
    calls: list[CallNews]


class CallReader(ABC):
    """Reads one answer. What it tells, joined, depends on the text and not on its pieces.

    White space before a call and after one belongs to neither words nor call, and is left out.
    """

    def __init__(self) -> None:
        self.num_calls = 0
        self._content: list[str] = []
        self._calls: list[CallNews] = []
        self._blank = ""  # white space that belongs to the words only if more of them follow
        self._object: CallObject | None = None

    def feed(self, text: str) -> News:
        """More of the answer."""
        rest: str | None = text
        while rest:
            rest = self._step(rest)
        return self._news()

    def finish(self) -> News:
        """There is no more."""
        self._end()
        if not self.num_calls:
            self._content.append(self._blank)
        self._blank = ""
        return self._news()

    @abstractmethod
    def _step(self, text: str) -> str | None:
        """Read some of it; what is to be read next."""

    @abstractmethod
    def _end(self) -> None:
        """Give back as words what was held and is no call."""

    def _news(self) -> News:
        news = News("".join(self._content), self._calls)
        self._content, self._calls = [], []
        return news

    def _tell(self, text: str) -> None:
        """These are words."""
        words = text.rstrip()
        if words:
            self._content += (self._blank, words)
            self._blank = ""
        self._blank += text[len(words) :]

    def _tell_call(self, parts: list[CallPart]) -> None:
        for part in parts:
            if part.name is not None:
                self.num_calls += 1
                self._blank = ""
            self._calls.append(CallNews(self.num_calls - 1, part.name, part.arguments))


class TaggedCalls(CallReader):
    """Calls between two tags, words around them: ``<tool_call>{...}</tool_call>``.

    Args:
        opening: Before a call.
        closing: After it.
    """

    def __init__(self, opening: str, closing: str) -> None:
        super().__init__()
        self._opening = opening
        self._closing = closing
        self._held = ""  # may be the beginning of a tag
        self._is_closing = False

    def _step(self, text: str) -> str | None:
        if self._object is not None:
            return self._read_object(self._object, text)
        text, self._held = self._held + text, ""
        tag = self._closing if self._is_closing else self._opening
        before, found, after = text.partition(tag)
        if not found:
            self._held = _beginning_of(tag, text)
            before = text.removesuffix(self._held)
        if not self._is_closing:
            self._tell(before)
            self._object = CallObject() if found else None
        elif found:
            self._is_closing = False
        return after

    def _read_object(self, found: CallObject, text: str) -> str | None:
        self._tell_call(found.feed(text))
        if found.is_odd:
            self._object = None
            self._tell(self._opening)
            return found.text
        if not found.is_over:
            return None
        self._object = None
        self._is_closing = True
        return found.rest

    def _end(self) -> None:
        if self._object is not None and not self._object.is_begun:
            self._tell(self._opening + self._object.text)
        elif not self._is_closing:
            self._tell(self._held)


class BareCalls(CallReader):
    """An answer that is nothing but calls, or has none: ``{...}; {...}``.

    Args:
        names: Tools that there are; an object with another name is an answer in words.
        marks: Texts that may stand before a call and are left out.
        separators: Characters that may stand between calls, or around them in a list.
    """

    def __init__(
        self, names: Collection[str], marks: tuple[str, ...] = (), separators: str = ";"
    ) -> None:
        super().__init__()
        self._names = names
        self._marks = marks
        self._separators = separators
        self._held = ""
        self._is_in_words = False
        self._is_closing = False

    def _step(self, text: str) -> str | None:
        if self._is_in_words:
            self._tell(text)
            return None
        if self._object is not None:
            return self._read_object(self._object, text)
        text, self._held = self._held + text, ""
        if self._is_closing:
            _, found, after = text.partition("}")
            self._is_closing = not found
            return after
        return self._look_for_object(text)

    def _look_for_object(self, text: str) -> str | None:
        bare = text.lstrip()
        if self.num_calls or "[" in self._separators:
            bare = bare.lstrip(self._separators + " \t\r\n")
        for mark in self._marks:
            bare = bare.removeprefix(mark).lstrip()
        if bare[:1] == "{":
            self._held = text.removesuffix(bare)
            self._object = CallObject(self._names)
            return bare
        if not bare or any(mark.startswith(bare) for mark in self._marks):
            self._held = text
            return None
        self._is_in_words = True
        return text

    def _read_object(self, found: CallObject, text: str) -> str | None:
        self._tell_call(found.feed(text))
        if found.is_odd:
            self._object = None
            self._is_in_words = True
            text, self._held = self._held + found.text, ""
            return text
        if found.is_begun:
            self._held = ""
        if not found.is_over:
            return None
        self._is_closing = found.has_bracket_to_come
        self._object = None
        return found.rest

    def _end(self) -> None:
        if self._object is not None and not self._object.is_begun:
            self._tell(self._held + self._object.text)
        elif not self.num_calls:
            self._tell(self._held)


def _beginning_of(tag: str, text: str) -> str:
    """The longest end of a text with which the tag may begin."""
    end = text[1 - len(tag) :]
    start = end.find(tag[0])
    while start >= 0 and not tag.startswith(end[start:]):
        start = end.find(tag[0], start + 1)
    return end[start:] if start >= 0 else ""
