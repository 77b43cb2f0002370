"""What a server asks of an engine: `AsyncEngine` as it is, and small enough to stand in for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

from dougong.engine.core import EngineStats
from dougong.engine.prompts import Prompt
from dougong.engine.start_report import StartReport
from dougong.engine.tokenizer import Tokenizer
from dougong.messages import EmbeddingOutput, PoolingParams, RequestOutput, SamplingParams

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class ServedEngine(Protocol):
    """See `dougong.engine.AsyncEngine` for every member."""

    @property
    def report(self) -> StartReport:
        """What was chosen at the start."""
        ...

    @property
    def metrics(self) -> CollectorRegistry:
        """Of this engine alone."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Of the model."""
        ...

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        lora: str | None = None,
        is_live: bool = False,
    ) -> AsyncIterator[RequestOutput]:
        """Everything so far, each time there is more."""
        ...

    async def embed(
        self, text: Prompt, pooling_params: PoolingParams | None = None
    ) -> EmbeddingOutput:
        """The vector of a text."""
        ...

    def loras(self) -> tuple[str, ...]:
        """Names of the adapters that requests may use."""
        ...

    async def load_lora(self, name: str, path: str) -> None:
        """Load an adapter; requests may use it when this returns."""
        ...

    async def unload_lora(self, name: str) -> None:
        """Take no new request for an adapter."""
        ...

    async def stats(self) -> EngineStats:
        """The engine now; answered between two steps."""
        ...

    async def health(self) -> None:
        """Returns if every rank answers, between two steps; raises once the engine is gone."""
        ...
