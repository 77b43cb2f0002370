"""What the device is made to do while its operators are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from dougong import LLM, SamplingParams, StructuredOutput
from dougong.ops import OPS

from tests.engine.checkpoints import prompt_of, write_adapter, write_checkpoint, write_encoder

_PROMPTS = [prompt_of(40), prompt_of(5, start=3)]
_GREEDY = SamplingParams(max_tokens=3, temperature=0.0, ignore_eos=True)
_LIMITS: Mapping[str, Any] = {
    "platform": "sim",
    "dtype": "float32",
    "max_model_len": 96,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 32,
    "num_kv_blocks": 24,
}
_ENCODES: Mapping[str, Any] = {
    "attention_backend": None,
    "num_kv_blocks": None,
    "max_model_len": 64,
    "max_num_batched_tokens": 96,
}
"""An encoder keeps no keys and values, and reads each text in one step."""
_PORTABLE: Mapping[str, Any] = {
    "custom_ops": "none",
    "attention_backend": "reference/torch",
    "enforce_eager": True,
}
"""The core's own code alone, as a plugin has it that brings nothing but a device."""

_PENALTIES: Mapping[str, Any] = {"frequency_penalty": 0.5, "presence_penalty": 0.25}
_SAMPLING = [
    SamplingParams(max_tokens=3, temperature=0.8, seed=1, ignore_eos=True, logprobs=2),
    SamplingParams(max_tokens=3, temperature=0.8, top_k=9, top_p=0.5, seed=2, n=2),
]
_SUPPRESSED = [
    SamplingParams(max_tokens=3, temperature=0.0, min_tokens=3, stop_token_ids=[7]),
    _GREEDY,
]
_CHANGED = [
    SamplingParams(max_tokens=3, temperature=0.8, min_p=0.1, seed=1, repetition_penalty=1.2),
    SamplingParams(max_tokens=3, temperature=0.0, logit_bias={7: 2.0}, prompt_logprobs=2),
]
_ALLOWED = [
    SamplingParams(max_tokens=3, temperature=0.0, allowed_token_ids=[3, 7, 9], **_PENALTIES),
    SamplingParams(max_tokens=3, temperature=0.0, bad_token_ids=[[5], [6, 7]], **_PENALTIES),
]
_FORMED = [
    SamplingParams(max_tokens=6, structured_output=StructuredOutput(regex="[ab]+c"), seed=1),
    SamplingParams(max_tokens=6, structured_output=StructuredOutput(choice=["a", "bc"]), seed=2),
]
_MISTRAL = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 10}


