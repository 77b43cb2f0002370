"""One interface to an engine for callers that wait: in this process, or in one of its own."""

from __future__ import annotations

import itertools
import queue
from abc import ABC, abstractmethod
from collections.abc import Sequence

from dougong.config import EngineArgs
from dougong.engine.channel import CLOSED, engine_dead
from dougong.engine.commands import (
    Abort,
    Add,
    Answer,
    Ask,
    Died,
    Event,
    LoadLoRA,
    UnloadLoRA,
)
from dougong.engine.core import EngineCore, EngineStats
from dougong.engine.preparation import Preparation
from dougong.engine.process_channel import ProcessChannel
from dougong.engine.start_report import StartReport
from dougong.errors import EngineDeadError
from dougong.lora import read_adapter
from dougong.messages import LoRARef, Request, RequestDelta
from dougong.planner import ExecutionPlan


class EngineClient(ABC):
    """What a front end asks of an engine. One thread uses it at a time.

    Every method but `close` raises `EngineDeadError` once the engine is gone, with the cause
    chained.

    Attributes:
        report: Of the engine's start.
    """

    report: StartReport

    @property
    def plan(self) -> ExecutionPlan:
        """What runs, what was passed over or fell back, and why."""
        return self.report.plan

    @abstractmethod
    def add(self, requests: Sequence[Request]) -> None:
        """Let requests wait for their turn.

        One that the engine refuses comes back as a delta with an error.
        """

    @abstractmethod
    def abort(self, request_ids: Sequence[str]) -> None:
        """End requests wherever they stand."""

    @abstractmethod
    def poll(self) -> list[RequestDelta]:
        """Wait for the next step and return what it produced, which may be nothing.

        Call it only while there are requests.
        """

    @abstractmethod
    def stats(self) -> EngineStats:
        """The engine now."""

    @abstractmethod
    def load_lora(self, name: str, path: str) -> LoRARef:
        """Load an adapter; steps go on where the engine runs elsewhere.

        Raises:
            RequestError: It cannot be loaded here.
            CapacityError: Every slot is taken.
        """

    @abstractmethod
    def unload_lora(self, name: str) -> LoRARef:
        """Let an adapter go.

        Raises:
            RequestError: There is none of that name.
        """

    @abstractmethod
    def health(self) -> None:
        """Return if every rank answers."""

    @abstractmethod
    def close(self) -> None:
        """Free everything; callable twice."""


class LocalClient(EngineClient):
    """An engine in this process, whose steps run in the caller's thread.

    Args:
        core: The engine.
    """

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.report = core.report
        self._dead: BaseException | None = None

    def add(self, requests: Sequence[Request]) -> None:
        """See `EngineClient.add`; here a refusal is raised at once."""
        self._check_alive()
        for request in requests:
            self.core.add(request)

    def abort(self, request_ids: Sequence[str]) -> None:
        """See `EngineClient.abort`."""
        self._check_alive()
        self.core.abort(request_ids)

    def poll(self) -> list[RequestDelta]:
        """See `EngineClient.poll`."""
        self._check_alive()
        try:
            return self.core.step()
        except KeyboardInterrupt as exc:  # it left a step half done, so there is no going on
            self._dead = exc
            raise
        except BaseException as exc:  # a vendor may raise anything, a wish to end the program too
            self._dead = exc
            raise engine_dead(exc) from exc

    def stats(self) -> EngineStats:
        """See `EngineClient.stats`."""
        self._check_alive()
        return self.core.stats()

    def load_lora(self, name: str, path: str) -> LoRARef:
        """See `EngineClient.load_lora`."""
        self._check_alive()
        self.core.check_can_load_lora(name)
        return self.core.load_lora(name, read_adapter(path))

    def unload_lora(self, name: str) -> LoRARef:
        """See `EngineClient.unload_lora`."""
        self._check_alive()
        return self.core.unload_lora(name)

    def health(self) -> None:
        """See `EngineClient.health`."""
        self._check_alive()
        self.core.health()

    def close(self) -> None:
        """See `EngineClient.close`."""
        self.core.shutdown()
        self._dead = self._dead or EngineDeadError(CLOSED)

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise engine_dead(self._dead)


class ProcessClient(EngineClient):
    """An engine in a process of its own.

    Args:
        args: The user's wishes.
        prepared: The platform and the model's files.
    """

    def __init__(self, args: EngineArgs, prepared: Preparation) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._early: list[list[RequestDelta]] = []  # came while an answer was awaited
        self._tickets = itertools.count()
        self._is_closed = False
        self.channel = ProcessChannel(args, self._events.put, prepared)
        self.report = self.channel.report

    def add(self, requests: Sequence[Request]) -> None:
        """See `EngineClient.add`."""
        self.channel.send(Add(tuple(requests)))

    def abort(self, request_ids: Sequence[str]) -> None:
        """See `EngineClient.abort`."""
        self.channel.send(Abort(tuple(request_ids)))

    def poll(self) -> list[RequestDelta]:
        """See `EngineClient.poll`."""
        if self._is_closed:
            raise EngineDeadError(CLOSED)
        if self._early:
            return self._early.pop(0)
        event = self._next_event()
        assert isinstance(event, list), "answers come only to a question"
        return event

    def stats(self) -> EngineStats:
        """See `EngineClient.stats`."""
        stats = self._ask(Ask(next(self._tickets), "stats")).stats
        assert stats is not None
        return stats

    def load_lora(self, name: str, path: str) -> LoRARef:
        """See `EngineClient.load_lora`."""
        return _lora_of(self._ask(LoadLoRA(next(self._tickets), name, path)))

    def unload_lora(self, name: str) -> LoRARef:
        """See `EngineClient.unload_lora`."""
        return _lora_of(self._ask(UnloadLoRA(next(self._tickets), name)))

    def health(self) -> None:
        """See `EngineClient.health`."""
        self._ask(Ask(next(self._tickets), "health"))

    def close(self) -> None:
        """See `EngineClient.close`."""
        self._is_closed = True
        self.channel.close()
        self._events.put(Died(EngineDeadError(CLOSED)))  # for a thread that waits in here

    def _ask(self, question: Ask | LoadLoRA | UnloadLoRA) -> Answer:
        self.channel.send(question)
        while True:
            event = self._next_event()
            if isinstance(event, Answer) and event.ticket == question.ticket:
                if event.error is not None:
                    raise event.error
                return event
            if isinstance(event, list):
                self._early.append(event)

    def _next_event(self) -> Event:
        event = self._events.get()
        if isinstance(event, Died):
            self._events.put(event)  # whoever asks next learns it too
            raise engine_dead(event.error)
        return event


def _lora_of(answer: Answer) -> LoRARef:
    assert answer.lora is not None, "an answer without an error has it"
    return answer.lora
