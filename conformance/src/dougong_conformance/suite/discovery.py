"""How a plugin is found: typed, inert, masked as it was told, and never another platform."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.outcomes import NotRun
from dougong_conformance.subject import Subject

_MOST_S = 10.0


def fresh_or_same(subject: Subject) -> Subject:
    """The plugin in a process of its own where that can be had."""
    try:
        return subject.fresh()
    except NotRun:
        return subject


@check("discovery.probe_is_typed")
def probe_is_typed(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge)["found"]
    judge.require(
        found["verdict"] == "available",
        f"discovery lists the plugin as {found['verdict']}: {found['reason']}",
    )
    for device in found["devices"]:
        for field in ("name", "arch"):
            judge.require(bool(device[field]), f"device {device['index']} has no {field}")
    judge.require(
        found["twice"] == found["devices"],
        f"a second probe gives {found['twice']}; the first gave {found['devices']}",
    )
    judge.at_most("seconds to import and probe", found["seconds"], _MOST_S)


@check("discovery.import_is_inert")
def import_is_inert(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge)["found"]
    judge.require(
        not found["imports_torch"], "importing the descriptor, or its probe, imports torch"
    )
    judge.require(
        not found["device_files"], f"the probe leaves open: {', '.join(found['device_files'])}"
    )
    judge.require(found["threads"] == 1, f"the probe leaves {found['threads']} threads running")


@check("discovery.platform_needs_no_runtime")
def platform_needs_no_runtime(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge, "platform")["platform"]
    if found.get("imports_torch"):
        judge.warn("the platform's module imports torch, so every report of it takes seconds")
    judge.require(
        "error" not in found,
        f"platform and claims without the vendor's runtime: {found.get('error')}",
    )
    judge.require(not found["is_open"], "making the platform opened the device")
    judge.require(
        not found["device_files"], f"making the platform opened {', '.join(found['device_files'])}"
    )


@check("discovery.fork_after_loading_works")
def fork_after_loading_works(subject: Subject, judge: Judge) -> None:
    found = subject.call("discovery.loaded")
    judge.require(found["is_open"] is not True, "loading the plugin opened the device")
    for where in ("fork", "parent"):
        told = found[where]
        judge.require(
            told.get("sum") == 30.0,
            f"a computation in the {where} after loading: {told.get('error', told)}",
        )


@check("discovery.queries_are_idempotent")
def queries_are_idempotent(subject: Subject, judge: Judge) -> None:
    problems = fresh_or_same(subject).call("discovery.query_problems")
    judge.require(not problems, "; ".join(problems[:5]))


@check("discovery.unknown_family_is_generic")
def unknown_family_is_generic(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge, "platform")["platform"]
    judge.require("error" not in found, f"claims cannot be asked: {found.get('error')}")
    unknown = found["unknown"]
    judge.require(found["generic"][unknown], f"claims({unknown!r}) does not say that it is generic")
    judge.require(
        found["archs"][unknown] == unknown,
        f"claims({unknown!r}) speaks of {found['archs'][unknown]!r}",
    )
    for arch, dtypes in found["dtypes"].items():
        lacking = set(found["dtypes"][unknown]) - set(dtypes)
        judge.require(
            not lacking, f"generic claims have {sorted(lacking)}, which {arch!r} does not claim"
        )


@check("discovery.unloadable_is_loud")
def unloadable_is_loud(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge, "unloadable")["unloadable"]
    judge.require(
        "chosen" not in found,
        "a platform whose module cannot be imported is loaded all the same",
    )
    judge.require(
        "PluginError" in found.get("kinds", ()),
        f"a platform that cannot be loaded ends in {found.get('refused') or found.get('error')}",
    )
    judge.require(
        found["wheel"] in found["refused"], f"the error does not name the wheel: {found['refused']}"
    )
    judge.at_most("seconds to the error", found["seconds"], _MOST_S)


@check("discovery.broken_runtime_is_loud")
def broken_runtime_is_loud(subject: Subject, judge: Judge) -> None:
    found = _asked(subject, judge, "broken").get("broken")
    if found is None:
        judge.not_claimed("the plugin tells no BROKEN_ENVIRONMENT")
    judge.require(
        found.get("verdict") == "broken",
        f"with a runtime that cannot start the plugin is listed as {found.get('verdict')}: "
        f"{found.get('reason') or found.get('error')}",
    )
    for way in ("named", "automatic"):
        judge.require(
            "chosen" not in found[way], f"a start ({way}) takes {found[way].get('chosen')} instead"
        )
    judge.at_most("seconds to the verdict", found["seconds"], _MOST_S)


@check("discovery.two_plugins_get_along")
def two_plugins_get_along(subject: Subject, judge: Judge) -> None:
    asked = _asked(subject, judge, "neighbour")
    found, alone = asked["neighbour"], asked["found"]
    judge.require("error" not in found, f"beside another plugin: {found.get('error')}")
    for who in ("own", "other"):
        told = found[who] or {"verdict": "not listed", "reason": ""}
        judge.require(
            told["verdict"] == "available",
            f"beside one another the {who} plugin is {told['verdict']}: {told['reason']}",
        )
    judge.require(
        found["own"]["devices"] == alone["devices"],
        f"beside another plugin its devices are {found['own']['devices']}",
    )
    judge.require(
        found["named"].get("chosen") == alone_name(subject), f"named, the start: {found['named']}"
    )
    rivals = alone["auto_select"] and alone_name(subject) != "cpu"
    judge.require(
        not rivals or "refused" in found["automatic"],
        f"with two plugins and no name given the start takes {found['automatic']}",
    )


@check("discovery.never_another_platform")
def never_another_platform(subject: Subject, judge: Judge) -> None:
    found = subject.call("discovery.where")
    for what in ("device", "tensor"):
        judge.require(
            found[what] == found["says"],
            f"platform {found['platform']} says {found['says']}; its {what} is on {found[what]}",
        )


@check("discovery.bad_index_is_typed")
def bad_index_is_typed(subject: Subject, judge: Judge) -> None:
    kinds = subject.call("discovery.bad_index")
    judge.require(bool(kinds), "set_device took an index that no device has")
    judge.require(
        "DeviceError" in kinds, f"an index that no device has ends in {kinds[0]}, not DeviceError"
    )


def alone_name(subject: Subject) -> str:
    """Under which the plugin was found."""
    return str(subject.facts.platform)


def _asked(subject: Subject, judge: Judge, wanted: str = "found") -> Mapping[str, Any]:
    found: Mapping[str, Any] = subject.call("discovery.asked", wanted=[wanted])
    judge.require(
        "error" not in found["found"], f"discovery without torch: {found['found'].get('error')}"
    )
    return found
