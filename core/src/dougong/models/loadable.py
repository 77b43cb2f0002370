"""What every model class is to the loader."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import nn


@dataclass(frozen=True, slots=True)
class WeightTarget:
    """Where one tensor of a checkpoint goes.

    Attributes:
        parameter: A whole parameter of the model, such as a fused projection.
        rows: The part of its first axis that this tensor fills; ``None``: all of it.
        added: The loader adds it to what the checkpoint says: 1 for norms that multiply by 1 + w.
    """

    parameter: torch.Tensor
    rows: slice | None = None
    added: float = 0.0

    @property
    def view(self) -> torch.Tensor:
        """The memory to fill; contiguous, since it spans whole rows."""
        return self.parameter if self.rows is None else self.parameter[self.rows]


class LoadableModel(nn.Module):
    """A model whose parameters the tensors of a checkpoint fill.

    A class is made with ``(hf_config, dtype, max_model_len)`` under the loader's default device; it
    reads no file and fills no parameter.

    Args:
        hf_config: The checkpoint's configuration in Hugging Face's vocabulary. A head shares the
            embedding's weight where ``tie_word_embeddings`` is true.
        dtype: Of parameters and activations.
        max_model_len: Longest sequence the engine will run; ``None``: as long as the config says.

    Attributes:
        base_prefix: Begins the names of a family's tensors in some checkpoints and is left out in
            others, which were saved without their head or with another one.
        unused_tensors: How names begin that such checkpoints hold and this class has no use for.

    Raises:
        ConfigError: The config lacks something or asks for something unknown.
    """

    base_prefix: ClassVar[str] = "model."
    unused_tensors: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        hf_config: Mapping[str, Any],
        dtype: torch.dtype,
        max_model_len: int | None = None,
    ) -> None:
        super().__init__()
        self.hf_config = hf_config
        self.dtype = dtype
        self.max_model_len = max_model_len

    @abstractmethod
    def weight_targets(self) -> Mapping[str, WeightTarget]:
        """Every tensor the model needs, by its Hugging Face name, and where it goes."""
