"""A family described from the wheel alone, where neither a device nor the vendor's runtime is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dougong.cli import main as command_line
from dougong.config import EngineArgs
from dougong.describe import CapabilityFile, parse_capabilities, read_capability_file
from dougong.engine.planning import explain
from tests.support.claimed_plugin import CLAIMED, NOT_HERE, install_claimed
from tests.support.installed_stubs import Installed
from tests.support.stub_plugins import Stub
from tests.support.tiny_models import tiny_config, write_tiny_checkpoint


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A platform whose device is not here; its name."""
    return install_claimed(tmp_path / "installed", monkeypatch)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        command_line.main([*arguments])
    return int(stopped.value.code or 0)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> CapabilityFile:
    assert run("capabilities", *arguments, "--json") == 0
    return parse_capabilities(capsys.readouterr().out)


def test_a_family_is_described_without_a_device(
    fake: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAST", "1")
    found = printed(capsys, "--platform", fake, "--arch", "one", "--memory", "64GiB")
    assert (found.platform, found.wheel, found.claims.arch) == ("fake", "fakeplat 0.1", "one")
    assert (found.claims.kv_block_sizes, found.claims.is_generic) == ((128,), False)
    assert found.facts.memory_total_bytes == 64 * 2**30
    assert (found.facts.name, found.facts.driver_version) == ("any one (assumed)", "")
    assert found.kernels is None
    assert list(found.attention) == ["fake/wide", "fake/flash"]
    assert found.attention["fake/wide"].features == {"fake.wide"}
    assert [op.name for op in found.ops] == ["fake/fast", "fake/mm"]
    assert found.environment == {"FAKE_FAST": None}, "nothing of this machine is in the file"
    assert found.assumed == (
        "64 GiB of memory, as --memory says",
        "driver and runtime of unknown version, so that a condition on one of them is not met",
        "these libraries load: fake-blas, fake-kernels",
        "not set: FAKE_FAST",
    )


def test_an_unknown_family_gets_generic_claims_and_the_output_says_so(
    fake: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "three.json"
    assert run("capabilities", "--platform", fake, "--arch", "three", "--save", str(path)) == 0
    text = capsys.readouterr().out
    assert "family three is unknown to fakeplat 0.1" in text
    assert "known: one, two" in text
    assert "16 GiB of memory; --memory says how much" in text
    assert "no device asked (not here: no /dev/fake0" in text
    file = read_capability_file(path)
    assert file.claims.is_generic and file.claims.dtypes == ("float32",)


@pytest.mark.parametrize(("arch", "block_size"), [("one", 128), ("three", 16)])
def test_a_plan_is_made_from_such_a_file_with_the_wheel_alone(
    fake: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, arch: str, block_size: int
) -> None:
    path, model = tmp_path / "chip.json", tmp_path / "model"
    write_tiny_checkpoint(model, tiny_config())
    assert run("capabilities", "--platform", fake, "--arch", arch, "--save", str(path)) == 0
    plan = explain(EngineArgs(model=str(model), platform=fake), path)
    assert plan.attention_backends() == {"fake/flash": 2}
    assert plan.kv_cache.block_size == block_size
    assert plan.is_generic == (arch == "three")
    assert "assumed: these libraries load: fake-blas, fake-kernels" in plan.platform_reasons
    assert any("family three is unknown" in one for one in plan.platform_reasons) == plan.is_generic
    assert run("explain", str(model), "--capabilities", str(path)) == 0
    assert "assumed: driver and runtime" in " ".join(capsys.readouterr().out.split())


def test_the_families_of_a_platform_are_listed(
    fake: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("capabilities", "--platform", fake, "--list-archs") == 0
    assert capsys.readouterr().out.splitlines() == ["one", "two"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--arch", "one"), "name it with --platform"),
        (("--platform", "nowhere", "--arch", "one"), "platform 'nowhere' is not installed"),
        (("--platform", "fake", "--memory", "1GiB"), "name its family with --arch"),
        (
            ("--platform", "fake", "--arch", "one", "--memory", "much"),
            "--memory much: write a size",
        ),
        (("--platform", "fake", "--arch", "one", "--devices", "0"), "ask the wheel and no device"),
        (("--platform", "fake", "--arch", "one", "--measure"), "ask the wheel and no device"),
        (("--platform", "fake", "--arch", "one", "--list-archs"), "use one of them"),
    ],
)
def test_what_makes_no_sense_is_refused(
    fake: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    assert run("capabilities", *arguments) == 2
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("read_claims(__package__, arch)", "None", "claims() gave a NoneType"),
        ("read_families(__package__)", "'one'", "which is no list of names"),
    ],
)
def test_an_answer_that_cannot_be_used_is_the_vendors_affair(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    told: str,
) -> None:
    body = CLAIMED.replace(old, new)
    Installed(tmp_path, monkeypatch).add(Stub(platform_body=body, probe=NOT_HERE))
    asked = ("--arch", "one") if "claims" in old else ("--list-archs",)
    assert run("capabilities", "--platform", "fake", *asked) == 3
    assert told in capsys.readouterr().err
