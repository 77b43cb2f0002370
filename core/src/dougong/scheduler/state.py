"""What the scheduler knows of one live request."""

from __future__ import annotations

from enum import Enum

from dougong.kv_cache.block_table import BlockTable
from dougong.messages import Request, TokenLogprobs


class Phase(Enum):
    """Where a request stands."""

    HELD = "held"  # a fork, until the prompt it shares is computed
    WAITING = "waiting"  # in the queue, holds no block
    PREFILLING = "prefilling"  # running, and more than one known token is not computed
    DECODING = "decoding"  # running, and only its last token is not computed
    GONE = "gone"  # finished or aborted


class SequenceState:
    """One request, from its arrival to its end.

    Attributes:
        order: ``(rank, arrival number)``; lower runs first and is preempted last. The rank is the
            priority under that policy and 0 under fcfs.
        token_ids: Every token known: the prompt, then what was generated.
        stop_token_ids: Ids that end the text: eos, unless it is ignored, and the stop ids.
        max_len: Length of ``token_ids`` at which the request ends.
        min_stop_len: Length of ``token_ids`` from which on the next token may be a stop token.
        quiet_until: While ``token_ids`` is shorter than this, one more token that is no stop token
            changes nothing else: no end, no new block. 0 in every phase but ``DECODING``, and where
            log-probabilities go with each token.
        num_computed_tokens: Leading tokens whose keys and values exist; kept while
            ``PREFILLING`` (a decoding request has computed all but its last token).
        num_cached_tokens: Prompt tokens the first admission found computed; ``None`` before it.
        num_free_needed: Free blocks the last failed admission asked for.
        prompt_logprobs: Of the prompt as far as it is computed, where asked for, until they are
            handed on with the first token.
        preempted_in: Step in which it was preempted last.
        parent: The request whose prompt it repeats, if any.
        forks: Requests held until this one's prompt is computed.
    """

    __slots__ = (
        "forks",
        "max_len",
        "min_stop_len",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_free_needed",
        "num_prompt_tokens",
        "order",
        "parent",
        "phase",
        "preempted_in",
        "prompt_logprobs",
        "quiet_until",
        "request",
        "request_id",
        "stop_token_ids",
        "table",
        "token_ids",
    )

    def __init__(
        self, request: Request, *, order: tuple[int, int], table: BlockTable, max_len: int
    ) -> None:
        params = request.sampling_params
        stop_token_ids = frozenset(params.stop_token_ids)
        self.request = request
        self.request_id = request.request_id
        self.order = order
        self.table = table
        self.token_ids = list(request.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.stop_token_ids = (
            stop_token_ids if params.ignore_eos else stop_token_ids | request.eos_token_ids
        )
        self.max_len = max_len
        self.min_stop_len = self.num_prompt_tokens + params.min_tokens
        self.phase = Phase.WAITING
        self.quiet_until = 0
        self.num_computed_tokens = 0
        self.num_cached_tokens: int | None = None
        self.num_free_needed = 0
        self.preempted_in: int | None = None
        self.prompt_logprobs: list[TokenLogprobs] = []
        self.parent: SequenceState | None = None
        self.forks: list[SequenceState] = []

    def outranks(self, other: SequenceState) -> bool:
        """Whether this one goes first whenever it arrived; never under fcfs."""
        return self.order[0] < other.order[0]

    @property
    def is_running(self) -> bool:
        """Whether it holds blocks."""
        return self.phase is Phase.DECODING or self.phase is Phase.PREFILLING

    @property
    def must_read_prompt(self) -> bool:
        """Whether no cached block may stand for a token: log-probabilities of all are due."""
        asked = self.request.sampling_params.prompt_logprobs is not None
        return asked and self.num_generated_tokens == 0

    @property
    def takes_vector(self) -> bool:
        """Whether its whole prompt is computed, and a vector is due."""
        return self.phase is Phase.DECODING and self.request.pooling_params is not None

    @property
    def num_generated_tokens(self) -> int:
        """Tokens beyond the prompt."""
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def num_settled_tokens(self) -> int:
        """Leading tokens whose keys and values exist after the last finished step."""
        if self.phase is Phase.DECODING:
            return len(self.token_ids) - 1
        return self.num_computed_tokens
