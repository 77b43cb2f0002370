"""Vectors from hidden states over steps, against all hidden states at once."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from dougong.messages import PoolingMethod, PoolingParams, PoolingSpec
from dougong.worker import StepInputs
from dougong.worker.pooler import Pooler

SIZE = 5


def step(counts: Mapping[str, int], done: dict[str, int], lengths: Mapping[str, int]) -> StepInputs:
    """Inputs of a step as far as pooling reads them; ``done`` grows."""
    for name, count in counts.items():
        done[name] += count
    new_computed = np.array([done[name] for name in counts], np.int32)
    is_ended = [done[name] == lengths[name] for name in counts]
    nothing = torch.empty(0)
    return StepInputs(
        token_ids=nothing,
        positions=nothing,
        common=[],
        rows=np.arange(len(counts)),
        new_computed=new_computed,
        sampled=np.flatnonzero(is_ended),
        logits_rows=None,
        query_starts=np.cumsum([0, *counts.values()], dtype=np.int32),
    )


def pooled_over_steps(
    method: PoolingMethod, hidden: Mapping[str, torch.Tensor], rng: random.Random
) -> dict[str, torch.Tensor]:
    """Each step takes some of the texts a few tokens further."""
    pooler = Pooler(PoolingSpec(method=method, is_normalized=False))
    lengths = {name: len(states) for name, states in hidden.items()}
    done = dict.fromkeys(hidden, 0)
    for name in hidden:
        pooler.add(name, PoolingParams())
    found: dict[str, torch.Tensor] = {}
    while any(done[name] < lengths[name] for name in hidden):
        going = [name for name in hidden if done[name] < lengths[name] and rng.random() < 0.8]
        if not going:
            continue
        counts = {name: rng.randint(1, min(4, lengths[name] - done[name])) for name in going}
        states = torch.cat([hidden[name][done[name] :][:count] for name, count in counts.items()])
        inputs = step(counts, done, lengths)
        vectors = pooler.pool(states, inputs, going)
        ended = [going[place] for place in inputs.sampled.tolist()]
        assert (vectors is None) == (not ended)
        if vectors is not None:
            assert vectors.dtype == torch.float32
            found |= dict(zip(ended, vectors, strict=True))
    assert not pooler._begun
    return found


@pytest.mark.parametrize("method", ["mean", "cls", "last"])
@pytest.mark.parametrize("case", range(5))
def test_however_texts_are_cut_their_vectors_are_the_same(method: PoolingMethod, case: int) -> None:
    rng = random.Random(case)
    generator = torch.Generator().manual_seed(case)
    hidden = {
        f"r{index}": torch.randn(rng.randint(1, 11), SIZE, generator=generator)
        for index in range(6)
    }
    found = pooled_over_steps(method, hidden, rng)
    for name, states in hidden.items():
        expected = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[method]
        torch.testing.assert_close(found[name], expected)


def test_sums_are_kept_in_float32_whatever_the_model_computes_in() -> None:
    states = {"r": torch.full((9, SIZE), 1 / 3).bfloat16()}
    found = pooled_over_steps("mean", states, random.Random(0))["r"]
    torch.testing.assert_close(found, states["r"][0].float(), rtol=1e-6, atol=0)


def test_what_was_begun_is_forgotten_with_its_request() -> None:
    pooler = Pooler(PoolingSpec(method="mean", is_normalized=False))
    lengths, done = {"r": 4}, {"r": 0}
    pooler.add("r", PoolingParams())
    pooler.pool(torch.ones(2, SIZE), step({"r": 2}, done, lengths), ["r"])
    pooler.forget(["r"])
    pooler.add("r", PoolingParams())  # it was taken back, and comes again from its first token
    done["r"] = 0
    vector = pooler.pool(torch.full((4, SIZE), 2.0), step({"r": 4}, done, lengths), ["r"])
    assert vector is not None
    assert vector.tolist() == [[2.0] * SIZE]


@pytest.mark.parametrize(
    ("is_normalized", "params", "expected"),
    [
        (True, PoolingParams(), [0.6, 0.8, 0.0]),
        (False, PoolingParams(), [3.0, 4.0, 0.0]),
        (True, PoolingParams(normalize=False), [3.0, 4.0, 0.0]),
        (False, PoolingParams(normalize=True), [0.6, 0.8, 0.0]),
        (True, PoolingParams(dimensions=1), [1.0]),
        (False, PoolingParams(dimensions=2), [3.0, 4.0]),
    ],
)
def test_a_vector_is_cut_and_then_normalised(
    is_normalized: bool, params: PoolingParams, expected: list[float]
) -> None:
    pooler = Pooler(PoolingSpec(method="last", is_normalized=is_normalized))
    pooler.add("r", params)
    found = pooler.finish("r", np.array([3.0, 4.0, 0.0], np.float32))
    assert found == pytest.approx(expected, abs=1e-7)


def test_a_vector_of_nothing_stays_one() -> None:
    pooler = Pooler(PoolingSpec(method="last"))
    pooler.add("r", PoolingParams())
    assert pooler.finish("r", np.zeros(2, np.float32)) == [0.0, 0.0]
