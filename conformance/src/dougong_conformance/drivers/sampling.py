"""From logits to tokens, by the core's sampler with the plugin's implementations bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from dougong.contracts import OpAssignment
from dougong.ops.binding import bind_ops
from dougong.ops.outline import named_ops
from dougong.sampling import Sampler, SamplingInputs, uniform_numbers
from dougong.sampling.inputs import GrammarRows, PenalisedRows, RandomRows, TokenCells
from dougong.sampling.logit_edits import edit_logits

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
    num_logprobs: int | None = None,
    **edits: Any,
) -> list[dict[str, Any]]:
    """Steps of sampling, one after the other, on one sampler.

    Args:
        session: Of this process.
        logits: Per step, float32 ``[num_rows, vocab_size]``.
        dtype: Compute dtype, for conditions.
        random: Per step ``rows`` that draw, with ``temperature``, ``top_k``, ``top_p``, ``seeds``
            and ``positions``, and with ``min_p`` where any has one; ``None``: every row is greedy.
        num_logprobs: Most likely tokens to report.
        edits: Of `edited`, in every step.

    Returns:
        Per step the fields of ``SampledTokens``.
    """
    device = session.device
    with session.runtime.inference_mode():
        sampler = _sampler(session, dtype)
        found = []
        for index, one in enumerate(logits):
            inputs = replace(
                _edits(**edits),
                random=None if random is None else _rows(random[index]),
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


@procedure("sampling.edited")
def edited(session: Session, *, logits: torch.Tensor, dtype: str, **edits: Any) -> torch.Tensor:
    """Logits after what requests change in them, before a token is chosen.

    Args:
        session: Of this process.
        logits: float32 ``[num_rows, vocab_size]``.
        dtype: Compute dtype, for conditions.
        edits: Of `_edits`.
    """
    with session.runtime.inference_mode():
        there = to_device(logits, session.device)
        edit_logits(there, _edits(**edits), _sampler(session, dtype).penalties)
        session.runtime.synchronize()
        return there.cpu().clone()


def _edits(
    *,
    penalised: dict[str, list[Any]] | None = None,
    biased: list[list[Any]] | None = None,
    allowed: list[list[Any]] | None = None,
    masked: dict[str, Any] | None = None,
    suppressed: list[list[Any]] | None = None,
) -> SamplingInputs:
    """What rows of a step change in their logits.

    Args:
        penalised: ``rows`` with ``repetition``, ``frequency`` and ``presence``, and per row the
            tokens of its ``prompt`` and of its ``output``.
        biased: ``[row, token id, number]`` that is added.
        allowed: ``[row, token ids]`` beside which nothing can be chosen.
        masked: ``rows``, and the ``bitmask`` of each.
        suppressed: ``[row, token ids]`` that cannot be chosen.
    """
    return SamplingInputs(
        penalised=None if penalised is None else _penalised(penalised),
        biased=None if biased is None else _cells([one[:2] for one in biased]),
        bias=None if biased is None else _floats([one[2] for one in biased]),
        allowed=TokenCells.of(dict(allowed or ())),
        grammar=None
        if masked is None
        else GrammarRows(_integers(masked["rows"]), masked["bitmask"].contiguous()),
        suppressed=TokenCells.of(dict(suppressed or ())),
    )


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
    return RandomRows(
        rows=_integers(fields["rows"]),
        temperature=_floats(fields["temperature"]),
        top_k=_integers(fields["top_k"]),
        top_p=_floats(fields["top_p"]),
        uniform=uniform_numbers(_integers(fields["seeds"]), _integers(fields["positions"])),
        has_cuts=bool(fields["has_cuts"]),
        min_p=_floats(fields["min_p"]) if fields.get("min_p") else None,
    )


def _penalised(fields: dict[str, list[Any]]) -> PenalisedRows:
    return PenalisedRows(
        rows=_integers(fields["rows"]),
        repetition=_floats(fields["repetition"]),
        frequency=_floats(fields["frequency"]),
        presence=_floats(fields["presence"]),
        prompt=_held(fields["prompt"]),
        output=_held(fields["output"]),
    )


def _held(by_row: list[list[int]]) -> TokenCells:
    """Tokens of each row in their order, some of them more than once."""
    return _cells([[row, token] for row, held in enumerate(by_row) for token in held])


def _cells(pairs: list[list[Any]]) -> TokenCells:
    return TokenCells(
        _integers([row for row, _ in pairs]), _integers([token for _, token in pairs])
    )


def _integers(values: list[int]) -> npt.NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _floats(values: list[float]) -> npt.NDArray[np.float32]:
    return np.array(values, dtype=np.float32)
