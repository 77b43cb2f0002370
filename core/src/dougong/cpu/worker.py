"""The worker of the CPU platform."""

from __future__ import annotations

from dougong.contracts import KVCacheConfig
from dougong.cpu.memory import read_memory, resident_bytes
from dougong.cpu.native import NotBuilt, advise_huge_pages
from dougong.cpu.native_library import get_library
from dougong.reference import ReferenceWorker

# Rows of a step alive at once, in units of one row of the widest activation: input, gate and up,
# output and the residual, with as much again for temporaries.
_LIVE_ROWS = 8
_FLOAT32_BYTES = 4


class CpuWorker(ReferenceWorker):
    """`ReferenceWorker`, but a step's memory is computed: running the largest one would double the
    time to the first token."""

    def measure_unused_bytes(self) -> int:
        """The share of the limit less what this process holds, and never more than is free now:
        what others on the host use is theirs, not a part of this engine's share."""
        memory = read_memory()
        share = int(memory.limit_bytes * (self.config.device_memory_utilization or 0.0))
        return min(share - resident_bytes(), memory.free_bytes)

    def initialize_kv_cache(self, config: KVCacheConfig) -> None:
        """Ask for large pages before the first write: a step touches blocks all over the cache, and
        with small pages a third of attention's time was spent looking up addresses (NOTES.md)."""
        super().initialize_kv_cache(config)
        library = get_library()
        if not isinstance(library, NotBuilt):
            for buffer in self.kv_buffers():
                advise_huge_pages(library, buffer)

    def estimate_step_bytes(self) -> int:
        """Activations of the largest step, and what sampling makes of every sequence's logits."""
        config, hf = self.config, self.config.hf_config
        num_tokens = config.max_num_batched_tokens or 1
        widest = max(int(hf["hidden_size"]), 2 * int(hf.get("intermediate_size", 0)))
        activations = num_tokens * widest * _LIVE_ROWS * _FLOAT32_BYTES
        workspace = self.attention_workspace_bytes(num_tokens)
        return activations + workspace + self.estimate_sampling_bytes()
