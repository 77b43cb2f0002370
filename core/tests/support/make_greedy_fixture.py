"""Write ``tests/engine/data/*_greedy.json``: what `transformers` says after ten prompts.

Run by hand when a model or its prompts change; the tests then need neither the run nor
`transformers`' copy of the weights:

    python -m tests.support.make_greedy_fixture PATH/TO/SmolLM2-135M-Instruct.Q4_1.gguf
    python -m tests.support.make_greedy_fixture PATH/TO/gemma-3-270m-q4_k_m.gguf

The GGUF file is dequantized to float32. Every step takes the largest logit, end of text included,
so an engine compares with ``ignore_eos``. Margins (largest logit minus the second) stand beside the
tokens: where one is small, a difference is a near-tie and not a fault.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

_DATA = Path(__file__).parents[1] / "engine" / "data"
FIXTURE = _DATA / "smollm2_greedy.json"
GEMMA3_FIXTURE = _DATA / "gemma3_greedy.json"
NUM_NEW_TOKENS = 32

_QUESTION = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\nName three rivers of Europe and the sea each one reaches."
    "<|im_end|>\n<|im_start|>assistant\n"
)
_CODE = (
    "def merge_sorted(left, right):\n    result = []\n    i = j = 0\n"
    "    while i < len(left) and j < len(right):\n        if left[i] <= right[j]:\n"
    "            result.append(left[i])\n            i += 1\n        else:\n"
)
_HALL = (
    "The hall stood on forty columns of cedar, and between each column and the beams above it sat "
    "a bracket made of many small arms. No nail held them. Each arm rested in the groove of the "
    "one below, so that when the ground moved the arms slid a little, rubbed, and came back "
    "to rest. "
)
_YARD = (
    "In the timber yard the apprentices learned to cut the grooves before they learned to read a "
    "drawing. A groove too tight split the arm in its first winter; a groove too loose let the "
    "roof lean. The master measured with his thumb, and his thumb was right more often than "
    "the rule. "
)
_ROAD = (
    "On the road south the carts carried finished arms in bundles of twelve, tied with straw. At "
    "each river the carter counted the bundles again, because a missing arm meant a column without "
    "a head, and a column without a head meant a year of waiting for the next dry season. "
)
_RAIN = (
    "When the rain came early the work moved indoors. They sorted the arms by grain, oiled the "
    "ends, and told each other how the old temple had stood through the great earthquake while the "
    "stone wall beside it, which had been thought eternal, lay in the field like spilled rice. "
)
_FRAME = (
    "A visitor once asked why the frame was not simply bolted together. The master took two arms, "
    "joined them without a word, handed them over, and asked the visitor to pull them apart. He "
    "pulled, twisted, and at last pushed, and the joint opened. Strength, said the master, is "
    "knowing which way a thing is meant to move. "
)
_STORY = _HALL + _YARD + _ROAD + _RAIN + _FRAME
_PROMPTS: tuple[tuple[str, int], ...] = (
    ("The capital of France is Paris", 5),
    ("Water boils at a lower temperature on a mountain because", 10),
    (_QUESTION, 42),
    (_CODE, 60),
    (_HALL, 64),
    (_YARD + _ROAD, 110),
    (_STORY, 200),
    (_FRAME + _RAIN + _ROAD + _YARD + _HALL, 300),
    (_STORY + _FRAME + _HALL, 440),
    (_STORY + "Years later the apprentice told it differently. " + _FRAME + _RAIN + _STORY, 600),
)
_LONG = _STORY + "Years later the apprentice told it differently. " + _FRAME + _RAIN + _STORY
_GEMMA3_PROMPTS: tuple[tuple[str, int], ...] = (
    ("The capital of France is", 6),
    ("Water boils at a lower temperature on a mountain because", 11),
    ("Q: Name three rivers of Europe and the sea each one reaches.\nA: The", 19),
    (_CODE, 50),
    (_HALL, 56),
    (_YARD + _ROAD, 100),
    (_STORY, 200),
    (_FRAME + _RAIN + _ROAD + _YARD + _HALL, 270),
    (_LONG, 530),  # the window of 512 is left behind
    (_LONG + _HALL + _YARD, 700),
)


def main(gguf: Path) -> None:
    """Compute and write the fixture of the model with this file name."""
    if "gemma-3" in gguf.name:
        write_fixture(gguf, GEMMA3_FIXTURE, _GEMMA3_PROMPTS, with_bos=True)
    else:
        write_fixture(gguf, FIXTURE, _PROMPTS)


def write_fixture(
    gguf: Path, fixture: Path, prompts: Sequence[tuple[str, int]], *, with_bos: bool = False
) -> None:
    """Compute and write.

    Args:
        gguf: The model.
        fixture: Where to.
        prompts: Texts, each with the tokens it is cut to.
        with_bos: Prompts begin with the token that begins a text.
    """
    loading = {"gguf_file": gguf.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, **loading)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        gguf.parent, dtype=torch.float32, **loading
    )
    dtypes = {str(parameter.dtype) for parameter in model.parameters()}
    if dtypes != {"torch.float32"}:
        raise SystemExit(f"the oracle must be float32 throughout, it is {dtypes}")
    cases = [_case(model, tokenizer, text, length, with_bos) for text, length in prompts]
    content = {"made_with": _origin(gguf), "num_new_tokens": NUM_NEW_TOKENS, "cases": cases}
    fixture.parent.mkdir(parents=True, exist_ok=True)
    fixture.write_text(_one_list_per_line(content), "utf-8")
    for case in cases:
        length, margin = len(case["prompt_token_ids"]), case["smallest_margin"]
        sys.stdout.write(f"{length} tokens, smallest margin {margin}: {case['text']!r}\n")


@torch.inference_mode()
def _case(model: Any, tokenizer: Any, text: str, length: int, with_bos: bool) -> dict[str, Any]:
    prompt = tokenizer(text, add_special_tokens=with_bos).input_ids[:length]
    if len(prompt) < length:
        raise SystemExit(f"a prompt has {len(prompt)} tokens, {length} were wanted: {text!r}")
    tokens: list[int] = []
    margins: list[float] = []
    cache = transformers.DynamicCache(config=model.config)
    fresh = torch.tensor([prompt])
    for _ in range(NUM_NEW_TOKENS):
        logits = model(fresh, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        best = logits.topk(2)
        tokens.append(int(best.indices[0]))
        margins.append(round(float(best.values[0] - best.values[1]), 4))
        fresh = torch.tensor([tokens[-1:]])
    return {
        "prompt_token_ids": prompt,
        "output_token_ids": tokens,
        "margins": margins,
        "smallest_margin": min(margins),
        "text": tokenizer.decode(tokens),
    }


def _origin(gguf: Path) -> dict[str, str]:
    return {
        "file": gguf.name,
        "sha256": hashlib.sha256(gguf.read_bytes()).hexdigest(),
        "dtype": "float32, dequantized",
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "machine": platform.machine(),
    }


def _one_list_per_line(content: dict[str, Any]) -> str:
    """JSON in which a list of numbers takes one line, so that a change shows as one."""
    cases = ",\n".join(
        "  {\n" + ",\n".join(f'   "{k}": {json.dumps(v)}' for k, v in case.items()) + "\n  }"
        for case in content["cases"]
    )
    head = json.dumps({k: v for k, v in content.items() if k != "cases"}, indent=1)
    return head.removesuffix("\n}") + f',\n "cases": [\n{cases}\n ]\n}}\n'


if __name__ == "__main__":
    main(Path(sys.argv[1]))
