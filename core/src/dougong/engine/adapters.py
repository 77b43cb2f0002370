"""Which adapters an engine has loaded, and in which slots."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from dougong.contracts import LoRAWeights
from dougong.errors import CapacityError, ConfigError, RequestError
from dougong.lora import read_adapter
from dougong.messages import LoRARef

MAX_NAME_LENGTH = 256
_MOST_SHOWN = 100


class LoadedAdapters:
    """Names and slots; on the engine's side, between steps.

    An adapter that is unloaded takes no new request, and its slot is another's once the last
    request that uses it has ended.

    Args:
        max_loras: Slots; 0: this engine takes no adapters.
        set_lora: Fills or clears a slot on every rank.
        num_using: Requests that have not ended and use an adapter.
    """

    def __init__(
        self,
        max_loras: int,
        set_lora: Callable[[int, LoRAWeights | None], None],
        num_using: Callable[[LoRARef], int],
    ) -> None:
        self._max_loras = max_loras
        self._set_lora = set_lora
        self._num_using = num_using
        self._by_name: dict[str, LoRARef] = {}
        self._leaving: list[LoRARef] = []
        self._numbers = itertools.count(1)

    @property
    def refs(self) -> tuple[LoRARef, ...]:
        """Those that requests may use, in the order they were loaded."""
        return tuple(self._by_name.values())

    def check(self, ref: LoRARef) -> None:
        """Refuse a request for an adapter that is gone.

        Raises:
            RequestError: It is.
        """
        if self._by_name.get(ref.name) != ref:
            raise RequestError(
                f"The adapter {ref.name!r} was unloaded before this request reached the engine. "
                "Load it again, or ask for another one.",
                field="lora",
            )

    def check_can_load(self, name: str) -> None:
        """Refuse what would be refused whatever the adapter holds.

        Raises:
            RequestError: The name cannot be used, or this engine takes no adapters.
            CapacityError: Every slot is taken.
        """
        check_takes_adapters(is_enabled=self._max_loras > 0)
        check_adapter_name(name)
        if name in self._by_name:
            raise RequestError(
                f"An adapter {name!r} is loaded already. Unload it first, or use another name.",
                field="lora_name",
            )
        self._free_slot()

    def load(self, name: str, weights: LoRAWeights) -> LoRARef:
        """Put an adapter into a free slot; where anything fails nothing has changed.

        Raises:
            RequestError: As `check_can_load`; or the adapter does not fit the model.
            CapacityError: Every slot is taken.
        """
        self.check_can_load(name)
        ref = LoRARef(name, self._free_slot(), next(self._numbers))
        self._set_lora(ref.slot, weights)
        self._by_name[name] = ref
        return ref

    def unload(self, name: str) -> LoRARef:
        """Take no new request for an adapter; those that run end as they would.

        Raises:
            RequestError: There is none of that name.
        """
        ref = self._by_name.pop(name, None)
        if ref is None:
            raise no_such_adapter(name, self._by_name, field="lora_name")
        self._leaving.append(ref)
        if not self._num_using(ref):
            self._set_lora(ref.slot, None)
        return ref

    def _free_slot(self) -> int:
        self._leaving = [ref for ref in self._leaving if self._num_using(ref)]
        taken = {ref.slot for ref in (*self._by_name.values(), *self._leaving)}
        free = next((slot for slot in range(self._max_loras) if slot not in taken), None)
        if free is None:
            waiting = f", {len(self._leaving)} of them until their last request ends"
            raise CapacityError(
                f"{self._max_loras} adapters hold a slot{waiting if self._leaving else ''}, as "
                "many as --max-loras allows. Unload one, or start with --max-loras "
                f"{self._max_loras + 1}."
            )
        return free


def load_at_start(adapters: LoadedAdapters, named: Iterable[tuple[str, LoRAWeights]]) -> None:
    """Load what the options name.

    Raises:
        ConfigError: One of them does not fit.
    """
    for name, weights in named:
        try:
            adapters.load(name, weights)
        except RequestError as exc:
            raise ConfigError(f"--lora {name}: {exc}") from exc


def read_at_start(named: Iterable[tuple[str, str]]) -> tuple[tuple[str, LoRAWeights], ...]:
    """What the options name, read before the model is loaded.

    Raises:
        ConfigError: Some cannot be; all of them are told.
    """
    found, problems = [], []
    for name, path in named:
        try:
            check_adapter_name(name)
            found.append((name, read_adapter(path)))
        except RequestError as exc:
            problems.append(f"--lora {name}={path}: {exc}")
    if problems:
        raise ConfigError("Adapters cannot be loaded:", tuple(problems))
    return tuple(found)


def check_takes_adapters(*, is_enabled: bool) -> None:
    """Refuse adapters where none are taken.

    Raises:
        RequestError: None are.
    """
    if not is_enabled:
        raise RequestError(
            "This engine takes no adapters. Start it with --enable-lora.", field="lora"
        )


def check_adapter_name(name: str) -> None:
    """Refuse what cannot name an adapter.

    Raises:
        RequestError: It is no text, empty, too long, or not printable.
    """
    is_name = isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()
    if not is_name:
        raise RequestError(
            f"lora_name takes 1 to {MAX_NAME_LENGTH} printable characters.", field="lora_name"
        )


def no_such_adapter(name: str, known: Iterable[str], *, field: str) -> RequestError:
    """The error of a name that no adapter has."""
    shown = name if len(name) <= _MOST_SHOWN else f"{name[:_MOST_SHOWN]}..."
    there = ", ".join(known) or "none"
    return RequestError(f"There is no adapter {shown!r}; loaded: {there}.", field=field)
