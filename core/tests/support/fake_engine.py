"""An engine for tests of the server: real requests and real text, tokens by script, no model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry

from dougong.checkpoint import resolve_reference
from dougong.config.pooling import PoolingConfig
from dougong.engine.core import EngineStats
from dougong.engine.front import FrontEnd
from dougong.engine.prompts import Prompt
from dougong.engine.start_report import MemoryReport, StartReport
from dougong.engine.step_times import StepTimes
from dougong.engine.tokenizer import Tokenizer
from dougong.errors import EngineDeadError, RequestError
from dougong.kv_cache import KVCacheUsage
from dougong.messages import (
    EmbeddingOutput,
    FinishReason,
    PoolingParams,
    RequestDelta,
    RequestOutput,
    SamplingParams,
    TokenLogprobs,
)
from dougong.scheduler import RequestLimits, SchedulerStats
from tests.support.made_up_plans import plain_plan
from tests.support.tiny_models import EOS_ID, write_tiny_checkpoint

VOCAB_SIZE = 288
MAX_LEN = 64
EMBEDDING_SIZE = 8
USAGE = KVCacheUsage(
    num_usable_blocks=8,
    num_held_blocks=2,
    num_cached_blocks=1,
    num_evictions=3,
    num_queried_tokens=40,
    num_hit_tokens=10,
)


def tiny_tokenizer(
    folder: Path, *, has_template: bool = True, template: str | None = None
) -> Tokenizer:
    """One id per byte, a few merges, four special tokens; a chat template of its own or given."""
    write_tiny_checkpoint(folder)
    if not has_template:
        (folder / "tokenizer_config.json").write_text("{}")
    return Tokenizer.from_files(resolve_reference(str(folder)), chat_template=template)


class FakeEngine:
    """Answers every prompt with one text, a token at a time.

    Args:
        tokenizer: Spells it.
        answer: The text; end-of-text follows it.
        pooling: It makes vectors, and no text; ``None``: it generates.

    Attributes:
        gate: Clear it, and every step waits.
        num_steps_before_death: The engine dies after so many tokens of a request.
        death: What it died of; set it, and everything fails with it from then on.
        num_left: Requests that ended before they were finished.
        seen: Parameters of every request.
        seen_loras: Adapter of every request.
        seen_pooling: What was asked of every vector.
        adapters: Path of every loaded adapter, by its name.
        num_begun: Requests that came.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        answer: str = "answer",
        *,
        pooling: PoolingConfig | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.report = replace(_report(), pooling=pooling)
        self.metrics = CollectorRegistry()
        self.gate = asyncio.Event()
        self.gate.set()
        self.num_steps_before_death: int | None = None
        self.death: Exception | None = None
        self.is_busy = False
        self.num_left = 0
        self.num_begun = 0
        self.seen: list[SamplingParams] = []
        self.seen_loras: list[str | None] = []
        self.seen_pooling: list[PoolingParams] = []
        self.adapters: dict[str, str] = {}
        self._front = FrontEnd(tokenizer, self.report)
        self._answer = [*tokenizer.encode(answer, add_special_tokens=False), EOS_ID]

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        lora: str | None = None,
        is_live: bool = False,
    ) -> AsyncIterator[RequestOutput]:
        """See `AsyncEngine.generate`."""
        self._check_alive()
        params = sampling_params or SamplingParams()
        tokenized = self._front.tokenize(prompt)
        state, _ = self._front.add(tokenized, params)
        self.seen.append(params)
        self.seen_loras.append(lora)
        self.num_begun += 1
        try:
            for step in range(1000):
                await self.gate.wait()
                await asyncio.sleep(0)
                if step == self.num_steps_before_death:
                    self.death = EngineDeadError("The engine's process was killed.")
                self._check_alive()
                self._front.apply(self._deltas(state.engine_ids, tokenized.token_ids, params, step))
                yield state.live() if is_live else state.snapshot()
                if state.is_finished:
                    return
        finally:
            self.num_left += bool(self._front.abort(state))

    async def embed(
        self, text: Prompt, pooling_params: PoolingParams | None = None
    ) -> EmbeddingOutput:
        """See `AsyncEngine.embed`; a vector is the text's ids, and zeros to `EMBEDDING_SIZE`."""
        self._check_alive()
        params = pooling_params or PoolingParams()
        state, request = self._front.add_embedding(self._front.tokenize(text), params)
        self.seen_pooling.append(params)
        self.num_begun += 1
        try:
            await self.gate.wait()
            self._check_alive()
            ids = [float(one) for one in request.prompt_token_ids]
            values = [*ids, *[0.0] * EMBEDDING_SIZE][: params.dimensions or EMBEDDING_SIZE]
            delta = RequestDelta(request.request_id, [], FinishReason.STOP, pooled=values)
            self._front.apply([delta])
            return state.output()
        finally:
            self.num_left += bool(self._front.abort(state))

    def loras(self) -> tuple[str, ...]:
        """See `AsyncEngine.loras`."""
        return tuple(self.adapters)

    async def load_lora(self, name: str, path: str) -> None:
        """See `AsyncEngine.load_lora`."""
        self._check_alive()
        if name in self.adapters:
            raise RequestError(f"An adapter {name!r} is loaded already.", field="lora_name")
        self.adapters[name] = path

    async def unload_lora(self, name: str) -> None:
        """See `AsyncEngine.unload_lora`."""
        self._check_alive()
        del self.adapters[name]

    async def stats(self) -> EngineStats:
        """See `AsyncEngine.stats`."""
        await self._answered()
        scheduler = SchedulerStats(
            num_running=self._front.num_requests(), num_waiting=7, num_preemptions=5, kv_cache=USAGE
        )
        return EngineStats(scheduler=scheduler, times=dict(StepTimes().summary()), ranks=())

    async def health(self) -> None:
        """See `AsyncEngine.health`."""
        await self._answered()

    async def _answered(self) -> None:
        while self.is_busy:  # a long step
            await asyncio.sleep(0.001)
            self._check_alive()
        self._check_alive()

    def _check_alive(self) -> None:
        if self.death is not None:
            raise self.death

    def _deltas(
        self,
        engine_ids: Sequence[str],
        prompt: Sequence[int],
        params: SamplingParams,
        step: int,
    ) -> list[RequestDelta]:
        token_id = self._answer[min(step, len(self._answer) - 1)]
        is_stop = token_id == EOS_ID and not params.ignore_eos
        is_last = step + 1 == params.max_tokens
        reason = FinishReason.STOP if is_stop else FinishReason.LENGTH if is_last else None
        is_asked = params.prompt_logprobs is not None and step == 0
        of_prompt = [
            TokenLogprobs(one, -float(one), ((7, -0.25), (8, -0.75))) for one in prompt[1:]
        ]
        of_prompt = of_prompt if is_asked else []
        entry = TokenLogprobs(token_id, -0.5, ((token_id, -0.5), (200, float("-inf"))))
        return [
            RequestDelta(
                engine_id,
                [token_id],
                finish_reason=reason,
                stop_token_id=token_id if is_stop else None,
                logprobs=[] if params.logprobs is None else [entry],
                num_cached_tokens=1,
                prompt_logprobs=of_prompt if engine_id == engine_ids[0] else [],
            )
            for engine_id in engine_ids
        ]


def _report() -> StartReport:
    return StartReport(
        model="m",
        architecture="LlamaForCausalLM",
        vocab_size=VOCAB_SIZE,
        dtype="float32",
        platform="null",
        devices=(),
        platform_reasons=(),
        decisions=(),
        memory=MemoryReport(limit=1, budget=1, weights=1, kv_cache=1),
        num_kv_blocks=8,
        block_size=16,
        plan=plain_plan(),
        limits=RequestLimits(max_model_len=MAX_LEN, num_token_slots=128),
    )
