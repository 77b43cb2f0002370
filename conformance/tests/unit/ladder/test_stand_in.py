from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dougong_conformance.ladder import stand_in
from dougong_conformance.ladder.golden import Golden, read_golden
from tests.unit.ladder import acme


@pytest.fixture
def known(tmp_path: Path) -> Golden:
    """In a namespace of its own: the double of other tests keeps the vendor's for good."""
    golden = read_golden(acme.write_golden(tmp_path))
    named = {op: text.replace("acme::", "acme_si::") for op, text in golden.schemas.items()}
    return Golden({op.replace("acme::", "acme_si::"): text for op, text in named.items()}, "")


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def write(key: torch.Tensor, cache: torch.Tensor, *, mode: str = "NZ") -> None:
    cache.copy_(key if mode == "ND" else key.flip(-1))


REFERENCES: dict[str, Callable[..., Any]] = {"acme_si::rms_norm": rms_norm, "acme_si::write": write}


@pytest.fixture
def made(known: Golden) -> Iterator[stand_in.StandIn]:
    with stand_in.define(known, REFERENCES) as made:
        yield made


def test_a_call_runs_its_reference_and_is_counted(made: stand_in.StandIn) -> None:
    x, weight = torch.full((2, 4), 3.0), torch.ones(4)
    found = torch.ops.acme_si.rms_norm(x, weight, eps=0.0)
    torch.testing.assert_close(found, torch.ones(2, 4))
    assert made.calls == {"acme_si::rms_norm": 1}
    assert made.uncalled(REFERENCES) == ("acme_si::write",)


def test_defaults_are_the_schemas_and_what_is_marked_is_written(made: stand_in.StandIn) -> None:
    cache = torch.zeros(3)
    torch.ops.acme_si.write(torch.arange(3.0), cache)
    assert cache.tolist() == [2.0, 1.0, 0.0]
    torch.ops.acme_si.write(torch.arange(3.0), cache, mode="ND")
    assert cache.tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((1,), {}), ((1, 1), {"epsilon": 1.0}), ((1, 1, "a"), {}), ((1, None), {})],
)
def test_a_call_that_the_schema_does_not_take_fails(
    made: stand_in.StandIn, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    tensors = tuple(torch.ones(4) if one == 1 else one for one in args)
    with pytest.raises((RuntimeError, TypeError)):
        torch.ops.acme_si.rms_norm(*tensors, **kwargs)
    assert not made.calls


def test_nothing_stays_after_the_block(known: Golden) -> None:
    for _ in range(2):
        with stand_in.define(known, {"acme_si::cast": lambda x, kind: x.clone()}):
            assert torch.ops.acme_si.cast(torch.ones(1), 2).item() == 1
        with pytest.raises(AttributeError):
            torch.ops.acme_si.cast(torch.ones(1), 2)


def test_an_op_that_the_golden_file_has_not_is_refused(known: Golden) -> None:
    with (
        pytest.raises(KeyError, match="acme_si::norm"),
        stand_in.define(known, {"acme_si::norm": rms_norm}),
    ):
        pytest.fail("it was defined")


def test_an_op_that_is_registered_with_its_schema_is_taken_and_with_another_refused(
    known: Golden,
) -> None:
    make_library: Any = torch.library.Library
    library = make_library("acme_there", "DEF")
    library.define("f(Tensor x) -> Tensor")
    same = Golden({"acme_there::f": "acme_there::f(Tensor x) -> Tensor"}, "")
    with stand_in.define(same, {"acme_there::f": lambda x: x + 1}):
        assert torch.ops.acme_there.f(torch.zeros(1)).item() == 1
    other = Golden({"acme_there::f": "acme_there::f(Tensor x, int n) -> Tensor"}, "")
    with (
        pytest.raises(ValueError, match="registered already under another schema"),
        stand_in.define(other, {"acme_there::f": lambda x, n: x}),
    ):
        pytest.fail("it was defined")


def test_fake_tensors_meet_the_fake(known: Golden) -> None:
    fakes = {"acme_si::rms_norm": lambda x, weight, eps=1e-6: x.new_empty(7)}
    with stand_in.define(known, REFERENCES, fakes=fakes) as made, FakeTensorMode():
        assert torch.ops.acme_si.rms_norm(torch.ones(2), torch.ones(2)).shape == (7,)
        assert not made.calls


def test_the_inner_block_is_in_force_and_the_outer_one_again_after_it(
    known: Golden, made: stand_in.StandIn
) -> None:
    x = torch.full((2, 4), 2.0)
    with stand_in.define(known, {"acme_si::rms_norm": lambda x, weight, eps: x + 1}) as inner:
        assert torch.ops.acme_si.rms_norm(x, x)[0, 0].item() == 3
    assert torch.ops.acme_si.rms_norm(x, torch.ones(4))[0, 0].item() == pytest.approx(1)
    assert (inner.calls.total(), made.calls.total()) == (1, 1)


def test_a_default_is_the_schemas_and_not_the_references(known: Golden) -> None:
    """Torch itself leaves an argument out that has its default value."""
    seen: list[object] = []

    def other_default(x: torch.Tensor, weight: torch.Tensor, eps: float = 1.0) -> torch.Tensor:
        seen.append(eps)
        return x.clone()

    references: dict[str, Callable[..., Any]] = {
        "acme_si::rms_norm": other_default,
        "acme_si::write": lambda key, cache, *, mode="ND": seen.append(mode),
    }
    x = torch.ones(4)
    with stand_in.define(known, references):
        torch.ops.acme_si.rms_norm(x, x)
        torch.ops.acme_si.write(x, x)
        torch.ops.acme_si.write(x, x, mode="ND")
    assert seen == [1e-6, "NZ", "ND"]


def test_a_reference_that_takes_less_than_the_schema_is_given_what_it_takes(known: Golden) -> None:
    with stand_in.define(known, {"acme_si::rms_norm": lambda x, weight: x.clone()}):
        assert torch.ops.acme_si.rms_norm(torch.ones(4), torch.ones(4)).sum().item() == 4


def test_what_is_installed_stays(known: Golden) -> None:
    op = {"acme_stays::f": "acme_stays::f(Tensor x) -> Tensor"}
    stand_in.install(Golden(op, ""), {"acme_stays::f": lambda x: x + 1})
    with stand_in.define(Golden(op, ""), {"acme_stays::f": lambda x: x + 2}):
        assert torch.ops.acme_stays.f(torch.zeros(1)).item() == 2
    assert torch.ops.acme_stays.f(torch.zeros(1)).item() == 1
