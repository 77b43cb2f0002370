"""From a bare command to the first token with vLLM: what a script that loads one model does.

Run by the python of the vLLM environment; prints the first token's text, unbuffered.
"""

from __future__ import annotations

import argparse
import importlib
import os
from typing import Any

from benchmarks.peers.protocol import take_standard_output
from benchmarks.peers.runner_vllm import KV_CACHE_GIB, QUIET


def main() -> None:
    """Load, ask for one token, print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="checkpoint folder")
    parser.add_argument("--prompt", required=True, help="user message of a chat")
    parser.add_argument("--mode", choices=("eager", "compiled"), default="eager")
    options = parser.parse_args()
    answers = take_standard_output()
    os.environ.update(QUIET | {"VLLM_CPU_KVCACHE_SPACE": KV_CACHE_GIB})
    vllm: Any = importlib.import_module("vllm")
    llm = vllm.LLM(
        model=options.model,
        dtype="bfloat16",
        max_model_len=2048,
        enforce_eager=options.mode == "eager",
    )
    sampling = vllm.SamplingParams(max_tokens=1, temperature=0.0)
    messages = [{"role": "user", "content": options.prompt}]
    outputs = llm.chat(messages, sampling, use_tqdm=False)
    answers.write(outputs[0].outputs[0].text)
    answers.flush()


if __name__ == "__main__":
    main()
