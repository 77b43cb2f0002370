"""The oracles against answers that are known, and against a second oracle of 50 digits."""

from __future__ import annotations

import math
from typing import Any

import mpmath  # type: ignore[import-untyped]  # has no types
import pytest
import torch

from dougong_conformance.kit.generate import Draw, rotary_table
from dougong_conformance.kit.oracle import activation, linear, lora, moe, norm, rotary, tokens
from dougong_conformance.kit.oracle import quantize as quant
from dougong_conformance.kit.oracle.attention import AttentionTerms, attention, encoder_attention
from dougong_conformance.kit.oracle.draw import draw, uniform

mpf = mpmath.mpf


def test_a_norm_of_equal_numbers_is_their_sign() -> None:
    x = torch.full((2, 8), -3.0)
    assert torch.allclose(
        norm.rms_norm(x, torch.ones(8), 0.0).value, torch.full((2, 8), -1.0).double()
    )


def test_the_fused_norm_has_both_answers_and_one_residual() -> None:
    x, residual = torch.tensor([[1.0, 2.0**-9]]).bfloat16(), torch.tensor([[1.0, 1.0]]).bfloat16()
    both, total = norm.fused_add_rms_norm(x, residual, torch.ones(2).bfloat16(), 0.0)
    assert total.tolist() == [[2.0, 1.0]]
    (unrounded,) = both.alternatives
    assert not torch.equal(both.value, unrounded.value)


def test_the_activation_is_of_the_first_half() -> None:
    value = activation.gated("silu", torch.tensor([[0.0, 5.0, 7.0, 2.0]])).value
    assert value[0].tolist() == pytest.approx([0.0, 5 / (1 + math.exp(-5)) * 2])


def test_a_quarter_turn_moves_the_first_half_to_the_second() -> None:
    table = torch.tensor([[0.0, 1.0]])
    x = torch.tensor([[[3.0, 4.0, 9.0]]])
    turned = rotary.rotary(x, torch.tensor([0]), table).value
    assert turned[0, 0].tolist() == [-4.0, 3.0, 9.0]


def test_neighbours_and_halves_differ() -> None:
    table = rotary_table(4, 4)
    x = Draw("rotary").normal(1, 1, 4)
    halves, neighbours = (
        rotary.rotary(x, torch.tensor([3]), table, is_neox=one).value for one in (True, False)
    )
    assert not torch.allclose(halves, neighbours)


def test_a_product_with_a_bias() -> None:
    found = linear.linear(
        torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, -4.0]]), torch.tensor([10.0])
    )
    assert found.value.item() == 5.0
    assert found.condition.item() == 3 + 8 + 10
    assert found.rounded.item() == 5 + 10


def test_equal_logits_choose_the_lowest_expert() -> None:
    ids, shares = moe.route(torch.tensor([[1.0, 2.0, 2.0]]), 2, renormalize=True)
    assert ids.tolist() == [[1, 2]]
    assert shares.value.tolist() == [[0.5, 0.5]]


def test_greedy_takes_the_first_of_equals() -> None:
    assert tokens.greedy(torch.tensor([[1.0, 3.0, 3.0], [-math.inf, 0.0, 0.0]])).tolist() == [1, 1]


def test_the_crossing_token_and_ties_at_k_stay() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log()
    for k, p, count in ((4, 0.4, 1), (4, 0.6, 2), (4, 0.76, 4), (3, 1.0, 4), (4, 0.0, 1)):
        keeps, _ = tokens.kept(logits, torch.tensor([k]), torch.tensor([p]))
        assert int(keeps.sum()) == count, (k, p)


def test_tokens_near_the_edge_of_p_are_not_judged() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log()
    _, is_near = tokens.kept(logits, torch.tensor([3]), torch.tensor([0.5]))
    assert is_near.tolist() == [[False, True, True]]


def test_uniform_numbers_are_those_of_the_core() -> None:
    import numpy as np
    from dougong.sampling import uniform_numbers

    seeds, positions = [0, 1, 12345, 2**40], [0, 7, 31, 5]
    theirs = uniform_numbers(np.array(seeds), np.array(positions))
    assert uniform(seeds, positions) == theirs.tolist()


def test_a_draw_takes_the_token_in_whose_share_the_number_falls() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.25]]).log().expand(3, -1)
    found, _ = draw(logits, [1.0] * 3, torch.ones(3, 3, dtype=torch.bool), [0.1, 0.6, 0.99])
    assert found.tolist() == [0, 1, 2]


