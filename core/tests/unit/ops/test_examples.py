"""Every op's example: it runs, the same way twice, and writes where it may at most."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch

from dougong.ops import OPS, CustomOp

RESULTS: dict[str, str] = {
    "dequantize": "float32[3, 64]",
    "embedding": "float32[3, 24]",
    "encoder_attention": "float32[10, 4, 8]",
    "fused_add_rms_norm": "float32[3, 24], float32[3, 24]",
    "gate_up_act": "float32[3, 16]",
    "gelu_and_mul": "float32[3, 12]",
    "greedy_sample": "int64[3]",
    "layer_norm": "float32[3, 24]",
    "linear": "float32[3, 16]",
    "lm_head": "float32[3, 32]",
    "logprobs": "float32[3, 16]",
    "moe_experts": "float32[3, 8]",
    "moe_route": "int64[5, 2], float32[5, 2]",
    "penalties": "float32[3, 16]",
    "qkv_norm_rope": "float32[3, 4, 8], float32[3, 2, 8], float32[3, 2, 8]",
    "quantize": "uint8[3, 32], float16[3, 2], float16[3, 2]",
    "rms_norm": "float32[3, 24]",
    "rotary_embedding": "float32[3, 4, 16], float32[3, 2, 16]",
    "silu_and_mul": "float32[3, 12]",
    "top_k_top_p": "float32[3, 16]",
}


def tensors(values: Any) -> list[torch.Tensor]:
    """What a call takes or gives, its tensors alone."""
    return [value for value in values if isinstance(value, torch.Tensor)]


def run(op: CustomOp, arguments: tuple[Any, ...]) -> list[torch.Tensor]:
    result = op(*arguments)
    return tensors(result if isinstance(result, tuple) else (result,))


def described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def copies(values: list[torch.Tensor]) -> list[torch.Tensor]:
    return [value.clone() for value in values]


def state(op: CustomOp) -> list[torch.Tensor]:
    return [*op.parameters(), *op.buffers()]


@pytest.mark.parametrize("key", OPS)
def test_an_example_has_the_results_its_op_promises(key: str) -> None:
    op, arguments = OPS[key].example()
    assert type(op) is OPS[key]
    results = run(op, arguments)
    assert ", ".join(map(described, results)) == RESULTS[key]
    for tensor in (*results, *tensors(arguments), *state(op)):
        assert tensor.device.type == "cpu"
        assert not tensor.isnan().any()
    # Something that gives zeros, or one number, must not pass for the op.
    assert any(len(set(result.flatten().tolist())) > 1 for result in results)


@pytest.mark.parametrize("key", OPS)
def test_an_example_is_the_same_whenever_it_is_made(key: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    op, arguments = OPS[key].example()
    first = copies(run(op, arguments))
    assert torch.equal(torch.get_rng_state(), before), "examples leave the global generator alone"
    assert equal(run(op, OPS[key].example()[1]), first)
    torch.manual_seed(2)
    other, other_arguments = OPS[key].example()
    assert equal(state(op), state(other))
    assert equal(run(other, other_arguments), first)


@pytest.mark.parametrize("key", OPS)
def test_nothing_but_what_may_be_overwritten_is_written(key: str) -> None:
    op, arguments = OPS[key].example()
    before, weights = copies(tensors(arguments)), copies(state(op))
    run(op, arguments)
    changed = {
        name
        for name, old, new in zip(
            [
                name
                for name, a in zip(op.arg_names(), arguments, strict=True)
                if isinstance(a, torch.Tensor)
            ],
            before,
            tensors(arguments),
            strict=True,
        )
        if not torch.equal(old, new)
    }
    assert changed <= set(op.may_mutate)
    assert equal(state(op), weights)


@pytest.mark.parametrize("key", OPS)
def test_what_an_op_declares_exists(key: str) -> None:
    op, arguments = OPS[key].example()
    assert op.key == key
    assert len(op.arg_names()) == len(arguments)
    assert set(op.may_mutate) <= set(op.arg_names())
    properties = op.properties()
    assert tuple(properties) == op.property_names
    assert all(isinstance(value, int | str | bool) for value in properties.values())
    assert len(op.kernel_arg_names) == len(op.kernel_args())
    taken = [*op.arg_names(), *op.kernel_arg_names]
    assert len(set(taken)) == len(taken), "a function kernel takes both lists in one"


@pytest.mark.parametrize("key", OPS)
def test_an_example_is_one_of_the_class_it_is_asked_of(key: str) -> None:
    acme = cast("type[CustomOp]", type("Acme", (OPS[key],), {}))
    op, arguments = acme.example()
    assert type(op) is acme
    assert equal(run(op, arguments), run(*OPS[key].example()))


@pytest.mark.parametrize("key", OPS)
def test_every_op_takes_no_rows(key: str) -> None:
    op, arguments = OPS[key].example()
    rows = len(tensors(arguments)[0])
    none = tuple(
        arg[:0] if isinstance(arg, torch.Tensor) and len(arg) == rows else arg for arg in arguments
    )
    assert [len(result) for result in run(op, none)] == [0] * len(run(op, arguments))
