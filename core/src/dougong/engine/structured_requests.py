"""Requests whose text follows a grammar: compiled before they are scheduled, followed until they
end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace

import torch

from dougong.contracts import GrammarMask
from dougong.engine.structured_delta import ended_by, followed
from dougong.errors import DougongError, RequestError
from dougong.grammar import GrammarCompiler, GrammarFollower, GrammarVocabulary, MaskJob, MaskMaker
from dougong.messages import Request, RequestDelta

_WAIT_S = 0.01  # at a time, so that commands are taken meanwhile


@dataclass(frozen=True, slots=True)
class StructuredStats:
    """What structured output took so far.

    Attributes:
        num_compiling: Requests that wait for their grammar.
        num_following: Requests whose text follows one.
        num_compiled: Grammars compiled.
        compile_s: Seconds that took, beside the steps.
        num_masks: Masks computed, one for each token of such a text.
        mask_s: Seconds they took, beside the forward.
        waited_s: Seconds that steps waited for masks which were not ready after the forward.
    """

    num_compiling: int = 0
    num_following: int = 0
    num_compiled: int = 0
    compile_s: float = 0.0
    num_masks: int = 0
    mask_s: float = 0.0
    waited_s: float = 0.0


class StructuredRequests:
    """Those of one engine; nothing is made before the first.

    Args:
        make_vocabulary: The model's tokens; called once, in a thread.
    """

    def __init__(self, make_vocabulary: Callable[[], GrammarVocabulary], vocab_size: int) -> None:
        self._make_vocabulary = make_vocabulary
        self._num_words = -(-vocab_size // 32)
        self._compiler: GrammarCompiler | None = None
        self._masks: MaskMaker | None = None
        self._compiling: dict[str, tuple[Request, Future[GrammarFollower]]] = {}
        self._following: dict[str, GrammarFollower] = {}

    def add(self, request: Request) -> None:
        """Have the grammar of a request compiled; `admit` hands the request on.

        Raises:
            RequestError: Its id is in use.
        """
        if request.request_id in self._compiling or request.request_id in self._following:
            raise RequestError(
                f"request_id={request.request_id!r} is in use by a request that has not ended. "
                "Use another id.",
                field="request_id",
            )
        if self._compiler is None:
            self._compiler = GrammarCompiler(self._make_vocabulary)
            self._masks = MaskMaker()
        wish = request.sampling_params.structured_output
        assert wish is not None, "others go to the scheduler at once"
        self._compiling[request.request_id] = (request, self._compiler.compile(wish))

    def has_waiting(self) -> bool:
        """Whether any request waits for its grammar."""
        return bool(self._compiling)

    def wait(self) -> None:
        """Wait a moment for a grammar; the caller has nothing else to do."""
        wait([future for _, future in self._compiling.values()], _WAIT_S, FIRST_COMPLETED)

    def admit(self, schedule: Callable[[Request], None]) -> list[RequestDelta]:
        """Hand on requests whose grammar is there, in their order.

        A stop token counts as one whenever the grammar lets it be drawn, so ``min_tokens`` is
        obeyed in the masks and not by the scheduler.

        Args:
            schedule: Takes a request in, or refuses it.

        Returns:
            The ends of those that are refused.
        """
        refused = []
        ready = [one for one, (_, future) in self._compiling.items() if future.done()]
        for request_id in ready:
            request, future = self._compiling.pop(request_id)
            params = request.sampling_params
            try:
                compiled = future.result()
                schedule(replace(request, sampling_params=replace(params, min_tokens=0)))
            except DougongError as exc:
                refused.append(ended_by(exc, request_id))
                continue
            quiet_ids = request.eos_token_ids | set(params.stop_token_ids)
            self._following[request_id] = compiled.copy(
                quiet_ids=sorted(quiet_ids), min_tokens=params.min_tokens
            )
        return refused

    def abort(self, request_ids: Iterable[str]) -> list[str]:
        """Forget requests that end; those among them that only this object knew."""
        unknown = []
        for request_id in request_ids:
            self._following.pop(request_id, None)
            if self._compiling.pop(request_id, None) is not None:
                unknown.append(request_id)
        return unknown

    def start_masks(self, due: Callable[[Sequence[str]], list[str]]) -> PendingMask | None:
        """Begin with the masks of a step.

        Args:
            due: Which of some requests the step samples.

        Returns:
            ``None`` where it samples none that follows a grammar.
        """
        if not self._following:
            return None
        req_ids = due(tuple(self._following))
        if not req_ids:
            return None
        assert self._masks is not None, "made for the first request"
        followers = {req_id: self._following[req_id] for req_id in req_ids}
        return PendingMask(self._masks.start(followers, self._num_words))

    def take(self, deltas: list[RequestDelta]) -> tuple[list[RequestDelta], list[str]]:
        """Let the texts of a step go on with its tokens.

        Returns:
            What is told of the step, and the requests to end because their text is complete or can
            not go on.
        """
        if not self._following:
            return deltas, []
        told, ended = [], []
        for delta in deltas:
            follower = self._following.get(delta.request_id)
            if follower is None:
                told.append(delta)
                continue
            own = followed(follower, delta)
            if own.finish_reason is not None:
                del self._following[delta.request_id]
                if delta.finish_reason is None:
                    ended.append(delta.request_id)
            told.append(own)
        return told, ended

    def stats(self) -> StructuredStats:
        """So far."""
        compiler, masks = self._compiler, self._masks
        if compiler is None or masks is None:
            return StructuredStats()
        return StructuredStats(
            num_compiling=len(self._compiling),
            num_following=len(self._following),
            num_compiled=compiler.num_compiled,
            compile_s=compiler.seconds,
            num_masks=masks.num_masks,
            mask_s=masks.seconds,
            waited_s=masks.waited_s,
        )

    def close(self) -> None:
        """End the threads; callable twice."""
        for one in (self._compiler, self._masks):
            if one is not None:
                one.close()


class PendingMask:
    """A mask that is being computed; call it for the mask."""

    def __init__(self, job: MaskJob) -> None:
        self._job = job

    def __call__(self) -> GrammarMask:
        """Wait for it."""
        return GrammarMask(self._job.req_ids, torch.from_numpy(self._job.result()))
