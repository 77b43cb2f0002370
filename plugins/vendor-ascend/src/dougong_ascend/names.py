"""Names that conditions, backends and `Platform.import_kernels` share."""

from __future__ import annotations

TORCH_NPU = "torch-npu"
"""Library: ops of the namespace ``npu`` that every family has."""

FUSED_INFER = "torch-npu-fused-infer"
"""Library: attention over a paged cache, of every family but 310P."""

PAGED_NZ = "atb-paged-nz"
"""Library: ops of the 310P from the vendor's transformer library (NNAL/ATB), namespace ``atb``."""

NZ_FORMAT = 29
"""The runtime's number of the fractal format, in which matrix units read weights."""

NZ_WEIGHTS_ENV = "DOUGONG_ASCEND_NZ_WEIGHTS"
"""``1``: weights of linear layers are kept in fractal format on A2 and A3 too."""

FAST_ROUTING_ENV = "DOUGONG_ASCEND_FAST_ROUTING"
"""``1``: experts are chosen by the vendor's op, which does not say whom it takes of equals."""

FAST_TOP_K_ENV = "DOUGONG_ASCEND_FAST_TOP_K"
"""``1``: the vendor's op cuts distributions, none to more than 1024 tokens."""
