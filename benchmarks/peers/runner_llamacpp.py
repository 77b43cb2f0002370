"""llama.cpp behind the protocol, through the batch interface of llama-cpp-python.

Options: ``model`` (a ``.gguf``), ``max_model_len``, ``max_num_seqs``, ``num_threads`` (optional).
The high-level interface serves one sequence; the batch calls below are what llama.cpp's own
``llama-batched-bench`` uses, so that many sequences share one step.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from benchmarks.peers.protocol import Measurement, Point, serve

STEP_TOKENS = 2048
"""Tokens of one decode call at most; llama.cpp's own default."""


class Entry(NamedTuple):
    """One token of a batch."""

    token: int
    position: int
    sequence: int
    wants_logits: bool


class LlamaCppRunner:
    """One model and one context, whose cache every run empties first."""

    def load(self, options: dict[str, Any]) -> dict[str, Any]:
        """Map the weights and make a context for the largest point."""
        self._lib: Any = importlib.import_module("llama_cpp")
        self._numpy: Any = importlib.import_module("numpy")
        self._lib.llama_backend_init()
        self._model = self._lib.llama_model_load_from_file(
            options["model"].encode(), self._lib.llama_model_default_params()
        )
        if not self._model:
            raise RuntimeError(f"llama.cpp did not load {options['model']}")
        num_threads = options.get("num_threads") or len(os.sched_getaffinity(0))
        settings = self._lib.llama_context_default_params()
        settings.n_ctx = options["max_model_len"] * options["max_num_seqs"]
        settings.n_seq_max = options["max_num_seqs"]
        settings.n_batch = STEP_TOKENS
        settings.n_threads = settings.n_threads_batch = num_threads
        self._context = self._lib.llama_init_from_model(self._model, settings)
        vocabulary = self._lib.llama_model_get_vocab(self._model)
        self._vocabulary_size = self._lib.llama_vocab_n_tokens(vocabulary)
        self._batch = self._lib.llama_batch_init(STEP_TOKENS, 0, 1)
        return {"num_threads": num_threads, "build": self._lib.llama_print_system_info().decode()}

    def run(self, point: Point) -> Measurement:
        """Prefill all prompts, then one token per sequence and step."""
        self._lib.llama_memory_clear(self._lib.llama_get_memory(self._context), False)
        prompts = point.prompts()
        start = time.perf_counter()
        last = self._prefill(prompts)
        prefill_s = time.perf_counter() - start
        generated = [[token] for token in last]
        for step in range(point.output_len - 1):
            position = point.prompt_len + step
            entries = [Entry(token, position, i, True) for i, token in enumerate(last)]
            last = [token for _, token in self._decode(entries)]
            for tokens, token in zip(generated, last, strict=True):
                tokens.append(token)
        seconds = time.perf_counter() - start
        return Measurement.of(seconds, prefill_s, generated)

    def close(self) -> None:
        """Free what llama.cpp holds."""
        self._lib.llama_batch_free(self._batch)
        self._lib.llama_free(self._context)
        self._lib.llama_model_free(self._model)

    def _prefill(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """First token of each prompt."""
        entries = [
            Entry(token, position, sequence, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        first: dict[int, int] = {}
        for begin in range(0, len(entries), STEP_TOKENS):
            first.update(self._decode(entries[begin : begin + STEP_TOKENS]))
        return [first[sequence] for sequence in range(len(prompts))]

    def _decode(self, entries: Sequence[Entry]) -> Iterator[tuple[int, int]]:
        """Compute one batch; yields ``(sequence, greedy token)`` where logits were wanted."""
        batch = self._batch
        batch.n_tokens = len(entries)
        for i, entry in enumerate(entries):
            batch.token[i] = entry.token
            batch.pos[i] = entry.position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = entry.sequence
            batch.logits[i] = entry.wants_logits
        if status := self._lib.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode answered {status}")
        for i, entry in enumerate(entries):
            if entry.wants_logits:
                yield entry.sequence, self._argmax(i)

    def _argmax(self, row: int) -> int:
        pointer = self._lib.llama_get_logits_ith(self._context, row)
        logits = self._numpy.ctypeslib.as_array(pointer, shape=(self._vocabulary_size,))
        return int(logits.argmax())


if __name__ == "__main__":
    serve(LlamaCppRunner, ("llama-cpp-python", "numpy"))
