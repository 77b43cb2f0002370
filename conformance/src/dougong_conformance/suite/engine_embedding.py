"""Vectors of texts in the real engine: the exact ones, within the law, in any company."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.kit.generate import Draw
from dougong_conformance.kit.limits import law
from dougong_conformance.subject import Subject
from dougong_conformance.suite.op_under_test import OpUnderTest
from dougong_conformance.suite.worker import first_dtype
from dougong_conformance.zoo.embedders import EMBEDDERS, legal_vector_noise, vector_of
from dougong_conformance.zoo.models import VOCAB_SIZE

_LENGTHS = (5, 1, 17, 5, 30, 2)
_CHUNKS: dict[str, Any] = {"max_num_batched_tokens": 8, "max_num_seqs": 4}
_WHOLE: dict[str, Any] = {
    "num_kv_blocks": None, "enable_prefix_caching": None, "max_model_len": 64
}  # fmt: skip
"""An encoder keeps no keys and values, and reads each text in one step."""


@check("engine.embeddings")
def embeddings(subject: Subject, judge: Judge) -> None:
    """By encoders: pooled and normalised as the checkpoint says, together and alone."""
    dtype = _dtype_with_pooling(subject, judge)
    for key in ("encoder_attention", "layer_norm"):
        OpUnderTest(subject, judge, key, dtype).running_ways()
    for model in ("mean", "first"):
        texts = _texts(model)
        for one_by_one in (False, True):
            found = _embedded(subject, model, dtype, texts, options=_WHOLE, one_by_one=one_by_one)
            _judge(judge, model, dtype, texts, found["vectors"])


@check("engine.decoder_embeddings")
def decoder_embeddings(subject: Subject, judge: Judge) -> None:
    """By decoders: of the last token, read whole and in chunks, and with a warm cache."""
    dtype = _dtype_with_pooling(subject, judge)
    for model in ("last", "last, as it is"):
        texts = _texts(model)
        for options in ({}, _CHUNKS, {"enable_prefix_caching": True}):
            found = _embedded(subject, model, dtype, texts, options=options, repeats=2)
            _judge(judge, model, dtype, texts, found["vectors"])


def _dtype_with_pooling(subject: Subject, judge: Judge) -> str:
    """The dtype to ask in.

    Raises:
        NotClaimed: The worker makes no vectors, and a start with a model that does is refused.
    """
    dtype = first_dtype(subject.facts)
    if subject.facts.makes_vectors:
        return dtype
    raised = subject.call("engine.refused", model="last", dtype=dtype, options={})
    judge.require(raised is not None, "the worker makes no vectors, and yet a model for them runs")
    judge.require(
        "ConfigError" in raised.kinds,
        f"a start with a model that makes vectors ends in {raised.kind}: {raised.message}",
    )
    judge.not_claimed("the worker makes no vectors of texts (Worker.makes_vectors)")


def _texts(model: str) -> list[list[int]]:
    draw = Draw(f"engine.embeddings {model}")
    return [draw.integers(2, VOCAB_SIZE, length).tolist() for length in _LENGTHS]


def _embedded(
    subject: Subject, model: str, dtype: str, texts: list[list[int]], **more: Any
) -> dict[str, Any]:
    found: dict[str, Any] = subject.call(
        "engine.embed", model=model, dtype=dtype, texts=texts, **more
    )
    return found


def _judge(
    judge: Judge,
    model: str,
    dtype: str,
    texts: Sequence[list[int]],
    vectors: Sequence[Sequence[float]],
) -> None:
    embedder = EMBEDDERS[model]
    noise = max(legal_vector_noise(embedder, text, getattr(torch, dtype)) for text in texts)
    for text, vector in zip(texts, vectors, strict=True):
        exact = vector_of(embedder, text)
        judge.require(
            len(vector) == len(exact),
            f"{model}: a vector has {len(vector)} numbers; expected {len(exact)}",
        )
        error = float((torch.tensor(vector, dtype=torch.float64) - exact).abs().max())
        judge.at_most(
            f"{model}: error of a vector over legal noise",
            error / noise if error == error else float("inf"),
            law().max_error,
        )
