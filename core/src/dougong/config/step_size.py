"""How many tokens and requests one step holds, computed from the device's numbers.

A step reads every weight once, whatever it computes, so few tokens leave the device waiting for
memory and many leave it waiting for arithmetic. The two meet at the *crossing*: with ``b`` bytes
per weight, ``rate`` operations and ``bandwidth`` bytes per second, ``n`` tokens take ``2 n / rate``
seconds of arithmetic per weight and ``b / bandwidth`` seconds of reading, equal at
``n = b * rate / (2 * bandwidth)``. Both sizes follow from it; memory bounds them.
"""

from __future__ import annotations

from dataclasses import dataclass

from dougong.config.model import ModelConfig

CROSSINGS_PER_STEP = 16  # reading the weights is then a 16th of a full step's time
MOST_TOKENS, FEWEST_TOKENS = 16384, 64
MOST_SEQS = 1024
TOKENS_UNKNOWN_RATE = 2048
SEQS_UNKNOWN_RATE = 256
ACTIVATION_SHARE = 0.1  # of what the weights leave; the KV cache has the rest
LOGITS_SHARE = 0.05
TYPICAL_LEN = 1024  # tokens a request is expected to hold when nothing is known of the load


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNumbers:
    """What the two sizes are computed from.

    Attributes:
        free_bytes: Memory that the weights leave.
        element_bytes: Of the compute dtype.
        kv_bytes_per_token: Over all layers.
        max_model_len: Tokens of one request at most.
        compute_rate: Operations per second in the compute dtype; ``None``: unknown.
        memory_bandwidth: Bytes per second; ``None``: unknown.
    """

    free_bytes: int
    element_bytes: int
    kv_bytes_per_token: int
    max_model_len: int
    compute_rate: float | None = None
    memory_bandwidth: float | None = None

    @property
    def crossing(self) -> int | None:
        """Tokens per step at which reading weights and arithmetic take equally long."""
        if not self.compute_rate or not self.memory_bandwidth:
            return None
        return max(1, round(self.element_bytes * self.compute_rate / (2 * self.memory_bandwidth)))


def choose_max_num_seqs(numbers: StepNumbers, model: ModelConfig) -> tuple[int, str]:
    """Requests per step, with the reason.

    The least of: the crossing (a larger decode batch waits for arithmetic, so it adds latency and
    no throughput), what the KV memory holds of typical requests, and what the logits may take.
    """
    crossing = numbers.crossing
    if crossing is None:
        rate_bound = (SEQS_UNKNOWN_RATE, "no rate or bandwidth of this device is known")
    else:
        rate_bound = (
            -(-crossing // 8) * 8,
            f"a decode step turns from memory-bound to compute-bound at {crossing} requests",
        )
    typical_len = min(numbers.max_model_len, TYPICAL_LEN)
    kv_bytes = int(numbers.free_bytes * (1 - ACTIVATION_SHARE - LOGITS_SHARE))
    kv_bound = (
        kv_bytes // max(1, numbers.kv_bytes_per_token * typical_len),
        f"the KV cache holds about that many requests of {typical_len} tokens",
    )
    logits_bytes = 2 * 4 * model.vocab_size  # float32, and a copy while sampling
    logits_bound = (
        int(numbers.free_bytes * LOGITS_SHARE) // logits_bytes,
        f"logits may take {LOGITS_SHARE:.0%} of the memory that weights leave",
    )
    most = (MOST_SEQS, "more is never useful")
    value, reason = min(rate_bound, kv_bound, logits_bound, most, key=lambda bound: bound[0])
    return max(1, value), reason


def choose_max_num_batched_tokens(
    numbers: StepNumbers, model: ModelConfig, max_num_seqs: int
) -> tuple[int, str]:
    """Tokens per step, with the reason: some crossings, as far as activations leave room."""
    crossing = numbers.crossing
    if crossing is None:
        value, reason = TOKENS_UNKNOWN_RATE, "no rate or bandwidth of this device is known"
    else:
        value = _power_of_two(CROSSINGS_PER_STEP * crossing)
        value = min(max(value, FEWEST_TOKENS), MOST_TOKENS)
        reason = (
            f"a step turns compute-bound at {crossing} tokens; at about {CROSSINGS_PER_STEP} times "
            "that, reading the weights costs little"
        )
    per_token = activation_bytes_per_token(model, numbers.element_bytes)
    fitting = int(numbers.free_bytes * ACTIVATION_SHARE) // per_token
    if fitting < value:
        value = max(FEWEST_TOKENS, 1 << max(0, fitting.bit_length() - 1))
        reason = f"activations may take {ACTIVATION_SHARE:.0%} of the memory that weights leave"
    if value < max_num_seqs:
        return max_num_seqs, "one token for every request of a full step"
    return value, reason


def activation_bytes_per_token(model: ModelConfig, element_bytes: int) -> int:
    """Largest activations of one token that live at the same time, roughly.

    Residual, normed input and output; q, k, v and the attention output; gate, up and their product;
    and a float32 copy of the hidden state inside a norm.
    """
    heads = (2 * model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    elements = 4 * model.hidden_size + heads + 3 * model.intermediate_size
    return element_bytes * elements + 2 * 4 * model.hidden_size


def _power_of_two(value: int) -> int:
    """The power of two nearest to ``value`` on a scale of ratios."""
    lower = 1 << (value.bit_length() - 1)
    return lower if value * value <= 2 * lower * lower else 2 * lower
