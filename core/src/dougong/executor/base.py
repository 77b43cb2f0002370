"""What the engine asks of its ranks, however many there are and wherever they run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dougong.contracts import (
    GrammarMask,
    KernelReport,
    KVCacheConfig,
    KVCacheGroup,
    KVLayout,
    LoadReport,
    LoRAWeights,
    ModelRunnerOutput,
    RankPlan,
    SchedulerOutput,
)


@dataclass(frozen=True, slots=True)
class LoadedRanks:
    """Loaded ranks, before their KV cache is sized.

    Attributes:
        loads: What loading did, by rank.
        groups: KV cache groups with the layout their backend chose; the same on every rank.
        available_bytes: What the KV cache may take on the rank that has least.
    """

    loads: tuple[LoadReport, ...]
    groups: tuple[tuple[KVCacheGroup, KVLayout], ...]
    available_bytes: int

    @property
    def weight_bytes(self) -> int:
        """Bytes of parameters on the fullest rank."""
        return max(load.weight_bytes for load in self.loads)


class Executor(ABC):
    """The ranks of one engine.

    Order of calls: `open` → `load` → `initialize` → `execute` ... → `shutdown`. Every error that a
    device caused leaves as the `DeviceError` its platform classified it as, with device, rank and
    step, and the vendor's own exception chained; any other one leaves as it is.
    """

    @abstractmethod
    def open(self) -> tuple[KernelReport, ...]:
        """Open the devices and import kernels; what was found, by rank. The final plan is made with
        it."""

    @abstractmethod
    def load(self, plan: RankPlan) -> LoadedRanks:
        """Load the model as planned on every rank and measure what is left.

        Raises:
            ImplementationError: Something the plan names cannot be made or failed when it was first
                used. The ranks are of no more use: shut down, plan without it, start anew.
        """

    @abstractmethod
    def initialize(self, config: KVCacheConfig) -> None:
        """Allocate the KV cache on every rank and warm up.

        Raises:
            ImplementationError: As `load`.
            UnsupportedError: The cache was sized for other groups or blocks than the plan's.
        """

    @property
    @abstractmethod
    def takes_grammar_masks(self) -> bool:
        """Whether every rank obeys a grammar's mask."""

    @abstractmethod
    def execute(
        self, step: SchedulerOutput, grammar: Callable[[], GrammarMask] | None = None
    ) -> ModelRunnerOutput:
        """Run one step to its end.

        Args:
            step: What to compute.
            grammar: Gives the step's mask; called once, when the forward is under way, and may wait
                until the mask is ready. ``None``: no request of the step has a grammar.
        """

    @abstractmethod
    def set_lora(self, slot: int, weights: LoRAWeights | None) -> None:
        """Put an adapter into a slot of every rank, or clear it; see `LoRAWorker.set_lora`.

        Raises:
            PluginError: A rank's worker takes none, although its platform names a wrapper.
            RequestError: The adapter does not fit.
        """

    @abstractmethod
    def health(self) -> None:
        """Return if every rank answers.

        Raises:
            DeviceError: One does not.
        """

    @abstractmethod
    def collect(self) -> tuple[Mapping[str, Any], ...]:
        """Each rank's numbers for the status output."""

    @abstractmethod
    def shutdown(self) -> None:
        """Free everything; callable at any time, twice."""
