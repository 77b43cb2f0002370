"""The worker of the CPU platform."""

from __future__ import annotations

from dougong.contracts import WorkerState
from dougong.cpu.memory import read_memory, resident_bytes
from dougong.reference import ReferenceWorker

# Rows of a step alive at once, in units of one row of the widest activation: input, gate and up,
# output and the residual, with as much again for temporaries.
_LIVE_ROWS = 8
_FLOAT32_BYTES = 4


class CpuWorker(ReferenceWorker):
    """`ReferenceWorker`, but a step's memory is computed: running the largest one would double the
    time to the first token."""

    def determine_available_memory(self) -> int:
        """The share of the limit less what this process holds, and never more than is free now:
        what others on the host use is theirs, not a part of this engine's share."""
        self._require(WorkerState.MODEL_LOADED)
        memory, step_bytes = read_memory(), self.estimate_step_bytes()
        share = int(memory.limit_bytes * (self.config.device_memory_utilization or 0.0))
        return max(0, min(share - resident_bytes(), memory.free_bytes) - step_bytes)

    def estimate_step_bytes(self) -> int:
        """Activations of the largest step, and float32 logits of every sequence with a copy."""
        config, hf = self.config, self.config.hf_config
        num_tokens, num_seqs = config.max_num_batched_tokens or 1, config.max_num_seqs or 1
        widest = max(int(hf["hidden_size"]), 2 * int(hf.get("intermediate_size", 0)))
        activations = num_tokens * widest * _LIVE_ROWS * _FLOAT32_BYTES
        logits = 2 * num_seqs * int(hf["vocab_size"]) * _FLOAT32_BYTES
        return activations + logits + self._bound_attention().workspace_bytes(num_tokens)
