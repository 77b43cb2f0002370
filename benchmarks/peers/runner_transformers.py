"""transformers behind the protocol: one static batch through ``generate``.

Options: ``model`` (folder), ``num_threads`` (optional).
"""

from __future__ import annotations

import importlib
import time
from typing import Any

from benchmarks.peers.protocol import Measurement, Point, serve


class StepTimes:
    """A streamer that notes when each step's tokens arrive; the prompt itself comes first."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []

    def put(self, value: object) -> None:
        """Called by ``generate`` with the prompt, then with the tokens of every step."""
        del value
        self.arrivals.append(time.perf_counter())

    def end(self) -> None:
        """Called by ``generate`` after the last step."""


class TransformersRunner:
    """One bfloat16 model; all prompts of a point have one length, so the batch needs no padding."""

    def load(self, options: dict[str, Any]) -> dict[str, Any]:
        """Load the checkpoint."""
        self._torch: Any = importlib.import_module("torch")
        transformers: Any = importlib.import_module("transformers")
        if options.get("num_threads"):
            self._torch.set_num_threads(options["num_threads"])
        self._model = transformers.AutoModelForCausalLM.from_pretrained(
            options["model"], dtype=self._torch.bfloat16
        ).eval()
        attention = self._model.config._attn_implementation
        return {"num_threads": self._torch.get_num_threads(), "attention": attention}

    def run(self, point: Point) -> Measurement:
        """One ``generate`` call."""
        ids = self._torch.tensor(point.prompts())
        times = StepTimes()
        with self._torch.inference_mode():
            start = time.perf_counter()
            output = self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                do_sample=False,
                min_new_tokens=point.output_len,
                max_new_tokens=point.output_len,
                pad_token_id=0,
                streamer=times,
            )
            seconds = time.perf_counter() - start
        new = output[:, point.prompt_len :]
        prefill_s = times.arrivals[1] - start
        return Measurement.of(seconds, prefill_s, new.tolist())

    def close(self) -> None:
        """Nothing outlives the process."""


if __name__ == "__main__":
    serve(TransformersRunner, ("transformers", "torch", "accelerate"))
