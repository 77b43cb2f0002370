"""A whole worker for any torch device; a vendor overrides parts of it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar

import torch

from dougong.contracts import (
    AttentionMetadataBuilder,
    ConfigView,
    GrammarMask,
    IntermediateTensors,
    KernelReport,
    KVCacheConfig,
    KVCacheGroup,
    KVLayout,
    LoadReport,
    LoRAWeights,
    PluginError,
    PoolingParams,
    RankPlan,
    SamplingParams,
    SchedulerOutput,
    StepHandle,
    UnsupportedError,
    Worker,
    WorkerContext,
    WorkerState,
)
from dougong.ops.first_use import watch_first_use
from dougong.platforms.contract_check import check_class
from dougong.reference.profiling import RankProfiler
from dougong.worker import ModelRunner, ModelStep
from dougong.worker.called_pieces import noting_calls
from dougong.worker.dummy_step import GREEDY, dummy_lengths, dummy_step, num_dummy_blocks
from dougong.worker.faults import classified
from dougong.worker.loading import LoadedModel, load_planned_model
from dougong.worker.rank_graphs import RankGraphs, check_replayable
from dougong.worker.runner_parts import make_runner_parts
from dougong.worker.warm_up import StepLimits, warm_up_sampling, warm_up_steps

FLOAT32_BYTES = 4
# Arrays of the size of all logits alive at once while drawing with a cut: logits, scaled, sorted
# values and their 64-bit indices (two), kept, probabilities, their sums, threshold masks.
LIVE_LOGITS = 10


class ReferenceWorker(Worker):
    """Runs a model through `Platform.runtime` alone, as its plan says.

    To change one part, override it: `runner_cls` (inputs, forward, sample), `estimate_step_bytes`
    and `measure_unused_bytes` (how memory is counted), or a life-cycle method.

    Attributes:
        runner_cls: Runs this rank's steps.
    """

    takes_grammar_masks: ClassVar[bool] = True
    makes_vectors: ClassVar[bool] = True
    runner_cls: ClassVar[type[ModelRunner]] = ModelRunner

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self._kernels = KernelReport()
        self._loaded: LoadedModel | None = None
        self._num_blocks = 0
        self._runner: ModelRunner | None = None
        self._builders: list[AttentionMetadataBuilder] = []
        self._graphs: RankGraphs | None = None
        self._profiler: RankProfiler | None = None
        self._next_step_id = 0

    @property
    def device(self) -> torch.device:
        """This rank's."""
        return self.context.platform.runtime.torch_device(self.context.device_index)

    @property
    def config(self) -> ConfigView:
        """Final values."""
        return self.context.config

    def init_device(self) -> KernelReport:
        """Open the device, seed it, import kernel libraries."""
        self._require(WorkerState.CREATED)
        platform = self.context.platform
        with self._classified():
            platform.runtime.set_device(self.context.device_index)
            platform.runtime.seed(self.config.seed)
            report = platform.import_kernels()
        if not isinstance(report, KernelReport):
            raise PluginError(
                f"platform {platform.name!r} answers {report!r} to import_kernels(), which is no "
                "KernelReport",
                plugin=platform.name,
            )
        self._kernels = report
        self.state = WorkerState.DEVICE_READY
        return self._kernels

    def load_model(self, plan: RankPlan) -> LoadReport:
        """Build on the device, fill tensor by tensor, bind attention and ops as planned."""
        self._require(WorkerState.DEVICE_READY)
        self._check_runner_cls()
        if plan.graphs:
            check_replayable(self.runner_cls)
        with self._classified():
            loaded = load_planned_model(self.context, plan, self.device, self._classified)
        self._loaded = loaded
        self._graphs = RankGraphs(
            self.context.platform,
            plan.graphs,
            self.config.max_num_seqs or 1,
            watched=self._watched,
            classified=self._classified,
        )
        self.state = WorkerState.MODEL_LOADED
        return loaded.report(self._kernels)

    def get_kv_cache_groups(self) -> tuple[tuple[KVCacheGroup, KVLayout], ...]:
        """One per kind of attention layers in the plan."""
        return self._model().attention.groups

    def determine_available_memory(self) -> int:
        """What is unused of the engine's share, less what steps and graphs take beside weights and
        cache."""
        self._require(WorkerState.MODEL_LOADED)
        with self._classified():
            needed = self.estimate_step_bytes() + self.measure_graph_bytes()
            return max(0, self.measure_unused_bytes() - needed)

    def measure_unused_bytes(self) -> int:
        """Bytes of the limit's share that are not in use now; below zero if more is."""
        utilization = self.config.device_memory_utilization
        assert utilization is not None, "the final configuration has every value"
        info = self.context.platform.runtime.memory_info(self.context.device_index)
        return int(info.total_bytes * utilization) - (info.total_bytes - info.free_bytes)

    def estimate_step_bytes(self) -> int:
        """Bytes beside weights and cache that the largest step takes: here, by running one.

        It holds as many tokens as a step can; what sampling adds for as many sequences as a step
        can hold is computed, since one long prompt does not show it.
        """
        runtime, attention = self.context.platform.runtime, self._model().attention
        lengths = self._fewest_sequences(self.config.max_num_batched_tokens or 1)
        num_blocks = attention.reserved_blocks + num_dummy_blocks(lengths, attention.block_size)
        runtime.empty_cache()
        attention.allocate(KVCacheConfig(num_blocks, tuple(group for group, _ in attention.groups)))
        runtime.reset_peak_memory()
        before = runtime.peak_memory_bytes()
        runner = self._make_runner()
        with self._watched():
            self._run_dummy(runner, lengths, GREEDY)
        peak = runtime.peak_memory_bytes()
        attention.drop()
        runtime.empty_cache()
        return max(0, peak - before) + self.estimate_sampling_bytes()

    def measure_graph_bytes(self) -> int:
        """Bytes of the plan's graphs that fit its budget: a few of them are captured, measured and
        given back.

        Raises:
            ConfigError: Sizes that the user gave do not fit.
            ImplementationError: A capture failed, or nothing fits.
        """
        graphs, attention = self._graphs, self._model().attention
        if not graphs:
            return 0
        groups = tuple(group for group, _ in attention.groups)
        attention.allocate(KVCacheConfig(attention.reserved_blocks + 1, groups))
        num_bytes = graphs.measure(self._make_runner())
        attention.drop()
        self.context.platform.runtime.empty_cache()
        return num_bytes

    def attention_workspace_bytes(self, num_tokens: int) -> int:
        """Bytes beside the cache that the bound attention backends take for so many tokens."""
        return self._model().attention.workspace_bytes(num_tokens)

    def estimate_sampling_bytes(self) -> int:
        """Bytes of what drawing with a cut makes of every sequence's float32 logits."""
        if self.config.pooling is not None:
            return 0
        num_seqs = self.config.max_num_seqs or 1
        return LIVE_LOGITS * num_seqs * int(self.config.hf_config["vocab_size"]) * FLOAT32_BYTES

    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        """Allocate every layer's buffers and make the runner."""
        self._require(WorkerState.MODEL_LOADED)
        attention = self._model().attention
        with self._classified():
            attention.allocate(config)
            self._runner = self._make_runner()
        self._num_blocks = config.num_blocks - attention.reserved_blocks
        self.state = WorkerState.CACHE_READY

    def kv_buffers(self) -> Iterator[torch.Tensor]:
        """Every buffer of the allocated KV cache."""
        return self._model().attention.buffers()

    def warm_up(self) -> None:
        """A step with prefill and decode, and one for every other token count at which the plan has
        a kernel; further ones where a kernel was not called: the first request finds everything
        used once. Then the plan's graphs are captured, and one is used with padding."""
        self._require(WorkerState.CACHE_READY)
        assert self._runner is not None
        loaded = self._model()
        with (
            self._classified(),
            noting_calls(loaded.model, loaded.sampler) as was_called,
            self._watched(),
        ):
            for lengths in warm_up_steps(loaded.plan, self._step_limits(), was_called):
                self._run_dummy(self._runner, lengths, warm_up_sampling(loaded.plan))
        if self._graphs:
            with self._classified():
                self._graphs.capture(self._runner)
                self._graphs.run_padded(self._runner, self._run_padded)
        self._runner.reset_timers()
        self.state = WorkerState.RUNNING

    def submit(
        self, step: SchedulerOutput, intermediate: IntermediateTensors | None = None
    ) -> StepHandle:
        """Forward of one step."""
        runner = self._running()
        if step.step_id != self._next_step_id:
            raise UnsupportedError(
                f"step {step.step_id} was submitted, step {self._next_step_id} is next; steps are "
                "taken in order"
            )
        self._next_step_id += 1
        with self._classified(step.step_id):
            return runner.submit(step)

    def sample(self, handle: StepHandle, grammar: GrammarMask | None = None) -> StepHandle:
        """Choice of tokens for a submitted step."""
        assert isinstance(handle, ModelStep), "handles come from submit"
        handle.grammar = grammar
        with self._classified(handle.step_id):
            return self._running().sample(handle)

    def set_lora(self, slot: int, weights: LoRAWeights | None) -> None:
        """See `LoRAWorker.set_lora`."""
        lora = self._model().lora
        if lora is None:
            raise UnsupportedError("the plan has no adapters; start the engine with --enable-lora")
        with self._classified():
            lora.set(slot, weights)

    def execute_dummy_batch(self) -> None:
        """One rank has no peers to keep in step."""

    def health(self) -> None:
        """The device answers a synchronize."""
        with self._classified():
            self.context.platform.runtime.synchronize()

    def sleep(self, level: int = 1) -> None:
        """Needs a runtime with memory pools.

        Raises:
            UnsupportedError: Always here; a vendor whose runtime has `MemoryPools` overrides it.
        """
        raise UnsupportedError(
            f"platform {self.context.platform.name!r} offers no memory pools, so sleep level "
            f"{level} would free nothing; shut the engine down instead"
        )

    def wake(self) -> None:
        """The way back from `sleep`.

        Raises:
            UnsupportedError: The worker is not asleep.
        """
        self._require(WorkerState.ASLEEP)

    def profile(self, is_start: bool, folder: str) -> None:
        """The runtime's own `Profiler` where it has one; otherwise PyTorch's, whose Chrome trace is
        written per rank when it stops."""
        if self._profiler is None:
            self._profiler = RankProfiler(self.context.platform.runtime, self.context.rank)
        if is_start:
            self._profiler.start(folder)
        else:
            self._profiler.stop(folder)

    def shutdown(self) -> None:
        """Let everything go."""
        was_open = self.state not in (WorkerState.CREATED, WorkerState.SHUT_DOWN)
        if self._graphs and self._runner is not None:
            self._graphs.release(self._runner)
        self._runner = self._loaded = self._graphs = None
        self._builders = []
        gc.collect()
        if was_open:
            self.context.platform.runtime.empty_cache()
        self.state = WorkerState.SHUT_DOWN

    def collect(self) -> Mapping[str, Any]:
        """Step timers of this rank; its graphs, where steps take any (``graphs``)."""
        runner = self._runner
        if runner is None:
            return {}
        numbers = self._graphs.numbers(runner) if self._graphs else {}
        return {**runner.timers.as_dict(), **({"graphs": numbers} if numbers else {})}

    def _check_runner_cls(self) -> None:
        cls = self.runner_cls
        if cls is not ModelRunner:
            subject = (
                f"{cls.__module__}:{cls.__qualname__}, runner_cls of {type(self).__qualname__}"
            )
            check_class(cls, ModelRunner, subject=subject, plugin=self.context.platform.name)

    def _make_runner(self) -> ModelRunner:
        runtime = self.context.platform.runtime
        graph_runner = self._graphs.make_runner(self.device) if self._graphs else None
        parts = make_runner_parts(
            self._model(), self.config, runtime, self.device, self._classified, graph_runner
        )
        self._builders = parts.builders
        return self.runner_cls(parts)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Inside, a kernel or an attention backend that raises is named: `ImplementationError`."""
        loaded, synchronize = self._model(), self.context.platform.runtime.synchronize
        with (
            watch_first_use(
                loaded.model, loaded.sampler, synchronize=synchronize, classified=self._classified
            ),
            loaded.attention.watch_first_use(self._builders, synchronize),
        ):
            yield

    def _step_limits(self) -> StepLimits:
        config = self.config
        assert config.max_num_seqs and config.max_num_batched_tokens and config.max_model_len
        return StepLimits(
            max_num_tokens=config.max_num_batched_tokens,
            max_num_seqs=config.max_num_seqs,
            max_model_len=config.max_model_len,
            num_blocks=self._num_blocks if self._model().attention.groups else sys.maxsize,
            block_size=self._model().plan.block_size,
        )

    def _fewest_sequences(self, num_tokens: int) -> list[int]:
        config = self.config
        assert config.max_model_len and config.max_num_seqs
        return dummy_lengths(num_tokens, config.max_model_len, config.max_num_seqs)

    def _run_dummy(
        self, runner: ModelRunner, lengths: Sequence[int], sampling_params: SamplingParams
    ) -> None:
        attention = self._model().attention
        step = dummy_step(
            lengths,
            attention.block_size,
            num_groups=len(attention.groups),
            first_block=attention.reserved_blocks,
            sampling_params=sampling_params,
            lora_slot=-1 if self._model().lora is None else 0,  # so that its part is there too
            pooling_params=None if self.config.pooling is None else PoolingParams(),
        )
        runner.sample(runner.submit(step)).result()
        self.context.platform.runtime.synchronize()
        runner.forget(list(step.num_scheduled_tokens))

    def _run_padded(self, num_tokens: int) -> None:
        assert self._runner is not None
        lengths = self._fewest_sequences(num_tokens)
        if num_dummy_blocks(lengths, self._model().attention.block_size) <= self._num_blocks:
            self._run_dummy(self._runner, lengths, GREEDY)

    def _model(self) -> LoadedModel:
        if self._loaded is None:
            raise UnsupportedError(f"the worker is {self.state}; load the model first")
        return self._loaded

    def _running(self) -> ModelRunner:
        self._require(WorkerState.RUNNING)
        assert self._runner is not None
        return self._runner

    def _require(self, state: WorkerState) -> None:
        if self.state is not state:
            raise UnsupportedError(f"the worker is {self.state}; this call needs {state}")

    def _classified(self, step_id: int | None = None) -> AbstractContextManager[None]:
        """A vendor's exception leaves as a `DeviceError` with device, rank and step."""
        return classified(
            self.context.platform,
            device_index=self.context.device_index,
            rank=self.context.rank,
            step_id=step_id,
        )
