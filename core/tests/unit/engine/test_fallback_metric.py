from __future__ import annotations

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from dougong.engine.fallback_metric import count_fallbacks
from tests.support.made_up_plans import chip_plan, plain_plan

NAME = "dougong_fallback_total"


def test_each_fallback_is_a_sample_with_its_level_subject_and_reason() -> None:
    registry, plan = CollectorRegistry(), chip_plan()
    count_fallbacks(plan, registry)
    for one in plan.fallbacks:
        labels = {"level": str(one.level), "subject": one.subject, "reason": one.reason}
        assert registry.get_sample_value(NAME, labels) == 1
    assert generate_latest(registry).decode().count(f"\n{NAME}{{") == len(plan.fallbacks)


def test_without_a_fallback_the_metric_is_there_and_has_no_sample() -> None:
    registry = CollectorRegistry()
    count_fallbacks(plain_plan(), registry)
    shown = generate_latest(registry).decode()
    assert f"# TYPE {NAME} counter" in shown
    assert f"{NAME}{{" not in shown


def test_two_engines_have_two_registries_and_the_process_has_none_of_it() -> None:
    one, other = CollectorRegistry(), CollectorRegistry()
    count_fallbacks(chip_plan(), one)
    count_fallbacks(plain_plan(), other)
    assert NAME not in generate_latest(REGISTRY).decode()
    with pytest.raises(ValueError, match="dougong_fallback"):
        count_fallbacks(plain_plan(), one)
