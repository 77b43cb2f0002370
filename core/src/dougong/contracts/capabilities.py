"""What a chip family claims and what one device measures: facts with names, never chip numbers.

Dtypes are named as torch names them (``"bfloat16"``). An unstated fact makes a condition false, so
claim only what is certain. `Claims` and `DeviceFacts` are stored in capability files, whose
``version`` counts their meaning: a field added later has a default that claims nothing, so that
files written before keep their sense; any other change raises the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationSupport:
    """One weight format a platform can compute with.

    Attributes:
        format: Name of the format in the checkpoint's own vocabulary (``"q4_1"``, ``"fp8"``).
        storage: Dtype of the stored weight (``"uint8"``).
        activation_dtypes: Dtypes of the other operand.
        is_native: Computed in the stored form; otherwise dequantized where ``dequantized`` says.
        kernel: Name of the implementation, as ``explain`` shows it.
        scale_layout: How the scales lie (``"group 32, float16 scale and minimum"``).
        dequantized: ``"in the kernel"``, ``"per step"``, ``"at load"``; with ``is_native`` where
            the kernel itself does it, if it does.
    """

    format: str
    storage: str
    activation_dtypes: tuple[str, ...]
    is_native: bool
    kernel: str
    scale_layout: str = ""
    dequantized: str = "in the kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a chip family can do, known without the chip and without the vendor's runtime.

    Attributes:
        arch: The family asked about; with ``is_generic`` the one that was not recognised.
        is_generic: The family is unknown; these are the claims that hold for every device.
        dtypes: Compute dtypes, preferred first; never empty.
        kv_dtypes: Dtypes of a stored KV cache, preferred first; never empty.
        collective_dtypes: Dtypes a collective accepts.
        kv_block_sizes: Tokens per KV block, preferred first; never empty.
        kv_alignment_bytes: Every KV block starts at a multiple of this.
        slot_dtype: Dtype of ``slot_mapping``: ``"int64"`` or ``"int32"``.
        max_head_size: Largest head size that attention can have on this device; a larger one is
            refused whatever a backend says. ``None``: no limit known.
        features: Namespaced facts: ``"mm.bf16.amx"``, ``"fp8.e4m3"``, ``"isa.avx2"``.
        limits: Namespaced numbers: ``{"shared_memory_bytes": 232448}``.
        graph_capture: Work can be captured once and replayed.
        pin_memory: Page-locked host memory makes copies faster or asynchronous.
        async_execution: Calls may return before the device has finished.
        triton: Kernels written in that language can be compiled for this device.
        compile_backends: Names that ``torch.compile`` takes here.
        quantization: Weight formats beyond plain dtypes.
        memory_bandwidth: Bytes per second, where known for the family.
        compute_rate: Dtype → operations per second (a multiply-add is two), where known.
        max_steps_in_flight: Steps a worker accepts before the first one's result is taken.
    """

    arch: str
    dtypes: tuple[str, ...]
    is_generic: bool = False
    kv_dtypes: tuple[str, ...] = ("float32",)
    collective_dtypes: tuple[str, ...] = ()
    kv_block_sizes: tuple[int, ...] = (16,)
    kv_alignment_bytes: int = 1
    slot_dtype: str = "int64"
    max_head_size: int | None = None
    features: frozenset[str] = frozenset()
    limits: Mapping[str, int] = field(default_factory=dict)
    graph_capture: bool = False
    pin_memory: bool = False
    async_execution: bool = False
    triton: bool = False
    compile_backends: tuple[str, ...] = ()
    quantization: tuple[QuantizationSupport, ...] = ()
    memory_bandwidth: float | None = None
    compute_rate: Mapping[str, float] = field(default_factory=dict)
    max_steps_in_flight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What one device measures now; read in a short-lived child where reading opens a context.

    Attributes:
        device_index: Within the platform, after masks.
        name: As the vendor prints it.
        arch: Family name to pass to `Platform.claims`.
        memory_total_bytes: Physical memory of the device.
        memory_free_bytes: Free at the time of asking; ``None``: unknown.
        memory_quota_bytes: A limit below the physical memory (a container's); ``None``: none.
        memory_quota_source: Where the quota was read, for the log.
        is_integrated: The memory is the host's.
        num_compute_units: Cores or processors this process may use; 0: unknown.
        driver_version: Empty: unknown.
        runtime_version: Empty: unknown.
        memory_bandwidth: Measured bytes per second; ``None``: not measured.
    """

    device_index: int
    name: str
    arch: str
    memory_total_bytes: int
    memory_free_bytes: int | None = None
    memory_quota_bytes: int | None = None
    memory_quota_source: str = ""
    is_integrated: bool = False
    num_compute_units: int = 0
    driver_version: str = ""
    runtime_version: str = ""
    memory_bandwidth: float | None = None

    @property
    def memory_limit_bytes(self) -> int:
        """The smaller of the physical memory and the quota: what counts."""
        if self.memory_quota_bytes is None:
            return self.memory_total_bytes
        return min(self.memory_total_bytes, self.memory_quota_bytes)


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Claims of the family and facts of the device, together; what planning reads."""

    claims: Claims
    facts: DeviceFacts
