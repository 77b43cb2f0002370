"""Adapters as front ends know them: names that requests may use now."""

from __future__ import annotations

from dougong.engine.adapters import check_takes_adapters, no_such_adapter
from dougong.engine.start_report import StartReport
from dougong.messages import LoRARef


class AdapterNames:
    """What was loaded, by name; the engine's own book is `LoadedAdapters`.

    Args:
        report: Of the engine's start.

    Attributes:
        is_enabled: Whether the engine takes adapters.
    """

    def __init__(self, report: StartReport) -> None:
        self.is_enabled = report.plan.lora.assignment is not None
        self._by_name = {ref.name: ref for ref in report.loras}

    def names(self) -> tuple[str, ...]:
        """In the order they were loaded."""
        return tuple(self._by_name)

    def has(self, name: str) -> bool:
        """Whether requests may use it."""
        return name in self._by_name

    def find(self, name: str) -> LoRARef:
        """The adapter of that name.

        Raises:
            RequestError: There is none, or this engine takes none.
        """
        check_takes_adapters(is_enabled=self.is_enabled)
        ref = self._by_name.get(name)
        if ref is None:
            raise no_such_adapter(name, self._by_name, field="lora")
        return ref

    def add(self, ref: LoRARef) -> None:
        """The engine has loaded it."""
        self._by_name[ref.name] = ref

    def remove(self, name: str) -> None:
        """No request uses it any more."""
        self._by_name.pop(name, None)
