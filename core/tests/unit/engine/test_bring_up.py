"""What fails at its first use is planned around, or stops a start whose user insists on it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dougong.config import EngineArgs
from dougong.contracts import ImplementationError, KernelReport, RankPlan
from dougong.engine.candidates import agreed_kernels, without_returned
from dougong.engine.startup import StartedEngine, start_engine
from dougong.errors import ConfigError, PluginError
from dougong.reference import ReferenceAttentionBackend
from dougong.testing.null_worker import NullWorker
from tests.support.installed_stubs import Installed
from tests.support.null_engine import NullModels
from tests.support.stub_plugins import Stub

HOOKS = """
from dougong.contracts import Needs
from dougong.ops import register_kernel


@register_kernel("rms_norm", name="acme/lib", priority=3, when=Needs(library="acme-lib"))
@register_kernel("rms_norm", name="acme/fast", priority=2)
@register_kernel("rms_norm", name="acme/safe", priority=1)
@register_kernel("fused_add_rms_norm", name="acme/never", when=Needs(features=["acme.only"]))
def norm(*args):
    raise AssertionError("the null worker builds no model")
"""
KEY = "embedding"


class Rounds:
    """Every worker that was made, with the plan it was told; some fail.

    Args:
        failures: How loading or warming up fails, by what the plan names.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plans: list[RankPlan] = []
        self.ended: list[NullWorker] = []
        self.failures: Mapping[str, str] = {}
        self.always: Mapping[str, str] = {}
        self.report = KernelReport()
        load, shutdown = NullWorker.load_model, NullWorker.shutdown

        def init_device(worker: NullWorker) -> KernelReport:
            return self.report

        def load_model(worker: NullWorker, plan: RankPlan) -> Any:
            self.plans.append(plan)
            return load(worker, plan)

        def warm_up(worker: NullWorker) -> None:
            named = {piece.implementation for one in self.plans[-1].ops for piece in one.pieces}
            failed = {name: why for name, why in self.failures.items() if name in named}
            if failed or self.always:
                raise ImplementationError({**failed, **self.always})

        def note_end(worker: NullWorker) -> None:
            self.ended.append(worker)
            shutdown(worker)

        for name, method in {
            "init_device": init_device,
            "load_model": load_model,
            "warm_up": warm_up,
            "shutdown": note_end,
        }.items():
            monkeypatch.setattr(NullWorker, name, method)

    def ran(self) -> list[str]:
        """What each round was told to run for the op."""
        return [
            piece.implementation
            for plan in self.plans
            for one in plan.ops
            if one.key == KEY
            for piece in one.pieces
        ]


@pytest.fixture
def rounds(null_models: NullModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rounds:
    installed = Installed(tmp_path / "stubs", monkeypatch)
    hooks = HOOKS.replace('"rms_norm"', f'"{KEY}"')
    installed.add(Stub(distribution="acme", name="acme", has_platform=False, hooks=hooks))
    return Rounds(monkeypatch)


def start(models: NullModels, **options: Any) -> StartedEngine:
    started = start_engine(EngineArgs(model=models.write(), platform="null", **options))
    started.executor.shutdown()
    return started


def test_a_library_that_no_rank_has_is_planned_around_before_anything_is_loaded(
    null_models: NullModels, rounds: Rounds
) -> None:
    rounds.report = KernelReport(missing={"acme-lib": "libacme.so was not found"})
    plan = start(null_models).report.plan
    assert rounds.ran() == ["acme/fast"]
    assert plan.kernels_missing == {"acme-lib": "libacme.so was not found"}
    (norm,) = (one for one in plan.ops if one.key == KEY)
    assert any("libacme.so was not found" in one.reason for one in norm.passed_over)


def test_a_library_that_is_there_is_used(null_models: NullModels, rounds: Rounds) -> None:
    rounds.report = KernelReport(loaded=("acme-lib 2.1",))
    assert start(null_models).report.plan.kernels_loaded == ("acme-lib 2.1",)
    assert rounds.ran() == ["acme/lib"]


def test_a_kernel_that_fails_at_its_first_use_makes_way_for_the_next_with_the_reason(
    null_models: NullModels, rounds: Rounds, caplog: pytest.LogCaptureFixture
) -> None:
    rounds.failures = {"acme/lib": "segment 3.", "acme/fast": "bad launch"}
    with caplog.at_level(logging.WARNING, logger="dougong"):
        plan = start(null_models).report.plan
    assert rounds.ran() == ["acme/fast", "acme/safe"]
    assert len(rounds.ended) == 2, "one of each round; the second by the test"
    (norm,) = (one for one in plan.ops if one.key == KEY)
    reasons = {one.name: one.reason for one in norm.passed_over}
    assert "failed at its first use: bad launch" in reasons["acme/fast"]
    assert not [one for one in plan.fallbacks if KEY in one.subject]
    told = [line for line in caplog.messages if "failed at its first use" in line]
    assert told == ["acme/fast failed at its first use: bad launch. Starting anew without it."]


def test_when_the_last_kernel_fails_native_runs_and_that_is_a_fallback(
    null_models: NullModels, rounds: Rounds
) -> None:
    rounds.failures = dict.fromkeys(("acme/lib", "acme/fast", "acme/safe"), "bad launch")
    plan = start(null_models).report.plan
    assert rounds.ran() == ["acme/fast", "acme/safe", "native"]
    (fallback,) = (one for one in plan.fallbacks if KEY in one.subject)
    assert "bad launch" in fallback.reason


def test_what_ends_in_native_is_warned_of_once(
    null_models: NullModels, rounds: Rounds, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("acme/lib", "acme/fast", "acme/safe")
    rounds.failures = {name: f"{name} had a bad launch" for name in names}
    with caplog.at_level(logging.WARNING, logger="dougong"):
        report = start(null_models).report
    told = "\n".join((*caplog.messages, *report.warnings()))
    assert told.count("acme/safe had a bad launch") == 1
    assert "Starting anew without it" in told, "what another kernel takes the place of"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"op": [f"{KEY}=acme/fast"]}, f"It was asked for with --op {KEY}=acme/fast."),
        (
            {"strict": True, "op": ["fused_add_rms_norm=native"]},
            "--strict refuses to go on without it.",
        ),
    ],
)
def test_a_user_who_insists_gets_the_failure_and_nothing_else(
    null_models: NullModels, rounds: Rounds, options: dict[str, Any], named: str
) -> None:
    rounds.failures = {"acme/fast": "bad launch"}
    with pytest.raises(ConfigError) as caught:
        start(null_models, **options)
    assert f"acme/fast failed at its first use: bad launch. {named}" in str(caught.value)
    assert isinstance(caught.value.__cause__, ImplementationError)
    assert len(rounds.plans) == len(rounds.ended) == 1


