"""What a client asks for: `SamplingParams` and the tokenized `Request`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dougong.errors import RequestError

MAX_STOP_STRINGS = 16
MAX_STOP_TOKEN_IDS = 128
MAX_LOGPROBS = 20
MAX_SEQUENCES_PER_REQUEST = 128
MIN_TEMPERATURE = 1e-4  # below it float32 logits overflow, and it would be greedy all the same


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose tokens and when to stop; checked when made.

    Attributes:
        n: Sequences generated for the one prompt. Sequence ``i`` uses ``seed + i``.
        temperature: 0 is greedy (ties go to the lowest id); otherwise logits are divided by it,
            from 1e-4 to 1e4.
        top_k: Keep the ``top_k`` most likely tokens; 0 keeps all.
        top_p: Keep the smallest set whose probability reaches it; the token that crosses stays.
        seed: Makes this request's draw repeatable whatever else is in the batch; ``None`` draws
            one.
        max_tokens: Tokens generated at most; ``None`` means up to the model length.
        min_tokens: Stop tokens (eos included) cannot be drawn before this many tokens exist.
        stop: Strings that end the text, one alone or several, kept as a tuple; none of their
            characters is shown unless ``include_stop_str_in_output``.
        stop_token_ids: Token ids that end the text beside eos.
        ignore_eos: Go on after eos (for measurement).
        include_stop_str_in_output: Keep the stop string in the text.
        skip_special_tokens: Leave special tokens out of the text.
        logprobs: Also return the log-probabilities of this many most likely tokens per position
            (0: of the drawn token alone); ``None`` returns none.

    Raises:
        RequestError: A value is out of range; the error names the field.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None

    def __post_init__(self) -> None:
        """Normalise sequences to tuples, then check every field."""
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        object.__setattr__(self, "stop", tuple(self.stop))
        object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        self._check_types()
        self._check_ranges()
        self._check_stops()

    def _check_types(self) -> None:
        """A number of the wrong kind must not travel as far as the device."""
        for field in ("n", "top_k", "min_tokens"):
            _check_is(field, getattr(self, field), int, "an integer")
        for field in ("seed", "max_tokens", "logprobs"):
            if getattr(self, field) is not None:
                _check_is(field, getattr(self, field), int, "an integer or nothing")
        for field in ("temperature", "top_p"):
            _check_is(field, getattr(self, field), (int, float), "a number")
        for text in self.stop:
            _check_is("stop", text, str, "strings")
        for token_id in self.stop_token_ids:
            _check_is("stop_token_ids", token_id, int, "integers")

    def _check_ranges(self) -> None:
        _check("n", self.n, 1 <= self.n <= MAX_SEQUENCES_PER_REQUEST, "from 1 to 128")
        is_temperature = self.temperature == 0 or MIN_TEMPERATURE <= self.temperature <= 1e4
        _check("temperature", self.temperature, is_temperature, "0 (greedy), or from 1e-4 to 1e4")
        _check("top_k", self.top_k, 0 <= self.top_k < 2**31, "0 (all tokens) or above")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        if self.seed is not None:
            _check("seed", self.seed, 0 <= self.seed < 2**63, "from 0 to 2**63 - 1")
        if self.max_tokens is not None:
            _check("max_tokens", self.max_tokens, self.max_tokens >= 1, "1 or above")
            is_below = 0 <= self.min_tokens <= self.max_tokens
            _check(
                "min_tokens", self.min_tokens, is_below, f"from 0 to max_tokens={self.max_tokens}"
            )
        else:
            _check("min_tokens", self.min_tokens, self.min_tokens >= 0, "0 or above")
        if self.logprobs is not None:
            is_logprobs = 0 <= self.logprobs <= MAX_LOGPROBS
            _check("logprobs", self.logprobs, is_logprobs, f"from 0 to {MAX_LOGPROBS}")

    def _check_stops(self) -> None:
        _check("stop", len(self.stop), len(self.stop) <= MAX_STOP_STRINGS, "at most 16 strings")
        if any(not text for text in self.stop):
            raise RequestError(
                "stop holds an empty string, which would end any text at once; leave it out.",
                field="stop",
            )
        count = len(self.stop_token_ids)
        _check("stop_token_ids", count, count <= MAX_STOP_TOKEN_IDS, "at most 128 ids")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0


def _check_is(field: str, value: object, kind: type | tuple[type, ...], wanted: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise RequestError(
            f"{field}={value!r} is of type {type(value).__name__}; it takes {wanted}.", field=field
        )


def _check(field: str, value: object, holds: bool, wanted: str) -> None:
    if not holds:
        raise RequestError(f"{field}={value} is out of range; it takes {wanted}.", field=field)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to generate, as the engine receives it.

    Attributes:
        request_id: Unique among the live requests of an engine.
        prompt_token_ids: Never empty; every id inside the vocabulary (checked by the front end).
        sampling_params: With ``n == 1``; the front end makes ``n`` requests of one prompt.
        eos_token_ids: Ids that end the text unless ``ignore_eos``.
        priority: Lower runs first under the ``priority`` policy; equal ones by arrival.
        arrival_s: ``time.monotonic()`` at the front end.
        fork_of: The request whose prompt this one repeats (sequence 0 of an ``n > 1``), if any;
            lets the scheduler share its blocks even with the prefix cache off.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling_params: SamplingParams
    eos_token_ids: frozenset[int] = frozenset()
    priority: int = 0
    arrival_s: float = 0.0
    fork_of: str | None = None
