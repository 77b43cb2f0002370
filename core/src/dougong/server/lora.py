"""``POST /v1/load_lora_adapter`` and ``POST /v1/unload_lora_adapter``: adapters while serving."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from starlette.requests import Request

from dougong.errors import RequestError
from dougong.log import get_logger
from dougong.server.body import WireModel, read_body
from dougong.server.errors import HttpRequestError
from dougong.server.model_names import model_entry
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["adapters"])
Served = Annotated[Serving, Depends(serving_of)]
_logger = get_logger(__name__)


class LoadLoRARequest(WireModel, frozen=True, kw_only=True):
    """An adapter on the server's disk, and the model name that clients ask for it by."""

    lora_name: str
    lora_path: str


class UnloadLoRARequest(WireModel, frozen=True, kw_only=True):
    """An adapter that was loaded."""

    lora_name: str


@router.post("/v1/load_lora_adapter")
async def load_adapter(request: Request, serving: Served) -> dict[str, Any]:
    """Load an adapter that peft saved; it is a model of its own from then on."""
    _check_allowed(serving)
    asked = await read_body(request, LoadLoRARequest, serving.settings.max_body_bytes)
    if not asked.lora_path.strip() or "\0" in asked.lora_path:
        raise RequestError("lora_path takes the path of a folder.", field="lora_path")
    serving.models.check_is_free(asked.lora_name)
    await serving.engine.load_lora(asked.lora_name, asked.lora_path)
    _logger.info("adapter %r was loaded", asked.lora_name)
    return model_entry(serving.models.check(asked.lora_name), serving)


@router.post("/v1/unload_lora_adapter")
async def unload_adapter(request: Request, serving: Served) -> dict[str, Any]:
    """Take no new request for an adapter; those that run end as they would."""
    _check_allowed(serving)
    asked = await read_body(request, UnloadLoRARequest, serving.settings.max_body_bytes)
    if asked.lora_name not in serving.engine.loras():
        raise serving.models.not_found(asked.lora_name, field="lora_name")
    await serving.engine.unload_lora(asked.lora_name)
    _logger.info("adapter %r was unloaded", asked.lora_name)
    return {"id": asked.lora_name, "object": "model", "deleted": True}


def _check_allowed(serving: Serving) -> None:
    if not serving.settings.allow_lora_updates:
        raise HttpRequestError(
            "This server loads and unloads no adapters on request, since that reads its disk. "
            "Start it with --allow-lora-updates where only trusted clients reach it.",
            status=403,
            code="lora_updates_off",
        )
