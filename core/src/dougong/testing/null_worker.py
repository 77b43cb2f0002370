"""A worker without a model: emits scripted tokens, and proves the bookkeeping of every step.

The checkpoint's config may hold a dictionary ``null``:

* ``scripts``: first prompt token (as a string) → tokens to emit, then the end-of-text token over
  and over; a prompt without a script gets tokens that depend on all tokens before them;
* ``step_seconds``: time each step takes;
* ``fail_at_step`` / ``die_at_step``: the device fails, or the process is gone;
* ``available_bytes``: what the KV cache may take;
* ``is_checking``: keep the token of every slot in place of K and V, and read each sequence back
  through its block table before a token is emitted (the default).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from typing import Any

from dougong.contracts import (
    GrammarMask,
    IntermediateTensors,
    KernelReport,
    KVBuffer,
    KVCacheConfig,
    KVCacheGroup,
    KVCacheSpec,
    KVLayout,
    LoadReport,
    ModelRunnerOutput,
    RankPlan,
    SchedulerOutput,
    StepHandle,
    TokenLogprobs,
    Worker,
    WorkerContext,
    WorkerState,
)
from dougong.testing.null_batch import NullBatch, NullSequence
from dougong.testing.null_platform import NullDeviceError

_FIRST_PRINTABLE, _NUM_PRINTABLE = 32, 95


class _Done:
    """A step that was over before it began."""

    def __init__(self, step: SchedulerOutput) -> None:
        self.step = step
        self.output: ModelRunnerOutput | None = None

    def result(self, timeout_s: float | None = None) -> ModelRunnerOutput:
        assert self.output is not None, "sample() comes before result()"
        return self.output


def _allowed_tokens(grammar: GrammarMask) -> dict[str, set[int]]:
    """Token ids by request."""
    return {
        req_id: {
            32 * index + bit
            for index, word in enumerate(words)
            for bit in range(32)
            if word >> bit & 1
        }
        for req_id, words in zip(grammar.req_ids, grammar.bitmask.tolist(), strict=True)
    }


class NullWorker(Worker):
    """See the module."""

    takes_grammar_masks = True

    def __init__(self, context: WorkerContext) -> None:
        """Read what to do from the checkpoint's config."""
        super().__init__(context)
        hf_config = context.config.hf_config
        self._orders: Mapping[str, Any] = hf_config.get("null") or {}
        self._scripts: Mapping[str, list[int]] = self._orders.get("scripts") or {}
        self._eos_token_id = int(hf_config.get("eos_token_id", 2))
        self._step_seconds = float(self._orders.get("step_seconds", 0.0))
        self._batch = NullBatch(0, is_checking=False)
        self._block_size = 0
        self._next_step_id = 0

    def init_device(self) -> KernelReport:
        """No device, and no kernels."""
        self.state = WorkerState.DEVICE_READY
        return KernelReport()

    def load_model(self, plan: RankPlan) -> LoadReport:
        """No model; of the plan the block size alone is obeyed."""
        self._block_size = plan.block_size
        time.sleep(float(self._orders.get("load_seconds", 0.0)))
        self.state = WorkerState.MODEL_LOADED
        return LoadReport(weight_bytes=0, seconds=0.0, attention_backends={"null/none": 1})

    def get_kv_cache_groups(self) -> tuple[tuple[KVCacheGroup, KVLayout], ...]:
        """One group of one layer that stores one element per token."""
        block_size, dtype = self._block_size, self.context.config.kv_cache_dtype
        assert dtype is not None
        spec = KVCacheSpec(num_kv_heads=1, head_dim=1, dtype=dtype, block_size=block_size)
        layout = KVLayout(
            name="null",
            buffers=(KVBuffer(name="kv", block_shape=(block_size,), dtype=dtype),),
            block_sizes=(block_size,),
            reserved_blocks=int(self._orders.get("reserved_blocks", 0)),
        )
        return ((KVCacheGroup(spec, (0,)), layout),)

    def determine_available_memory(self) -> int:
        """As ordered, else a mebibyte."""
        return int(self._orders.get("available_bytes", 2**20))

    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        """One Python integer per slot."""
        block_size = config.groups[0].spec.block_size
        assert block_size == self._block_size, f"blocks of {block_size} were not planned"
        self._batch = NullBatch(block_size, is_checking=bool(self._orders.get("is_checking", True)))
        self.state = WorkerState.CACHE_READY

    def warm_up(self) -> None:
        """Nothing to warm up."""
        self.state = WorkerState.RUNNING

    def submit(
        self, step: SchedulerOutput, intermediate: IntermediateTensors | None = None
    ) -> StepHandle:
        """Take in the step and check its bookkeeping."""
        assert step.step_id == self._next_step_id, f"step {step.step_id} is out of order"
        self._next_step_id += 1
        if step.step_id == self._orders.get("fail_at_step"):
            raise NullDeviceError(f"ordered to fail at step {step.step_id}")
        if step.step_id == self._orders.get("die_at_step"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._step_seconds:
            time.sleep(self._step_seconds)
        self._batch.take(step)
        return _Done(step)

    def sample(self, handle: StepHandle, grammar: GrammarMask | None = None) -> StepHandle:
        """Emit the next scripted token of each sequence that is due; where its grammar forbids
        that one, the end of the text, or else the first token that is allowed."""
        assert isinstance(handle, _Done)
        due = self._batch.due()
        req_ids = [sequence.request_id for sequence in due]
        masks = {} if grammar is None else _allowed_tokens(grammar)
        assert masks.keys() <= set(req_ids), "a mask is for a request that is sampled"
        token_ids = [[self._next_token(sequence)] for sequence in due]
        for sequence, chosen in zip(due, token_ids, strict=True):
            allowed = masks.get(sequence.request_id)
            if allowed is not None and chosen[0] not in allowed:
                chosen[0] = self._eos_token_id if self._eos_token_id in allowed else min(allowed)
        logprobs = {
            sequence.request_id: TokenLogprobs(chosen[0], -0.5)
            for sequence, chosen in zip(due, token_ids, strict=True)
            if sequence.params.logprobs is not None
        }
        of_prompts = {
            request_id: [TokenLogprobs(token_id, -0.5) for token_id in tokens]
            for request_id, tokens in self._batch.prompt_tokens().items()
        }
        for sequence, chosen in zip(due, token_ids, strict=True):
            sequence.token_ids += chosen
        handle.output = ModelRunnerOutput(
            handle.step.step_id, req_ids, token_ids, logprobs, of_prompts
        )
        return handle

    def _next_token(self, sequence: NullSequence) -> int:
        position = len(sequence.token_ids) - sequence.num_prompt_tokens
        script = self._scripts.get(str(sequence.token_ids[0]))
        if script is not None:
            return script[position] if position < len(script) else self._eos_token_id
        seed = sequence.params.seed or 0
        mixed = 31 * sequence.token_ids[-1] + 7 * len(sequence.token_ids) + 13 * seed
        return _FIRST_PRINTABLE + mixed % _NUM_PRINTABLE

    def execute_dummy_batch(self) -> None:
        """There are no collectives."""

    def health(self) -> None:
        """Always well."""

    def sleep(self, level: int = 1) -> None:
        """Nothing to give back."""
        self.state = WorkerState.ASLEEP

    def wake(self) -> None:
        """Nothing to take again."""
        self.state = WorkerState.RUNNING

    def profile(self, is_start: bool, folder: str) -> None:
        """Nothing to see."""

    def shutdown(self) -> None:
        """Nothing to free."""
        self.state = WorkerState.SHUT_DOWN
