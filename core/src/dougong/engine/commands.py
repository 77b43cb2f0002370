"""What passes between a front end and an engine that runs elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dougong.contracts import LoRAWeights
from dougong.engine.core import EngineStats
from dougong.engine.start_report import StartReport
from dougong.errors import DougongError
from dougong.messages import LoRARef, Request, RequestDelta


@dataclass(frozen=True, slots=True)
class Add:
    """Take in requests."""

    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Abort:
    """End requests."""

    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """Answer a question: how things stand, or whether every rank answers."""

    ticket: int
    what: Literal["stats", "health"]


@dataclass(frozen=True, slots=True)
class LoadLoRA:
    """Read an adapter's files, beside the steps, and load it between two; answered as an `Ask`."""

    ticket: int
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class LoRARead:
    """What came of reading an adapter; from the engine's own side, to be loaded.

    Attributes:
        ticket: Of `LoadLoRA`.
        name: Under which it is to be loaded.
        found: Its weights, or why there are none.
    """

    ticket: int
    name: str
    found: LoRAWeights | DougongError


@dataclass(frozen=True, slots=True)
class UnloadLoRA:
    """Let an adapter go; answered as an `Ask`."""

    ticket: int
    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Free everything and end."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine has started."""

    report: StartReport


@dataclass(frozen=True, slots=True)
class Answer:
    """To an `Ask`, or to a command about an adapter.

    Attributes:
        ticket: Of the question.
        stats: ``None`` for health, where it means well.
        lora: The adapter that was loaded or unloaded.
        error: Why there is no answer; the engine goes on.
    """

    ticket: int
    stats: EngineStats | None
    error: Exception | None = None
    lora: LoRARef | None = None


@dataclass(frozen=True, slots=True)
class Died:
    """The engine failed and answers nothing more.

    Attributes:
        error: What it failed with.
    """

    error: BaseException


Command = Add | Abort | Ask | LoadLoRA | LoRARead | UnloadLoRA | Stop
Event = Ready | list[RequestDelta] | Answer | Died
