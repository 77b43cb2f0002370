"""What a platform and its extensions offer, each answer checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dougong.contracts import (
    Capabilities,
    Claims,
    Mark,
    QuantizationSupport,
    Registration,
    RegistrationKind,
)
from dougong.engine.candidates import candidates_of, known_failures, without_failed
from dougong.errors import PluginError
from dougong.testing.null_platform import NullPlatform
from tests.support.graph_platform import GraphPlatform
from tests.support.recorded_graphs import RecordedGraphRunner


def support(name: str, kernel: str) -> QuantizationSupport:
    return QuantizationSupport(
        format=name, storage="uint8", activation_dtypes=("float32",), is_native=True, kernel=kernel
    )


def registration(details: Any) -> Registration:
    mark = Mark(kind=RegistrationKind.QUANTIZATION, key="acme3", name="acme3", details=details)
    return Registration(mark=mark, target=None, plugin="acme", distribution="dougong-acme 1.0")


def capabilities(*quantization: QuantizationSupport) -> Capabilities:
    claims = Claims(arch="null1", dtypes=("float32",), quantization=quantization)
    return Capabilities(claims, NullPlatform().facts(0))


def kernels_by_format(**options: Any) -> dict[str, str]:
    settled = {"registrations": (), "capabilities": capabilities(), **options}
    found = candidates_of(NullPlatform(), kernels=None, **settled)
    return {one.format: one.kernel for one in found.quantization}


def test_formats_come_from_claims_extensions_and_the_platform_which_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        NullPlatform, "get_supported_quantization", lambda self: [support("fp8", "now")]
    )
    claimed = capabilities(support("fp8", "claimed"), support("q4_1", "claimed"))
    brought = registration(support("acme3", "acme/mm3"))
    assert kernels_by_format(capabilities=claimed, registrations=[brought]) == {
        "fp8": "now", "q4_1": "claimed", "acme3": "acme/mm3",
    }  # fmt: skip


@pytest.mark.parametrize("answer", [None, [1], {"fp8": 1}])
def test_an_answer_that_describes_no_format_is_the_platforms_fault(
    monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    monkeypatch.setattr(NullPlatform, "get_supported_quantization", lambda self: answer)
    with pytest.raises(PluginError, match=r"null: get_supported_quantization\(\) gave"):
        kernels_by_format()


def test_a_format_without_a_description_is_its_wheels_fault() -> None:
    with pytest.raises(PluginError, match=r"dougong-acme 1\.0 marks the weight format 'acme3'"):
        kernels_by_format(registrations=[registration(None)])


@pytest.mark.parametrize("is_claimed", [False, True])
def test_a_graph_runner_counts_where_the_device_claims_capture(is_claimed: bool) -> None:
    asked = capabilities()
    asked = replace(asked, claims=replace(asked.claims, graph_capture=is_claimed))
    found = candidates_of(GraphPlatform(), (), asked, None)
    assert found.graph == (RecordedGraphRunner.support if is_claimed else None)
    assert candidates_of(NullPlatform(), (), asked, None).graph is None


def test_failures_are_known_by_name_whatever_failed() -> None:
    found = candidates_of(NullPlatform(), (), capabilities(), None)
    failures = {"graph capture": "no stream", "reference/torch": "no", "acme/norm": "never"}
    known = without_failed(without_failed(found, failures), {"acme/mm": "late"})
    assert known.failed_capture == "no stream"
    assert known.failed_backends == {"reference/torch": "no"}
    assert known.failed == {"acme/norm": "never", "acme/mm": "late"}
    assert known_failures(known) == {**failures, "acme/mm": "late"}


def test_the_ops_of_the_core_are_known_where_nobody_brings_one() -> None:
    found = candidates_of(NullPlatform(), (), capabilities(), None)
    assert {"rms_norm", "linear"} <= found.op_keys
    assert found.ops == ()
    assert list(found.attention) == ["reference/torch"]
