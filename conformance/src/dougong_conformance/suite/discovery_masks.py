"""Which devices a process may use: counted, ordered and refused as the variable says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject


@check("discovery.mask_counts")
def mask_counts(subject: Subject, judge: Judge) -> None:
    masks, everything = _masks(subject, judge)
    judge.require(
        len(everything) >= max(1, subject.facts.num_devices),
        f"an unset variable leaves {len(everything)} devices; {subject.facts.num_devices} were "
        "found before",
    )
    one = _devices(masks["one"])
    judge.require(
        len(one) == 1, f"a mask of {masks['one']['mask']!r} leaves {len(one)} devices; expected one"
    )
    judge.require(one[0]["index"] == 0, f"the only device has index {one[0]['index']}, not 0")


@check("discovery.mask_keeps_its_order")
def mask_keeps_its_order(subject: Subject, judge: Judge) -> None:
    masks, everything = _masks(subject, judge)
    if len(everything) < 2:
        judge.not_run("needs two devices")
    if not all(device["uuid"] for device in everything):
        judge.not_run("devices have no uuid, so nobody can tell them apart")
    for label in ("one", "reordered"):
        told = masks[label]
        expected = [everything[int(number)]["uuid"] for number in told["mask"].split(",")]
        seen = [device["uuid"] for device in _devices(told)]
        judge.require(
            seen == expected, f"a mask of {told['mask']!r} gives {seen}; expected {expected}"
        )


@check("discovery.empty_mask_is_none")
def empty_mask_is_none(subject: Subject, judge: Judge) -> None:
    _refuses_all(judge, _masks(subject, judge)[0]["empty"])


@check("discovery.bad_mask_is_refused")
def bad_mask_is_refused(subject: Subject, judge: Judge) -> None:
    masks, _ = _masks(subject, judge)
    for label in ("out of range", "no number"):
        _refuses_all(judge, masks[label])


@check("discovery.runtime_heeds_the_mask")
def runtime_heeds_the_mask(subject: Subject, judge: Judge) -> None:
    masks, _ = _masks(subject, judge)
    found = subject.call("discovery.loaded")["masks"]
    judge.require("unset" in found and "empty" in found, f"the runtime was asked of {list(found)}")
    for label in found:
        told = masks[label]
        seen, expected = found[label], [device["uuid"] for device in _devices(told)]
        judge.require(
            seen.get("count") == len(expected),
            f"under {told['mask']!r} the runtime counts {seen.get('count', seen.get('error'))} "
            f"devices, and the probe {len(expected)}",
        )
        judge.require(
            seen["uuids"] == expected or not all(seen["uuids"]),
            f"under {told['mask']!r} the runtime's uuids are {seen['uuids']}; expected {expected}",
        )


def _masks(subject: Subject, judge: Judge) -> tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]:
    """Answers by label, and all devices of this machine."""
    found = subject.call("discovery.asked", wanted=["masks"])
    masks = {
        name.removeprefix("mask "): answer
        for name, answer in found.items()
        if name.startswith("mask ")
    }
    if not masks:
        judge.not_claimed("the platform names no variable that masks devices")
    for answer in masks.values():
        judge.require(
            "error" not in answer, f"under a mask of {answer['mask']!r}: {answer.get('error')}"
        )
    return masks, _devices(masks["unset"])


def _devices(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(answer["devices"])


def _refuses_all(judge: Judge, answer: Mapping[str, Any]) -> None:
    mask = answer["mask"]
    judge.require(
        not answer["devices"],
        f"a mask of {mask!r} leaves {len(answer['devices'])} devices; expected none",
    )
    judge.require(
        answer["verdict"] in ("not_here", "broken") and bool(answer["reason"]),
        f"under a mask of {mask!r} the plugin is {answer['verdict']} without a reason",
    )
    judge.require("chosen" not in answer, f"under a mask of {mask!r} a start goes on")
    kinds = answer.get("kinds", ())
    judge.require(
        "ConfigError" in kinds or "PluginError" in kinds,
        f"under a mask of {mask!r} a start ends in {answer.get('refused')}",
    )
