"""Models call ops and attention, and compute nothing themselves: read in their source, and watched
while they run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - torch's own convention

from dougong.attention import Attention, AttentionStep
from dougong.models import CausalLM, EncoderModel, EncoderStep, ModelRegistry, build_model
from dougong.models.bert import BertModel
from dougong.models.llama import LlamaForCausalLM
from dougong.ops import CustomOp
from tests.architecture.model_arithmetic import find
from tests.architecture.model_watch import Watch, watching
from tests.support.model_harness import ModelHarness
from tests.support.tiny_models import tiny_config

M = TypeVar("M", CausalLM, EncoderModel)
MODELS = Path(__file__).parents[2] / "src" / "dougong" / "models"

# file, and what it may compute with (None: anything, and then it defines no class): why
ALLOWED: Mapping[tuple[str, str | None], str] = {
    ("rotary.py", None): "turns the config's numbers into the rotary op's table, once, on the host",
    ("loader.py", ".copy_()"): "fills parameters that do not lie on the host, at load",
    ("loader.py", ".add_()"): "adds the 1 of norms that multiply by 1 + w, at load",
}

PLANTED = {
    "a functional": (
        "from torch.nn import functional as F",
        "from torch.nn import functional",
    ),
    "a functional, by its path": ("import torch.nn.functional as F", "import torch.nn.functional"),
    "a functional, used in place": ("y = torch.nn.functional.silu(x)", "nn.functional"),
    "a layer that computes": ("self.act = nn.SiLU()", "nn.SiLU"),
    "a function of torch": ("y = torch.matmul(x, x)", "torch.matmul"),
    "a function of torch, imported": ("from torch import matmul", "from torch import matmul"),
    "torch under another name": ("import torch as t", "import torch as t"),
    "a function of torch that is not called here": ("act = torch.tanh", "torch.tanh"),
    "a method": ("y = self.norm(x).softmax(-1)", ".softmax()"),
    "a method that casts": ("y = x.float()", ".float()"),
    "a method of what nobody knows to be a tensor": ("y = self.y.tanh()", ".tanh()"),
    "a method that writes": ("x.mul_(2)", ".mul_()"),
    "a product of matrices": ("y = a @ b", "operator MatMult"),
    "a residual": ("y = x + self.mlp(x)", "operator Add"),
    "a scale": ("y = self.mlp(x) * self.scale", "operator Mult"),
    "a scale in place": ("x *= 2", "operator Mult"),
    "a sign": ("y = self.down(-x)", "operator USub"),
    "a mask": ("y = x > 0", "operator Gt"),
    "arithmetic on a part": ("q, k = self.qkv(x)\ny = k / 2", "operator Div"),
    "arithmetic on a view": ("y = x.view(-1)[3:] - 1", "operator Sub"),
    "arithmetic in a loop": ("for one in self.parts(x):\n    y = one ** 2", "operator Pow"),
    "arithmetic after the name": ("while y:\n    z = w + 1\n    w = self.mlp(x)", "operator Add"),
}

HARMLESS = {
    "an op": "y = self.down(self.gate_up(x))",
    "views": "q, k, v = self.qkv(x).view(x.shape[0], -1, 8).split(self.split, dim=1)",
    "arithmetic on a shape": "n = x.shape[0] * 2 + x.numel() // len(x)",
    "arithmetic on numbers": "scale = self.head_dim ** -0.5 * math.log(2)",
    "a part": "y = x[: n - 1]",
    "a question": "ok = x is None or x.dtype is torch.bfloat16 and x.dim() == 2",
    "a parameter": "self.weight = nn.Parameter(w)\nself.layers = nn.ModuleList(layers)",
    "a dictionary": "sizes.update(other)\nlist(sizes.values())",
}


def function(body: str) -> str:
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    return f"import math\nclass M:\n    def forward(self, x: torch.Tensor, n: int):\n{lines}\n"


@pytest.mark.parametrize("name", PLANTED)
def test_planted_computation_is_found(name: str) -> None:
    body, what = PLANTED[name]
    assert any(finding.what.startswith(what) for finding in find(function(body)))


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_lines_are_left_alone(name: str) -> None:
    assert find(function(HARMLESS[name])) == []


def findings() -> Iterator[tuple[str, int, str]]:
    for path in sorted(MODELS.rglob("*.py")):
        name = path.relative_to(MODELS).as_posix()
        for finding in find(path.read_text("utf-8")):
            yield name, finding.line, finding.what


def test_the_source_of_models_computes_nothing() -> None:
    found = [
        f"{file}:{line}: {what}"
        for file, line, what in findings()
        if not ALLOWED.keys() & {(file, what), (file, None)}
    ]
    assert not found, "\n".join(("make it an op:", *found))


def test_every_allowance_is_still_needed() -> None:
    used = {key for file, _, what in findings() for key in ((file, what), (file, None))}
    assert ALLOWED.keys() <= used


def test_a_file_that_may_compute_anything_defines_no_model() -> None:
    for file, what in ALLOWED:
        tree = ast.parse((MODELS / file).read_text("utf-8"))
        assert what or not any(isinstance(node, ast.ClassDef) for node in ast.walk(tree))


def made(cls: type[M], **changes: Any) -> M:
    config = tiny_config(**changes)
    model = build_model(cls, config, torch.float32, torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    for target in model.weight_targets().values():
        shape = target.view.shape
        target.view.copy_(torch.randn(shape, generator=generator) / shape[-1] ** 0.5)
    return model


def watched_encoder(model: EncoderModel) -> Watch:
    """A step with texts of several lengths, two of them alike."""
    starts = torch.tensor([0, 3, 10, 13], dtype=torch.int32)
    positions = torch.cat([torch.arange(3), torch.arange(7), torch.arange(3)])
    with watching(model) as watch, torch.inference_mode():
        model.forward(torch.arange(13), positions, EncoderStep(starts, starts, 7))
    assert watch.num_inside > 50, "it saw hardly anything, so it proves nothing"
    return watch


def watched(model: CausalLM) -> Watch:
    """A step with two prompts, then one that decodes the first and goes on with the second."""
    harness = ModelHarness(model)
    with watching(model) as watch:
        harness.step({"a": [1, 2, 3], "b": [4, 5, 6, 7, 8, 9, 10]}, num_logits=1)
        harness.step({"a": [11], "b": [12, 13]})
    assert watch.num_inside > 100, "it saw hardly anything, so it proves nothing"
    return watch


# architecture: what its tiny config has beside the usual
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "BertForMaskedLM": {"hidden_act": "gelu"},
    "BertModel": {"hidden_act": "gelu"},
    "Gemma3ForCausalLM": {
        "head_dim": 16,
        "sliding_window": 5,
        "sliding_window_pattern": 2,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 5.0,
    },
    "GraniteForCausalLM": {"residual_multiplier": 0.5, "attention_bias": True},
    "LlamaForCausalLM": {"attention_bias": True, "mlp_bias": True},
    "MistralForCausalLM": {"sliding_window": 5, "tie_word_embeddings": True},
    "Phi3ForCausalLM": {"sliding_window": 5, "partial_rotary_factor": 0.5},
    "Qwen2ForCausalLM": {"sliding_window": 5, "use_sliding_window": True, "max_window_layers": 1},
    "Qwen3ForCausalLM": {"head_dim": 32, "attention_bias": True},
    "RobertaModel": {"hidden_act": "gelu"},
    "XLMRobertaModel": {"hidden_act": "gelu"},
}


@pytest.mark.parametrize("name", ModelRegistry().names())
def test_a_running_model_computes_in_ops_and_attention_alone(name: str) -> None:
    cls, changes = ModelRegistry().resolve([name]), CHANGES.get(name, {})
    if issubclass(cls, EncoderModel):
        watch = watched_encoder(made(cls, architectures=[name], **changes))
    else:
        watch = watched(made(cls, architectures=[name], **changes))
    assert watch.found == []


class _Planted(LlamaForCausalLM):
    """Llama with something done to its hidden states."""

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: AttentionStep
    ) -> torch.Tensor:
        return self.treat(super().forward(token_ids, positions, step), positions)

    def treat(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return hidden


class Scales(_Planted):
    def treat(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return hidden * 2


class Writes(_Planted):
    def treat(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        hidden[0] = 0
        return hidden


class Reads(_Planted):
    def treat(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return hidden if positions.max().item() else hidden.view(hidden.shape)


class Copies(_Planted):
    def treat(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return hidden.t().contiguous().t()


class Bypasses(_Planted):
    def treat(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self.norm.forward_native(hidden, hidden)[0]


class Activates(LlamaForCausalLM):
    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.tanh(super().compute_logits(hidden))


class AddsBeside(BertModel):
    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, step: EncoderStep
    ) -> torch.Tensor:
        hidden = super().forward(token_ids, positions, step)
        return hidden + hidden


def test_an_encoder_that_computes_outside_ops_is_found() -> None:
    assert "aten.add.Tensor" in watched_encoder(made(AddsBeside, hidden_act="gelu")).found


@pytest.mark.parametrize(
    ("cls", "operator"),
    [
        (Scales, "aten.mul.Tensor"),
        (Writes, "aten.fill_.Tensor"),
        (Reads, "aten.max.default"),
        (Copies, "aten.contiguous.default"),
        (Bypasses, "aten.add.Tensor"),
        (Activates, "aten.tanh.default"),
    ],
)
def test_a_model_that_computes_outside_ops_is_found(
    cls: type[LlamaForCausalLM], operator: str
) -> None:
    assert operator in watched(made(cls)).found


def test_views_outside_ops_are_left_alone_and_nothing_stays_patched() -> None:
    class Views(_Planted):
        def treat(self, hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            return (
                hidden.unsqueeze(0).transpose(1, 2).transpose(1, 2)[0].view_as(hidden)[:].detach()
            )

    calls = (vars(CustomOp)["__call__"], vars(Attention)["__call__"])
    assert watched(made(Views)).found == []
    assert (vars(CustomOp)["__call__"], vars(Attention)["__call__"]) == calls
