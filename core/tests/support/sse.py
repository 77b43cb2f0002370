"""Server-sent events as a reader sees them."""

from __future__ import annotations

import json
from typing import Any

DONE = "[DONE]"


def events_of(text: str) -> list[Any]:
    """The content of every event, ``[DONE]`` as it is; each must be whole."""
    parts = text.split("\n\n")
    assert parts.pop() == "", "the last event is cut off"
    assert all(part.startswith("data: ") for part in parts), parts
    contents = [part.removeprefix("data: ") for part in parts]
    return [one if one == DONE else json.loads(one) for one in contents]
