"""Which operators the device has, and which tensors it takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from dougong_sim.device import control
from dougong_sim.device.loading import declared_ops
from tests.device.conftest import Timing


def test_the_list_of_operators_has_no_doubles_and_no_overloads() -> None:
    ops = declared_ops()
    assert len(ops) == len(set(ops))
    assert all(op.startswith("aten::") and "." not in op for op in ops)


def test_an_undeclared_operator_is_refused_by_name(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    with pytest.raises(NotImplementedError, match="aten::special_bessel_j0 is not implemented"):
        torch.special.bessel_j0(x)
    assert control.counters()["undeclared:aten::special_bessel_j0"] == 1


def test_without_strictness_the_cpu_serves_it_and_the_counters_tell(any_mode: Timing) -> None:
    x = torch.ones(4)
    control.set_strict(False)
    control.clear_counters()
    result = torch.special.bessel_j0(x.to("sim"))
    torch.testing.assert_close(result.cpu(), torch.special.bessel_j0(x))
    assert result.device.type == "sim"
    assert control.counters()["silent_fallback:aten::special_bessel_j0"] == 1


def test_the_list_can_be_replaced() -> None:
    x = torch.ones(4, device="sim")
    assert (-x).tolist() == [-1, -1, -1, -1]
    control.declare_ops(["aten::add"])
    assert (x + 1).tolist() == [2, 2, 2, 2]
    with pytest.raises(NotImplementedError, match="aten::neg"):
        x.neg()


# Where torch checks before it calls a backend, the refusal has torch's words.
TORCHS = "Expected all tensors to be on the same device"
FOREIGN: dict[str, tuple[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]]] = {
    "add": (TORCHS, lambda s, c, i: s + c),
    "mm": (r"aten::mm \(argument 'mat2', shape \[4, 2\]\)", lambda s, c, i: s @ c.T),
    "index": (r"aten::index \(argument 'indices', shape \[1\]\)", lambda s, c, i: s[i]),
    "index_put": ("argument 'indices', shape", lambda s, c, i: s.index_put_((i,), s[:1])),
    "index_select": ("argument 'index', shape", lambda s, c, i: s.index_select(0, i)),
    "cat": (r"aten::cat \(argument 'tensors', shape \[2, 4\]\)", lambda s, c, i: torch.cat([s, c])),
    "embedding": (r"\(argument 'index', shape \[1\]\)", lambda s, c, i: functional.embedding(i, s)),
    "where": (r"aten::where \(argument 'other'", lambda s, c, i: torch.where(s > 0, s, c)),
    "sdpa": (
        "Expected query, key, and value to have the same device",
        lambda s, c, i: functional.scaled_dot_product_attention(s[None], c[None], s[None]),
    ),
}


@pytest.mark.parametrize(("message", "call"), FOREIGN.values(), ids=FOREIGN)
def test_a_cpu_tensor_among_device_tensors_is_refused(
    message: str, call: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]
) -> None:
    with pytest.raises(RuntimeError, match=message):
        call(torch.ones(2, 4, device="sim"), torch.ones(2, 4), torch.tensor([0]))


def test_a_cpu_scalar_is_legal_and_counted(any_mode: Timing) -> None:
    x = torch.ones(4, device="sim")
    control.clear_counters()
    assert (x * torch.tensor(3.0)).tolist() == [3, 3, 3, 3]
    assert control.counters()["cpu_argument:aten::mul"] == 1
    control.clear_counters()
    x * 3.0
    assert not any(name.startswith("cpu_argument") for name in control.counters())


def test_python_numbers_promote_as_on_the_cpu() -> None:
    whole, half = torch.arange(4), torch.arange(4).half()
    for x in (whole, half):
        result = x.to("sim") * 0.1
        assert result.dtype == (x * 0.1).dtype
        assert torch.equal(result.cpu(), x * 0.1)


def test_calls_are_counted_by_operator() -> None:
    x = torch.ones(4, 4, device="sim")
    control.clear_counters()
    x @ x
    x.add_(1)
    counted = control.counters()
    assert counted["op:aten::mm"] == 1
    assert counted["op:aten::add"] == 1
    assert counted["launches"] == 2
    control.clear_counters()
    assert control.counters() == {}


def test_gradients_flow(any_mode: Timing) -> None:
    layer = torch.nn.Linear(4, 4)
    twin = torch.nn.Linear(4, 4).to("sim")
    twin.load_state_dict(layer.state_dict())
    x = torch.randn(3, 4)
    layer(x).sum().backward()
    twin(x.to("sim")).sum().backward()
    assert layer.weight.grad is not None
    assert twin.weight.grad is not None
    torch.testing.assert_close(twin.weight.grad.cpu(), layer.weight.grad)


def test_inference_mode_takes_outside_tensors_in_place_and_by_view(any_mode: Timing) -> None:
    x = torch.zeros(4, 4, device="sim")
    with torch.inference_mode():
        x[1].add_(1)
        y = x.view(16)[4:8] * 2
    assert y.tolist() == [2, 2, 2, 2]


def test_weights_are_made_without_data_and_loaded_later() -> None:
    with torch.device("meta"):
        layer = torch.nn.Linear(4, 4)
    layer.to_empty(device="sim")
    layer.load_state_dict(torch.nn.Linear(4, 4).state_dict())
    assert layer.weight.device == torch.device("sim:0")
    assert not layer(torch.ones(4, device="sim")).isnan().any().item()


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.bool]
)
def test_dtypes_convert(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, 1.0, 2.0, 448.0])
    assert torch.equal(x.to("sim").to(dtype).float().cpu(), x.to(dtype).float())


def test_an_out_of_the_wrong_shape_fails() -> None:
    x = torch.ones(4, device="sim")
    torch.add(x, x, out=torch.empty(3, device="sim"))
    with pytest.raises(torch.AcceleratorError, match="aten::add"):
        torch.accelerator.synchronize()


def test_an_empty_out_is_resized() -> None:
    x = torch.ones(4, device="sim")
    out = torch.empty(0, device="sim")
    torch.add(x, x, out=out)
    assert out.tolist() == [2, 2, 2, 2]
