"""A double of a made-up vendor over the simulated device: what is the vendor's and what is not."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from dougong.contracts import Available, Fault, KernelFault, Platform
from dougong.platforms import open_platform

from dougong_conformance.ladder import run_on_double
from dougong_conformance.ladder.installed_double import installed_double, write_wheel
from dougong_conformance.ladder.platform_double import (
    Double,
    descriptor_of,
    platform_of,
    probe,
)
from dougong_conformance.ladder.suite_on_double import failures, judge
from dougong_conformance.results import RunRecord
from dougong_conformance.runner.run import RunRequest
from dougong_conformance.runner.wheels import identify, installed_plugins
from tests.unit.ladder import acme
from tests.unit.report import made_up


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Double]:
    with acme.installed(tmp_path_factory.mktemp("acme")) as double:
        yield double


@pytest.fixture(scope="module")
def platform(double: Double) -> Platform:
    return platform_of(double)()


def test_its_identity_and_runtime_are_the_devices(platform: Platform) -> None:
    assert (platform.name, platform.device_type) == ("acme-double", "sim")
    assert platform.runtime.torch_device(0).type == "sim"
    assert platform.get_device_communicator_cls() == "dougong_sim.communicator:SimCommunicator"
    assert platform.get_graph_runner_cls() is None


def test_its_claims_are_the_vendors_less_what_the_device_cannot_do(platform: Platform) -> None:
    claims = platform.claims("a9")
    assert claims.features == {
        "acme.fast",
        "device.double",
        "device.double.replaced_runtime",
    }
    assert (claims.arch, claims.dtypes, claims.kv_block_sizes) == ("a9", ("float32",), (32,))
    assert (claims.graph_capture, claims.max_steps_in_flight) == (False, 1)


def test_its_devices_are_called_what_they_stand_for(double: Double, platform: Platform) -> None:
    answer = probe(double)
    assert isinstance(answer, Available)
    assert {info.arch for info in answer.devices} == {"a9"}
    assert answer.devices[0].name == platform.facts(0).name == "a9 (Simulated accelerator)"
    assert not descriptor_of(double).auto_select


def test_what_is_changed_of_the_plugins_answers_stands_in_the_name(double: Double) -> None:
    changed = replace(
        double,
        claimed={"dtypes": ("bfloat16",)},
        attn_backends={"acme/x": "acme:X"},
        memory_bytes=7,
        driver_version="9",
    )
    made = platform_of(changed)()
    assert made.claims("a9").dtypes == ("bfloat16",)
    assert made.get_attn_backends()["acme/x"] == "acme:X"
    facts = made.facts(0)
    assert "not as the plugin says: dtypes, acme/x" in facts.name
    assert (facts.memory_total_bytes, facts.driver_version) == (7, "9")


def test_what_references_stand_in_for_is_not_missing(platform: Platform) -> None:
    report = platform.import_kernels()
    assert report.loaded == ("acme-kernels 8.1",)
    assert report.missing == {"acme-more": "not either"}
    assert platform.import_kernels() == report


def test_errors_are_known_by_the_plugin_first(platform: Platform) -> None:
    assert platform.classify_error(RuntimeError("ACME 7")) == Fault(KernelFault, "acme 7")
    assert platform.classify_error(RuntimeError("hello")) is None


def test_over_its_own_runtime_only_devices_and_facts_are_the_doubles(double: Double) -> None:
    own = replace(double, device="", num_devices=2, memory_bytes=1 << 20, runtime_version="8.5")
    made = platform_of(own)()
    assert (made.name, made.device_type) == ("acme-double", "acme")
    assert made.claims("a9").features == {"acme.fast", "device.double"}
    assert made.claims("a9").graph_capture
    assert made.get_graph_runner_cls() == "acme_vendor.graph:Graphs"
    with pytest.raises(RuntimeError, match="there is no runtime"):
        _ = made.runtime
    assert made.facts(1).runtime_version == "8.5"
    answer = probe(own)
    assert isinstance(answer, Available)
    assert [(info.index, info.uuid) for info in answer.devices] == [(0, ""), (1, "")]


def test_it_is_found_by_name_while_the_block_runs_and_not_after(double: Double) -> None:
    before = dict(os.environ), list(sys.path)
    with installed_double(double) as name:
        loaded = open_platform(name)
        assert loaded.platform.name == name == "acme-double"
        assert loaded.selection.devices[0].arch == "a9"
        assert os.environ["DOUGONG_PLUGINS"] == name
    assert (dict(os.environ), list(sys.path)) == before
    assert "acme_double" not in sys.modules


def test_a_plugin_that_is_not_installed_is_named(double: Double) -> None:
    with (
        pytest.raises(LookupError, match="no plugin named 'nobody' is installed"),
        installed_double(replace(double, plugin="nobody")),
    ):
        pytest.fail("it was installed")


def test_its_report_passes_for_no_report_of_the_wheel(double: Double, tmp_path: Path) -> None:
    write_wheel(double, tmp_path)
    (found,) = [one for one in installed_plugins(str(tmp_path)) if one.name == "acme-double"]
    identity = identify(found)
    assert (identity.distribution, identity.version) == ("dougong-acme-double", "8.1")
    assert identity.record_sha256 == ""


def test_the_engine_runs_the_vendors_op_and_its_tokens_are_the_hosts(double: Double) -> None:
    references = importlib.import_module("acme_references")
    with installed_double(double) as name:
        before = references.CALLS["acme::rms_norm"]
        ends = judge(name, ("engine",), chosen="engine.greedy_equality".__eq__)
        assert [end.id for end in ends] == ["engine.greedy_equality[float32]"]
        assert failures(ends) == ()
        assert references.CALLS["acme::rms_norm"] > before


def test_a_reference_that_computes_something_else_is_found(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    with installed_double(double) as name:
        chosen = "ops.rms_norm".__eq__
        assert failures(judge(name, ("ops",), chosen=chosen)) == ()
        monkeypatch.setattr("acme_references.FACTOR", 1.01)
        (failure,) = failures(judge(name, ("ops",), chosen=chosen))
        assert failure.startswith("ops.rms_norm[float32] fail")


def test_a_run_is_about_the_double_and_leaves_a_report(
    double: Double,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[RunRequest] = []

    def run(request: RunRequest) -> RunRecord:
        asked.append(request)
        assert (Path(request.import_path) / "acme_double.py").exists()
        return made_up.without_runtime(made_up.passing())

    monkeypatch.setattr(run_on_double, "run", run)
    command = ["--plugin", "acme", "--arch", "a9", "--references", double.references]
    place = ["--path", double.import_path, "--out", str(tmp_path / "out")]
    assert run_on_double.main([*command, *place, "--profile", "kv", "-k", "x"]) == 0
    (request,) = asked
    assert (request.plugin.name, request.selection.profiles) == ("acme-double", ("kv",))
    assert not Path(request.import_path).exists()
    assert "the vendor's runtime was replaced" in (tmp_path / "out" / "report.md").read_text()
    assert str(tmp_path) in capsys.readouterr().out
