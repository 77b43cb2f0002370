from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dougong.contracts import (
    AtMost,
    AttentionLimits,
    AttentionPhase,
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
    CandidateKind,
    CapabilityFile,
    DeclaredAttention,
    DeclaredBuffer,
    DeclaredLayout,
    OpCandidate,
    capability_json,
    parse_capabilities,
    read_capability_file,
    write_capability_file,
)
from dougong.errors import ConfigError

FULL = CapabilityFile(
    platform="acme",
    wheel="dougong-acme 1.2",
    claims=Claims(
        arch="acme1",
        dtypes=("bfloat16", "float32"),
        kv_dtypes=("bfloat16",),
        features=frozenset({"mm.bf16", "fp8.e4m3"}),
        limits={"shared_memory_bytes": 65536},
        quantization=(
            QuantizationSupport(
                format="fp8",
                storage="float8_e4m3fn",
                activation_dtypes=("bfloat16",),
                is_native=True,
                kernel="acme/fp8",
            ),
        ),
        compute_rate={"bfloat16": 1e14},
    ),
    facts=DeviceFacts(
        device_index=0,
        name="Acme 1",
        arch="acme1",
        memory_total_bytes=1 << 36,
        memory_bandwidth=2e12,
    ),
    kernels=KernelReport(loaded=("acme-kernels 2.1",), missing={"acme-extra": "not installed"}),
    attention={
        "acme/flash": DeclaredAttention(
            limits=AttentionLimits(
                dtypes=frozenset({"bfloat16"}),
                head_sizes=frozenset({64, 128}),
                phases=frozenset({AttentionPhase.PREFILL, AttentionPhase.DECODE}),
            ),
            has_own_checks=True,
            library="acme-kernels",
            features=frozenset({"mm.bf16"}),
            layouts=(
                DeclaredLayout(
                    name="acme/blocked",
                    buffers=(
                        DeclaredBuffer(
                            name="kv",
                            block_shape=(2, "heads", "dim/8", "tokens", 8),
                            dtype="int8",
                            block_axis=1,
                            stride_order=(1, 0, 2, 3, 4, 5),
                        ),
                    ),
                    dtypes=("bfloat16",),
                    block_sizes=(16,),
                    alignment_bytes=512,
                    slot_dtype="int32",
                    reserved_blocks=1,
                ),
            ),
            workspace_bytes=4096,
            workspace_bytes_per_token=64,
            graph=GraphSupport(GraphLevel.DECODE, sizes=(1, 8)),
        ),
        "acme/any": DeclaredAttention(),
    },
    ops=(
        OpCandidate(
            key="rms_norm",
            name="acme/rms_norm",
            origin="dougong-acme 1.2",
            kind=CandidateKind.OP_CLASS,
            when=Needs(dtype={"bfloat16"}, hidden_size=MultipleOf(64)),
            tokens=AtMost(512),
            priority=3,
        ),
    ),
    quantization=(
        QuantizationSupport(
            format="q4_1",
            storage="uint8",
            activation_dtypes=("bfloat16",),
            is_native=False,
            kernel="",
            dequantized="at load",
        ),
    ),
    graph=GraphSupport(GraphLevel.PIECEWISE, max_graphs=40, sizes=(8,)),
    environment={"ACME_FAST": "1", "ACME_SLOW": None},
    assumed=("64 GiB of memory",),
)
SMALLEST: dict[str, Any] = {
    "format": "dougong-capabilities",
    "version": 1,
    "platform": "acme",
    "claims": {"arch": "acme1", "dtypes": ["bfloat16"]},
    "facts": {"device_index": 0, "name": "Acme", "arch": "acme1", "memory_total_bytes": 1},
}


def parse(*path: str | int, value: Any) -> CapabilityFile:
    """The smallest file with one value changed."""
    plain = json.loads(json.dumps(SMALLEST))
    inner = plain
    for step in path[:-1]:
        inner = inner.setdefault(step, {}) if isinstance(inner, dict) else inner[step]
    inner[path[-1]] = value
    return parse_capabilities(json.dumps(plain))


