"""One call of a tool as models write it: a JSON object with a name and arguments, read as it grows.

What is told depends on the text alone and not on how it was cut into pieces, so that a stream,
joined, is the whole answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from typing import Any, NamedTuple

_HEAD = re.compile(
    r'\s*\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)'
)
_MAX_HEAD = 512  # characters in which the usual order of the keys is looked for


class CallPart(NamedTuple):
    """What became known of a call."""

    name: str | None = None  # told once, before any arguments
    arguments: str = ""  # more of their JSON text


class CallObject:
    """Reads one object. Feed it until it `is_over` or `is_odd`.

    Arguments that follow the name are told as they come, letter by letter as the model wrote them:
    a model that writes no valid JSON is the client's to see. Of an object in another order, or with
    its arguments as a text, all is told at its end.

    Args:
        names: Tools that there are; an object with another name is no call. ``None``: any name is.

    Attributes:
        text: What was fed and not told.
        is_begun: Its name was told.
        is_over: The call is complete.
        has_bracket_to_come: It is over, and the bracket that closes the object itself was not read.
        is_odd: It is no call, and nothing was told.
    """

    def __init__(self, names: Collection[str] | None = None) -> None:
        self.text = ""
        self.is_begun = False
        self.is_over = False
        self.is_odd = False
        self.has_bracket_to_come = False
        self._names = names
        self._has_usual_order = True  # until it is known
        self._position = 0  # read up to here
        self._depth = 0
        self._in_string = False
        self._is_escaped = False

    @property
    def rest(self) -> str:
        """What was fed after its end."""
        return self.text[self._position :]

    def feed(self, text: str) -> list[CallPart]:
        """More of the answer."""
        self.text += text
        parts: list[CallPart] = []
        if not self.is_begun and self._has_usual_order:
            parts += self._begin()
        if self.is_odd or self.is_over:
            return parts
        self._read()
        if self.is_begun:
            told, self.text = self.text[: self._position], self.rest
            self._position = 0
            parts += [CallPart(arguments=told)] if told else []
        elif self.is_over:
            parts += self._whole()
        return parts

    def _begin(self) -> list[CallPart]:
        head = self.text[:_MAX_HEAD]
        if head.lstrip()[:1] not in ("", "{"):
            self.is_odd = True
        if found := _HEAD.match(head):
            name = _name(found[1])
            if name is None or not self._is_known(name):
                self.is_odd = True
                return []
            self.is_begun = self.has_bracket_to_come = True
            self.text = self.text[found.end() :]
            self._position, self._depth = 0, 1
            self._in_string = self._is_escaped = False
            return [CallPart(name=name)]
        self._has_usual_order = len(self.text) < _MAX_HEAD
        return []

    def _read(self) -> None:
        """Up to the end of the arguments, or of the object where nothing was told of it yet."""
        last_depth = 1 if self.is_begun else 0
        while self._position < len(self.text) and not self.is_over:
            char = self.text[self._position]
            self._position += 1
            if self._in_string:
                self._read_in_string(char)
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                self.is_over = self._depth <= last_depth

    def _read_in_string(self, char: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif char == "\\":
            self._is_escaped = True
        elif char == '"':
            self._in_string = False

    def _whole(self) -> list[CallPart]:
        call = _call(self.text[: self._position])
        if call is None or not self._is_known(call[0]):
            self.is_odd = True
            self.is_over = False
            return []
        self.is_begun = True
        return [CallPart(name=call[0], arguments=call[1])]

    def _is_known(self, name: str) -> bool:
        return bool(name) and (self._names is None or name in self._names)


def _name(literal: str) -> str | None:
    try:
        name = json.loads(f'"{literal}"')
    except ValueError:
        return None
    return name if isinstance(name, str) else None


def _call(text: str) -> tuple[str, str] | None:
    """Name and arguments of a complete object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get("arguments", found.get("parameters"))
    if isinstance(arguments, str) and _is_object(arguments):
        return found["name"], arguments
    if arguments is None or isinstance(arguments, dict):
        return found["name"], json.dumps(arguments or {}, ensure_ascii=False)
    return None


def _is_object(text: str) -> bool:
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)
