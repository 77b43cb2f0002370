"""Which adapter a request uses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LoRARef:
    """An adapter that is loaded in an engine.

    Attributes:
        name: As clients name it.
        slot: Its place on every device, from 0 on.
        load_number: Counts the loads of an engine; an adapter that is loaded anew under its old
            name is another one, and shares no cached block with the first.
    """

    name: str
    slot: int
    load_number: int = 0
