"""Plans that nobody planned: what the core's own CPU gives, and a chip with everything to tell."""

from __future__ import annotations

from dougong.config import Decision
from dougong.config.decision import CHECKPOINT, CORE, USER, platform_author
from dougong.contracts import (
    AttentionAssignment,
    AttentionRequest,
    KVBuffer,
    KVLayout,
    OpAssignment,
    OpPiece,
    Property,
)
from dougong.contracts.rank_plan import NATIVE
from dougong.planner import (
    AttentionPlan,
    ExecutionMode,
    ExecutionPlan,
    ExecutionWay,
    Fallback,
    FallbackLevel,
    KVCachePlanned,
    OpPlan,
    PassedOver,
    WeightPlan,
)

NUM_LAYERS = 4


def layer_paths(*names: str, num_layers: int = NUM_LAYERS) -> tuple[str, ...]:
    """``layers.N.NAME`` of every layer."""
    return tuple(f"layers.{index}.{name}" for index in range(num_layers) for name in names)


def op_plan(
    key: str,
    paths: tuple[str, ...],
    *pieces: OpPiece | str,
    author: str = CORE,
    inside: str = "",
    passed_over: tuple[PassedOver, ...] = (),
    **properties: Property,
) -> OpPlan:
    """Ops of one key; a piece that is a name has no bound; without any, native runs."""
    given = pieces or (NATIVE,)
    settled = tuple(OpPiece(piece) if isinstance(piece, str) else piece for piece in given)
    return OpPlan(
        key=key,
        properties=properties,
        assignment=OpAssignment(key=key, paths=paths, pieces=settled),
        author=author,
        inside=inside,
        passed_over=passed_over,
    )


def attention_plan(
    backend: str,
    layers: tuple[int, ...] = tuple(range(NUM_LAYERS)),
    *,
    decode_backend: str | None = None,
    sliding_window: int | None = None,
    alignment_bytes: int = 1,
    author: str = CORE,
    workspace_bytes: int = 0,
    passed_over: tuple[PassedOver, ...] = (),
    dtype: str = "float32",
) -> AttentionPlan:
    """Layers with 8 query heads on 2 KV heads of 64 elements, in blocks of 16 tokens."""
    request = AttentionRequest(
        num_heads=8,
        num_kv_heads=2,
        head_dim=64,
        dtype=dtype,
        kv_dtype=dtype,
        block_size=16,
        sliding_window=sliding_window,
    )
    buffers = tuple(KVBuffer(name=name, block_shape=(2, 16, 64), dtype=dtype) for name in "kv")
    layout = KVLayout(
        name="heads-tokens-dim",
        buffers=buffers,
        block_sizes=(16, 32),
        alignment_bytes=alignment_bytes,
    )
    assignment = AttentionAssignment(
        layer_indices=layers,
        request=request,
        backend=backend,
        layout=layout,
        decode_backend=decode_backend,
    )
    return AttentionPlan(
        assignment=assignment,
        author=author,
        workspace_bytes=workspace_bytes,
        passed_over=passed_over,
    )


def plain_plan() -> ExecutionPlan:
    """A plan without anything to complain of."""
    return ExecutionPlan(
        model="demo",
        architecture="LlamaForCausalLM",
        dtype="float32",
        platform="cpu",
        platform_wheel="dougong 0.1.0",
        platform_reasons=("platform cpu: no other platform is installed",),
        arch="x86_64",
        device="A processor with 8 cores",
        attention=(attention_plan("cpu/native", workspace_bytes=1_310_720),),
        kv_cache=KVCachePlanned(dtype="float32", block_size=16, block_bytes=65536, padding_bytes=0),
        ops=(
            op_plan("embedding", ("embed_tokens",)),
            op_plan("linear", layer_paths("attention.qkv", "mlp.down"), "cpu/packed_linear"),
            op_plan("lm_head", ("lm_head",), "cpu/packed_lm_head"),
        ),
        weights=(
            WeightPlan(
                format="float32", stored_bytes=4096, computed_as="float32", where="as stored"
            ),
        ),
        execution=ExecutionWay("flat", "the model is a list of 9 calls of ops and attention"),
        mode=ExecutionMode("none", "the platform captures no graphs"),
        decisions=(
            Decision("dtype", "float32", CHECKPOINT, "torch_dtype of config.json"),
            Decision("seed", 0, CORE, "default", is_default=True),
        ),
        origins={
            "cpu/native": "dougong 0.1.0",
            "cpu/packed_linear": "dougong 0.1.0",
            "cpu/packed_lm_head": "dougong 0.1.0",
        },
        kernels_loaded=("dougong-native 1",),
    )


_NO_TOOLKIT = (
    "needs acme-kernels: libacme.so.4 was not found; install the vendor's toolkit 4.2 or newer, "
    "then run `dougong doctor --platform acme` to see whether it loads"
)


