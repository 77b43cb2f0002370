"""From hidden states to one vector for each text, over as many steps as its tokens take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import torch

from dougong.contracts import PoolingParams, PoolingSpec
from dougong.worker.step_inputs import StepInputs

_LEAST_LENGTH = 1e-12  # of a vector that is divided by its length


class Pooler:
    """Makes vectors in float32, whatever the model's dtype.

    Args:
        spec: How.
    """

    def __init__(self, spec: PoolingSpec) -> None:
        self._spec = spec
        self._begun: dict[str, torch.Tensor] = {}  # of texts that some step began and none ended
        self._params: dict[str, PoolingParams] = {}

    def add(self, request_id: str, params: PoolingParams) -> None:
        """A text comes, from its first token on."""
        self._params[request_id] = params
        self._begun.pop(request_id, None)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop what was kept of texts that ended or were taken back."""
        for request_id in request_ids:
            self._begun.pop(request_id, None)
            self._params.pop(request_id, None)

    def pool(
        self, hidden: torch.Tensor, inputs: StepInputs, req_ids: Sequence[str]
    ) -> torch.Tensor | None:
        """Vectors of the texts whose last token is in this step.

        Args:
            hidden: ``[num_tokens, hidden_size]``.
            inputs: Of the step.
            req_ids: Of its sequences, in step order.

        Returns:
            float32 ``[num_ended, hidden_size]``, in step order; ``None``: none ended.
        """
        ends = inputs.query_starts[1:]
        if self._spec.method == "last":
            rows = ends[inputs.sampled] - 1
            return self._rows(hidden, rows) if rows.size else None
        parts = self._parts(hidden, inputs)
        ended = set(inputs.sampled.tolist())
        for place, req_id in enumerate(req_ids):
            earlier = self._begun.pop(req_id, None)
            if earlier is not None:
                parts[place] += earlier
            if place not in ended:
                self._begun[req_id] = parts[place].clone()
        if not ended:
            return None
        if len(ended) < len(req_ids):
            places = torch.from_numpy(inputs.sampled.astype(np.int64)).to(hidden.device)
            parts = parts.index_select(0, places)
        if self._spec.method == "cls":
            return parts
        counts = torch.from_numpy(inputs.new_computed[inputs.sampled].astype(np.float32))
        return parts / counts.to(hidden.device)[:, None]

    def finish(self, req_id: str, pooled: npt.NDArray[np.float32]) -> list[float]:
        """What the client gets of a vector that has come to the host: cut, then normalised."""
        params = self._params[req_id]
        values = pooled[: params.dimensions]
        is_normalized = params.normalize
        if self._spec.is_normalized if is_normalized is None else is_normalized:
            length = float(np.linalg.norm(values.astype(np.float64)))
            values = values / np.float32(max(length, _LEAST_LENGTH))
        found: list[float] = values.tolist()
        return found

    def _parts(self, hidden: torch.Tensor, inputs: StepInputs) -> torch.Tensor:
        """What this step has of each sequence's vector: the sum of its tokens, or its first one."""
        starts, ends = inputs.query_starts[:-1], inputs.query_starts[1:]
        if self._spec.method == "mean":
            return _sums(hidden, inputs.query_starts)
        parts = self._rows(hidden, starts)
        is_later = inputs.new_computed > ends - starts
        if is_later.any():
            parts[torch.from_numpy(is_later).to(hidden.device)] = 0
        return parts

    def _rows(self, hidden: torch.Tensor, rows: npt.NDArray[np.int32]) -> torch.Tensor:
        chosen = torch.from_numpy(rows.astype(np.int64)).to(hidden.device, non_blocking=True)
        return hidden.index_select(0, chosen).float()


def _sums(hidden: torch.Tensor, query_starts: npt.NDArray[np.int32]) -> torch.Tensor:
    """Sum of each sequence's rows; one product, so that the order of additions is always the
    same."""
    num_tokens = int(query_starts[-1])
    bounds = torch.from_numpy(query_starts).to(hidden.device)
    places = torch.arange(num_tokens, device=hidden.device)
    is_own = (places >= bounds[:-1, None]) & (places < bounds[1:, None])
    return is_own.float() @ hidden[:num_tokens].float()
