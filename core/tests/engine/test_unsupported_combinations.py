"""Every unsupported combination of a generated list is refused at the start, before weights.

The folder of each model holds a config.json and nothing else, so a refusal cannot have read a
weight; a second judgement, made of the claims and of each backend's limits alone, says which
combinations there are. What is refused names the option, the value and every candidate's reason.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dougong.attention.loading import load_backends
from dougong.checkpoint import resolve_reference
from dougong.config import EngineArgs
from dougong.contracts import AttentionLimits, AttentionRequest, KVCacheSpec, Support
from dougong.engine.planning import plan_start
from dougong.errors import ConfigError
from dougong.platforms import LoadedPlatform, open_platform, read_capabilities
from tests.support.installed_stubs import Installed
from tests.support.stub_attention import StubBackend, attention_platform
from tests.support.tiny_models import tiny_config

SEED = 20261130
NUM_CASES = 250
HEAD_DIMS = (32, 64, 80, 128, 256)
DTYPES = ("float32", "bfloat16", "float16", "float64", "int8")
KV_DTYPES = ("float32", "bfloat16", "float8_e4m3fn", "int4")
BLOCK_SIZES = (1, 16, 24, 32, 100, 128)
WINDOWS = (8,)
"""Of Mistral models; ``None``: a Llama."""
NARROW = StubBackend(
    name="acme/narrow",
    limits=('dtypes=frozenset({"float32"}), head_sizes=frozenset({64, 128}), block_sizes=(16, 32)'),
)


@dataclass(frozen=True)
class Combination:
    """What the user and the checkpoint ask for together."""

    head_dim: int
    window: int | None
    dtype: str | None
    kv_cache_dtype: str | None
    block_size: int | None
    attention_backend: str | None

    def args(self, model: str, platform: str) -> EngineArgs:
        """As the command line gives it."""
        return EngineArgs(
            model=model,
            platform=platform,
            dtype=self.dtype,
            kv_cache_dtype=self.kv_cache_dtype,
            block_size=self.block_size,
            attention_backend=self.attention_backend,
        )

    def config(self) -> dict[str, Any]:
        """The checkpoint's."""
        config = tiny_config(head_dim=self.head_dim, num_attention_heads=2, num_key_value_heads=1)
        if self.window is not None:
            config |= {
                "architectures": ["MistralForCausalLM"],
                "model_type": "mistral",
                "sliding_window": self.window,
            }
        return config


def combinations(backends: list[str], count: int) -> Iterator[Combination]:
    """A fixed sample of all that can be asked for; half of the options are left open."""
    chance = random.Random(SEED)

    def some(values: Sequence[Any]) -> Any:
        return None if chance.random() < 0.5 else chance.choice(values)

    for _ in range(count):
        yield Combination(
            head_dim=chance.choice(HEAD_DIMS),
            window=some(WINDOWS),
            dtype=some(DTYPES),
            kv_cache_dtype=some(KV_DTYPES),
            block_size=some(BLOCK_SIZES),
            attention_backend=some((*backends, "acme/nope")),
        )


def is_supported(asked: Combination, loaded: LoadedPlatform) -> bool:
    """A judgement of its own: claims, and what each backend says to the one question."""
    claims = loaded.platform.claims(loaded.selection.devices[0].arch)
    dtype = asked.dtype or ("float32" if "float32" in claims.dtypes else claims.dtypes[0])
    kv_dtype = asked.kv_cache_dtype or dtype
    if dtype not in claims.dtypes or kv_dtype not in claims.kv_dtypes:
        return False
    if asked.block_size is not None and asked.block_size not in claims.kv_block_sizes:
        return False
    backends = load_backends(loaded.platform)
    named = backends if asked.attention_backend is None else {asked.attention_backend}
    for name in named:
        if name not in backends:
            continue
        request = AttentionRequest(
            num_heads=2,
            num_kv_heads=1,
            head_dim=asked.head_dim,
            dtype=dtype,
            kv_dtype=kv_dtype,
            block_size=asked.block_size,
            sliding_window=asked.window,
        )
        spec = KVCacheSpec(
            num_kv_heads=1,
            head_dim=asked.head_dim,
            dtype=kv_dtype,
            block_size=asked.block_size or claims.kv_block_sizes[0],
            sliding_window=asked.window,
        )
        if not backends[name].supports(request):
            continue
        layout = backends[name].kv_layout(spec)
        sizes = set(layout.block_sizes) & set(claims.kv_block_sizes)
        if sizes and (asked.block_size is None or asked.block_size in sizes):
            return True
    return False


def disagreements(
    loaded: LoadedPlatform,
    folder: Path,
    cases: Sequence[Combination],
    *,
    plant: Callable[[], None] | None = None,
) -> list[str]:
    """Where a start and the second judgement differ, or a refusal says too little.

    Args:
        loaded: The platform.
        folder: For the models.
        cases: Combinations to try.
        plant: Breaks the core after the second judgement was made.
    """
    capabilities = read_capabilities(loaded, 0)
    names = list(load_backends(loaded.platform))
    legal = [is_supported(asked, loaded) for asked in cases]
    if plant is not None:
        plant()
    wrong = list[str]()
    for index, (asked, is_legal) in enumerate(zip(cases, legal, strict=True)):
        model = folder / str(index)
        model.mkdir()
        (model / "config.json").write_text(json.dumps(asked.config()))
        files = resolve_reference(str(model), needs_weights=False)
        args = asked.args(str(model), loaded.platform.name)
        try:
            plan_start(args, loaded, files, capabilities=capabilities)
        except ConfigError as error:
            wrong += _problems(asked, str(error), names, is_legal)
        else:
            wrong += [] if is_legal else [f"{asked} was accepted"]
    return wrong


@pytest.mark.parametrize("platform", ["cpu", "acme"])
def test_what_is_unsupported_is_refused_from_the_config_alone_and_nothing_else_is(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Installed(tmp_path / "stubs", monkeypatch).add(attention_platform("acme", NARROW))
    loaded = open_platform(platform)
    cases = list(combinations(list(load_backends(loaded.platform)), NUM_CASES))
    assert NUM_CASES // 10 < sum(is_supported(asked, loaded) for asked in cases) < NUM_CASES // 2
    wrong = disagreements(loaded, tmp_path, cases)
    assert not wrong, f"seed {SEED}:\n" + "\n".join(wrong[:10])


def test_a_planted_lie_about_limits_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Installed(tmp_path / "stubs", monkeypatch).add(attention_platform("acme", NARROW))

    def plant() -> None:
        monkeypatch.setattr(AttentionLimits, "check", lambda limits, request: Support.yes())

    asked = Combination(80, None, None, None, None, "acme/narrow")
    (wrong,) = disagreements(open_platform("acme"), tmp_path, [asked], plant=plant)
    assert "was accepted" in wrong


def _problems(asked: Combination, told: str, names: list[str], is_legal: bool) -> Iterator[str]:
    if is_legal:
        yield f"{asked} was refused: {told}"
    values = {asked.dtype, asked.kv_cache_dtype, asked.attention_backend, asked.block_size}
    said = [value for value in (*values, asked.head_dim) if value and str(value) in told]
    if not said:
        yield f"{asked}: the refusal names nothing that was asked for: {told}"
    if asked.attention_backend == "acme/nope" and "acme/nope" in told:
        missing = [name for name in names if name not in told]
        if missing:
            yield f"{asked}: the refusal does not name {missing}: {told}"