def test_packed_codes_come_back() -> None:
    codes = torch.arange(64).remainder(16).to(torch.uint8).view(1, 64)
    packed = quant.pack_int4(codes)
    assert packed.shape == (1, 32)
    assert torch.equal(quant.unpack_int4(packed), codes)
    assert packed[0, 0] == 0 | (16 % 16) << 4


def test_formats_are_those_of_the_core() -> None:
    from dougong.ops import QUANT_FORMATS

    assert quant.FORMATS.keys() == QUANT_FORMATS.keys()
    for name, theirs in QUANT_FORMATS.items():
        ours = quant.FORMATS[name]
        found = (ours.values, ours.limit, ours.group_size or None, ours.is_static, ours.is_packed)
        assert found == (
            theirs.values,
            theirs.limit,
            theirs.group_size,
            theirs.is_static,
            theirs.is_packed,
        ), name


def test_one_key_is_its_own_value() -> None:
    draw_ = Draw("one")
    q, k, v = draw_.normal(1, 2, 4), draw_.normal(1, 1, 4), draw_.normal(1, 1, 4)
    found = attention([q], [k], [v], AttentionTerms(scale=0.5))
    assert torch.equal(found.value, v.double().expand(1, 2, 4))


def test_windows_and_causality() -> None:
    draw_ = Draw("window")
    q, k, v = draw_.normal(5, 1, 4), draw_.normal(5, 1, 4), draw_.normal(5, 1, 4)
    alone = attention([q], [k], [v], AttentionTerms(scale=1.0, sliding_window=1)).value
    assert torch.allclose(alone, v.double())
    first = attention([q], [k], [v], AttentionTerms(scale=1.0)).value[0]
    assert torch.allclose(first, v[0].double())


