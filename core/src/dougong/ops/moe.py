"""Mixture of experts: choosing experts per token, and computing them."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.ops.activation import gated_activation
from dougong.ops.custom_op import CustomOp
from dougong.ops.example_values import filled, seeded


class MoERoute(CustomOp):
    """The ``top_k`` experts of each token, and their shares.

    No model of this version calls it.

    Call: ``(logits)`` with ``logits`` ``[num_tokens, num_experts]``, any float dtype →
    ``(expert_ids, shares)``, int64 and float32, both ``[num_tokens, top_k]``, highest logit first;
    of equal logits the lowest expert id.

    Without ``renormalize`` a share is the expert's part of the softmax over all experts (softmax,
    then top-k). With it the chosen shares sum to 1, which is softmax, top-k and a division by the
    sum, and is also top-k, then softmax over the chosen: one and the same number.

    Args:
        num_experts: Columns of ``logits``.
        top_k: Experts per token, at most ``num_experts``.
        renormalize: Whether the shares of each token sum to 1.
    """

    key: ClassVar[str] = "moe_route"
    property_names: ClassVar[tuple[str, ...]] = ("num_experts", "top_k", "renormalize")
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("top_k", "renormalize")

    def __init__(self, num_experts: int, top_k: int, renormalize: bool) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.top_k = top_k
        self.renormalize = renormalize

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Five tokens; one finds all experts alike."""
        logits = seeded(5, 8)
        logits[3] = 0.5
        return cls(8, 2, renormalize=True), (logits,)

    def forward_native(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Chosen by logit, not by share: rounding may make equal shares of unequal logits."""
        wide = logits.float()
        ordered, expert_ids = wide.sort(dim=-1, descending=True, stable=True)
        expert_ids = expert_ids[:, : self.top_k]
        if self.renormalize:
            return expert_ids, ordered[:, : self.top_k].softmax(dim=-1)
        return expert_ids, wide.softmax(dim=-1).gather(1, expert_ids)

    def kernel_args(self) -> tuple[Any, ...]:
        """``(top_k, renormalize)``."""
        return self.top_k, self.renormalize


class MoEExperts(CustomOp):
    """Each token through the gated MLPs of its experts, summed by their shares.

    No model of this version calls it.

    ``sum over i of shares[t, i] * (act(x[t] @ G.T) * (x[t] @ U.T)) @ D.T`` with ``G``, ``U`` and
    ``D`` those of expert ``expert_ids[t, i]``. Experts that no token chose are not computed.

    Call: ``(x, expert_ids, shares)`` with ``x`` ``[num_tokens, hidden_size]``, int64 and float32
    ``[num_tokens, top_k]`` as `MoERoute` gives them; ids lie in 0 to ``num_experts - 1`` →
    ``[num_tokens, hidden_size]`` in the dtype of ``x``. ``gate_up_weight`` is
    ``[num_experts, 2 * intermediate_size, hidden_size]``, gate rows first, and ``down_weight``
    ``[num_experts, hidden_size, intermediate_size]``.

    Args:
        num_experts: Experts this rank holds.
        hidden_size: Width of a token.
        intermediate_size: Width of one expert.
        activation: The checkpoint's name: ``"silu"``, ``"gelu"`` or ``"gelu_pytorch_tanh"``.
        dtype: Of both weights.

    Raises:
        ConfigError: The activation is unknown.
    """

    key: ClassVar[str] = "moe_experts"
    property_names: ClassVar[tuple[str, ...]] = (
        "num_experts",
        "hidden_size",
        "intermediate_size",
        "activation",
    )
    kernel_arg_names: ClassVar[tuple[str, ...]] = ("gate_up_weight", "down_weight", "activation")

    def __init__(
        self,
        num_experts: int,
        hidden_size: int,
        intermediate_size: int,
        activation: str,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.activation = activation
        self.act = gated_activation(activation)
        self.gate_up_weight = nn.Parameter(
            torch.empty(num_experts, 2 * intermediate_size, hidden_size, dtype=dtype),
            requires_grad=False,
        )
        self.down_weight = nn.Parameter(
            torch.empty(num_experts, hidden_size, intermediate_size, dtype=dtype),
            requires_grad=False,
        )

    @classmethod
    def example(cls) -> tuple[CustomOp, tuple[Any, ...]]:
        """Three tokens, two experts each; one of the four experts is chosen by none."""
        expert_ids = torch.tensor([[3, 0], [0, 2], [2, 3]])
        shares = torch.tensor([[0.7, 0.3], [0.6, 0.4], [0.5, 0.25]])
        op = filled(cls(4, 8, 6, "silu", torch.float32))
        return op, (seeded(3, 8), expert_ids, shares)

    def forward_native(
        self, x: torch.Tensor, expert_ids: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """Tokens sorted by expert, one product per chosen expert.

        Products are in the storage dtype; the sum is in float32, experts ascending, so that it
        does not depend on a token's neighbours, and is rounded once.
        """
        chosen = expert_ids.flatten()
        order = chosen.argsort(stable=True)
        num_tokens = chosen.bincount().tolist()
        tokens = torch.split(order // expert_ids.shape[1], num_tokens)
        parts = torch.split(shares.flatten()[order].unsqueeze(1), num_tokens)
        total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
        for expert, (rows, part) in enumerate(zip(tokens, parts, strict=True)):
            if num_tokens[expert]:
                total.index_add_(0, rows, self._expert(expert, x[rows]).float() * part)
        return total.to(x.dtype)

    def kernel_args(self) -> tuple[Any, ...]:
        """``(gate_up_weight, down_weight, activation)``."""
        return self.gate_up_weight, self.down_weight, self.activation

    def _expert(self, expert: int, x: torch.Tensor) -> torch.Tensor:
        inner = self.act(F.linear(x, self.gate_up_weight[expert]))
        return F.linear(inner, self.down_weight[expert])
