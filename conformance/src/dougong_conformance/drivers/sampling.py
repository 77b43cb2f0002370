"""From logits to tokens, by the core's sampler with the plugin's implementations bound."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from dougong.contracts import OpAssignment
from dougong.ops.binding import bind_ops
from dougong.ops.outline import named_ops
from dougong.sampling import Sampler, SamplingInputs, uniform_numbers
from dougong.sampling.inputs import RandomRows, TokenCells

from dougong_conformance.drivers.op_plan import choose
from dougong_conformance.drivers.placing import to_device
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_PREFIX = "sampler."


@procedure("sampling.sample")
def sample(
    session: Session,
    *,
    logits: list[torch.Tensor],
    dtype: str,
    random: list[dict[str, list[Any]]] | None = None,
    suppressed: list[list[Any]] | None = None,
    num_logprobs: int | None = None,
) -> list[dict[str, Any]]:
    """Steps of sampling, one after the other, on one sampler.

    Args:
        session: Of this process.
        logits: Per step, float32 ``[num_rows, vocab_size]``.
        dtype: Compute dtype, for conditions.
        random: Per step ``rows`` that draw, with ``temperature``, ``top_k``, ``top_p``, ``seeds``
            and ``positions``; ``None``: every row is greedy.
        suppressed: ``[row, token ids]`` that cannot be chosen.
        num_logprobs: Most likely tokens to report.

    Returns:
        Per step the fields of ``SampledTokens``.
    """
    device = session.device
    with session.runtime.inference_mode():
        sampler = _sampler(session, dtype)
        found = []
        for index, one in enumerate(logits):
            inputs = SamplingInputs(
                random=None if random is None else _rows(random[index]),
                suppressed=TokenCells.of(dict(suppressed or ())),
                num_logprobs=num_logprobs,
            )
            sampled = sampler.sample(to_device(one, device), inputs)
            session.runtime.synchronize()
            found.append(
                {
                    name: None if value is None else value.cpu().clone()
                    for name, value in (
                        ("token_ids", sampled.token_ids),
                        ("logprob", sampled.logprob),
                        ("top_ids", sampled.top_ids),
                        ("top_logprobs", sampled.top_logprobs),
                    )
                }
            )
    return found


def _sampler(session: Session, dtype: str) -> Sampler:
    outline = Sampler()
    assignments = [
        OpAssignment(key=op.key, paths=(_PREFIX + path,), pieces=choose(session, op, dtype).pieces)
        for path, op in named_ops(outline)
    ]
    with session.registry.overriding(assignments), torch.device(session.device):
        made = Sampler()
    bind_ops(made, session.registry, assignments, prefix=_PREFIX)
    return made


def _rows(fields: dict[str, list[Any]]) -> RandomRows:
    seeds = np.array(fields["seeds"], dtype=np.int64)
    positions = np.array(fields["positions"], dtype=np.int64)
    return RandomRows(
        rows=np.array(fields["rows"], dtype=np.int64),
        temperature=np.array(fields["temperature"], dtype=np.float32),
        top_k=np.array(fields["top_k"], dtype=np.int64),
        top_p=np.array(fields["top_p"], dtype=np.float32),
        uniform=uniform_numbers(seeds, positions),
        has_cuts=bool(fields["has_cuts"]),
    )
