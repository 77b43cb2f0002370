from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cli import bandwidth_check
from dougong.cli import main as command_line
from dougong.contracts import KVBuffer, KVCacheSpec
from dougong.describe import CapabilityFile, parse_capabilities, read_capability_file
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import PLATFORM, Stub

KERNELS = """
    def import_kernels(self):
        from dougong.contracts import KernelReport
        return KernelReport(loaded=("fake-kernels 2.1",), missing={{"fake-extra": "no [b] file"}})

    def get_supported_quantization(self):
        from dougong.contracts import QuantizationSupport
        return [QuantizationSupport(format="q4_1", storage="uint8", kernel="fake/q4",
                                    activation_dtypes=("float32",), is_native=True)]
"""
BROKEN_LAYOUT = """
    def get_attn_backends(self):
        return {{"fake/odd": "{package}.platform:Odd"}}


from dougong.contracts import AttentionLimits
from dougong.reference import ReferenceAttentionBackend


class Odd(ReferenceAttentionBackend):
    name = "fake/odd"
    limits = AttentionLimits(dtypes=frozenset({{"float32"}}))

    def kv_layout(self, spec):
        raise KeyError("odd")
"""

SPLIT_KEYS = """
    def get_attn_backends(self):
        return {{"fake/split": "{package}.platform:Split", "fake/odd": "{package}.platform:Odd"}}


from dougong.contracts import AttentionLimits, GraphLevel, GraphSupport, KVBuffer, KVLayout
from dougong.reference import ReferenceAttentionBackend


class Split(ReferenceAttentionBackend):
    name = "fake/split"
    limits = AttentionLimits(dtypes=frozenset({{"float32"}}), head_sizes=frozenset({{64, 128}}))

    def kv_layout(self, spec):
        keys = (spec.num_kv_heads, spec.head_dim // 4, spec.block_size, 4)
        values = (spec.num_kv_heads, spec.block_size, spec.head_dim)
        return KVLayout(
            name="split",
            buffers=(
                KVBuffer(name="k", block_shape=keys, dtype=spec.dtype, block_axis=1,
                         stride_order=(1, 0, 2, 3, 4)),
                KVBuffer(name="v", block_shape=values, dtype=spec.dtype),
            ),
            block_sizes=(16,),
            alignment_bytes=512,
            slot_dtype="int32",
            reserved_blocks=2,
        )

    def workspace_bytes(self, request, max_num_tokens):
        return 1000 + 8 * request.num_heads * max_num_tokens

    def graph_support(self):
        return GraphSupport(GraphLevel.DECODE, sizes=(1, 2))


class Odd(ReferenceAttentionBackend):
    name = "fake/odd"

    def supports(self, request):
        return self.limits.check(request)

    def kv_layout(self, spec):
        whole = -(-spec.head_dim // 96) * 96
        buffer = KVBuffer(name="kv", block_shape=(2, spec.block_size, whole), dtype=spec.dtype)
        return KVLayout(name="padded", buffers=(buffer,), block_sizes=(16,))
"""
SWITCHED_KERNELS = """
from dougong.contracts import Needs
from dougong.ops import register_kernel


@register_kernel("lm_head", name="fake/fast", when=Needs(env={"FAKE_FAST": "1"}))
def fast(hidden, weight):
    return hidden


@register_kernel("lm_head", name="fake/slow", when=Needs(env={"FAKE_SLOW": "1"}))
def slow(hidden, weight):
    return hidden
"""
FORMAT_OF_AN_EXTENSION = """
from dougong.contracts import QuantizationSupport
from dougong.contracts.registration import Mark, RegistrationKind, add_mark


class Format:
    support = QuantizationSupport(format="q5_1", storage="uint8", kernel="more/q5",
                                  activation_dtypes=("float32",), is_native=True)


add_mark(Format, Mark(kind=RegistrationKind.QUANTIZATION, key="q5_1", name="more/q5",
                      details=Format.support))
"""
FAILING_FORMATS = """
    def get_supported_quantization(self):
        raise OSError("boom")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    return Installed(tmp_path, monkeypatch)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        command_line.main(["capabilities", *arguments])
    return int(stopped.value.code or 0)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> CapabilityFile:
    assert run(*arguments, "--json") == 0
    return parse_capabilities(capsys.readouterr().out)


def test_what_is_printed_as_json_is_a_capability_file(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.add(Stub(platform_body=PLATFORM + KERNELS))
    found = printed(capsys, "--platform", "fake")
    assert (found.platform, found.wheel) == ("fake", "fakeplat 0.1")
    assert found.claims.dtypes == ("float32",)
    assert found.facts.memory_bandwidth is None
    assert found.kernels is not None
    assert found.kernels.loaded == ("fake-kernels 2.1",)
    assert list(found.attention) == ["reference/torch"]
    assert found.attention["reference/torch"].limits is not None
    assert [one.format for one in found.quantization] == ["q4_1"]


def test_the_cpu_tells_what_its_kernels_need(capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, "--platform", "cpu")
    assert found.facts.runtime_version
    assert list(found.attention) == ["cpu/native", "reference/torch"]
    assert found.attention["cpu/native"].library == "dougong-cpu-native"
    assert {"rms_norm", "linear"} <= {op.key for op in found.ops}


def test_a_saved_file_and_a_table_say_the_same(
    installed: Installed, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    installed.add(Stub(platform_body=PLATFORM + KERNELS))
    path = tmp_path / "fake.json"
    assert run("--platform", "fake", "--save", str(path)) == 0
    text = capsys.readouterr().out
    for part in ("Fake 1", "8.0 GiB", "fake-kernels 2.1", "no [b] file", "reference/torch", "q4_1"):
        assert part in text
    assert "unknown; --measure measures it" in text
    assert f"dougong explain MODEL --capabilities {path}" in text
    assert read_capability_file(path).platform == "fake"


def test_bandwidth_is_measured_only_when_asked_for(
    installed: Installed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed.add(Stub())
    monkeypatch.setattr(bandwidth_check, "ask_bandwidth", lambda loaded, index: 5e10)
    assert run("--platform", "fake", "--measure") == 0
    assert "50.0 GB/s measured" in capsys.readouterr().out


def test_a_layout_is_written_as_the_order_of_its_axes(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.add(Stub(platform_body=PLATFORM + SPLIT_KEYS))
    found = printed(capsys, "--platform", "fake")
    declared = found.attention["fake/split"]
    (layout,) = declared.layouts
    assert [one.block_shape for one in layout.buffers] == [
        ("heads", "dim/4", "tokens", 4),
        ("heads", "tokens", "dim"),
    ]
    spec = KVCacheSpec(num_kv_heads=3, head_dim=64, dtype="float32", block_size=16)
    sized = found.attention_backends()["fake/split"].kv_layout(spec)
    assert sized.buffers[0] == KVBuffer(
        name="k", block_shape=(3, 16, 16, 4), dtype="float32", block_axis=1,
        stride_order=(1, 0, 2, 3, 4),
    )  # fmt: skip
    assert (sized.alignment_bytes, sized.slot_dtype, sized.reserved_blocks) == (512, "int32", 2)
    assert (declared.workspace_bytes, declared.workspace_bytes_per_token) == (1000, 8 * 32)
    assert (declared.graph.level, declared.graph.sizes) == ("decode", (1, 2))
    odd = found.attention["fake/odd"]
    assert (odd.has_own_checks, odd.layouts) == (True, ())
    assert not declared.has_own_checks


def test_what_conditions_ask_of_the_environment_is_in_the_file(
    installed: Installed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAST", "1")
    installed.add(Stub(hooks=SWITCHED_KERNELS))
    found = printed(capsys, "--platform", "fake")
    assert found.environment == {"FAKE_FAST": "1", "FAKE_SLOW": None}
    assert [op.name for op in found.ops] == ["fake/fast", "fake/slow"]


def test_weight_formats_of_extensions_are_in_the_file(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.add(Stub(platform_body=PLATFORM + KERNELS))
    installed.add(
        Stub(distribution="more", name="more", has_platform=False, hooks=FORMAT_OF_AN_EXTENSION)
    )
    found = printed(capsys, "--platform", "fake")
    assert {one.format: one.kernel for one in found.quantization} == {
        "q4_1": "fake/q4",
        "q5_1": "more/q5",
    }


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            PLATFORM + FAILING_FORMATS,
            "failed to answer get_supported_quantization(): OSError: boom",
        ),
        (
            PLATFORM.replace('kv_dtypes=("float32",)', 'kv_dtypes=("float32",), kv_block_sizes=()'),
            "claims().kv_block_sizes is (); it needs a tuple of at least one",
        ),
        (
            PLATFORM.replace('kv_dtypes=("float32",)', 'kv_dtypes=("float32", "floaty")'),
            "claims.kv_dtypes[1]: unknown dtype 'floaty'",
        ),
    ],
)
def test_an_answer_that_cannot_be_used_is_the_vendors_affair(
    installed: Installed, capsys: pytest.CaptureFixture[str], body: str, told: str
) -> None:
    installed.add(Stub(platform_body=body))
    assert run("--platform", "fake", "--json") == 3
    assert told in capsys.readouterr().err


def test_a_file_that_is_there_is_not_written_over(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "mine.json").write_text("mine")
    assert run("--platform", "nowhere", "--save", str(tmp_path / "mine.json")) == 2
    assert "the file exists, and a description" in capsys.readouterr().err
    assert (tmp_path / "mine.json").read_text() == "mine"
    assert run("--platform", "nowhere", "--save", str(tmp_path / "no" / "x.json")) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_platform_that_is_not_here_is_refused_with_what_to_do(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.add(Stub(probe='return NotHere("no /dev/fake0")'))
    assert run("--platform", "fake") == 2
    error = capsys.readouterr().err
    assert "no /dev/fake0" in error
    assert "dougong capabilities --platform fake --save fake.json" in error


def test_a_backend_whose_layout_fails_is_its_vendors_affair(
    installed: Installed, capsys: pytest.CaptureFixture[str]
) -> None:
    installed.add(Stub(platform_body=PLATFORM + BROKEN_LAYOUT))
    assert run("--platform", "fake", "--json") == 3
    error = capsys.readouterr().err
    assert "attention backend 'fake/odd' of platform 'fake' raised when asked kv_layout" in error
