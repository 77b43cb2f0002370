"""Are a platform's questions free of side effects, and its answers the same every time?"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dougong.contracts import (
    AttentionBackend,
    AttentionPhase,
    AttentionRequest,
    Claims,
    DeviceFacts,
    KVCacheSpec,
    Platform,
)

_HEAD_SIZES = (64, 80, 128, 256)
_NUM_TOKENS = 256
_UNKNOWN_ARCH = "no such family"
_NAMED_CLASSES = (
    "get_worker_cls",
    "get_device_communicator_cls",
    "get_graph_runner_cls",
    "get_punica_wrapper",
    "get_attn_backends",
    "get_supported_quantization",
)


@dataclass(frozen=True, slots=True)
class _Query:
    """One question.

    Attributes:
        name: As problems are told.
        ask: Asks it, and returns what must stay the same.
        is_safe: It may be asked before a device is set.
    """

    name: str
    ask: Callable[[], Any]
    is_safe: bool = True


def query_problems(platform: Platform, device_index: int, archs: Sequence[str]) -> list[str]:
    """Ask everything twice, in order and in reverse, before and after the device is set.

    Asked are `Platform.claims`, `Platform.facts`, the ``get_*`` methods, and of every attention
    backend `AttentionBackend.supports`, `AttentionBackend.kv_layout` and
    `AttentionBackend.workspace_bytes` for a range of requests. `DeviceFacts.memory_free_bytes` may
    change between two questions and is left out of the comparison. Facts that open a context (as
    `Platform.facts_open_context` says) are asked only once the device is set.

    Whether a question opened a device context is seen where torch's module of the device type has
    ``is_initialized``; where it has not, or says yes from the start, nobody can tell.

    Args:
        platform: To ask; its device is opened on the way.
        device_index: Within the platform.
        archs: Families to ask claims for; one that nobody knows is asked for as well.

    Returns:
        What is wrong, one sentence each; empty: nothing.
    """
    was_open = _has_context(platform.device_type)
    problems: list[str] = []
    queries = list(_queries(platform, device_index, archs, problems))
    if problems:
        return problems
    before = [query for query in queries if query.is_safe]
    answers: dict[str, Any] = {}
    for turn in (before, before, before[::-1]):
        problems += _ask_all(turn, answers, "asked again")
    problems += _interleaved(before, answers)
    if was_open is False and _has_context(platform.device_type):
        problems.append("the questions opened a device context before the device was set")
    try:
        platform.runtime.set_device(device_index)
    except Exception as exc:  # noqa: BLE001 - third-party code; the reason is told
        return [*problems, f"set_device({device_index}) raised {type(exc).__name__}: {exc}"]
    for turn in (queries, queries[::-1]):
        problems += _ask_all(turn, answers, "asked after the device was set")
    return list(dict.fromkeys(problems))


def _ask_all(queries: Sequence[_Query], answers: dict[str, Any], when: str) -> Iterator[str]:
    for query in queries:
        try:
            answer = query.ask()
        except Exception as exc:  # noqa: BLE001 - third-party code; the reason is told
            yield f"{query.name} raised {type(exc).__name__}: {exc}"
            continue
        first = answers.setdefault(query.name, answer)
        if answer != first:
            yield f"{query.name}, {when}, answered {answer!r}; before {first!r}"


def _interleaved(queries: Sequence[_Query], answers: dict[str, Any]) -> Iterator[str]:
    """Each question right before and right after one from the other end."""
    for query, other in zip(queries, queries[::-1], strict=True):
        yield from _ask_all((query, other, query), answers, f"asked around {other.name}")


def _queries(
    platform: Platform, device_index: int, archs: Sequence[str], problems: list[str]
) -> Iterator[_Query]:
    for arch in dict.fromkeys((*archs, _UNKNOWN_ARCH)):
        yield _Query(f"claims({arch!r})", partial(_claims, platform, arch))
    yield _Query(
        f"facts({device_index})",
        partial(_facts, platform, device_index),
        is_safe=not platform.facts_open_context,
    )
    for name in _NAMED_CLASSES:
        yield _Query(f"{name}()", partial(_named, platform, name))
    try:
        claims = platform.claims(archs[0] if archs else _UNKNOWN_ARCH)
        backends = [_load(target) for target in platform.get_attn_backends().values()]
    except Exception as exc:  # noqa: BLE001 - third-party code; the reason is told
        problems.append(f"its backends cannot be asked: {type(exc).__name__}: {exc}")
        return
    for request in _requests(claims):
        yield _Query(
            f"get_attn_backend_cls({request})",
            partial(platform.get_attn_backend_cls, request),
        )
    for backend in backends:
        yield from _backend_queries(backend, claims)


def _claims(platform: Platform, arch: str) -> Claims:
    answer: object = platform.claims(arch)
    if not isinstance(answer, Claims):
        raise TypeError(f"it answered {answer!r}, not Claims")
    return answer


def _facts(platform: Platform, device_index: int) -> DeviceFacts:
    answer: object = platform.facts(device_index)
    if not isinstance(answer, DeviceFacts):
        raise TypeError(f"it answered {answer!r}, not DeviceFacts")
    return replace(answer, memory_free_bytes=None)


def _named(platform: Platform, method: str) -> Any:
    """A copy of the answer that a later change cannot reach, order included."""
    answer = getattr(platform, method)()
    if isinstance(answer, dict):
        return tuple(answer.items())
    return tuple(answer) if isinstance(answer, list) else answer


def _load(target: str) -> AttentionBackend:
    module, _, name = target.partition(":")
    backend: AttentionBackend = getattr(importlib.import_module(module), name)()
    return backend


def _requests(claims: Claims) -> Iterator[AttentionRequest]:
    plain = AttentionRequest(
        num_heads=8, num_kv_heads=2, head_dim=64, dtype=claims.dtypes[0], kv_dtype=claims.dtypes[0]
    )
    yield from (replace(plain, head_dim=size) for size in _HEAD_SIZES)
    yield from (replace(plain, dtype=dtype, kv_dtype=dtype) for dtype in claims.dtypes[1:])
    yield from (replace(plain, kv_dtype=dtype) for dtype in claims.kv_dtypes)
    yield from (replace(plain, block_size=size) for size in claims.kv_block_sizes)
    yield from (replace(plain, phase=phase) for phase in AttentionPhase)
    yield replace(plain, sliding_window=128)
    yield replace(plain, soft_cap=50.0)
    yield replace(plain, has_sinks=True)
    yield replace(plain, needs_graph=True)
    yield replace(plain, is_mla=True, kv_lora_rank=512, rope_head_dim=64)


def _backend_queries(backend: AttentionBackend, claims: Claims) -> Iterator[_Query]:
    for request in dict.fromkeys(_requests(claims)):
        name = f"{backend.name}: supports({request})"
        yield _Query(name, partial(backend.supports, request))
        try:
            is_taken = bool(backend.supports(request))
        except Exception:  # noqa: BLE001 - asked again below, where the reason is told
            continue
        if not is_taken or request.is_mla:
            continue
        spec = KVCacheSpec(
            num_kv_heads=request.num_kv_heads,
            head_dim=request.head_dim,
            dtype=request.kv_dtype,
            block_size=request.block_size or claims.kv_block_sizes[0],
            sliding_window=request.sliding_window,
        )
        yield _Query(f"{backend.name}: kv_layout({spec})", partial(backend.kv_layout, spec))
        yield _Query(
            f"{backend.name}: workspace_bytes({request})",
            partial(backend.workspace_bytes, request, _NUM_TOKENS),
        )


def _has_context(device_type: str) -> bool | None:
    """Whether torch has opened this kind of device in this process; ``None``: nobody can tell."""
    import torch

    try:
        module: Any = torch.get_device_module(device_type)
        return bool(module.is_initialized())
    except (AttributeError, RuntimeError):
        return None
