"""A whole worker for any torch device; a vendor overrides parts of it."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from dougong.checkpoint import open_tensors, resolve_reference
from dougong.contracts import (
    ConfigView,
    GrammarMask,
    IntermediateTensors,
    KernelReport,
    KVCacheConfig,
    KVCacheGroup,
    KVLayout,
    LoadReport,
    Profiler,
    SchedulerOutput,
    StepHandle,
    UnsupportedError,
    Worker,
    WorkerContext,
    WorkerState,
)
from dougong.models.causal_lm import CausalLM
from dougong.models.loader import WeightLoadReport, load_model
from dougong.models.registry import ModelRegistry
from dougong.ops import OP_KEYS, BindReport, BindRequest, OpRegistry, bind_ops
from dougong.sampling import Sampler
from dougong.worker import InputBatch, ModelRunner, ModelStep
from dougong.worker.attention_layers import AttentionLayers
from dougong.worker.dummy_step import dummy_lengths, dummy_step, num_dummy_blocks
from dougong.worker.faults import classified
from dougong.worker.step_inputs import StepInputBuilder

FLOAT32_BYTES = 4
# Arrays of the size of all logits alive at once while drawing with a cut: logits, scaled, sorted
# values and their 64-bit indices (two), kept, probabilities, their sums, threshold masks.
LIVE_LOGITS = 10


class ReferenceWorker(Worker):
    """Runs a model through `Platform.runtime` alone.

    To change one part, override it: `make_runner` (inputs, forward, sample), `estimate_step_bytes`
    (how memory is measured), or a life-cycle method.
    """

    def __init__(self, context: WorkerContext) -> None:
        super().__init__(context)
        self.kernel_report = KernelReport()
        self._model: CausalLM | None = None
        self._attention: AttentionLayers | None = None
        self._sampler = Sampler()
        self._runner: ModelRunner | None = None
        self._profiler: torch.profiler.profile | None = None
        self._next_step_id = 0

    @property
    def device(self) -> torch.device:
        """This rank's."""
        return self.context.platform.runtime.torch_device(self.context.device_index)

    @property
    def config(self) -> ConfigView:
        """Final values."""
        return self.context.config

    def init_device(self) -> None:
        """Open the device, seed it, import kernel libraries."""
        self._require(WorkerState.CREATED)
        platform = self.context.platform
        with self._classified():
            platform.runtime.set_device(self.context.device_index)
            platform.runtime.seed(self.config.seed)
            self.kernel_report = platform.import_kernels()
        self.state = WorkerState.DEVICE_READY

    def load_model(self) -> LoadReport:
        """Build on the device, fill tensor by tensor, choose attention, bind ops."""
        self._require(WorkerState.DEVICE_READY)
        with self._classified():
            self._model, loaded = self._load_checkpoint()
            self._attention = AttentionLayers(
                self._model, self.context.platform, self.config, self.device
            )
            bound = self._bind_ops(self._model)
        self.state = WorkerState.MODEL_LOADED
        return LoadReport(
            weight_bytes=loaded.model_bytes,
            seconds=loaded.seconds,
            attention_backends=self._attention.count_backends(),
            implementations=bound.implementations,
            notes=(*self._attention.notes(), *bound.notes()),
        )

    def get_kv_cache_groups(self) -> tuple[tuple[KVCacheGroup, KVLayout], ...]:
        """Layers of one kind share a group."""
        return self._bound_attention().groups

    def determine_available_memory(self) -> int:
        """The limit's share less what is in use and what a step takes beside it."""
        self._require(WorkerState.MODEL_LOADED)
        utilization = self.config.device_memory_utilization
        assert utilization is not None, "the final configuration has every value"
        with self._classified():
            step_bytes = self.estimate_step_bytes()
            info = self.context.platform.runtime.memory_info(self.context.device_index)
        in_use = info.total_bytes - info.free_bytes
        return max(0, int(info.total_bytes * utilization) - in_use - step_bytes)

    def estimate_step_bytes(self) -> int:
        """Bytes beside weights and cache that the largest step takes: here, by running one.

        It holds as many tokens as a step can; what sampling adds for as many sequences as a step
        can hold is computed, since one long prompt does not show it.
        """
        runtime, attention = self.context.platform.runtime, self._bound_attention()
        num_tokens = self.config.max_num_batched_tokens or 1
        runtime.empty_cache()
        attention.allocate(self._cache_for(num_tokens))
        runtime.reset_peak_memory()
        before = runtime.peak_memory_bytes()
        self._run_dummy(self._make_runner(), num_tokens)
        runtime.synchronize()
        peak = runtime.peak_memory_bytes()
        attention.drop()
        runtime.empty_cache()
        return max(0, peak - before) + self.estimate_sampling_bytes()

    def estimate_sampling_bytes(self) -> int:
        """Bytes of what drawing with a cut makes of every sequence's float32 logits."""
        num_seqs = self.config.max_num_seqs or 1
        return LIVE_LOGITS * num_seqs * int(self.config.hf_config["vocab_size"]) * FLOAT32_BYTES

    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        """Allocate every layer's buffers and make the runner."""
        self._require(WorkerState.MODEL_LOADED)
        with self._classified():
            self._bound_attention().allocate(config)
            self._runner = self._make_runner()
        self.state = WorkerState.CACHE_READY

    def warm_up(self) -> None:
        """One step of one token, so that the first request finds everything touched."""
        self._require(WorkerState.CACHE_READY)
        assert self._runner is not None
        with self._classified():
            self._run_dummy(self._runner, 1)
            self.context.platform.runtime.synchronize()
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
        if grammar is not None:
            raise UnsupportedError("this worker takes no grammar mask")
        with self._classified(handle.step_id):
            return self._running().sample(handle)

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
        runtime = self.context.platform.runtime
        if isinstance(runtime, Profiler):
            if is_start:
                runtime.start(folder)
            else:
                runtime.stop()
        elif is_start:
            self._profiler = torch.profiler.profile()
            self._profiler.start()
        elif self._profiler is not None:
            self._profiler.stop()
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._profiler.export_chrome_trace(
                str(Path(folder) / f"rank{self.context.rank}.trace.json")
            )
            self._profiler = None

    def shutdown(self) -> None:
        """Let everything go."""
        was_open = self.state not in (WorkerState.CREATED, WorkerState.SHUT_DOWN)
        self._runner = self._model = self._attention = None
        gc.collect()
        if was_open:
            self.context.platform.runtime.empty_cache()
        self.state = WorkerState.SHUT_DOWN

    def collect(self) -> Mapping[str, Any]:
        """Step timers of this rank."""
        return {} if self._runner is None else self._runner.timers.as_dict()

    def make_runner(
        self, model: CausalLM, batch: InputBatch, inputs: StepInputBuilder
    ) -> ModelRunner:
        """The runner of this rank's steps."""
        return ModelRunner(
            model,
            self._sampler,
            batch,
            inputs,
            self._bound_attention().make_builders(),
            self.context.platform.runtime,
            self._classified,
        )

    def _load_checkpoint(self) -> tuple[CausalLM, WeightLoadReport]:
        config = self.config
        assert config.architecture and config.dtype
        registry = ModelRegistry(self.context.registrations)
        return load_model(
            registry.resolve([config.architecture]),
            config.hf_config,
            getattr(torch, config.dtype),
            self.device,
            open_tensors(resolve_reference(self.context.model_path)),
            max_model_len=config.max_model_len,
        )

    def _bind_ops(self, model: CausalLM) -> BindReport:
        platform = self.context.platform
        facts = platform.facts(self.context.device_index)
        assert self.config.dtype
        request = BindRequest(
            dtype=self.config.dtype,
            features=platform.claims(facts.arch).features,
            loaded=frozenset(name.split()[0] for name in self.kernel_report.loaded),
            missing=self.kernel_report.missing,
        )
        registry = OpRegistry.from_registrations(self.context.registrations, OP_KEYS)
        report = bind_ops(model, registry, request)
        report.add(bind_ops(self._sampler, registry, request))
        return report

    def _make_runner(self) -> ModelRunner:
        config, groups = self.config, self.get_kv_cache_groups()
        assert self._model is not None
        block_size = self._bound_attention().block_size
        assert config.max_num_seqs and config.max_num_batched_tokens and config.max_model_len
        batch = InputBatch(
            max_num_seqs=config.max_num_seqs,
            max_model_len=config.max_model_len,
            block_size=block_size,
            num_groups=len(groups),
            vocab_size=int(config.hf_config["vocab_size"]),
        )
        inputs = StepInputBuilder(
            batch,
            self.context.platform.runtime,
            self.device,
            max_num_seqs=config.max_num_seqs,
            max_num_tokens=config.max_num_batched_tokens,
            block_size=block_size,
            slot_dtypes=tuple(getattr(torch, layout.slot_dtype) for _, layout in groups),
        )
        return self.make_runner(self._model, batch, inputs)

    def _dummy_lengths(self, num_tokens: int) -> list[int]:
        config = self.config
        assert config.max_model_len and config.max_num_seqs
        return dummy_lengths(num_tokens, config.max_model_len, config.max_num_seqs)

    def _cache_for(self, num_tokens: int) -> KVCacheConfig:
        attention = self._bound_attention()
        num_blocks = num_dummy_blocks(self._dummy_lengths(num_tokens), attention.block_size)
        groups = tuple(group for group, _ in attention.groups)
        return KVCacheConfig(attention.reserved_blocks + num_blocks, groups)

    def _run_dummy(self, runner: ModelRunner, num_tokens: int) -> None:
        attention = self._bound_attention()
        step = dummy_step(
            self._dummy_lengths(num_tokens),
            attention.block_size,
            num_groups=len(attention.groups),
            first_block=attention.reserved_blocks,
        )
        runner.sample(runner.submit(step)).result()
        runner.forget(list(step.num_scheduled_tokens))

    def _bound_attention(self) -> AttentionLayers:
        if self._attention is None:
            raise UnsupportedError(f"the worker is {self.state}; load the model first")
        return self._attention

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
