"""What a server says of itself: models, plan, versions, metrics."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from dougong import __version__
from dougong.contracts.version import CONTRACT_VERSION
from dougong.planner.record import plan_to_json
from dougong.server.model_names import model_entry
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["server"])
Served = Annotated[Serving, Depends(serving_of)]


@router.get("/v1/models")
async def list_models(serving: Served) -> dict[str, Any]:
    """Every name that the model answers to, and every adapter of it."""
    models = [model_entry(model, serving) for model in serving.models.all()]
    return {"object": "list", "data": models}


@router.get("/v1/models/{model:path}")
async def show_model(serving: Served, model: str) -> dict[str, Any]:
    """One of them."""
    return model_entry(serving.check_model(model), serving)


@router.get("/plan")
async def show_plan(serving: Served) -> Response:
    """What runs, what was passed over or fell back, and why; as ``dougong explain --json``."""
    return Response(plan_to_json(serving.report.plan), media_type="application/json")


@router.get("/version")
async def show_version() -> dict[str, str]:
    """Of the core and of the plugin contract."""
    return {"version": __version__, "contract": str(CONTRACT_VERSION)}


@router.get("/metrics", response_class=PlainTextResponse)
async def show_metrics(serving: Served) -> Response:
    """Prometheus' text format."""
    return Response(await serving.exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})
