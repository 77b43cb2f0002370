from __future__ import annotations

import re
from dataclasses import replace

import pytest

from dougong.cli.capabilities_view import print_capabilities
from dougong.contracts import (
    AtMost,
    AttentionLimits,
    Claims,
    DeviceFacts,
    GraphLevel,
    GraphSupport,
    KernelReport,
    MultipleOf,
    Needs,
    QuantizationSupport,
)
from dougong.describe import (
    CapabilityFile,
    DeclaredAttention,
    DeclaredBuffer,
    DeclaredLayout,
    OpCandidate,
)

LIMITS = AttentionLimits(
    dtypes=frozenset({"bfloat16"}),
    kv_dtypes=frozenset({"int8"}),
    head_sizes=frozenset({64, 128}),
    head_size_multiple=8,
    max_head_size=256,
    block_sizes=(16, 32),
    sinks=True,
)
FULL = CapabilityFile(
    platform="acme",
    claims=Claims(
        arch="acme9",
        is_generic=True,
        dtypes=("bfloat16",),
        features=frozenset({"mm.bf16"}),
        limits={"shared_memory_bytes": 65536},
        graph_capture=True,
        memory_bandwidth=2e12,
        compute_rate={"bfloat16": 1e14},
    ),
    facts=DeviceFacts(
        device_index=0,
        name="Acme [red] 9",
        arch="acme9",
        memory_total_bytes=8 << 30,
        memory_free_bytes=4 << 30,
        memory_quota_bytes=6 << 30,
        memory_quota_source="memory.max",
    ),
    kernels=KernelReport(loaded=("acme-kernels 2.1",), missing={"acme-extra": "not [b] there"}),
    attention={
        "acme/flash": DeclaredAttention(
            limits=LIMITS,
            layouts=(
                DeclaredLayout(
                    name="acme/blocked",
                    buffers=(DeclaredBuffer(name="k", block_shape=("tokens", "heads", "dim")),),
                ),
            ),
        ),
        "acme/odd": DeclaredAttention(),
    },
    ops=(
        OpCandidate(
            key="rms_norm",
            name="acme/rms_norm",
            origin="acme 1",
            when=Needs(hidden_size=MultipleOf(64)),
            tokens=AtMost(512),
        ),
    ),
    quantization=(
        QuantizationSupport(
            format="fp8",
            storage="float8_e4m3fn",
            activation_dtypes=("bfloat16",),
            is_native=True,
            kernel="acme/fp8",
            dequantized="",
        ),
    ),
    graph=GraphSupport(GraphLevel.DECODE, max_graphs=77, sizes=(8, 16)),
    environment={"ACME_FAST": "1", "ACME_SLOW": None},
)


def test_everything_that_is_known_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    print_capabilities(FULL, ["platform acme: asked for"])
    text = capsys.readouterr().out
    for part in (
        "platform acme: asked for",
        "acme (no wheel)",
        "captured at most",
        "77",
        "8, 16",
        "Acme [red] 9",
        "acme9 (unknown: generic claims)",
        "8.0 GiB, 4.0 GiB free; limit 6.0 GiB (memory.max)",
        "2000.0 GB/s claimed; --measure measures it",
        "shared_memory_bytes 65536",
        "graph_capture",
        "bfloat16 100.0 T/s",
        "not [b] there",
        "head sizes 64, 128; head sizes in multiples of 8; head sizes up to 256",
        "block sizes 16, 32",
        "sinks",
        "only itself can say",
        "hidden_size multiples of 64",
        "at most 512",
        "never",
        "acme/blocked",
        "ACME_FAST",
        "not set",
    ):
        assert part in text, part


def test_a_device_that_holds_no_graph_is_not_shown_as_one_without_a_limit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_capabilities(replace(FULL, graph=GraphSupport(max_graphs=0)), [])
    assert re.search(r"graphs at once\W+0\b", capsys.readouterr().out)


def test_what_nobody_knows_is_said_to_be_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    bare = CapabilityFile(
        platform="acme",
        claims=Claims(arch="a", dtypes=("float32",)),
        facts=DeviceFacts(device_index=0, name="A", arch="a", memory_total_bytes=1),
    )
    print_capabilities(bare, [])
    text = capsys.readouterr().out
    assert "unknown; --measure measures it" in text
    assert "there was no device to load them on" in text
    assert "Weight formats" not in text


def test_a_device_that_names_no_library_is_not_one_that_nobody_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_capabilities(replace(FULL, kernels=KernelReport()), [])
    assert "import_kernels() names no library" in capsys.readouterr().out


def test_what_is_assumed_is_said_and_cannot_be_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_capabilities(replace(FULL, kernels=None, assumed=("64 [b] GiB of memory",)), [])
    text = capsys.readouterr().out
    assert "assumed: 64 [b] GiB of memory" in text
    assert "--measure" not in text
