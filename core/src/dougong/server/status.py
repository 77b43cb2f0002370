"""``GET /status.json``: what the status page shows, in one answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query
from starlette.responses import Response

from dougong import __version__
from dougong.engine.fallback_warnings import fallback_warnings
from dougong.engine.start_report import StartReport
from dougong.errors import RequestError
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["server"])
_STARTED_S = time.time()
_MOST_DIGITS = 12


@router.get("/status.json")
async def show_status(
    serving: Annotated[Serving, Depends(serving_of)],
    after: Annotated[
        str | None,
        Query(description="Number of a sample: newer ones alone are sent, and no `about`."),
    ] = None,
) -> Response:
    """The server now, its last fifteen minutes second by second, and its recent errors.

    ``history.last`` is the number of the newest sample; ``after`` takes it in the next question.
    """
    number = _number(after)
    status = {
        "started": _STARTED_S,
        "now": time.time(),
        **_state(serving),
        "totals": _totals(serving),
        "kv": _kv_cache(serving),
        "history": {"last": serving.history.last, "samples": serving.history.columns(number)},
        "errors": serving.recent_errors.newest_first(),
    }
    if not number:
        status["about"] = _about(serving)
    headers = {"Cache-Control": "no-store"}
    return Response(msgspec.json.encode(status), 200, headers, media_type="application/json")


def _number(text: str | None) -> int:
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise RequestError("after: it takes the number of a sample, 0 or more.", field="after")
    return int(text)


def _state(serving: Serving) -> dict[str, Any]:
    death = serving.watch.death
    if death is not None:
        return {"state": "dead", "state_reason": str(death)}
    return {"state": "stopping" if serving.admission.is_stopping else "ok", "state_reason": ""}


def _totals(serving: Serving) -> dict[str, float]:
    metrics, stats = serving.metrics, serving.status.stats
    totals: dict[str, float] = {**metrics.num_ended(), **metrics.num_tokens()}
    if stats is not None:
        totals["preemptions"] = stats.scheduler.num_preemptions
        totals["steps"] = stats.times["num_steps"]
    return totals


def _kv_cache(serving: Serving) -> dict[str, int] | None:
    """``None``: the engine has not told yet."""
    stats = serving.status.stats
    return None if stats is None else asdict(stats.scheduler.kv_cache)


def _about(serving: Serving) -> dict[str, Any]:
    """What the start settled."""
    report = serving.report
    plan = report.plan
    return {
        "version": __version__,
        "names": list(serving.settings.model_names),
        "architecture": report.architecture,
        "dtype": report.dtype,
        "weights": [asdict(one) for one in plan.weights],
        "max_model_len": serving.max_model_len,
        "makes_text": report.pooling is None,
        "has_chat": serving.engine.tokenizer.has_chat_template,
        "platform": report.platform,
        "platform_wheel": plan.platform_wheel,
        "platform_reasons": list(report.platform_reasons),
        "conformance": report.conformance,
        "plugin_faults": list(report.plugin_faults),
        "arch": plan.arch,
        "devices": list(report.devices),
        "attention": plan.attention_backends(),
        "ops": plan.implementations(),
        "mode": {"name": plan.mode.name, "reason": plan.mode.reason},
        "memory": asdict(report.memory),
        "block_size": report.block_size,
        "kv_dtype": plan.kv_cache.dtype,
        "num_token_slots": report.limits.num_token_slots if report.num_kv_blocks else None,
        "seconds": dict(report.seconds),
        "fallbacks": [asdict(one) for one in dict.fromkeys(plan.fallbacks)],
        "notes": list(_notes(report)),
    }


def _notes(report: StartReport) -> Iterator[str]:
    """Warnings of the start that are no fallbacks."""
    told = set(fallback_warnings(report.plan))
    yield from (one for one in report.warnings() if one not in told)
