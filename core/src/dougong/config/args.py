"""The user's wishes, under the names operators know; nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypedDict, get_args, get_origin, get_type_hints

from dougong.config.scheduler import SchedulingPolicy
from dougong.errors import ConfigError

ConformanceLevel = Literal["core", "extended"]
"""What a platform's certificate has to say."""


RunnerName = Literal["auto", "generate", "pooling"]
"""What a model is used for; ``auto``: what its checkpoint is made for."""

ExecutionName = Literal["flat", "eager"]
"""How the host runs a model; see `dougong.execution`."""

GraphLevelName = Literal["none", "piecewise", "decode", "full"]
"""How much of a step is captured; see `dougong.contracts.GraphLevel`."""


class EngineOptions(TypedDict, total=False):
    """The fields of `EngineArgs` but ``model``, as keyword arguments."""

    revision: str | None
    runner: RunnerName | None
    platform: str | None
    devices: str | None
    dtype: str | None
    max_model_len: int | None
    block_size: int | None
    kv_cache_dtype: str | None
    kv_cache_memory_bytes: int | None
    num_kv_blocks: int | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    long_prefill_token_threshold: int | None
    enable_prefix_caching: bool | None
    scheduling_policy: SchedulingPolicy | None
    attention_backend: str | None
    enforce_eager: bool | None
    execution: ExecutionName | None
    graph_level: GraphLevelName | None
    graph_sizes: str | None
    graph_memory_bytes: int | None
    custom_ops: str | None
    op: Sequence[str] | None
    enable_lora: bool | None
    max_loras: int | None
    max_lora_rank: int | None
    lora: Sequence[str] | None
    device_memory_utilization: float | None
    seed: int | None
    strict: bool | None
    require_conformance: ConformanceLevel | None
    plan: str | None


@dataclass(frozen=True, slots=True)
class CommandDefault:
    """What a command takes for an option that the user left open; any platform may override it.

    Attributes:
        field: Option name.
        value: The value.
        author: ``command NAME``; see `dougong.config.decision.command_author`.
        reason: One sentence for the operator.
    """

    field: str
    value: Any
    author: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineArgs:
    """What the user asked for. ``None`` leaves a value to the core, the platform or the checkpoint.

    Attributes:
        model: Local folder, ``.gguf`` path, Hugging Face id, or ``demo``.
        revision: Commit, tag or branch of a Hugging Face id.
        runner: ``generate`` texts, or make vectors by ``pooling``; ``auto`` is the same as unset:
            what the checkpoint is made for.
        platform: Name of the platform; obeyed, or the start fails.
        devices: Indices or uuids of its devices, comma-separated; obeyed, or the start fails.
        dtype: Compute dtype; ``auto`` is the same as unset: the checkpoint's, where claimed.
        max_model_len: Prompt and generated tokens of one request together.
        block_size: Tokens per KV block.
        kv_cache_dtype: Dtype of the stored KV cache; ``auto`` is the same as unset.
        kv_cache_memory_bytes: Size of the KV cache.
        num_kv_blocks: Size of the KV cache in blocks, instead of bytes.
        max_num_seqs: Requests in one step.
        max_num_batched_tokens: Tokens in one step.
        long_prefill_token_threshold: Tokens of one prompt in one step.
        enable_prefix_caching: Reuse the KV of equal prefixes.
        scheduling_policy: ``fcfs`` or ``priority``.
        attention_backend: Name of the attention backend, or ``prefill=NAME,decode=NAME``; obeyed,
            or the start fails.
        enforce_eager: No graph capture and no compilation.
        execution: ``flat``: straight-line code of the model's ops; ``eager``: its modules; obeyed,
            or the start fails.
        graph_level: How much of a step is captured: ``none``, ``piecewise``, ``decode`` or
            ``full``; obeyed, or the start fails.
        graph_sizes: Token counts to capture, between commas; obeyed, or the start fails.
        graph_memory_bytes: Device memory that all graphs together may take.
        custom_ops: Ops that run a vendor's implementation: ``all`` or ``none``, then ``+op`` and
            ``-op``, between commas.
        op: ``KEY=IMPLEMENTATION``, for any number of ops; obeyed, or the start fails.
        enable_lora: Take adapters; also asked for by naming one in ``lora``.
        max_loras: Adapters loaded at once.
        max_lora_rank: Largest rank of an adapter.
        lora: ``NAME=PATH`` of adapters that are loaded at the start.
        device_memory_utilization: Share of the device's memory limit to use, above 0 and at most 1.
        seed: Of everything that draws without a seed of its own.
        strict: Refuse every fallback.
        require_conformance: ``core`` or ``extended``: refuse a platform without that certificate.
        plan: File of a saved plan; the same plan runs, or the start fails and says what changed.
        defaults: No wish of the user: what a command takes for options left open.

    Raises:
        ConfigError: A value has the wrong type, or is an empty text; all of them in one message.
    """

    model: str
    revision: str | None = None
    runner: RunnerName | None = None
    platform: str | None = None
    devices: str | None = None
    dtype: str | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    kv_cache_dtype: str | None = None
    kv_cache_memory_bytes: int | None = None
    num_kv_blocks: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    long_prefill_token_threshold: int | None = None
    enable_prefix_caching: bool | None = None
    scheduling_policy: SchedulingPolicy | None = None
    attention_backend: str | None = None
    enforce_eager: bool | None = None
    execution: ExecutionName | None = None
    graph_level: GraphLevelName | None = None
    graph_sizes: str | None = None
    graph_memory_bytes: int | None = None
    custom_ops: str | None = None
    op: Sequence[str] | None = None
    enable_lora: bool | None = None
    max_loras: int | None = None
    max_lora_rank: int | None = None
    lora: Sequence[str] | None = None
    device_memory_utilization: float | None = None
    seed: int | None = None
    strict: bool | None = None
    require_conformance: ConformanceLevel | None = None
    plan: str | None = None
    defaults: tuple[CommandDefault, ...] = ()

    def __post_init__(self) -> None:
        """Check the type of every option, so that a wrong one is told by its name."""
        problems = tuple(self._type_problems())
        if problems:
            raise ConfigError("Engine options have the wrong type:", problems)
        for name in ("op", "lora"):  # a list is as welcome; what is frozen holds none
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, tuple(given) or None)

    @classmethod
    def option_names(cls) -> tuple[str, ...]:
        """Every option, ``model`` first."""
        return ("model", *get_type_hints(EngineOptions))

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> EngineArgs:
        """Wishes by name, as Python callers write them.

        Raises:
            ConfigError: A name is unknown; the message lists the known ones.
        """
        known = cls.option_names()
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise ConfigError(
                f"Unknown engine option{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}. "
                f"Known ones: {', '.join(known)}."
            )
        return cls(**options)

    @property
    def explicit(self) -> frozenset[str]:
        """Names of the fields that were set; a dtype of ``auto`` counts as unset."""
        values = {name: getattr(self, name) for name in self.option_names()}
        return frozenset(
            name for name, value in values.items() if value is not None and value != "auto"
        )

    @property
    def choices(self) -> dict[str, str | int | float | bool]:
        """What the user chose of how the model runs, as plain values; `with_choices` undoes it."""
        settled = self.explicit - _NO_CHOICES
        values = {name: getattr(self, name) for name in self.option_names() if name in settled}
        if self.op is not None:
            values["op"] = ",".join(self.op)
        return values

    def with_choices(self, choices: Mapping[str, str | int | float | bool]) -> EngineArgs:
        """The same wishes with `choices` where they were left open.

        Raises:
            ConfigError: An option is unknown, or a value has the wrong type.
        """
        unknown = sorted(set(choices) - set(self.option_names()))
        if unknown:
            raise ConfigError(f"Unknown engine options {', '.join(unknown)}.")
        opened: dict[str, Any] = {
            name: tuple(str(value).split(",")) if name == "op" else value
            for name, value in choices.items()
            if name not in self.explicit
        }
        return replace(self, **opened)

    def _type_problems(self) -> Iterator[str]:
        for name, hint in {"model": str, **get_type_hints(EngineOptions)}.items():
            value = getattr(self, name)
            if value is not None or name == "model":
                yield from _problems_of(name, value, _expected(hint))


