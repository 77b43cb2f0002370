"""An engine for asyncio: tokens as they come, many streams at a time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from dougong.config import EngineArgs, EngineOptions
from dougong.engine.channel import CLOSED, EngineChannel, ThreadChannel, engine_dead
from dougong.engine.chat_template import resolve_chat_template
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
from dougong.engine.core import EngineStats
from dougong.engine.front import FrontEnd
from dougong.engine.live_request import LiveRequest
from dougong.engine.preparation import prepare
from dougong.engine.process_channel import ProcessChannel
from dougong.engine.prompts import Message, Prompt, TokenizedPrompt
from dougong.engine.start_report import StartReport
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import EngineDeadError
from dougong.messages import EmbeddingOutput, PoolingParams, RequestOutput, SamplingParams
from dougong.planner import ExecutionPlan

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class AsyncEngine:
    """A loaded model in an event loop; make one with `start`, and `close` it.

    The engine runs in a process or a thread of its own; text is made in the event loop's thread.
    Everything but `start` is called in the event loop that called `start`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, args: EngineArgs) -> None:
        self._loop = loop
        self._args = args
        self._wakers: dict[LiveRequest, asyncio.Event] = {}
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._loads: set[int] = set()  # tickets of adapters that are being loaded
        self._tickets = itertools.count()
        self._dead: BaseException | None = None
        self._channel: EngineChannel
        self._front: FrontEnd

    @classmethod
    async def start(
        cls,
        model: str,
        *,
        in_own_process: bool = True,
        chat_template: str | None = None,
        **options: Unpack[EngineOptions],
    ) -> Self:
        """Load a model; the event loop goes on meanwhile.

        Args:
            model: Local folder, ``.gguf`` path, Hugging Face id, or ``demo``.
            in_own_process: A process of its own; otherwise a thread.
            chat_template: A file or a template that replaces the checkpoint's own.
            options: Fields of `EngineArgs`.

        Raises:
            ConfigError: What was asked for cannot work.
            PluginError: A plugin broke its contract.
            DeviceError: The device failed.
        """
        args = EngineArgs.from_options({"model": model, **options})
        engine = cls(asyncio.get_running_loop(), args)
        thread = ThreadPoolExecutor(1, thread_name_prefix="dougong-start")
        opening = thread.submit(engine._open, in_own_process, chat_template)
        thread.shutdown(wait=False)
        try:
            await asyncio.wrap_future(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(engine._close_unwanted)  # the thread goes on
            raise
        return engine

    @property
    def report(self) -> StartReport:
        """What was chosen at the start, and why."""
        return self._channel.report

    @property
    def plan(self) -> ExecutionPlan:
        """What runs, what was passed over or fell back, and why."""
        return self.report.plan

    @property
    def metrics(self) -> CollectorRegistry:
        """Prometheus metrics of this engine alone; no other engine and no process shares them."""
        return self._front.metrics

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's."""
        return self._front.tokenizer

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        lora: str | None = None,
        is_live: bool = False,
    ) -> AsyncIterator[RequestOutput]:
        """Continue a prompt.

        Args:
            prompt: Text or token ids.
            sampling_params: ``None``: the defaults.
            request_id: ``None``: one is made.
            priority: Lower runs first under the ``priority`` policy.
            lora: Name of a loaded adapter; ``None``: the model alone.
            is_live: Yield one object that goes on growing, instead of a copy each time: for a
                consumer that has taken what it needs before it asks for more.

        Yields:
            Everything so far, each time there is more; the last one is finished. A consumer that is
            slower than the engine gets several steps at once. One that leaves (cancelled, or by
            ``break``) ends the request.

        Raises:
            RequestError: The request can never be served; raised when the first item is asked for.
            DougongError: The tokenizer could not make its text; other requests go on.
            EngineDeadError: The engine is gone; the cause is chained.
        """
        return self._stream(
            lambda: self._front.tokenize(prompt),
            sampling_params,
            request_id,
            priority,
            lora=lora,
            is_live=is_live,
        )

    def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
        lora: str | None = None,
    ) -> AsyncIterator[RequestOutput]:
        """Answer a conversation; otherwise as `generate`."""
        return self._stream(
            lambda: self._front.tokenize_chat(messages),
            sampling_params,
            request_id,
            priority,
            lora=lora,
        )

    async def embed(
        self,
        text: Prompt,
        pooling_params: PoolingParams | None = None,
        *,
        prompt_name: str | None = None,
        request_id: str | None = None,
        priority: int = 0,
    ) -> EmbeddingOutput:
        """Make a vector of a text, as the checkpoint says; who is cancelled ends the request.

        Args:
            text: Text or token ids.
            pooling_params: ``None``: the checkpoint's own.
            prompt_name: Of the checkpoint's prompts the one to put before; ``None``: its default.
            request_id: ``None``: one is made.
            priority: Lower runs first under the ``priority`` policy.

        Raises:
            RequestError: The request can never be served, or the model generates text.
            EngineDeadError: The engine is gone; the cause is chained.
        """
        self._check_alive()
        state, request = self._front.add_embedding(
            self._front.tokenize_for_vector(text, prompt_name),
            pooling_params or PoolingParams(),
            request_id=request_id,
            priority=priority,
        )
        waker = self._wakers[state] = asyncio.Event()
        try:
            self._channel.send(Add((request,)))
            await waker.wait()
            if not state.is_finished:
                self._check_alive()
            return state.output()
        finally:
            del self._wakers[state]
            self._abort(self._front.abort(state))

    def loras(self) -> tuple[str, ...]:
        """Names of the adapters that requests may use."""
        return self._front.adapters.names()

    async def load_lora(self, name: str, path: str) -> None:
        """Load an adapter beside the steps; requests may use it when this returns.

        Args:
            name: That requests give as ``lora``.
            path: Folder that peft saved.

        Raises:
            RequestError: It cannot be loaded here; the message says why.
            CapacityError: As many as ``max_loras`` are loaded.
            EngineDeadError: The engine is gone.
        """
        ticket = next(self._tickets)
        self._loads.add(ticket)
        try:
            await self._ask(LoadLoRA(ticket, name, path))
        except EngineDeadError:
            self._loads.discard(ticket)
            raise

    async def unload_lora(self, name: str) -> None:
        """Take no new request for an adapter; those that run end as they would.

        Raises:
            RequestError: There is none of that name.
            EngineDeadError: The engine is gone.
        """
        self._front.adapters.remove(name)
        await self._ask(UnloadLoRA(next(self._tickets), name))

    async def stats(self) -> EngineStats:
        """The engine now."""
        stats = (await self._ask(Ask(next(self._tickets), "stats"))).stats
        assert stats is not None
        return stats

    async def health(self) -> None:
        """Return if every rank answers.

        Raises:
            EngineDeadError: The engine is gone, or a device does not answer.
        """
        await self._ask(Ask(next(self._tickets), "health"))

    async def close(self) -> None:
        """End every stream and free everything; callable twice."""
        self._die(EngineDeadError(CLOSED))
        await asyncio.to_thread(self._channel.close)
        await asyncio.to_thread(self._front.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _close_unwanted(self, opening: Future[None]) -> None:
        if not opening.cancelled() and opening.exception() is None:
            self._channel.close()

    def _open(self, in_own_process: bool, chat_template: str | None) -> None:
        args = self._args
        template = None if chat_template is None else resolve_chat_template(chat_template)
        prepared = prepare(args)
        prepared.loaded.hooks.process_start("front", None)
        tokenizer = Tokenizer.from_files(prepared.files, chat_template=template)
        kind = ProcessChannel if in_own_process else ThreadChannel
        self._channel = kind(args, self._on_event, prepared)
        self._front = FrontEnd(tokenizer, self._channel.report)

    async def _stream(
        self,
        tokenize: Callable[[], TokenizedPrompt],
        sampling_params: SamplingParams | None,
        request_id: str | None,
        priority: int,
        *,
        lora: str | None = None,
        is_live: bool = False,
    ) -> AsyncIterator[RequestOutput]:
        self._check_alive()
        params = sampling_params or SamplingParams()
        if params.structured_output is not None:  # the front end finds it checked
            await asyncio.to_thread(self._front.check_structured, params)
        state, requests = self._front.add(
            tokenize(), params, request_id=request_id, priority=priority, lora=lora
        )
        waker = self._wakers[state] = asyncio.Event()
        take = state.live if is_live else state.snapshot
        try:
            self._channel.send(Add(tuple(requests)))
            while True:
                await waker.wait()
                waker.clear()
                if state.error is not None:
                    raise state.error
                output = take()
                is_finished = output.is_finished  # a live one may be by the time it was read
                if not is_finished:
                    self._check_alive()
                yield output
                if is_finished:
                    return
        finally:
            del self._wakers[state]
            self._abort(self._front.abort(state))

    def _on_event(self, event: Event) -> None:
        """Runs in the channel's thread."""
        try:
            self._loop.call_soon_threadsafe(self._take, event)
        except RuntimeError:  # the event loop is closed, so nobody waits for this
            return

    def _take(self, event: Event) -> None:
        if isinstance(event, list):
            changed, to_abort = self._front.apply(event)
            self._abort(to_abort)
            for state in changed:
                self._wakers[state].set()
        elif isinstance(event, Answer):
            self._take_answer(event)
        elif isinstance(event, Died):
            self._die(event.error)

    def _take_answer(self, answer: Answer) -> None:
        if answer.ticket in self._loads:  # whoever asked may be gone; the adapter is loaded
            self._loads.discard(answer.ticket)
            if answer.lora is not None:
                self._front.adapters.add(answer.lora)
        future = self._answers.pop(answer.ticket, None)
        if future is None or future.done():
            return
        if answer.error is not None:
            future.set_exception(answer.error)
        else:
            future.set_result(answer)

    def _abort(self, engine_ids: Sequence[str]) -> None:
        if not engine_ids:
            return
        try:
            self._channel.send(Abort(tuple(engine_ids)))
        except EngineDeadError:
            return  # nothing runs there any more

    def _die(self, cause: BaseException) -> None:
        if self._dead is not None:
            return
        self._dead = cause
        for waker in self._wakers.values():
            waker.set()
        for future in self._answers.values():
            if not future.done():
                future.set_exception(engine_dead(cause))
        self._answers.clear()

    def _check_alive(self) -> None:
        if self._dead is not None:
            raise engine_dead(self._dead)

    async def _ask(self, question: Ask | LoadLoRA | UnloadLoRA) -> Answer:
        self._check_alive()
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._answers[question.ticket] = future
        self._channel.send(question)
        return await future
