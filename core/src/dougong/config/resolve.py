"""From wishes, model, capabilities and a platform's proposals to one configuration and its reasons.

Pure: the same arguments give the same answer. Explicit values are obeyed or refused; a refusal is
told after planning, with the candidates' own reasons, so there is a configuration all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, get_args

from dougong.config.args import EngineArgs, ExecutionName
from dougong.config.decision import CHECKPOINT, CORE, USER, Decision, platform_author
from dougong.config.dtypes import resolve_dtype, resolve_kv_dtype
from dougong.config.engine import ComputeConfig, EngineConfig, KVCachePlan
from dougong.config.graphs import resolve_graphs
from dougong.config.lora import resolve_lora
from dougong.config.memory import kv_fits, resolve_memory
from dougong.config.model import ModelConfig
from dougong.config.pooling import (
    PoolingConfig,
    reads_every_token,
    refuse_beside_pooling,
    resolve_pooling,
)
from dougong.config.scheduler import SchedulerConfig
from dougong.config.step_size import (
    StepNumbers,
    choose_max_num_batched_tokens,
    choose_max_num_seqs,
)
from dougong.config.wishes import Wishes
from dougong.contracts.capabilities import Capabilities
from dougong.contracts.config_view import ConfigChange, ConfigView
from dougong.contracts.kv_cache import dtype_bytes
from dougong.errors import ConfigError

T = TypeVar("T")

_AT_LEAST = {
    "max_model_len": 2, "block_size": 1, "kv_cache_memory_bytes": 1, "num_kv_blocks": 1,
    "max_num_seqs": 1, "max_num_batched_tokens": 1, "long_prefill_token_threshold": 1, "seed": 0,
    "graph_memory_bytes": 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Resolution:
    """A configuration and how it came about.

    Attributes:
        config: Every value settled but the number of KV blocks.
        decisions: One per option, in the order they were taken.
        problems: What the user asked for and cannot have, one sentence each. With any of them
            nothing may start; ``config`` has something in the place of what nobody could plan with,
            so that they do not keep others from giving their reasons.
    """

    config: EngineConfig
    decisions: tuple[Decision, ...]
    problems: tuple[str, ...] = ()


def view_of_wishes(args: EngineArgs, model: ModelConfig) -> ConfigView:
    """What a platform is shown before anything is decided: unset values are ``None``."""
    return ConfigView(
        model=args.model,
        architecture=model.architecture,
        hf_config=model.hf_config,
        dtype=None if args.dtype == "auto" else args.dtype,
        kv_cache_dtype=None if args.kv_cache_dtype == "auto" else args.kv_cache_dtype,
        max_model_len=args.max_model_len,
        block_size=args.block_size,
        num_kv_blocks=args.num_kv_blocks,
        max_num_seqs=args.max_num_seqs,
        max_num_batched_tokens=args.max_num_batched_tokens,
        enable_prefix_caching=args.enable_prefix_caching,
        attention_backend=args.attention_backend,
        enforce_eager=args.enforce_eager,
        device_memory_utilization=args.device_memory_utilization,
        seed=args.seed or 0,
        explicit=args.explicit,
    )


def resolve(
    args: EngineArgs,
    model: ModelConfig,
    capabilities: Capabilities,
    *,
    platform: str,
    changes: Sequence[ConfigChange] = (),
) -> Resolution:
    """Settle every value.

    Args:
        args: The user's wishes.
        model: As the checkpoint describes it.
        capabilities: Of the device that will run it.
        platform: Name of the chosen platform.
        changes: What the platform proposes, from `Platform.check_and_update_config`.

    Raises:
        PluginError: A proposal is malformed, or its value cannot work.
    """
    wishes = Wishes.of_user(args)
    wishes.apply_changes(platform, changes)
    _check_ranges(wishes)
    pooling = resolve_pooling(wishes, model)
    if pooling is not None:
        refuse_beside_pooling(wishes, model, pooling)
    claims = capabilities.claims
    dtype = resolve_dtype(wishes, model.dtype, claims, platform)
    kv_dtype = resolve_kv_dtype(wishes, dtype, claims, platform)
    compute = ComputeConfig(
        dtype=dtype,
        attention_backend=_settle_default(wishes, "attention_backend", None, "the first that fits"),
        enforce_eager=_settle_default(wishes, "enforce_eager", False),
        execution=_resolve_execution(wishes),
        seed=_settle_default(wishes, "seed", 0),
    )
    _record_ways(args, wishes)
    memory = resolve_memory(wishes, capabilities.facts)
    kv_cache = _resolve_kv_cache(wishes, kv_dtype, capabilities, platform, pooling)
    kv_token_bytes = model.kv_bytes_per_token(dtype_bytes(kv_dtype))
    weight_bytes = model.weight_bytes(dtype_bytes(dtype))
    kv_bytes = kv_cache.asked_bytes or 0
    if kv_cache.asked_blocks is not None:
        kv_bytes = kv_cache.asked_blocks * kv_cache.block_size * kv_token_bytes
    if not kv_fits(wishes, memory, model, weight_bytes=weight_bytes, kv_bytes=kv_bytes):
        kv_cache = replace(kv_cache, asked_blocks=None, asked_bytes=None, asked_by="")
    max_model_len = _resolve_max_model_len(wishes, model, pooling)
    numbers = StepNumbers(
        free_bytes=max(0, memory.budget_bytes - weight_bytes),
        element_bytes=dtype_bytes(dtype),
        kv_bytes_per_token=kv_token_bytes,
        max_model_len=max_model_len,
        compute_rate=claims.compute_rate.get(dtype),
        memory_bandwidth=capabilities.facts.memory_bandwidth or claims.memory_bandwidth,
    )
    scheduler = _resolve_scheduler(wishes, model, numbers)
    graphs = resolve_graphs(
        wishes,
        enforce_eager=compute.enforce_eager,
        budget_bytes=memory.budget_bytes,
        max_num_tokens=scheduler.max_num_batched_tokens,
    )
    lora = resolve_lora(wishes)
    wishes.check()
    config = EngineConfig(
        model=model,
        compute=compute,
        memory=memory,
        kv_cache=kv_cache,
        scheduler=scheduler,
        graphs=graphs,
        lora=lora,
        pooling=pooling,
        explicit=args.explicit - wishes.dropped,
    )
    problems = (*wishes.problems, *wishes.doubts)
    return Resolution(config, tuple(wishes.decisions), problems)


def _settle_default(wishes: Wishes, name: str, default: T, reason: str = "default") -> T:
    """The value asked for, else the one that the core takes everywhere."""
    return wishes.settle_or(name, default, CORE, reason, is_default=True)


def _resolve_execution(wishes: Wishes) -> str | None:
    known = get_args(ExecutionName)
    name = _settle_default(wishes, "execution", None, "flat, where the model is a list of ops")
    if name is None or name in known:
        return name
    wishes.refuse(f"execution={name} is unknown; it takes {' or '.join(known)}.", of="execution")
    wishes.drop("execution")
    return None


def _record_ways(args: EngineArgs, wishes: Wishes) -> None:
    """Options that planning obeys, recorded beside those that are settled here."""
    _settle_default(wishes, "custom_ops", "all", "whatever is registered")
    if args.op is not None:
        wishes.settle("op", ", ".join(args.op), USER, "asked for")
    _settle_default(wishes, "strict", False, "fallbacks are told, not refused")


def _check_ranges(wishes: Wishes) -> None:
    for name, least in _AT_LEAST.items():
        value = wishes.get(name, int)
        if value is not None and value < least:
            wishes.refuse(f"{name}={value} must be at least {least}.", of=name)
            wishes.drop(name)
    blocks, size = wishes.asked.get("num_kv_blocks"), wishes.asked.get("kv_cache_memory_bytes")
    if blocks is not None and size is not None:
        wishes.refuse(
            f"num_kv_blocks={blocks.value} [{blocks.author}: {blocks.reason}] and "
            f"kv_cache_memory_bytes={size.value} [{size.author}] give the same size twice; set one."
        )
        wishes.drop("kv_cache_memory_bytes")


def _resolve_kv_cache(
    wishes: Wishes,
    kv_dtype: str,
    capabilities: Capabilities,
    platform: str,
    pooling: PoolingConfig | None,
) -> KVCachePlan:
    sizes = capabilities.claims.kv_block_sizes
    block_size = wishes.settle_or(
        "block_size", sizes[0], platform_author(platform), "preferred by this device"
    )
    if block_size not in sizes:
        wishes.doubt(
            f"block_size={block_size} is not supported by platform {platform} on this device, "
            f"which takes {_listed(sizes)}. Use one of those, or leave block_size unset.",
            of="block_size",
        )
    return KVCachePlan(
        dtype=kv_dtype,
        block_size=block_size,
        enable_prefix_caching=_resolve_prefix_caching(wishes, pooling),
        asked_blocks=wishes.get("num_kv_blocks", int),
        asked_bytes=wishes.get("kv_cache_memory_bytes", int),
        asked_by=wishes.author_of("num_kv_blocks", "kv_cache_memory_bytes") or "",
    )


def _resolve_prefix_caching(wishes: Wishes, pooling: PoolingConfig | None) -> bool:
    if pooling is None or not reads_every_token(pooling.spec):
        return _settle_default(wishes, "enable_prefix_caching", True)
    why = f"pooling={pooling.spec.method} reads every token"
    return wishes.settle_or("enable_prefix_caching", False, CORE, why)


def _resolve_max_model_len(
    wishes: Wishes, model: ModelConfig, pooling: PoolingConfig | None
) -> int:
    most, usual, reason = model.max_position, model.max_position, model.max_position_reason
    tuned = model.pooling.max_len
    if pooling is not None and tuned is not None and 2 <= tuned < most:
        usual, reason = tuned, f"max_seq_length={tuned} in {model.pooling.source} of the checkpoint"
    value = wishes.settle_or("max_model_len", usual, CHECKPOINT, reason)
    if value > most:
        wishes.refuse(
            f"max_model_len={value} is more than {model.reference} can read: {most} tokens, from "
            f"{model.max_position_reason}. Ask for at most {most}, or leave it unset.",
            of="max_model_len",
        )
    return min(value, most)


def _resolve_scheduler(wishes: Wishes, model: ModelConfig, numbers: StepNumbers) -> SchedulerConfig:
    seqs, seqs_reason = choose_max_num_seqs(numbers, model)
    asked_tokens = wishes.get("max_num_batched_tokens", int)
    if asked_tokens is not None and asked_tokens < seqs:
        seqs, seqs_reason = asked_tokens, "no more than max_num_batched_tokens"
    if asked_tokens is not None:
        wishes.lower_default(
            "max_num_seqs", asked_tokens, f"no more than max_num_batched_tokens={asked_tokens}"
        )
    max_num_seqs = wishes.settle_or("max_num_seqs", seqs, CORE, seqs_reason)
    tokens, tokens_reason = choose_max_num_batched_tokens(numbers, model, max_num_seqs)
    if model.is_encoder and tokens < numbers.max_model_len:
        tokens, tokens_reason = numbers.max_model_len, "a text of max_model_len is read in one step"
    max_tokens = wishes.settle_or("max_num_batched_tokens", tokens, CORE, tokens_reason)
    if not _holds_every_request(wishes, max_num_seqs, max_tokens):
        max_num_seqs = max_tokens
    try:
        return SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_tokens,
            max_model_len=numbers.max_model_len,
            policy=_settle_default(wishes, "scheduling_policy", "fcfs"),
            long_prefill_token_threshold=_settle_default(
                wishes, "long_prefill_token_threshold", None, "a prompt may fill a step"
            ),
            has_whole_prompts=model.is_encoder,
        )
    except ConfigError as exc:
        wishes.problems.extend(exc.problems or (str(exc),))
        return SchedulerConfig(
            max_num_seqs=min(max_num_seqs, max_tokens),
            max_num_batched_tokens=max_tokens,
            max_model_len=max(2, numbers.max_model_len),
        )


def _holds_every_request(wishes: Wishes, max_num_seqs: int, max_tokens: int) -> bool:
    """Whether a step holds one token of every request; where a platform had a part in it, say so.

    What the user alone asked for is left to `SchedulerConfig`.
    """
    if max_tokens >= max_num_seqs:
        return True
    seqs, tokens = wishes.asked["max_num_seqs"], wishes.asked["max_num_batched_tokens"]
    if seqs.plugin is None and tokens.plugin is None:
        return True
    wishes.refuse(
        f"max_num_batched_tokens={max_tokens} [{tokens.author}: {tokens.reason}] is below "
        f"max_num_seqs={max_num_seqs} [{seqs.author}: {seqs.reason}]: a step could not hold one "
        "token of every running request. Leave unset what you set, or choose another platform.",
        of="max_num_seqs" if tokens.plugin else None,
    )
    return False


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
