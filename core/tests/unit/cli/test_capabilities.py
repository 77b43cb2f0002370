from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cli import bandwidth_check
from dougong.cli import main as command_line
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
    assert "kv_layout of attention backend fake/odd raised KeyError" in capsys.readouterr().err
