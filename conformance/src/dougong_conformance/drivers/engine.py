"""The real engine on the plugin's platform, with models of the zoo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dougong
from dougong import LLM, RequestOutput, SamplingParams, StructuredOutput

from dougong_conformance.drivers.facts import plain
from dougong_conformance.drivers.planned import model_folder, options_for
from dougong_conformance.local import as_raised
from dougong_conformance.procedures import procedure
from dougong_conformance.session import Session

_MOST_ENGINES = 16


def opened(session: Session, model: str, dtype: str, **options: Any) -> LLM:
    """An engine with these options; the last few are kept."""
    engines: dict[str, LLM] = session.kept.setdefault("engines", {})
    name = f"{model} {dtype} {sorted(options.items())}"
    found = engines.pop(name, None)
    if found is None:
        while len(engines) >= _MOST_ENGINES:
            engines.pop(next(iter(engines))).close()
        found = LLM(model_folder(session, model), **options_for(session, dtype, **options))
    engines[name] = found
    return found


@procedure("engine.generate")
def generate(
    session: Session,
    model: str,
    dtype: str,
    prompts: list[list[int]],
    params: list[dict[str, Any]],
    options: dict[str, Any] | None = None,
    one_by_one: bool = False,
    repeats: int = 1,
) -> dict[str, Any]:
    """Answers to prompts.

    Args:
        session: The plugin.
        model: Of the zoo.
        dtype: Compute dtype.
        prompts: Token ids.
        params: Fields of `SamplingParams`, one each or one for all; ``structured_output`` as the
            fields of its own.
        options: Of the engine, beside the suite's.
        one_by_one: Each prompt alone instead of all together.
        repeats: The same again, so many times; the answers are those of the last.

    Returns:
        ``answers``: per prompt a list of sequences ``{"tokens", "finish", "logprobs"}``;
        ``prompt_logprobs``: per prompt, ``None`` for the first token; ``cached``: prompt tokens
        found in the cache; ``before`` and ``stats``: of the engine.
    """
    llm = opened(session, model, dtype, **(options or {}))
    wanted = [params_of(one) for one in params] * (1 if len(params) > 1 else len(prompts))
    before = stats_of(llm)
    for _ in range(repeats):
        if one_by_one:
            outputs = [
                llm.generate(prompt_token_ids=[prompt], sampling_params=one, progress=False)[0]
                for prompt, one in zip(prompts, wanted, strict=True)
            ]
        else:
            outputs = llm.generate(prompt_token_ids=prompts, sampling_params=wanted, progress=False)
    return {
        "answers": [answer_of(one) for one in outputs],
        "prompt_logprobs": [_prompt_logprobs(one) for one in outputs],
        "cached": [one.num_cached_tokens for one in outputs],
        "before": before,
        "stats": stats_of(llm),
    }


@procedure("engine.abort")
def abort(
    session: Session,
    model: str,
    dtype: str,
    prompts: list[list[int]],
    times: int,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Requests left after two tokens, many times; then ordinary ones.

    Returns:
        ``before`` and ``after``: stats around the aborts; ``answers``: of the ordinary ones.
    """
    llm = opened(session, model, dtype, **(options or {}))
    params = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    before = stats_of(llm)
    for turn in range(times):
        stream = llm.stream(prompts[turn % len(prompts)], params)
        for output in stream:
            if len(output.outputs[0].token_ids) >= 2:
                break
        stream.close()  # type: ignore[attr-defined]  # a generator
    after = stats_of(llm)
    last = SamplingParams(temperature=0.0, max_tokens=10, ignore_eos=True)
    outputs = llm.generate(prompt_token_ids=prompts, sampling_params=last, progress=False)
    return {"before": before, "after": after, "answers": [answer_of(one) for one in outputs]}


@procedure("engine.bad_request")
def bad_request(
    session: Session, model: str, dtype: str, prompts: list[list[int]], count: int
) -> dict[str, Any]:
    """A request that can never be served, beside others; then the others."""
    llm = opened(session, model, dtype)
    params = SamplingParams(temperature=0.0, max_tokens=count, ignore_eos=True)
    raised = None
    try:
        llm.generate(
            prompt_token_ids=[*prompts, [5] * 4000], sampling_params=params, progress=False
        )
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        raised = as_raised(exc)
    outputs = llm.generate(prompt_token_ids=prompts, sampling_params=params, progress=False)
    return {"raised": raised, "answers": [answer_of(one) for one in outputs]}


@procedure("engine.report")
def report(
    session: Session, model: str, dtype: str, options: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What the engine tells of its start."""
    told = opened(session, model, dtype, **(options or {})).report
    return {
        "platform": told.platform,
        "devices": list(told.devices),
        "dtype": told.dtype,
        "block_size": told.block_size,
        "num_kv_blocks": told.num_kv_blocks,
        "fallbacks": [
            {"level": plain(one.level), "subject": str(one.subject), "reason": one.reason}
            for one in told.plan.fallbacks
        ],
        "attention_backends": dict(told.attention_backends),
        "graphs": None if told.graphs is None else plain(told.graphs),
        "version": dougong.__version__,
    }


@procedure("engine.refused")
def refused(session: Session, model: str, dtype: str, options: dict[str, Any]) -> Any:
    """What a start with these options raises; ``None``: it starts."""
    try:
        LLM(model_folder(session, model), **options_for(session, dtype, **options)).close()
    except Exception as exc:  # noqa: BLE001 - the judge looks at it
        return as_raised(exc)
    return None


@procedure("engine.close")
def close(session: Session) -> None:
    """End every engine that is kept."""
    for llm in session.kept.pop("engines", {}).values():
        llm.close()


def stats_of(llm: LLM) -> dict[str, Any]:
    """Numbers of an engine at this moment."""
    stats = llm.stats()
    cache = stats.scheduler.kv_cache
    return {
        "running": stats.scheduler.num_running,
        "waiting": stats.scheduler.num_waiting,
        "preemptions": stats.scheduler.num_preemptions,
        "held": cache.num_held_blocks,
        "hits": cache.num_hit_tokens,
        "rank": plain(stats.ranks[0]) if stats.ranks else {},
    }


def params_of(fields: dict[str, Any]) -> SamplingParams:
    """Sampling parameters from plain data."""
    kept = dict(fields)
    wish = kept.pop("structured_output", None)
    return SamplingParams(
        **kept, structured_output=None if wish is None else StructuredOutput(**wish)
    )


def answer_of(output: RequestOutput) -> list[dict[str, Any]]:
    """Its sequences as plain data."""
    return [
        {
            "tokens": list(one.token_ids),
            "finish": str(one.finish_reason),
            "logprobs": _logprobs(one.logprobs or ()),
        }
        for one in output.outputs
    ]


def _prompt_logprobs(output: RequestOutput) -> list[dict[str, Any] | None]:
    told = output.prompt_logprobs or ()
    return [None if one is None else _logprobs([one])[0] for one in told]


def _logprobs(told: Sequence[Any]) -> list[dict[str, Any]]:
    return [
        {"token": one.token_id, "logprob": one.logprob, "top": [list(pair) for pair in one.top]}
        for one in told
    ]
