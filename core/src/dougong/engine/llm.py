"""A model for scripts: prompts in, answers out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from dougong.config import EngineArgs, EngineOptions
from dougong.engine.chat_template import resolve_chat_template
from dougong.engine.client import EngineClient, LocalClient, ProcessClient
from dougong.engine.core import EngineCore, EngineStats
from dougong.engine.embedding_state import EmbeddingState
from dougong.engine.front import FrontEnd
from dougong.engine.live_request import LiveRequest
from dougong.engine.preparation import prepare
from dougong.engine.progress import generation_progress
from dougong.engine.prompts import Message, Prompt, TokenizedPrompt
from dougong.engine.request_state import RequestState
from dougong.engine.start_report import StartReport
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import EngineDeadError, RequestError
from dougong.messages import (
    EmbeddingOutput,
    PoolingParams,
    Request,
    RequestOutput,
    SamplingParams,
)
from dougong.planner import ExecutionPlan

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

Params = SamplingParams | Sequence[SamplingParams] | None
Adapters = str | Sequence[str | None] | None


class LLM:
    """A loaded model. Use it as a context manager, or `close` it.

    Args:
        model: Local folder, ``.gguf`` path, Hugging Face id, or ``demo``.
        in_own_process: Run the engine in a process of its own; otherwise its steps run in the
            caller's thread.
        chat_template: A file or a template that replaces the checkpoint's own.
        options: Fields of `EngineArgs`.

    Raises:
        ConfigError: What was asked for cannot work.
        PluginError: A plugin broke its contract.
        DeviceError: The device failed.
    """

    def __init__(
        self,
        model: str,
        *,
        in_own_process: bool = False,
        chat_template: str | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        args = EngineArgs.from_options({"model": model, **options})
        self._open(args, in_own_process=in_own_process, chat_template=chat_template)

    @classmethod
    def from_args(
        cls, args: EngineArgs, *, in_own_process: bool = False, chat_template: str | None = None
    ) -> Self:
        """Load a model from wishes that were collected already, a command's defaults included."""
        llm = cls.__new__(cls)
        llm._open(args, in_own_process=in_own_process, chat_template=chat_template)
        return llm

    def _open(self, args: EngineArgs, *, in_own_process: bool, chat_template: str | None) -> None:
        template = None if chat_template is None else resolve_chat_template(chat_template)
        prepared = prepare(args)
        prepared.loaded.hooks.process_start("front", None)
        self.tokenizer = Tokenizer.from_files(prepared.files, chat_template=template)
        self._client: EngineClient = (
            ProcessClient(args, prepared)
            if in_own_process
            else LocalClient(EngineCore.start(args, prepared))
        )
        self._front = FrontEnd(self.tokenizer, self._client.report)

    @property
    def report(self) -> StartReport:
        """What was chosen at the start, and why."""
        return self._client.report

    @property
    def plan(self) -> ExecutionPlan:
        """What runs, what was passed over or fell back, and why."""
        return self.report.plan

    @property
    def metrics(self) -> CollectorRegistry:
        """Prometheus metrics of this engine alone; no other engine and no process shares them."""
        return self._front.metrics

    def stats(self) -> EngineStats:
        """The engine now."""
        return self._client.stats()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt] | None = None,
        sampling_params: Params = None,
        *,
        prompt_token_ids: Sequence[int] | Sequence[Sequence[int]] | None = None,
        progress: bool | None = None,
        lora: Adapters = None,
    ) -> list[RequestOutput]:
        """Continue prompts.

        Args:
            prompts: One text or several; token ids in place of a text are welcome.
            sampling_params: One for all prompts, or one each; ``None``: the defaults.
            prompt_token_ids: Token ids, instead of ``prompts``.
            progress: Draw a bar on stderr; ``None``: only on a terminal, for several prompts.
            lora: Name of a loaded adapter for all prompts, or one each; ``None``: the model alone.

        Returns:
            One answer per prompt, in their order.

        Raises:
            RequestError: A prompt or parameter can never be served; nothing was computed then.
            EngineDeadError: The engine failed; the cause is chained.
        """
        if (prompts is None) == (prompt_token_ids is None):
            raise RequestError("Give prompts or prompt_token_ids, one of the two.", field="prompts")
        given = prompts if prompts is not None else prompt_token_ids
        assert given is not None
        tokenized = [self._front.tokenize(prompt) for prompt in _as_list(given)]
        return self._run(tokenized, sampling_params, progress, lora)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: Params = None,
        *,
        progress: bool | None = None,
        lora: Adapters = None,
    ) -> list[RequestOutput]:
        """Answer conversations.

        Args:
            messages: One conversation (messages with ``role`` and ``content``), or several.
            sampling_params: As in `generate`.
            progress: As in `generate`.
            lora: As in `generate`.

        Raises:
            RequestError: As `generate`; also when the model has no chat template.
            EngineDeadError: The engine failed; the cause is chained.
        """
        several: Sequence[Any] = (
            messages if messages and not isinstance(messages[0], dict) else [messages]
        )
        tokenized = [self._front.tokenize_chat(conversation) for conversation in several]
        return self._run(tokenized, sampling_params, progress, lora)

    def stream(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        lora: str | None = None,
    ) -> Iterator[RequestOutput]:
        """Continue one prompt, giving everything so far after each step that brought something.

        A caller that leaves the loop ends the request.

        Raises:
            RequestError: As `generate`; raised when the first item is asked for.
            EngineDeadError: The engine failed; the cause is chained.
        """
        return self._stream(lambda: self._front.tokenize(prompt), sampling_params, lora)

    def stream_chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        lora: str | None = None,
    ) -> Iterator[RequestOutput]:
        """Answer one conversation; otherwise as `stream`."""
        return self._stream(lambda: self._front.tokenize_chat(messages), sampling_params, lora)

    def embed(
        self,
        texts: Prompt | Sequence[Prompt],
        pooling_params: PoolingParams | None = None,
        *,
        prompt_name: str | None = None,
        progress: bool | None = None,
    ) -> list[EmbeddingOutput]:
        """Make a vector of each text, as the checkpoint says.

        Args:
            texts: One text or several; token ids in place of a text are welcome.
            pooling_params: ``None``: the checkpoint's own.
            prompt_name: Of the checkpoint's prompts the one to put before each text; ``None``: its
                default, which is mostly none.
            progress: Draw a bar on stderr; ``None``: only on a terminal, for several texts.

        Returns:
            One vector per text, in their order.

        Raises:
            RequestError: A text or parameter can never be served, or the model generates text;
                nothing was computed then.
            EngineDeadError: The engine failed; the cause is chained.
        """
        params = pooling_params or PoolingParams()
        prompts = [self._front.tokenize_for_vector(one, prompt_name) for one in _as_list(texts)]
        with self._all_or_none() as (states, requests):
            found: list[EmbeddingState] = []
            for index, prompt in enumerate(prompts):
                with _noting_place(index, len(prompts)):
                    state, request = self._front.add_embedding(prompt, params)
                found.append(state)
                states.append(state)
                requests.append(request)
            self._client.add(requests)
            self._drain(found, progress)
            return [state.output() for state in found]

    def load_lora(self, name: str, path: str) -> None:
        """Load an adapter.

        Args:
            name: That requests give as ``lora``.
            path: Folder that peft saved.

        Raises:
            RequestError: It cannot be loaded here; the message says why.
            CapacityError: As many as ``max_loras`` are loaded.
            EngineDeadError: The engine failed; the cause is chained.
        """
        self._front.adapters.add(self._client.load_lora(name, path))

    def unload_lora(self, name: str) -> None:
        """Take no new request for an adapter; those that run end as they would.

        Raises:
            RequestError: There is none of that name.
            EngineDeadError: The engine failed; the cause is chained.
        """
        self._front.adapters.remove(name)
        self._client.unload_lora(name)

    def loras(self) -> tuple[str, ...]:
        """Names of the adapters that requests may use."""
        return self._front.adapters.names()

    def close(self) -> None:
        """Free the device and whatever else the engine holds; callable twice."""
        self._client.close()
        self._front.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _run(
        self,
        prompts: Sequence[TokenizedPrompt],
        sampling_params: Params,
        progress: bool | None,
        lora: Adapters = None,
    ) -> list[RequestOutput]:
        params = _one_each(sampling_params, len(prompts))
        with self._taken_in(prompts, params, _adapter_each(lora, len(prompts))) as states:
            self._drain(states, progress)
            return [state.snapshot() for state in states]

    def _stream(
        self,
        tokenize: Callable[[], TokenizedPrompt],
        sampling_params: SamplingParams | None,
        lora: str | None,
    ) -> Iterator[RequestOutput]:
        params = sampling_params or SamplingParams()
        with self._taken_in([tokenize()], [params], [lora]) as (state,):
            output = None
            while output is None or not output.is_finished:
                if state.is_finished or state in self._poll()[0]:
                    _check_served(state)
                    output = state.snapshot()
                    yield output

    @contextmanager
    def _taken_in(
        self,
        prompts: Sequence[TokenizedPrompt],
        params: Sequence[SamplingParams],
        loras: Sequence[str | None],
    ) -> Iterator[list[RequestState]]:
        """Requests that are running inside the block, and gone after it however it ends."""
        with self._all_or_none() as (states, requests):
            found: list[RequestState] = []
            each = zip(prompts, params, loras, strict=True)
            for index, (prompt, one, lora) in enumerate(each):
                with _noting_place(index, len(prompts)):
                    state, own = self._front.add(prompt, one, lora=lora)
                found.append(state)
                states.append(state)
                requests += own
            self._client.add(requests)
            yield found

    @contextmanager
    def _all_or_none(self) -> Iterator[tuple[list[LiveRequest], list[Request]]]:
        """Lists to fill with what was taken in; all of it is gone after the block."""
        states: list[LiveRequest] = []
        try:
            yield states, []
        finally:
            ids = [one for state in states for one in self._front.abort(state)]
            if ids:
                with suppress(EngineDeadError):  # nothing runs there any more
                    self._client.abort(ids)

    def _drain(self, states: Sequence[LiveRequest], progress: bool | None) -> None:
        pending = {state.request_id for state in states}
        with generation_progress(len(states), progress) as advance:
            while pending:
                changed, num_tokens = self._poll()
                for state in changed:
                    if state.request_id in pending:
                        _check_served(state)
                advance(changed, num_tokens)
                pending.difference_update(one.request_id for one in changed if one.is_finished)

    def _poll(self) -> tuple[list[LiveRequest], int]:
        """Wait for a step; the requests it changed, and how many tokens it brought."""
        deltas = self._client.poll()
        changed, to_abort = self._front.apply(deltas)
        if to_abort:
            self._client.abort(to_abort)
        return changed, len(deltas)


@contextmanager
def _noting_place(index: int, count: int) -> Iterator[None]:
    """Which of several prompts a refusal is about."""
    try:
        yield
    except RequestError as exc:
        exc.add_note(f"(prompt {index} of {count})")
        raise


def _check_served(state: LiveRequest) -> None:
    if state.error is not None:
        raise state.error


def _as_list(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]  # one prompt, by the line above
    return prompts  # type: ignore[return-value]  # several


def _one_each(params: Params, count: int) -> Sequence[SamplingParams]:
    if params is None:
        return [SamplingParams()] * count
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise RequestError(
            f"{len(params)} sampling_params for {count} prompts. Give one for all, or one each.",
            field="sampling_params",
        )
    return params


def _adapter_each(lora: Adapters, count: int) -> Sequence[str | None]:
    if lora is None or isinstance(lora, str):
        return [lora] * count
    if len(lora) != count:
        raise RequestError(
            f"{len(lora)} adapters for {count} prompts. Give one for all, or one each (None: the "
            "model alone).",
            field="lora",
        )
    return lora
