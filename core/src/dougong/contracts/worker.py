"""The life of one rank, and the step on its hot path."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dougong.contracts.config_view import ConfigView
from dougong.contracts.kv_cache import KVCacheConfig, KVCacheGroup, KVLayout
from dougong.contracts.rank_plan import RankPlan
from dougong.contracts.registration import Registration
from dougong.contracts.support import KernelReport
from dougong.messages.step import ModelRunnerOutput, SchedulerOutput

if TYPE_CHECKING:
    import torch

    from dougong.contracts.platform import Platform


class WorkerState(StrEnum):
    """Where a worker stands; each method names the state it needs."""

    CREATED = "created"
    DEVICE_READY = "device_ready"
    MODEL_LOADED = "model_loaded"
    CACHE_READY = "cache_ready"
    RUNNING = "running"
    ASLEEP = "asleep"
    SHUT_DOWN = "shut_down"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """All a worker is told when it is made.

    Attributes:
        platform: This process's instance.
        config: Final values.
        model_path: Local folder or file of the checkpoint.
        registrations: Ops and models of the core and of the loaded plugins, in load order.
        rank: Global rank.
        local_rank: Rank on this machine.
        device_index: Device of this rank, within the platform.
    """

    platform: Platform
    config: ConfigView
    model_path: str
    registrations: tuple[Registration, ...] = ()
    rank: int = 0
    local_rank: int = 0
    device_index: int = 0


@dataclass(frozen=True, slots=True)
class GrammarMask:
    """Tokens allowed by a grammar, for the requests that have one.

    Attributes:
        req_ids: Requests, in row order.
        bitmask: int32 ``[len(req_ids), ceil(vocab_size / 32)]`` on the host; a set bit allows.
            Token ``t`` is bit ``t % 32`` of word ``t // 32``, the lowest bit first. Every row has
            a set bit, and bits past the vocabulary are not set. Nobody writes it any more, so a
            copy to the device may be pending when `Worker.sample` returns.
    """

    req_ids: Sequence[str]
    bitmask: torch.Tensor


@dataclass(frozen=True, slots=True)
class IntermediateTensors:
    """What one pipeline stage hands to the next; keys are the model's own."""

    tensors: Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What loading did.

    Attributes:
        weight_bytes: Bytes of the parameters on the device.
        seconds: Time taken.
        attention_backends: Backend name → layers that it was bound to, for prefill or decode.
        implementations: Op → implementation → ops that it was bound to.
        notes: Oddities, one sentence each, as the operator reads them.
        kernels: What `Worker.init_device` returned on this rank.
    """

    weight_bytes: int
    seconds: float
    attention_backends: Mapping[str, int] = field(default_factory=dict)
    implementations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    kernels: KernelReport = field(default_factory=KernelReport)


class StepHandle(Protocol):
    """A step in flight. It owns its host buffers until its event completes."""

    def result(self, timeout_s: float | None = None) -> ModelRunnerOutput:
        """Wait for the step.

        Raises:
            DeviceError: Classified, with device, rank and step.
            TimeoutError: ``timeout_s`` passed; the step goes on.
        """
        ...


class Worker(ABC):
    """One rank's device side: obeys, never chooses a policy.

    Order of calls: `init_device` → `load_model` → `get_kv_cache_groups` →
    `determine_available_memory` → `initialize_kv_cache` → `warm_up` → steps → `shutdown`. Every
    method may raise a `DeviceError`. ``dougong.reference.ReferenceWorker`` implements all of it for
    any torch device; a vendor overrides parts.

    Args:
        context: What to run and where.

    Attributes:
        takes_grammar_masks: `sample` obeys a `GrammarMask`. Where it is false, requests for
            structured output are refused before they are computed.
        makes_vectors: Steps obey `NewRequestData.pooling_params`, and encoders run. Where it is
            false, a model that makes vectors is refused when the engine starts.
    """

    takes_grammar_masks: ClassVar[bool] = False
    makes_vectors: ClassVar[bool] = False

    def __init__(self, context: WorkerContext) -> None:
        """Keep ``context``; touch no device."""
        self.context = context
        self.state = WorkerState.CREATED

    @abstractmethod
    def init_device(self) -> KernelReport:
        """Open the device and import kernels. ``CREATED`` → ``DEVICE_READY``.

        Returns:
            What `Platform.import_kernels` found on this rank; the plan is made with it.
        """

    @abstractmethod
    def load_model(self, plan: RankPlan) -> LoadReport:
        """Build the model, read its weights, bind what ``plan`` names. ``DEVICE_READY`` →
        ``MODEL_LOADED``.

        Raises:
            ImplementationError: Something the plan names cannot be made for this model.
        """

    @abstractmethod
    def get_kv_cache_groups(self) -> tuple[tuple[KVCacheGroup, KVLayout], ...]:
        """Groups of attention layers and the layout their backend chose. Needs ``MODEL_LOADED``."""

    @abstractmethod
    def determine_available_memory(self) -> int:
        """Bytes the KV cache may take: the limit less weights, workspace, the peak of a step and
        what the plan's graphs take.

        Runs a step of the largest size to see its peak. Needs ``MODEL_LOADED``.

        Raises:
            ConfigError: Graphs that the user asked for do not fit their budget.
            ImplementationError: As `warm_up`.
        """

    @abstractmethod
    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        """Allocate the cache. ``MODEL_LOADED`` → ``CACHE_READY``.

        Raises:
            UnsupportedError: Its groups are not those that `get_kv_cache_groups` gave, or their
                blocks are of another size.
        """

    @abstractmethod
    def warm_up(self) -> None:
        """Run and capture what the first requests need, every bound kernel among it.
        ``CACHE_READY`` → ``RUNNING``.

        Raises:
            ImplementationError: A kernel, an attention backend or a capture raised at its first
                use. The engine then plans without it, unless the user had chosen it, and starts
                anew.
        """

    @abstractmethod
    def submit(
        self, step: SchedulerOutput, intermediate: IntermediateTensors | None = None
    ) -> StepHandle:
        """Enqueue one step's forward; returns before the device has finished where it can.

        At most ``Claims.max_steps_in_flight`` handles may be open.
        """

    @abstractmethod
    def sample(self, handle: StepHandle, grammar: GrammarMask | None = None) -> StepHandle:
        """Enqueue the choice of tokens for a submitted step; `StepHandle.result` then has them.

        Args:
            handle: From `submit`.
            grammar: Of requests that the step samples, some or all of them, in any order; no other
                token than a row's may be chosen for its request. Of what ``sampling_params`` asks
                for it comes after ``allowed_token_ids`` and before temperature and the cuts;
                log-probabilities do not see it. Never given where ``takes_grammar_masks`` is false.
        """

    def execute_model(
        self, step: SchedulerOutput, grammar: GrammarMask | None = None
    ) -> ModelRunnerOutput:
        """The blocking form: submit, sample, wait."""
        return self.sample(self.submit(step), grammar).result()

    @abstractmethod
    def execute_dummy_batch(self) -> None:
        """Take part in this step's collectives without a request of one's own."""

    @abstractmethod
    def health(self) -> None:
        """Return if the device answers.

        Raises:
            DeviceError: It does not.
        """

    @abstractmethod
    def sleep(self, level: int = 1) -> None:
        """Give device memory back: 1 keeps weights on the host, 2 drops them. → ``ASLEEP``."""

    @abstractmethod
    def wake(self) -> None:
        """Undo `sleep`; the KV cache comes back empty. ``ASLEEP`` → ``RUNNING``."""

    @abstractmethod
    def profile(self, is_start: bool, folder: str) -> None:
        """Start or stop recording a profile into ``folder``."""

    @abstractmethod
    def shutdown(self) -> None:
        """Free everything; callable in any state, twice. → ``SHUT_DOWN``."""

    def collect(self) -> Mapping[str, Any]:
        """Numbers for the status output, by name; cheap, never waits for the device.

        ``"graphs"``, where steps are captured, has ``sizes`` (kind → sizes), ``num_bytes``,
        ``max_bytes``, ``dropped`` (names), ``hits`` (name → steps), ``num_padding_tokens`` and
        ``num_eager_steps``.
        """
        return {}
