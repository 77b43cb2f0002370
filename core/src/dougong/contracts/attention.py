"""Attention: what is asked, who answers, how K and V are stored, and the call itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dougong.contracts.graph import GraphSupport
from dougong.contracts.kv_cache import KVCacheSpec, KVLayout
from dougong.contracts.support import Support
from dougong.errors import UnsupportedError

if TYPE_CHECKING:
    import torch


class AttentionPhase(StrEnum):
    """Which queries a step holds."""

    PREFILL = "prefill"
    DECODE = "decode"
    MIXED = "mixed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionRequest:
    """One kind of attention layer of a model; asked once per kind, while planning.

    Attributes:
        num_heads: Query heads on this rank.
        num_kv_heads: KV heads on this rank; divides ``num_heads``.
        head_dim: Elements per head.
        dtype: Of queries and output.
        kv_dtype: Of the stored cache.
        block_size: Tokens per block; ``None``: the backend may choose.
        phase: Queries to expect.
        sliding_window: Tokens a query sees, itself included; ``None``: all.
        soft_cap: Scores become ``cap * tanh(score / cap)`` before the softmax; ``None``: no cap.
        has_sinks: A learned logit per head joins the softmax denominator.
        is_mla: Multi-head latent attention; ``kv_lora_rank`` and ``rope_head_dim`` are then set.
        kv_lora_rank: Elements of a latent row.
        rope_head_dim: Elements of the rotated part.
        needs_graph: Will run inside a captured graph; of a backend that captures decodes alone, in
            those steps, whatever ``phase`` is.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: str
    kv_dtype: str
    block_size: int | None = None
    phase: AttentionPhase = AttentionPhase.MIXED
    sliding_window: int | None = None
    soft_cap: float | None = None
    has_sinks: bool = False
    is_mla: bool = False
    kv_lora_rank: int | None = None
    rope_head_dim: int | None = None
    needs_graph: bool = False


@dataclass(slots=True)
class CommonAttentionMetadata:
    """One step's lengths and places, on the device and on the host, so that nobody has to sync.

    Valid for the step that made it; buffers are reused afterwards. Rows past ``num_reqs`` and
    tokens past ``num_tokens`` are padding. In a step that is captured or replayed whole, the last
    of the ``num_reqs`` sequences may be padding, too: they have no query token and a length of 0.
    At its capture ``max_query_len`` and ``max_seq_len`` are bounds that hold at every replay.

    Attributes:
        num_reqs: Sequences in the step.
        num_tokens: Query tokens in the step, without padding.
        max_query_len: Most query tokens of one sequence.
        max_seq_len: Longest sequence, computed tokens and this step's together.
        cu_seqlens_q: int32 ``[num_reqs + 1]`` on the device: query tokens of sequence ``i`` are
            rows
            ``cu_seqlens_q[i]`` to ``cu_seqlens_q[i + 1]``.
        cu_seqlens_q_cpu: The same on the host.
        seq_lens: int32 ``[num_reqs]`` on the device: tokens with KV after this step's write.
        seq_lens_cpu: The same on the host.
        block_table: int32 ``[num_reqs, max_blocks_per_seq]`` on the device. Entries past a
            sequence's last block are undefined and must not be read.
        slot_mapping: ``[num_tokens]`` on the device, in the layout's slot dtype. Slot ``s`` is
            token
            ``s % block_size`` of block ``s // block_size``; ``-1`` marks padding, never written.
    """

    num_reqs: int
    num_tokens: int
    max_query_len: int
    max_seq_len: int
    cu_seqlens_q: torch.Tensor
    cu_seqlens_q_cpu: torch.Tensor
    seq_lens: torch.Tensor
    seq_lens_cpu: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor


class AttentionMetadataBuilder(ABC):
    """Turns `CommonAttentionMetadata` into what the backend's kernels read; one per KV cache group.

    Args:
        spec: Of the group.
        layout: As the backend gave it.
        device: Of the step's tensors.
    """

    def __init__(self, spec: KVCacheSpec, layout: KVLayout, device: torch.device) -> None:
        """Keep the arguments; allocate what stays for the engine's life."""
        self.spec = spec
        self.layout = layout
        self.device = device

    @abstractmethod
    def build(self, common: CommonAttentionMetadata) -> Any:
        """Metadata for one step, passed unchanged to `AttentionImpl.forward` of every layer.

        Called once per step and group, before the first layer. Must not wait for the device.

        Of a backend whose `AttentionBackend.graph_support` says ``DECODE`` or ``FULL`` it is called
        before a capture and before each replay, never inside one. Device tensors that kernels read
        in captured steps of one size must then lie at the same addresses every time: those of
        ``common`` do, and others are the builder's to keep and to write anew.
        """


