"""A model's list: what it holds, and what cannot be one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dougong.attention import Attention, AttentionStep
from dougong.execution import FlatLists, NodeKind, NotFlatError, trace
from dougong.models import ModelRegistry
from dougong.ops import Linear, RMSNorm
from tests.support.family_models import VARIANTS, family_config
from tests.support.tiny_models import tiny_config


def make(config: dict[str, Any]) -> Callable[[], nn.Module]:
    cls = ModelRegistry().resolve(config["architectures"])

    def made() -> nn.Module:
        with torch.device("meta"):
            return cls(config, torch.float32, 128)

    return made


def traced(config: dict[str, Any]) -> FlatLists:
    return trace(make(config))


def test_a_list_names_every_call_in_order_with_its_shapes() -> None:
    flat = traced(tiny_config(num_hidden_layers=1)).forward
    assert [(node.key, node.path) for node in flat.nodes] == [
        ("embedding", "embed_tokens"),
        ("fused_add_rms_norm", "layers.0.input_norm"),
        ("linear", "layers.0.attention.qkv"),
        ("qkv_norm_rope", "layers.0.attention.norm_rope"),
        ("attention", "layers.0.attention.attention"),
        ("linear", "layers.0.attention.out"),
        ("fused_add_rms_norm", "layers.0.post_attention_norm"),
        ("gate_up_act", "layers.0.mlp.gate_up"),
        ("linear", "layers.0.mlp.down"),
        ("fused_add_rms_norm", "norm"),
    ]
    attention = flat.nodes[4]
    assert attention.kind is NodeKind.ATTENTION
    hidden = tiny_config()["hidden_size"]
    assert flat.output.shape == ("num_tokens", hidden)
    assert [str(one) for one in flat.inputs] == ["token_ids[num_tokens]", "positions[num_tokens]"]


def test_the_logits_are_a_list_of_their_own() -> None:
    logits = traced(tiny_config()).logits
    assert [node.key for node in logits.nodes] == ["lm_head"]
    assert not logits.takes_step
    assert logits.output.shape == ("num_tokens", tiny_config()["vocab_size"])


@pytest.mark.parametrize("variant", [name for name in VARIANTS if "," not in name])
def test_every_family_is_a_list(variant: str) -> None:
    lists = traced(family_config(variant))
    made = {value.name for value in lists.forward.inputs}
    for node in lists.forward.nodes:
        assert {value.name for value in node.values()} <= made
        made |= {value.name for value in node.outputs}
    assert lists.forward.output.name in made


class _Small(nn.Module):
    """Two ops; what lies between them is a test's."""

    def __init__(self, between: Callable[[torch.Tensor, AttentionStep], torch.Tensor]) -> None:
        super().__init__()
        self.first = Linear(4, 8, False, torch.float32)
        self.second = RMSNorm(8, 1e-5, torch.float32)
        self.between = between

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: AttentionStep
    ) -> torch.Tensor:
        x = self.first(token_ids)
        y: torch.Tensor = self.second(self.between(x, step))
        return y

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.second(hidden)
        return logits


def small(between: Callable[[torch.Tensor, AttentionStep], torch.Tensor]) -> FlatLists:
    class Floats(Linear):
        def forward_native(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward_native(x.new_empty(x.shape[0], 4, dtype=torch.float32))

    def made() -> nn.Module:
        with torch.device("meta"):
            model = _Small(between)
            model.first = Floats(4, 8, False, torch.float32)
            return model

    return trace(made)


def test_torch_between_two_ops_is_no_list() -> None:
    with pytest.raises(NotFlatError, match=r"an argument of rms_norm at second comes from no op"):
        small(lambda x, step: x * 2)


def test_a_call_that_depends_on_the_number_of_tokens_is_no_list() -> None:
    class Twice(_Small):
        def forward(
            self, token_ids: torch.Tensor, positions: torch.Tensor, step: AttentionStep
        ) -> torch.Tensor:
            x: torch.Tensor = super().forward(token_ids, positions, step)
            y: torch.Tensor = self.second(x) if token_ids.shape[0] > 8 else x
            return y

    class Floats(Linear):
        def forward_native(self, x: torch.Tensor) -> torch.Tensor:
            return x.new_empty(x.shape[0], 8, dtype=torch.float32)

    def made() -> nn.Module:
        with torch.device("meta"):
            model = Twice(lambda x, step: x)
            model.first = Floats(4, 8, False, torch.float32)
            return model

    with pytest.raises(NotFlatError, match="depends on the number of tokens"):
        trace(made)


def test_what_is_no_tensor_and_no_constant_is_no_argument() -> None:
    class Odd(RMSNorm):
        key = "odd/norm"

        def forward_native(self, x: torch.Tensor, more: object = None) -> torch.Tensor:
            return super().forward_native(x)

    class Model(_Small):
        def forward(
            self, token_ids: torch.Tensor, positions: torch.Tensor, step: AttentionStep
        ) -> torch.Tensor:
            return self.second(self.first(token_ids), {"a": 1})  # type: ignore[no-any-return]

    class Floats(Linear):
        def forward_native(self, x: torch.Tensor) -> torch.Tensor:
            return x.new_empty(x.shape[0], 8, dtype=torch.float32)

    def made() -> nn.Module:
        with torch.device("meta"):
            model = Model(lambda x, step: x)
            model.first = Floats(4, 8, False, torch.float32)
            model.second = Odd(8, 1e-5, torch.float32)
            return model

    with pytest.raises(NotFlatError, match="an argument of odd/norm at second is a dict"):
        trace(made)


def test_an_attention_layer_of_another_class_is_a_node_too() -> None:
    class Sunk(Attention):
        has_sinks = True

    def made() -> nn.Module:
        model = make(tiny_config(num_hidden_layers=1))()
        model.get_submodule("layers.0.attention").attention = Sunk(0, 4, 2, 16, 1.0)
        return model

    nodes = trace(made).forward.nodes
    assert [node.path for node in nodes if node.kind is NodeKind.ATTENTION] == [
        "layers.0.attention.attention"
    ]
