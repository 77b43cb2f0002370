"""What a client asks for: `SamplingParams` and the tokenized `Request`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dougong.errors import RequestError
from dougong.messages.lora import LoRARef
from dougong.messages.pooling import PoolingParams
from dougong.messages.sampling_checks import (
    bias_pairs,
    check,
    check_is,
    check_length,
    check_number,
    tuple_of,
)
from dougong.messages.structured_output import StructuredOutput

MAX_STOP_STRINGS = 16
MAX_STOP_TOKEN_IDS = 128
MAX_LOGPROBS = 20
MAX_SEQUENCES_PER_REQUEST = 128
MAX_LOGIT_BIAS = 1024
MAX_ALLOWED_TOKEN_IDS = 4096
MAX_BAD_WORDS = 128
MAX_BAD_TOKEN_IDS = 512  # sequences; those that bad words become among them
MAX_BAD_SEQUENCE = 32  # tokens of one
MIN_TEMPERATURE = 1e-4  # below it float32 logits overflow, and it would be greedy all the same
MOST_REPETITION = 100.0  # as a factor and as a divisor
MOST_PENALTY = 2.0
MOST_BIAS = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to choose tokens and when to stop; checked when made.

    Logits change in this order: penalties, ``logit_bias``, ``allowed_token_ids``,
    ``structured_output``, what is forbidden now (bad words, stop tokens before ``min_tokens``),
    temperature, ``min_p``, ``top_k``,
    ``top_p``.

    Attributes:
        n: Sequences generated for the one prompt. Sequence ``i`` uses ``seed + i``.
        temperature: 0 is greedy (ties go to the lowest id); otherwise logits are divided by it,
            from 1e-4 to 1e4.
        top_k: Keep the ``top_k`` most likely tokens; 0 keeps all.
        top_p: Keep the smallest set whose probability reaches it; the token that crosses stays.
        min_p: Keep tokens at least this share as likely as the likeliest one; 0 keeps all.
        repetition_penalty: Of a token that the prompt or the output holds, a logit above 0 is
            divided by it and one below 0 multiplied; from 0.01 to 100, 1 changes nothing.
        frequency_penalty: Taken from a token's logit for each time the output holds it; from -2
            to 2.
        presence_penalty: Taken once from the logit of every token that the output holds; from -2
            to 2.
        logit_bias: Added to the logits of these token ids, from -100 to 100 each; kept as pairs. At
            most 1024.
        allowed_token_ids: No other token is generated; ``None`` allows all. At most 4096.
        bad_words: Texts that are not generated: the tokens that each becomes alone and after a
            space, at most 32. A text may still come about by other tokens. One alone or at most
            128.
        bad_token_ids: Sequences of token ids that are not generated; the last id is forbidden
            where the output ends with the others. At most 512 with those of ``bad_words``, of at
            most 32 ids.
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
            (0: of the drawn token alone); ``None`` returns none. They are the model's own, before
            anything above changes its logits.
        prompt_logprobs: The same of the prompt's tokens, from the second on. Such a request reads
            its whole prompt anew, whatever the prefix cache holds.
        structured_output: What the text must look like; only tokens that keep it so are drawn, and
            the text ends where nothing may follow. ``max_tokens`` can cut it short.

    Raises:
        RequestError: A value is out of range; the error names the field.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]] = ()
    allowed_token_ids: Sequence[int] | None = None
    bad_words: Sequence[str] = ()
    bad_token_ids: Sequence[Sequence[int]] = ()
    seed: int | None = None
    max_tokens: int | None = 16
    min_tokens: int = 0
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    structured_output: StructuredOutput | None = None

    def __post_init__(self) -> None:
        """Normalise sequences to tuples, then check every field."""
        for field in ("stop", "bad_words"):
            given = getattr(self, field)
            texts = (given,) if isinstance(given, str) else tuple_of(field, given, "strings")
            object.__setattr__(self, field, texts)
        for field in ("stop_token_ids", "allowed_token_ids", "bad_token_ids"):
            if (given := getattr(self, field)) is not None:
                object.__setattr__(self, field, tuple_of(field, given, "token ids"))
        if self.bad_token_ids:
            words = tuple(tuple_of("bad_token_ids", ids, "token ids") for ids in self.bad_token_ids)
            object.__setattr__(self, "bad_token_ids", words)
        if self.logit_bias != ():
            pairs = () if self.logit_bias is None else bias_pairs("logit_bias", self.logit_bias)
            object.__setattr__(self, "logit_bias", pairs)
        self._check_types()
        self._check_ranges()
        self._check_penalties()
        self._check_stops()
        self._check_tokens()

    def _check_types(self) -> None:
        """A number of the wrong kind must not travel as far as the device."""
        for field in ("n", "top_k", "min_tokens"):
            check_is(field, getattr(self, field), int, "an integer")
        for field in ("seed", "max_tokens", "logprobs", "prompt_logprobs"):
            if getattr(self, field) is not None:
                check_is(field, getattr(self, field), int, "an integer or nothing")
        for field in _NUMBERS:
            check_is(field, getattr(self, field), (int, float), "a number")
        for field in ("stop", "bad_words"):
            for text in getattr(self, field):
                check_is(field, text, str, "strings")
        for field in ("stop_token_ids", "allowed_token_ids"):
            for token_id in getattr(self, field) or ():
                check_is(field, token_id, int, "integers")
        for token_ids in self.bad_token_ids:
            for token_id in token_ids:
                check_is("bad_token_ids", token_id, int, "integers")
        if self.structured_output is not None:
            wanted = "a StructuredOutput"
            check_is("structured_output", self.structured_output, StructuredOutput, wanted)

    def _check_ranges(self) -> None:
        check("n", self.n, 1 <= self.n <= MAX_SEQUENCES_PER_REQUEST, "from 1 to 128")
        is_temperature = self.temperature == 0 or MIN_TEMPERATURE <= self.temperature <= 1e4
        check("temperature", self.temperature, is_temperature, "0 (greedy), or from 1e-4 to 1e4")
        check("top_k", self.top_k, 0 <= self.top_k < 2**31, "0 (all tokens) or above")
        check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        check_number("min_p", self.min_p, 0, 1)
        if self.seed is not None:
            check("seed", self.seed, 0 <= self.seed < 2**63, "from 0 to 2**63 - 1")
        if self.max_tokens is not None:
            check("max_tokens", self.max_tokens, self.max_tokens >= 1, "1 or above")
            is_below = 0 <= self.min_tokens <= self.max_tokens
            check(
                "min_tokens", self.min_tokens, is_below, f"from 0 to max_tokens={self.max_tokens}"
            )
        else:
            check("min_tokens", self.min_tokens, self.min_tokens >= 0, "0 or above")
        for field in ("logprobs", "prompt_logprobs"):
            if (count := getattr(self, field)) is not None:
                check_number(field, count, 0, MAX_LOGPROBS)

    def _check_penalties(self) -> None:
        lowest = 1 / MOST_REPETITION
        check_number("repetition_penalty", self.repetition_penalty, lowest, MOST_REPETITION)
        check_number("frequency_penalty", self.frequency_penalty, -MOST_PENALTY, MOST_PENALTY)
        check_number("presence_penalty", self.presence_penalty, -MOST_PENALTY, MOST_PENALTY)
        check_length("logit_bias", self._bias, MAX_LOGIT_BIAS, "token ids")
        for _, number in self._bias:
            check_number("logit_bias", number, -MOST_BIAS, MOST_BIAS)

    def _check_stops(self) -> None:
        check("stop", len(self.stop), len(self.stop) <= MAX_STOP_STRINGS, "at most 16 strings")
        for field, texts in (("stop", self.stop), ("bad_words", self.bad_words)):
            if any(not text for text in texts):
                raise RequestError(
                    f"{field} holds an empty string, which every text has at once; leave it out.",
                    field=field,
                )
        count = len(self.stop_token_ids)
        check("stop_token_ids", count, count <= MAX_STOP_TOKEN_IDS, "at most 128 ids")

    def _check_tokens(self) -> None:
        check_length("bad_words", self.bad_words, MAX_BAD_WORDS, "strings")
        words = self.bad_token_ids
        check_length("bad_token_ids", words, MAX_BAD_TOKEN_IDS, "sequences, bad_words among them")
        for token_ids in words:
            is_length = 1 <= len(token_ids) <= MAX_BAD_SEQUENCE
            check("bad_token_ids", token_ids, is_length, f"sequences of 1 to {MAX_BAD_SEQUENCE}")
        allowed = self.allowed_token_ids
        if self.structured_output is not None:
            self._check_beside_structured_output()
        if allowed is not None:
            check_length("allowed_token_ids", allowed, MAX_ALLOWED_TOKEN_IDS, "ids")
            check("allowed_token_ids", allowed, bool(allowed), "one id at least, or nothing")

    def _check_beside_structured_output(self) -> None:
        """Two rules about the next token could leave none."""
        for field in ("allowed_token_ids", "bad_words", "bad_token_ids"):
            if getattr(self, field):
                raise RequestError(
                    f"{field} does not go with structured_output: together they could leave no "
                    "token to go on with. Say in the grammar what may not come.",
                    field=field,
                )
        if self.ignore_eos:
            raise RequestError(
                "ignore_eos=True does not go with structured_output, whose text ends where it is "
                "complete. Leave ignore_eos out.",
                field="ignore_eos",
            )

    @property
    def _bias(self) -> tuple[tuple[int, float], ...]:
        assert isinstance(self.logit_bias, tuple), "made one when this object was made"
        return self.logit_bias

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether tokens that were seen before become more or less likely."""
        penalties = (self.repetition_penalty, self.frequency_penalty, self.presence_penalty)
        return penalties != (1, 0, 0)


_NUMBERS = (
    "temperature",
    "top_p",
    "min_p",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
)


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
        lora: Adapter whose part is added to the model's weights; ``None``: the model alone.
        pooling_params: One vector is wanted, and nothing is generated; ``None``: a text is.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling_params: SamplingParams
    eos_token_ids: frozenset[int] = frozenset()
    priority: int = 0
    arrival_s: float = 0.0
    fork_of: str | None = None
    lora: LoRARef | None = None
    pooling_params: PoolingParams | None = None
