"""What passes between a front end and an engine that runs elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dougong.engine.core import EngineStats
from dougong.engine.start_report import StartReport
from dougong.messages import Request, RequestDelta


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
class Stop:
    """Free everything and end."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine has started."""

    report: StartReport


@dataclass(frozen=True, slots=True)
class Answer:
    """To an `Ask`.

    Attributes:
        ticket: Of the question.
        stats: ``None`` for health, where it means well.
        error: Why there is no answer; the engine goes on.
    """

    ticket: int
    stats: EngineStats | None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Died:
    """The engine failed and answers nothing more.

    Attributes:
        error: What it failed with.
    """

    error: BaseException


Command = Add | Abort | Ask | Stop
Event = Ready | list[RequestDelta] | Answer | Died
