"""``GET /health``: whether the engine lives, told at once even while it computes a long step."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import JSONResponse

from dougong.server.errors import error_answer
from dougong.server.serving import Serving, serving_of

router = APIRouter(tags=["server"])


@router.get("/health", responses={503: {"description": "The engine is dead."}})
async def health(serving: Annotated[Serving, Depends(serving_of)]) -> JSONResponse:
    """200 while the engine lives, a long prefill included; 503 once it is dead.

    ``engine_answered_s_ago`` grows while a step takes long; whoever sets a limit to that reads it.
    """
    if serving.watch.death is not None:
        return error_answer(serving.watch.death).response()
    return JSONResponse(
        {
            "status": "stopping" if serving.admission.is_stopping else "ok",
            "engine_answered_s_ago": round(serving.watch.answer_age_s, 3),
        }
    )
