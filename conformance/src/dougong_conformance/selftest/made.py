"""Classes that were made while running, findable by an import string as a platform names them."""

from __future__ import annotations

import importlib
from itertools import count
from typing import Any

_numbers = count(1)


def publish(cls: type[Any]) -> str:
    """An import string of a class; the same for the same class, in this process."""
    name = vars(cls).get("_published_as")
    if name is None:
        name = f"{cls.__name__}_{next(_numbers)}"
        cls._published_as = name
        globals()[name] = cls
    return f"{__name__}:{name}"


def find(target: str) -> type[Any]:
    """The class behind an import string."""
    module, _, attribute = target.partition(":")
    found: type[Any] = getattr(importlib.import_module(module), attribute)
    return found
