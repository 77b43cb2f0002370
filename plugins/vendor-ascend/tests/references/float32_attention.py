"""The plugin's attention, admitted in float32 too: for doubles whose references compute in it."""

from __future__ import annotations

from dataclasses import replace

from dougong_ascend.attention import FusedInferBackend


class Float32FusedInfer(FusedInferBackend):
    """Nothing else is changed."""

    limits = replace(FusedInferBackend.limits, dtypes=FusedInferBackend.limits.dtypes | {"float32"})