def chip_plan() -> ExecutionPlan:
    """A chip that is not here, with something of everything a plan can tell."""
    return ExecutionPlan(
        model="acme-labs/converted-7b-instruct",
        architecture="LlamaForCausalLM",
        dtype="bfloat16",
        platform="acme",
        platform_wheel="",
        arch="acme-9",
        device="ACME Nine [engineering sample]",
        is_generic=True,
        platform_reasons=("platform acme: asked for with --platform",),
        attention=(
            attention_plan(
                "acme/flash",
                (0, 2),
                decode_backend="acme/decode",
                alignment_bytes=512,
                workspace_bytes=67_108_864,
                dtype="bfloat16",
            ),
            attention_plan(
                "reference/torch",
                (1, 3),
                sliding_window=4096,
                dtype="bfloat16",
                passed_over=(
                    PassedOver("acme/flash", "a sliding window, which it does not take"),
                    PassedOver("acme/decode", "prefill steps; takes decode"),
                ),
            ),
        ),
        kv_cache=KVCachePlanned(
            dtype="bfloat16",
            block_size=16,
            block_bytes=33792,
            padding_bytes=1024,
            reserved_blocks=1,
            num_blocks=20_000,
        ),
        ops=_chip_ops(),
        weights=(
            WeightPlan(
                format="q4_1",
                stored_bytes=91_000_000,
                computed_as="bfloat16",
                where="dequantized at load",
                scale_layout="group 32, float16 scale and minimum",
                reason="platform acme computes fp8, not q4_1",
            ),
            WeightPlan(
                format="fp8",
                stored_bytes=None,
                computed_as="fp8",
                where="as stored",
                kernel="acme/fp8_mm",
            ),
        ),
        execution=ExecutionWay("flat", "the model is a list of 9 calls of ops and attention"),
        mode=ExecutionMode("none", "the platform can capture decode steps; this core does not"),
        decisions=(
            Decision("max_model_len", 8192, CHECKPOINT, "max_position_embeddings of config.json"),
            Decision("block_size", 16, platform_author("acme"), "preferred by this device"),
            Decision("max_num_seqs", 8, USER, "asked for"),
            Decision("seed", 0, CORE, "default", is_default=True),
        ),
        fallbacks=_chip_fallbacks(),
        unmatched=(
            PassedOver("acme/moe_route", "this model has no op moe_route"),
            PassedOver("acme/old_norm", "hidden_size 2048; takes at most 1024, at every place"),
        ),
        origins={
            "acme/small_mm": "dougong-acme 1.2.0",
            "acme/big_mm": "dougong-acme 1.2.0",
            "acme/AddNorm": "dougong-acme 1.2.0",
        },
        kernels_loaded=("acme-blas 4.1",),
        kernels_missing={"acme-kernels": "libacme.so.4 was not found"},
        choices={"custom_ops": "all,-lm_head", "op": "rotary_embedding=native", "max_num_seqs": 8},
    )


def _chip_ops() -> tuple[OpPlan, ...]:
    mm = (OpPiece("acme/small_mm", 512), OpPiece("acme/big_mm", 4096), OpPiece(NATIVE))
    return (
        op_plan("fused_add_rms_norm", layer_paths("input_norm", "post_norm"), "acme/AddNorm"),
        op_plan("rms_norm", layer_paths("input_norm.norm"), inside="fused_add_rms_norm"),
        op_plan("linear", layer_paths("attention.qkv", "attention.out"), *mm, in_features=2048),
        op_plan(
            "linear",
            layer_paths("mlp.down"),
            passed_over=(
                PassedOver("acme/small_mm", "in_features 5632; takes at most 4096"),
                PassedOver("acme/big_mm", "in_features 5632; takes at most 4096"),
            ),
            in_features=5632,
        ),
        op_plan("gate_up_act", layer_paths("mlp.gate_up"), passed_over=_lacking("acme/gate_up")),
        op_plan("embedding", ("embed_tokens",), passed_over=_lacking("acme/embedding")),
        op_plan("rotary_embedding", ("layers.0.attention.rotary",), author=USER),
        op_plan("lm_head", ("lm_head",), author=USER),
    )


def _lacking(name: str) -> tuple[PassedOver, ...]:
    return (PassedOver(name, _NO_TOOLKIT),)


def _chip_fallbacks() -> tuple[Fallback, ...]:
    ops = tuple(
        Fallback(
            level=FallbackLevel.OP,
            subject=f"op {key}",
            reason=_NO_TOOLKIT,
            cost_hint=f"{count} of 26 ops run in plain torch",
        )
        for key, count in (("gate_up_act", 4), ("embedding", 1))
    )
    attention = Fallback(
        level=FallbackLevel.PATH,
        subject="attention of layers 1,3",
        reason="acme/flash: a sliding window, which it does not take",
        cost_hint="plain torch attention reads the whole cache at each step",
    )
    weights = Fallback(
        level=FallbackLevel.PATH,
        subject="weights q4_1",
        reason="platform acme computes fp8, not q4_1",
        cost_hint="3.2 times the memory of the files",
    )
    return (*ops, attention, weights)
