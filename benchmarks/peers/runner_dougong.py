"""Dougong behind the protocol, through the same public names a user has.

Options: ``model`` (reference), ``dtype``, ``max_model_len``, ``max_num_seqs`` (optional),
``arguments`` (more keyword arguments of ``LLM``).
"""

from __future__ import annotations

import importlib
import time
from typing import Any

from benchmarks.peers.protocol import Measurement, Point, serve


class DougongRunner:
    """One ``dougong.LLM``."""

    def load(self, options: dict[str, Any]) -> dict[str, Any]:
        """Build the engine."""
        dougong: Any = importlib.import_module("dougong")
        arguments = dict(options.get("arguments", {}))
        if options.get("max_num_seqs"):
            arguments["max_num_seqs"] = options["max_num_seqs"]
        self._sampling_params: Any = dougong.SamplingParams
        self._llm = dougong.LLM(
            model=options["model"],
            dtype=options.get("dtype", "bfloat16"),
            enable_prefix_caching=False,
            max_model_len=options["max_model_len"],
            **arguments,
        )
        threads = importlib.import_module("torch").get_num_threads()
        return {"num_threads": threads, "report": self._llm.report.to_json()}

    def run(self, point: Point) -> Measurement:
        """All prompts in one ``generate`` call."""
        sampling = self._sampling_params(
            max_tokens=point.output_len, ignore_eos=True, temperature=0.0
        )
        start = time.perf_counter()
        outputs = self._llm.generate(
            prompt_token_ids=point.prompts(), sampling_params=sampling, progress=False
        )
        seconds = time.perf_counter() - start
        generated = [list(output.outputs[0].token_ids) for output in outputs]
        decode_s = 0.0
        if point.output_len > 1:
            first = max(output.metrics.first_token_s for output in outputs)
            decode_s = max(output.metrics.finished_s for output in outputs) - first
        return Measurement.of(seconds, seconds - decode_s, generated)

    def close(self) -> None:
        """Stop the engine, wherever it runs."""
        self._llm.close()


if __name__ == "__main__":
    serve(DougongRunner, ("dougong", "torch"))
