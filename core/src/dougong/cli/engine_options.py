"""The engine's options as every command that loads a model takes them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from dougong.config.args import EngineArgs

_HELP: dict[str, tuple[Any, str]] = {
    "model": (str, "Local folder, .gguf file, Hugging Face id, or 'demo'."),
    "revision": (str | None, "Branch, tag or commit of a Hugging Face id."),
    "runner": (str | None, "generate, pooling (vectors) or auto: what the checkpoint is made for."),
    "platform": (str | None, "Obeyed, or the start fails. Default: DOUGONG_PLATFORM, else found."),
    "devices": (str | None, "Indices or uuids between commas; obeyed, or the start fails."),
    "dtype": (str | None, "Compute dtype. Default: the checkpoint's, where the device has it."),
    "max_model_len": (int | None, "Prompt and answer together, in tokens."),
    "block_size": (int | None, "Tokens per KV cache block."),
    "kv_cache_dtype": (str | None, "Dtype of the KV cache. Default: as computed."),
    "kv_cache_memory_bytes": (int | None, "Size of the KV cache. Default: what memory leaves."),
    "num_kv_blocks": (int | None, "Size of the KV cache in blocks, instead of bytes."),
    "max_num_seqs": (int | None, "Requests in one step."),
    "max_num_batched_tokens": (int | None, "Tokens in one step."),
    "long_prefill_token_threshold": (int | None, "Tokens of one prompt in one step. Default: all."),
    "enable_prefix_caching": (bool | None, "Reuse the KV of equal prefixes."),
    "scheduling_policy": (str | None, "Order of requests: fcfs or priority."),
    "attention_backend": (str | None, "NAME, or prefill=NAME,decode=NAME; obeyed or refused."),
    "enforce_eager": (bool | None, "No graph capture and no compilation."),
    "execution": (str | None, "flat (straight-line code) or eager; obeyed or refused."),
    "graph_level": (str | None, "Capture none, piecewise, decode or full; obeyed or refused."),
    "graph_sizes": (str | None, "Token counts to capture, between commas; obeyed or refused."),
    "graph_memory_bytes": (int | None, "Most memory of all graphs. Default: a twentieth."),
    "custom_ops": (str | None, "Vendors' ops: all or none, then +OP and -OP, between commas."),
    "op": (list[str] | None, "KEY=IMPLEMENTATION; obeyed, or the start fails. Repeatable."),
    "enable_lora": (bool | None, "Take adapters (LoRA). Default: where --lora names one."),
    "max_loras": (int | None, "Adapters loaded at once. Default: 4, or as many as are named."),
    "max_lora_rank": (int | None, "Largest rank of an adapter. Default: 16."),
    "lora": (list[str] | None, "NAME=PATH of an adapter that peft saved. Repeatable."),
    "device_memory_utilization": (float | None, "Share of the device's memory to use, 0 to 1."),
    "seed": (int | None, "Of every draw without a seed of its own."),
    "strict": (bool | None, "Refuse every fallback."),
    "require_conformance": (
        str | None,
        "core or extended: refuse a platform without that certificate.",
    ),
    "plan": (str | None, "File of `explain --save`: the same plan, or what changed and why."),
}
_FLAGS = {"strict"}  # without a form that says no
_OTHER_NAMES = {"seed": "engine_seed"}  # where a command has an option of that name for requests
_PANEL = "Engine"


def with_engine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command every option of the engine; it receives them as ``args``, an `EngineArgs`."""

    @functools.wraps(command)
    def run(**options: Any) -> None:
        wishes = {name: options.pop(_OTHER_NAMES.get(name, name)) for name in _HELP}
        command(**options, args=EngineArgs.from_options(wishes))

    signature = inspect.signature(command, eval_str=True)
    own = [parameter for name, parameter in signature.parameters.items() if name != "args"]
    vars(run)["__signature__"] = signature.replace(parameters=[*own, *map(_parameter, _HELP)])
    return run


def _parameter(name: str) -> inspect.Parameter:
    kind, text = _HELP[name]
    spelt = (f"--{name}",) if name in _FLAGS else ()
    option = typer.Option(*spelt, help=text, rich_help_panel=_PANEL, show_default=name == "model")
    return inspect.Parameter(
        _OTHER_NAMES.get(name, name),
        inspect.Parameter.KEYWORD_ONLY,
        default="demo" if name == "model" else None,
        annotation=Annotated[kind, option],
    )
