"""What a request's ``model`` may be: the served model's names, and those of its adapters."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dougong.errors import RequestError
from dougong.server.errors import HttpRequestError

_STARTED = int(time.time())
_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class ServedModel:
    """What answers a request.

    Attributes:
        name: To answer under.
        lora: The adapter that the engine is to use; ``None``: the model alone.
        parent: Name of the model that an adapter adds to.
    """

    name: str
    lora: str | None = None
    parent: str | None = None


class ModelNames:
    """Names that requests may use now.

    Args:
        own: Of the model; the first one is shown.
        adapters: Names of the adapters that are loaded.
    """

    def __init__(self, own: Sequence[str], adapters: Callable[[], Sequence[str]]) -> None:
        self._own = tuple(own)
        self._adapters = adapters

    def all(self) -> Iterator[ServedModel]:
        """The model's, then those of its adapters."""
        yield from map(ServedModel, self._own)
        yield from map(self._adapter, self._adapters())

    def check(self, name: str | None) -> ServedModel:
        """What a name stands for; ``None``: the model.

        Raises:
            HttpRequestError: There is no such model (404).
        """
        if name is None:
            return ServedModel(self._own[0])
        if name in self._own:
            return ServedModel(name)
        if name in self._adapters():
            return self._adapter(name)
        raise self.not_found(name, field="model")

    def check_is_free(self, name: str) -> None:
        """Refuse a name for an adapter that the model has.

        Raises:
            RequestError: It has.
        """
        if name in self._own:
            raise RequestError(
                f"lora_name={name!r} is a name of the model itself; choose another one.",
                field="lora_name",
            )

    def not_found(self, name: str, *, field: str) -> HttpRequestError:
        """The error of a name that nothing has."""
        shown = name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}..."
        there = ", ".join(one.name for one in self.all())
        return HttpRequestError(
            f"There is no model {shown!r} here; this server has {there}.",
            status=404,
            code="model_not_found",
            field=field,
        )

    def _adapter(self, name: str) -> ServedModel:
        return ServedModel(name, lora=name, parent=self._own[0])


class HasModelLength(Protocol):
    """What an entry tells beside names; see `dougong.server.serving.Serving`."""

    max_model_len: int


def model_entry(model: ServedModel, serving: HasModelLength) -> dict[str, Any]:
    """A model as ``/v1/models`` shows it; an adapter's names its parent."""
    entry = {
        "id": model.name,
        "object": "model",
        "created": _STARTED,
        "owned_by": "dougong",
        "max_model_len": serving.max_model_len,
    }
    return entry if model.parent is None else {**entry, "parent": model.parent}
