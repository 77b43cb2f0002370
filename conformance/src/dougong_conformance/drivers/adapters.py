"""Adapters of the zoo in the real engine: loaded, used beside one another, unloaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dougong import LLM, RequestOutput, SamplingParams

from dougong_conformance.drivers.engine import answer_of, opened
from dougong_conformance.drivers.planned import model_folder
from dougong_conformance.local import as_raised
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session
from dougong_conformance.zoo.adapters import ADAPTERS, MAX_RANK, write_adapter
from dougong_conformance.zoo.models import MODELS


@procedure("engine.adapters")
def adapters(
    session: Session,
    *,
    model: str,
    dtype: str,
    max_loras: int,
    acts: list[dict[str, Any]],
    options: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Acts on one engine, one after the other; whatever is loaded is unloaded in the end.

    Args:
        session: The plugin.
        model: Of the zoo.
        dtype: Compute dtype.
        max_loras: Slots.
        acts: ``{"load": adapter}``, ``{"unload": adapter}`` or ``{"ask": [[adapter, prompt]],
            "params": fields}``, where an empty name asks the model alone; what is asked in one act
            runs together.
        options: Of the engine, beside the suite's.

    Returns:
        Per act ``raised``; of those that ask also ``answers``, one each, and ``cached``.
    """
    changes = {"enable_lora": True, "max_loras": max_loras, "max_lora_rank": MAX_RANK}
    llm = opened(session, model, dtype, **changes, **(options or {}))
    try:
        return [_act(llm, act, _folders(session, model)) for act in acts]
    finally:
        for name in llm.loras():
            llm.unload_lora(name)


def _act(llm: LLM, act: Mapping[str, Any], folders: Mapping[str, str]) -> dict[str, Any]:
    try:
        if "load" in act:
            llm.load_lora(act["load"], folders[act["load"]])
        elif "unload" in act:
            llm.unload_lora(act["unload"])
        else:
            outputs = _together(llm, act["ask"], SamplingParams(**act["params"]))
            return {
                "raised": None,
                "answers": [answer_of(one)[0] for one in outputs],
                "cached": [one.num_cached_tokens for one in outputs],
            }
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        return {"raised": as_raised(exc)}
    return {"raised": None}


def _together(llm: LLM, asked: list[Any], params: SamplingParams) -> list[RequestOutput]:
    """Answers of requests that share steps, each with an adapter of its own."""
    streams = [llm.stream(prompt, params, lora=adapter or None) for adapter, prompt in asked]
    last: dict[int, RequestOutput] = {}
    going: dict[int, Iterator[RequestOutput]] = dict(enumerate(streams))
    while going:
        for index, stream in list(going.items()):
            output = next(stream, None)
            if output is None:
                del going[index]
            else:
                last[index] = output
    return [last[index] for index in range(len(asked))]


def _folders(session: Session, model: str) -> dict[str, str]:
    """Adapter → where it lies for this model; written once per session."""
    found = {}
    for name, adapter in ADAPTERS.items():
        folder = Path(f"{model_folder(session, model)}-{name}")
        if not folder.exists():
            write_adapter(adapter, MODELS[model], folder)
        found[name] = str(folder)
    return found