class Part(Enum):
    """Who needs it."""

    CORE = "What the core needs"
    CATALOGUE = "What ops of the catalogue need that no model of this version calls"
    PLUGIN = "What the code of this plugin adds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One engine, or the catalogue.

    Attributes:
        part: Who needs what is counted.
        title: As the page has it.
        options: Of the engine; ``None``: the catalogue's ops, one by one.
        changes: Of the model's configuration.
        params: Of the two prompts, time after time.
        adapters: How many are loaded; the first prompt uses one after the other, the second none.
        is_encoder: The model makes vectors of both prompts, and generates nothing.
    """

    part: Part
    title: str
    options: Mapping[str, Any] | None
    changes: Mapping[str, Any] = field(default_factory=dict)
    params: tuple[Any, ...] = (_GREEDY,)
    adapters: int = 0
    is_encoder: bool = False

    def start(self, folder: Path) -> Callable[[], None]:
        """Load; what is returned runs the steps and ends it all."""
        if self.options is None:
            return _run_catalogue
        if self.is_encoder:
            return _start_encoder(write_encoder(folder), self.options)
        model = write_checkpoint(folder, **self.changes)
        paths = [
            write_adapter(folder / f"adapter{rank}", rank) for rank in range(1, 1 + self.adapters)
        ]
        asked = {"enable_lora": True, "max_loras": self.adapters} if paths else {}
        llm = LLM(model, **{**_LIMITS, **asked, **self.options})

        def steps() -> None:
            with llm:
                for params in self.params:
                    llm.generate(prompt_token_ids=_PROMPTS, sampling_params=params)
                _run_adapters(llm, paths)

        return steps


def _start_encoder(model: str, options: Mapping[str, Any]) -> Callable[[], None]:
    chosen = {**_LIMITS, **options, **_ENCODES}
    llm = LLM(model, **{name: value for name, value in chosen.items() if value is not None})

    def steps() -> None:
        with llm:
            llm.embed(_PROMPTS)
            llm.embed([_PROMPTS[1], _PROMPTS[1]])  # of one length

    return steps


def _run_adapters(llm: LLM, paths: Sequence[str]) -> None:
    """Each beside a request that uses none; then it is unloaded."""
    for path in paths:
        llm.load_lora(path, path)
        beside = llm.stream(_PROMPTS[1], _GREEDY)
        next(beside)
        llm.generate(prompt_token_ids=_PROMPTS[:1], sampling_params=_GREEDY, lora=path)
        beside.close()  # type: ignore[attr-defined]  # a generator
        llm.unload_lora(path)


def _run_catalogue() -> None:
    """Every op as the core means it, on arguments of its own."""
    device = torch.device("sim", 0)
    for cls in OPS.values():
        op, arguments = cls.example()
        op.to(device).forward_native(
            *(one.to(device) if torch.is_tensor(one) else one for one in arguments)
        )
    torch.accelerator.synchronize()


RUNS = (
    Run(
        part=Part.CORE,
        title="Llama in float32, greedy: chunked prefill beside decodes",
        options=_PORTABLE,
    ),
    Run(
        part=Part.CORE,
        title="biases, a head of its own, another activation (GELU)",
        options=_PORTABLE,
        changes={"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu_pytorch_tanh"},
    ),
    Run(
        part=Part.CORE,
        title="Mistral with a sliding window, a tied head, bfloat16 and a cache of bfloat16",
        options={**_PORTABLE, "dtype": "bfloat16", "kv_cache_dtype": "bfloat16"},
        changes={**_MISTRAL, "tie_word_embeddings": True},
    ),
    Run(
        part=Part.CORE,
        title="sampling: temperature, top-k, top-p, seeds, several answers, log-probabilities",
        options=_PORTABLE,
        params=(_SAMPLING,),
    ),
    Run(
        part=Part.CORE,
        title="sampling: tokens that may not come yet (min_tokens)",
        options=_PORTABLE,
        params=(_SUPPRESSED,),
    ),
    Run(
        part=Part.CORE,
        title="sampling: min-p, penalties, biases, log-probabilities of a prompt",
        options=_PORTABLE,
        params=(_CHANGED,),
    ),
    Run(
        part=Part.CORE,
        title="sampling: allowed and forbidden tokens, every row with penalties",
        options=_PORTABLE,
        params=(_ALLOWED,),
    ),
    Run(
        part=Part.CORE,
        title="structured output: masks of grammars",
        options=_PORTABLE,
        params=(_FORMED,),
    ),
    Run(
        part=Part.CORE,
        title="adapters (LoRA), loaded while it runs",
        options=_PORTABLE,
        adapters=2,
    ),
    Run(
        part=Part.CORE,
        title="an encoder (BERT) that makes vectors",
        options=_PORTABLE,
        is_encoder=True,
    ),
    Run(
        part=Part.CORE,
        title="graphs around attention (piecewise)",
        options={**_PORTABLE, "enforce_eager": False, "graph_level": "piecewise"},
    ),
    Run(part=Part.CATALOGUE, title="each op on a small example", options=None),
    Run(
        part=Part.PLUGIN,
        title="attention in tiles, kernels and classes, eagerly",
        options={"enforce_eager": True},
        changes=_MISTRAL,
        params=(_GREEDY, _SAMPLING),
    ),
    Run(part=Part.PLUGIN, title="the same in graphs of whole steps", options={}, adapters=1),
)
"""In the order in which operators are put down to them."""