def test_a_required_op_whose_kernels_all_fail_stops_the_start(
    null_models: NullModels, rounds: Rounds
) -> None:
    rounds.failures = dict.fromkeys(("acme/lib", "acme/fast", "acme/safe"), "bad launch")
    with pytest.raises(ConfigError, match=r"acme/safe.*bad launch"):
        start(null_models, custom_ops=f"+{KEY}")
    assert len(rounds.plans) == len(rounds.ended) == 2


def test_a_failure_of_what_the_plan_does_not_name_ends_the_start_in_its_second_round(
    null_models: NullModels, rounds: Rounds
) -> None:
    rounds.always = {"acme/unheard": "it fell over"}
    with pytest.raises(ImplementationError, match="acme/unheard"):
        start(null_models)
    assert len(rounds.plans) == len(rounds.ended) == 2


def test_a_library_counts_where_every_rank_has_it_in_one_version() -> None:
    one = KernelReport(loaded=("a 1", "b 2", "c 3"), missing={"d": "not built"})
    other = KernelReport(loaded=("a 1", "b 2.1"), missing={"c": "no file"})
    both = agreed_kernels([one, other])
    assert both.loaded == ("a 1",)
    assert both.missing == {
        "b": "rank 0 has b 2, and not every rank does",
        "c": "rank 1: no file",
        "d": "rank 0: not built",
    }
    assert agreed_kernels([one]) == one


@pytest.mark.parametrize(
    "report",
    [
        None,
        KernelReport(loaded=("",)),
        KernelReport(loaded=(" ",)),
        KernelReport(loaded=(3,)),  # type: ignore[arg-type]
        KernelReport(loaded=("acme 1",), missing={"": "not built"}),
        KernelReport(missing={"acme": None}),  # type: ignore[dict-item]
        KernelReport(loaded=None),  # type: ignore[arg-type]
    ],
)
def test_a_report_that_names_no_library_is_the_platforms_fault_whichever_rank_gives_it(
    report: Any,
) -> None:
    with pytest.raises(PluginError, match=r"Rank 1: what Platform\.import_kernels\(\) found"):
        agreed_kernels([KernelReport(loaded=("acme 1",)), report])


def test_a_worker_that_names_no_library_ends_the_start(
    null_models: NullModels, rounds: Rounds
) -> None:
    rounds.report = KernelReport(loaded=("",))
    with pytest.raises(PluginError, match="no name of a library"):
        start(null_models)
    assert len(rounds.ended) == 1


def test_a_library_that_was_not_there_once_stays_away() -> None:
    first = KernelReport(loaded=("a 1", "b 2"), missing={"c": "no file"})
    again = KernelReport(loaded=("a 1", "c 3", "d 4"), missing={"e": "too old"})
    both = without_returned(first, again)
    assert both.loaded == ("a 1",)
    assert both.missing == {
        "c": "no file",
        "e": "too old",
        "b": "b 2 was not there when the device was opened again",
        "d": "d 4 was not there when the device was opened before",
    }
    assert without_returned(None, first) == first
    assert without_returned(both, again).loaded == ("a 1",)


def test_libraries_that_come_and_go_do_not_keep_a_start_from_ending(
    null_models: NullModels, rounds: Rounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block size follows the library, so each open contradicts the values of the one before."""
    flash = ReferenceAttentionBackend()
    monkeypatch.setattr(flash, "name", "null/flash", raising=False)
    monkeypatch.setattr(flash, "library", "flash", raising=False)
    layout = flash.kv_layout
    monkeypatch.setattr(
        flash, "kv_layout", lambda spec: replace(layout(spec), block_sizes=(32,)), raising=False
    )
    backends = {"null/flash": flash, "reference/torch": ReferenceAttentionBackend()}
    monkeypatch.setattr("dougong.engine.candidates.load_backends", lambda platform: backends)
    opens = []

    def init_device(worker: NullWorker) -> KernelReport:
        opens.append(worker)
        assert len(opens) < 9, "it goes on for ever"
        return KernelReport(loaded=("flash 1",) if len(opens) % 2 == 0 else ())

    monkeypatch.setattr(NullWorker, "init_device", init_device)
    plan = start(null_models).report.plan
    assert plan.attention_backends() == {"reference/torch": 2}
    assert "flash" in plan.kernels_missing
    assert len(opens) == 2
