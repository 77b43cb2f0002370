"""Real MiniLM weights in float32 against `transformers`."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from dougong import LLM
from tests.support.embedding_models import expected_vector
from tests.support.minilm_weights import minilm_folder

pytestmark = [pytest.mark.extra, pytest.mark.timeout(600)]

TOLERANCE = 1e-4
TEXTS = [
    "The cat sat on the mat.",
    "A feline was resting on a rug.",
    "The central bank left its rate where it was.",
    "Grüße aus München",
    "a",
    "Nothing in particular happened on that day, and it went on and on. " * 14,
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return minilm_folder()


def test_vectors_equal_those_of_transformers(folder: Path) -> None:
    theirs = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with LLM(str(folder), platform="cpu") as llm:
        outputs = llm.embed(TEXTS)
        told = {one.field: one.value for one in llm.report.decisions}
    assert (told["pooling"], told["normalize"], told["max_model_len"]) == ("mean", True, 256)
    for text, output in zip(TEXTS, outputs, strict=True):
        assert list(output.prompt_token_ids) == tokenizer(text)["input_ids"]
        expected = expected_vector(theirs, output.prompt_token_ids, "mean")
        torch.testing.assert_close(torch.tensor(output.embedding), expected, rtol=0, atol=TOLERANCE)


def test_texts_that_mean_alike_lie_near_each_other(folder: Path) -> None:
    with LLM(str(folder), platform="cpu") as llm:
        cat, feline, bank = (torch.tensor(output.embedding) for output in llm.embed(TEXTS[:3]))
    assert cat @ feline > 0.5
    assert cat @ bank < 0.2
