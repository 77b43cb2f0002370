"""Sizes as people type them: ``64GiB``, ``512MiB``, or a number of bytes."""

from __future__ import annotations

import re

from dougong.errors import ConfigError

_UNITS = {"": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([A-Za-z]*)")


def parse_size(text: str, option: str) -> int:
    """Bytes.

    Args:
        text: As typed.
        option: Whose value it is, for the message.

    Raises:
        ConfigError: It is no size, or less than a byte.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[2].upper())
    size = 0 if match is None or unit is None else int(float(match[1]) * unit)
    if size < 1:
        raise ConfigError(f"{option} {text}: write a size, as in 64GiB, 512MiB or 1073741824.")
    return size