def test_a_file_comes_back_as_it_went(tmp_path: Path) -> None:
    write_capability_file(tmp_path / "acme.json", FULL)
    found = read_capability_file(tmp_path / "acme.json")
    assert found == FULL
    assert list(found.attention) == ["acme/flash", "acme/any"]
    assert list(found.attention_backends()) == ["acme/flash", "acme/any"]
    assert found.capabilities.claims == FULL.claims
    assert found.set_environment == {"ACME_FAST": "1"}


def test_equal_contents_make_equal_text() -> None:
    assert capability_json(FULL) == capability_json(parse_capabilities(capability_json(FULL)))


def test_what_is_not_stated_is_not_claimed() -> None:
    found = parse_capabilities(json.dumps(SMALLEST))
    assert found.claims == Claims(arch="acme1", dtypes=("bfloat16",))
    assert found.kernels is None
    assert (found.attention, found.ops, found.quantization) == ({}, (), ())


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("claims", "dtype"), ["float16"], r"claims\.dtype is unknown: did you mean 'dtypes'"),
        (("wheels",), "x", "wheels is unknown: did you mean 'wheel'"),
        (("claims", "zzz"), 1, r"claims\.zzz is unknown; known: arch, dtypes"),
        (("kernels",), {"loade": []}, r"kernels\.loade is unknown: did you mean 'loaded'"),
        (
            ("attention",),
            {"acme/flash": {"limits": {"dtypes": [], "sink": True}}},
            r"attention\.acme/flash\.limits\.sink is unknown: did you mean 'sinks'",
        ),
        (("quantization",), [{"forma": "x"}], r"quantization\[0\]\.forma is unknown"),
        (("claims", "dtypes"), "bfloat16", r"claims\.dtypes: Expected `array`, got `str`"),
        (("claims", "features"), ["a", 3], r"claims\.features\[1\]: Expected `str`, got `int`"),
        (("facts", "memory_total_bytes"), "8 GiB", r"facts\.memory_total_bytes: Expected `int`"),
        (("facts",), {"name": "x"}, r"facts: Object missing required field `device_index`"),
        (("claims", "dtypes"), [], r"claims\.dtypes is empty"),
        (("claims", "kv_block_sizes"), [0], r"claims\.kv_block_sizes\[0\] is 0"),
        (("claims", "slot_dtype"), "int16", r"claims\.slot_dtype is 'int16'"),
        (
            ("ops",),
            [{"key": "k", "name": "n", "when": {"hidden_size": {"multiple": 64}}}],
            r"ops\[0\]\.when\.hidden_size is",
        ),
        (("ops",), [{"key": "k", "name": "n", "tokens": {"most": 1}}], r"ops\[0\]\.tokens is"),
        (("ops",), [{"key": "k", "name": "n", "kind": "class "}], r"ops\[0\]\.kind"),
    ],
)
def test_what_cannot_be_used_is_named_with_its_place(
    path: tuple[str, ...], value: Any, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        parse(*path, value=value)


def test_every_unknown_key_is_in_the_one_error() -> None:
    plain = SMALLEST | {"kernel": None, "op": []}
    with pytest.raises(ConfigError) as caught:
        parse_capabilities(json.dumps(plain))
    assert [one.partition(" ")[0] for one in caught.value.problems] == ["kernel", "op"]


def test_another_version_is_refused_before_anything_else() -> None:
    with pytest.raises(ConfigError, match="has version 2; this dougong reads version 1"):
        parse_capabilities(json.dumps(SMALLEST | {"version": 2, "news": True}))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other", "version": 1}'])
def test_another_file_is_answered_with_how_to_get_one(text: str) -> None:
    with pytest.raises(ConfigError, match="dougong capabilities --save FILE"):
        parse_capabilities(text)


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "acme.json").write_text("mine")
    with pytest.raises(ConfigError, match="cannot be written: File exists"):
        write_capability_file(tmp_path / "acme.json", FULL)
    assert (tmp_path / "acme.json").read_text() == "mine"


def test_files_that_cannot_be_read_or_written_are_the_users(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_capability_file(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_capability_file(tmp_path / "none" / "x.json", FULL)