class AttentionImpl(ABC):
    """One attention layer's computation.

    Args:
        request: What this layer needs; `AttentionBackend.supports` said yes to it.
        scale: Factor of ``q @ k``.
    """

    def __init__(self, request: AttentionRequest, scale: float) -> None:
        """Keep the arguments; called once per layer, when the model is built."""
        self.request = request
        self.scale = scale

    @abstractmethod
    def write_kv(
        self,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """Store this step's keys and values in place. Nobody else writes the cache.

        Args:
            k: ``[num_tokens, num_kv_heads, head_dim]``; the last axis is contiguous, the first may
                be a slice of a wider tensor.
            v: The same for values.
            kv_cache: This layer's buffers, in the order of `KVLayout.buffers`.
            slot_mapping: See `CommonAttentionMetadata`; rows of ``-1`` must not be written.

        Ordering: visible to any later ``forward`` on the same stream.
        """

    @abstractmethod
    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: Any,
        out: torch.Tensor,
    ) -> None:
        """Causal attention of this step's queries over all KV of their sequences.

        Called after `write_kv` of the same step, so the cache already holds ``k`` and ``v``.

        Args:
            q: ``[num_tokens, num_heads, head_dim]``, last axis contiguous.
            k: This step's keys, as given to `write_kv`.
            v: This step's values.
            kv_cache: This layer's buffers.
            metadata: What the builder made for this step.
            out: ``[num_tokens, num_heads, head_dim]``, same dtype as ``q``; written in place. Rows
                of
                padding may be left as they are.
        """