def test_no_adapter_leaves_a_row_alone() -> None:
    draw_ = Draw("lora")
    out, x = draw_.normal(2, 3), draw_.normal(2, 4)
    a, b = draw_.normal(1, 2, 4), draw_.normal(1, 3, 2)
    found = lora.add_lora(out, x, a, b, 2.0, torch.tensor([-1, 0]))
    assert torch.equal(found.value[0], out[0].double())
    wanted = out[1].double() + 2 * (b[0].double() @ (a[0].double() @ x[1].double()))
    assert torch.allclose(found.value[1], wanted)


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 33, 97])
def test_bits_of_a_mask_are_where_a_worker_looks_for_them(vocab_size: int) -> None:
    is_allowed = Draw("bits", vocab_size).uniform(4, vocab_size) < 0.5
    is_allowed[0] = True
    words = tokens.packed(is_allowed)
    assert words.dtype is torch.int32
    assert words.shape == (4, -(-vocab_size // 32))
    for row, bits in zip(words.tolist(), is_allowed.tolist(), strict=True):
        whole = sum((word & 0xFFFFFFFF) << 32 * at for at, word in enumerate(row))
        assert whole == sum(bit << token for token, bit in enumerate(bits))


def test_an_encoder_attends_in_each_sequence_alone_and_both_ways() -> None:
    q, k, v = (Draw(f"encoder {part}").normal(6, 2, 8) for part in "qkv")
    found = encoder_attention(q, k, v, [0, 2, 6], 0.5).value
    for start, end in ((0, 2), (2, 6)):
        query, key, value = (one[start:end].double().transpose(0, 1) for one in (q, k, v))
        wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, scale=0.5)
        assert torch.allclose(found[start:end], wanted.transpose(0, 1))


@pytest.mark.extra
class TestSecondOracle:
    """Written again in numbers of 50 digits; both agree to 2^-40 of the value's condition."""

    @staticmethod
    def close(found: torch.Tensor, wanted: list[Any], size: torch.Tensor) -> None:
        flat, sizes = found.flatten().tolist(), size.flatten().tolist()
        assert len(flat) == len(wanted)
        for ours, theirs, room in zip(flat, wanted, sizes, strict=True):
            assert abs(mpmath.mpf(ours) - theirs) <= mpmath.mpf(2) ** -40 * (
                abs(theirs) + room + 1e-300
            )

    @pytest.fixture(autouse=True)
    def digits(self) -> Any:
        with mpmath.workdps(50):
            yield

    @pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
    def test_norms(self, scale: float) -> None:
        draw_ = Draw("second norm")
        x, weight = draw_.normal(2, 33, scale=scale), draw_.normal(33)
        bias = draw_.normal(33)
        rms, layer = [], []
        for row in x.tolist():
            numbers = [mpf(one) for one in row]
            mean = sum(numbers) / 33
            square = sum(one * one for one in numbers) / 33
            variance = sum((one - mean) ** 2 for one in numbers) / 33
            for one, w, b in zip(numbers, weight.tolist(), bias.tolist(), strict=True):
                rms.append(one / mpmath.sqrt(square + mpf(1e-6)) * mpf(w))
                layer.append((one - mean) / mpmath.sqrt(variance + mpf(1e-6)) * mpf(w) + mpf(b))
        found = norm.rms_norm(x, weight, 1e-6)
        self.close(found.value, rms, found.condition)
        found = norm.layer_norm(x, weight, bias, 1e-6)
        self.close(found.value, layer, found.condition)

    @pytest.mark.parametrize("name", ["silu", "gelu", "gelu_pytorch_tanh"])
    def test_activations(self, name: str) -> None:
        def act(x: Any) -> Any:
            if name == "silu":
                return x / (1 + mpmath.exp(-x))
            if name == "gelu":
                return x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2
            inner = mpmath.sqrt(2 / mpmath.pi) * (x + mpf(0.044715) * x**3)
            return x * (1 + mpmath.tanh(inner)) / 2

        x = Draw("second act").normal(1, 60, scale=4.0)
        gate, up = x[0, :30].tolist(), x[0, 30:].tolist()
        wanted = [act(mpf(a)) * mpf(b) for a, b in zip(gate, up, strict=True)]
        found = activation.gated(name, x)
        self.close(found.value, wanted, found.condition)

    def test_products(self) -> None:
        draw_ = Draw("second product")
        x, weight, bias = draw_.normal(2, 100), draw_.normal(3, 100), draw_.normal(3)
        wanted = [
            sum((mpf(a) * mpf(b) for a, b in zip(row, column, strict=True)), mpf(one))
            for row in x.tolist()
            for column, one in zip(weight.tolist(), bias.tolist(), strict=True)
        ]
        found = linear.linear(x, weight, bias)
        self.close(found.value, wanted, found.condition)

    @pytest.mark.parametrize("window", [None, 3])
    @pytest.mark.parametrize("cap", [None, 2.0])
    def test_attention(self, window: int | None, cap: float | None) -> None:
        draw_ = Draw("second attention")
        q, k, v = draw_.normal(3, 4, 5), draw_.normal(7, 2, 5), draw_.normal(7, 2, 5)
        wanted = []
        for i in range(3):
            for head in range(4):
                at, kv_head = 4 + i, head // 2
                first = 0 if window is None else max(0, at - window + 1)
                scores = []
                for t in range(first, at + 1):
                    pairs = zip(q[i, head].tolist(), k[t, kv_head].tolist(), strict=True)
                    score = sum(mpf(a) * mpf(b) for a, b in pairs) * mpf(0.375)
                    scores.append(score if cap is None else cap * mpmath.tanh(score / cap))
                weights = [mpmath.exp(score) for score in scores]
                for d in range(5):
                    rows = range(first, at + 1)
                    total = sum(
                        w * mpf(v[t, kv_head, d].item()) for w, t in zip(weights, rows, strict=True)
                    )
                    wanted.append(total / sum(weights))
        terms = AttentionTerms(scale=0.375, sliding_window=window, soft_cap=cap)
        found = attention([q], [k], [v], terms)
        self.close(found.value, wanted, found.condition)

    def test_rotation_and_logarithms(self) -> None:
        draw_ = Draw("second rotation")
        x, table, positions = draw_.normal(2, 1, 6), rotary_table(9, 4), torch.tensor([8, 3])
        wanted = []
        for row, at in zip(x[:, 0].tolist(), positions.tolist(), strict=True):
            cos, sin = ([mpf(one) for one in part.tolist()] for part in table[at].chunk(2))
            a, b = [mpf(one) for one in row[:2]], [mpf(one) for one in row[2:4]]
            wanted += [a[i] * cos[i] - b[i] * sin[i] for i in range(2)]
            wanted += [b[i] * cos[i] + a[i] * sin[i] for i in range(2)]
            wanted += [mpf(one) for one in row[4:]]
        found = rotary.rotary(x, positions, table)
        self.close(found.value, wanted, found.condition)
        logits = draw_.normal(2, 40, scale=8.0)
        logs = []
        for row in logits.tolist():
            total = mpmath.log(sum(mpmath.exp(mpf(one)) for one in row))
            logs += [mpf(one) - total for one in row]
        found = tokens.logprobs(logits)
        self.close(found.value, logs, found.condition)