def saved_value_problem(name: str, value: Any) -> str:
    """Why a value cannot be one of an option, as it was written down; empty: it can.

    Several texts are written as one, with commas. Of a name that is no option every plain value is
    taken.
    """
    hint = get_type_hints(EngineOptions).get(name)
    if value is None:
        return ""
    if hint is None:
        parts = value if isinstance(value, list | tuple) else (value,)
        is_plain = all(part is None or isinstance(part, str | int | float) for part in parts)
        return "" if is_plain else f"{name} is a {type(value).__name__}, which is no plain value."
    expected = _expected(hint)
    if name in ("op", "lora") and isinstance(value, list | tuple | str):
        expected = (str, tuple, list)
    return next(_problems_of(name, value, expected), "")


def _problems_of(name: str, value: Any, expected: tuple[type, ...]) -> Iterator[str]:
    is_bool_for_number = isinstance(value, bool) and bool not in expected
    if is_bool_for_number or not isinstance(value, expected):
        shown = (
            repr(value) if len(repr(value)) <= _MOST_SHOWN else f"{repr(value)[:_MOST_SHOWN]}..."
        )
        yield f"{name}={shown}, a {type(value).__name__}; it takes {_NOUNS[expected[0]]}."
    elif isinstance(value, list | tuple):
        for one in value:
            if not isinstance(one, str) or not one.strip():
                yield f"{name} has {one!r} in it; each of them is a text (str)."
    elif isinstance(value, str) and not value.strip():
        yield f"{name}={value!r} is empty; give a value, or leave the option out."


_MOST_SHOWN = 100
_NO_CHOICES = frozenset({"model", "plan", "require_conformance", "lora"})
_NOUNS: Mapping[type, str] = {
    str: "a text (str)", int: "a whole number (int)", float: "a number (float)",
    bool: "True or False (bool)", tuple: "a list of texts (str)",
}  # fmt: skip


def _expected(hint: Any) -> tuple[type, ...]:
    """Types that ``hint`` allows, ``None`` aside; a number may be written without a dot."""
    parts = [part for part in get_args(hint) if part is not type(None)] or [hint]
    (kind,) = [_ORIGINS.get(get_origin(part), part) for part in parts]
    return (kind, *_AS_WELL.get(kind, ()))


_ORIGINS: Mapping[Any, type] = {Literal: str, Sequence: tuple}
_AS_WELL: Mapping[type, tuple[type, ...]] = {float: (int,), tuple: (list,)}