@runtime_checkable
class MLAImpl(Protocol):
    """Multi-head latent attention: its own shape of call, for models that have it.

    No model of the core has it yet; `AttentionBackend.make_mla_impl` makes one.
    """

    def write_kv(
        self,
        kv_c: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        slot_mapping: torch.Tensor,
    ) -> None:
        """Store this step's latent rows in place; rows of slot ``-1`` must not be written.

        Args:
            kv_c: ``[num_tokens, kv_lora_rank]``, normalised.
            k_pe: ``[num_tokens, rope_head_dim]``, rotated.
            kv_cache: This layer's buffers.
            slot_mapping: See `CommonAttentionMetadata`.
        """
        ...

    def forward(
        self,
        q: torch.Tensor,
        kv_c: torch.Tensor,
        k_pe: torch.Tensor,
        kv_cache: Sequence[torch.Tensor],
        metadata: Any,
        out: torch.Tensor,
    ) -> None:
        """Attention of ``q`` ``[num_tokens, num_heads, nope + rope]`` over the latent cache.

        Args:
            q: Queries, not yet absorbed.
            kv_c: ``[num_tokens, kv_lora_rank]``, normalised.
            k_pe: ``[num_tokens, rope]``, rotated.
            kv_cache: This layer's buffers.
            metadata: What the builder made.
            out: ``[num_tokens, num_heads, v_head_dim]``, written in place.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionLimits:
    """What a backend takes, stated as data, so that it can be printed and asked about elsewhere.

    What is left out is not taken, but where it says otherwise.

    Attributes:
        dtypes: Of queries; never empty.
        kv_dtypes: Of the cache; empty: the same dtype as the queries, and no other.
        head_sizes: Head sizes; empty: any that ``head_size_multiple`` and ``max_head_size`` allow.
        head_size_multiple: Divides every head size it takes.
        max_head_size: Largest head size; ``None``: no limit.
        block_sizes: Tokens per block; empty: any.
        phases: What it serves; a backend that serves prefill and decode alone, but no step that
            mixes them, names those two.
        sliding_window: Takes a window.
        soft_cap: Takes a cap on scores.
        sinks: Takes sinks.
        mla: Takes latent attention, and only that.
        graph: May run inside a captured graph.
    """

    dtypes: frozenset[str]
    kv_dtypes: frozenset[str] = frozenset()
    head_sizes: frozenset[int] = frozenset()
    head_size_multiple: int = 1
    max_head_size: int | None = None
    block_sizes: tuple[int, ...] = ()
    phases: frozenset[AttentionPhase] = frozenset(AttentionPhase)
    sliding_window: bool = False
    soft_cap: bool = False
    sinks: bool = False
    mla: bool = False
    graph: bool = False

    def check(self, request: AttentionRequest) -> Support:
        """Whether a request is within these limits; a no names everything that is not."""
        reasons = tuple(_beyond(self, request))
        return Support.no("; ".join(reasons)) if reasons else Support.yes()


def _beyond(limits: AttentionLimits, request: AttentionRequest) -> Iterator[str]:
    size = request.head_dim
    if request.dtype not in limits.dtypes:
        yield f"dtype {request.dtype}; takes {', '.join(sorted(limits.dtypes))}"
    kv_dtypes = limits.kv_dtypes or {request.dtype}
    if request.kv_dtype not in kv_dtypes:
        yield f"KV dtype {request.kv_dtype}; takes {', '.join(sorted(kv_dtypes))}"
    if limits.head_sizes and size not in limits.head_sizes:
        yield f"head size {size}; takes {', '.join(map(str, sorted(limits.head_sizes)))}"
    if size % limits.head_size_multiple:
        yield f"head size {size}; takes multiples of {limits.head_size_multiple}"
    if limits.max_head_size is not None and size > limits.max_head_size:
        yield f"head size {size}; takes at most {limits.max_head_size}"
    if limits.block_sizes and request.block_size not in (None, *limits.block_sizes):
        yield (f"block size {request.block_size}; takes {', '.join(map(str, limits.block_sizes))}")
    if request.phase not in limits.phases:
        yield f"{request.phase} steps; takes {', '.join(sorted(limits.phases))}"
    if request.is_mla != limits.mla:
        yield "latent attention; takes plain" if request.is_mla else "takes latent attention only"
    for is_asked, is_taken, what in (
        (request.sliding_window is not None, limits.sliding_window, "a sliding window"),
        (request.soft_cap is not None, limits.soft_cap, "a cap on scores"),
        (request.has_sinks, limits.sinks, "attention sinks"),
        (request.needs_graph, limits.graph, "graph capture"),
    ):
        if is_asked and not is_taken:
            yield f"{what}, which it does not take"


class AttentionBackend(ABC):
    """One way to do attention. Its name is a namespaced key (``"acme/flash"``).

    All queries are free of side effects and answer the same every time; the module imports without
    the vendor's runtime.

    Attributes:
        name: Equals its key in `Platform.get_attn_backends`.
        library: Kernel library it calls; where `Platform.import_kernels` reports it missing, the
            backend is passed over with that reason. ``None``: none.
        features: What the device has to claim, every one (`Claims.features`): on a family that
            does not, the backend is passed over with that reason, whatever is loaded.
        limits: What it takes, where data can say it; ``None``: only `supports` can.
    """

    name: str
    library: str | None = None
    features: frozenset[str] = frozenset()
    limits: AttentionLimits | None = None

    def supports(self, request: AttentionRequest) -> Support:
        """Whether every layer of this kind runs here, in the phase asked for.

        By default as `limits` says. Whether `library` is there is not asked here: this answer is
        the same with and without the device.
        """
        if self.limits is None:
            return Support.no(f"{type(self).__name__} states neither limits nor supports()")
        return self.limits.check(request)

    def check_supported(self, request: AttentionRequest) -> None:
        """For `make_impl` of a backend whose kernels would leave out what they cannot do.

        Raises:
            UnsupportedError: `supports` says no; with its reason.
        """
        if not (answer := self.supports(request)):
            raise UnsupportedError(f"{self.name} does not take this layer: {answer.reason}")

    @abstractmethod
    def kv_layout(self, spec: KVCacheSpec) -> KVLayout:
        """How this backend stores the KV cache of such a layer."""

    @abstractmethod
    def make_impl(self, request: AttentionRequest, scale: float) -> AttentionImpl:
        """The computation of one layer."""

    @abstractmethod
    def make_builder(
        self, spec: KVCacheSpec, layout: KVLayout, device: torch.device
    ) -> AttentionMetadataBuilder:
        """The metadata builder of one KV cache group."""

    def make_mla_impl(self, request: AttentionRequest, scale: float) -> MLAImpl:
        """The computation of one latent layer; only asked where `supports` said yes to ``is_mla``.

        Raises:
            UnsupportedError: This backend has none, which is the default.
        """
        raise UnsupportedError(f"attention backend {self.name!r} has no latent attention")

    def workspace_bytes(self, request: AttentionRequest, max_num_tokens: int) -> int:
        """Device memory beside the cache that a step of ``max_num_tokens`` needs; counted in
        sizing."""
        return 0

    def graph_support(self) -> GraphSupport:
        """What of it may be captured; by default nothing."""
        return GraphSupport()
