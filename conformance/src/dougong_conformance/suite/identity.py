"""Who a plugin is: names, identities, versions, classes that fit."""

from __future__ import annotations

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject


@check("identity.uuid_is_stable")
def uuid_is_stable(subject: Subject, judge: Judge) -> None:
    asked = subject.call("discovery.asked", wanted=["again"])
    first, second = (
        [device["uuid"] for device in asked[when].get("devices", ())] for when in ("found", "again")
    )
    judge.require(bool(first), "the probe found no device")
    if not any(first):
        judge.not_claimed("the devices have no uuid")
    judge.require(first == second, f"two processes are given {first} and {second}")


@check("identity.uuid_is_unique")
def uuid_is_unique(subject: Subject, judge: Judge) -> None:
    found = subject.call("identity.devices")
    uuids = [uuid for uuid in found["uuids"] if uuid]
    if not uuids:
        judge.not_claimed("the devices have no uuid")
    judge.require(len(uuids) == len(set(uuids)), f"two devices share a uuid: {uuids}")


@check("identity.answers_agree")
def answers_agree(subject: Subject, judge: Judge) -> None:
    found = subject.call("identity.devices")
    probed = found["probed"]
    judge.require(
        found["count"] == len(probed),
        f"the runtime counts {found['count']} devices and the probe {len(probed)}",
    )
    for index, device in enumerate(probed):
        facts = found["facts"][index]
        judge.require(
            found["uuids"][index] == device["uuid"],
            f"device {index} has uuid {found['uuids'][index]!r} by its runtime and "
            f"{device['uuid']!r} by the probe",
        )
        judge.require(
            facts["arch"] == device["arch"],
            f"device {index} is of family {facts['arch']!r} by its facts and {device['arch']!r} by "
            "the probe",
        )
        judge.require(
            facts["device_index"] == index,
            f"facts({index}) speak of device {facts['device_index']}",
        )
        judge.require(bool(found["names"][index]), f"device {index} has no name")
    judge.require(
        len(set(found["torch"])) == len(probed), f"torch devices repeat: {found['torch']}"
    )
    judge.require(found["current"] == 0, f"device 0 was set, and {found['current']} is current")


@check("identity.names_are_known")
def names_are_known(subject: Subject, judge: Judge) -> None:
    found = subject.call("identity.names")
    judge.require(
        found["platform"] == found["descriptor"],
        f"the platform is named {found['platform']!r} and its descriptor {found['descriptor']!r}",
    )
    for what in ("device_type", "dispatch_key"):
        judge.require(found[f"is_{what}"], f"torch knows no {what} {found[what]!r}")


@check("identity.contract_range_is_bounded")
def contract_range_is_bounded(subject: Subject, judge: Judge) -> None:
    found = subject.call("identity.names")
    now, after, before = found["takes"].items()
    wanted = found["requires_contract"]
    judge.require(now[1], f"requires_contract {wanted!r} refuses contract {now[0]}")
    judge.require(not after[1], f"requires_contract {wanted!r} takes contract {after[0]}, unseen")
    judge.require(not before[1], f"requires_contract {wanted!r} takes contract {before[0]}")


@check("identity.api_is_complete")
def api_is_complete(subject: Subject, judge: Judge) -> None:
    _require_none(judge, subject.call("identity.contract_problems")["missing"])


@check("identity.signatures_fit")
def signatures_fit(subject: Subject, judge: Judge) -> None:
    _require_none(judge, subject.call("identity.contract_problems")["other"])


@check("identity.no_unknown_override")
def no_unknown_override(subject: Subject, judge: Judge) -> None:
    _require_none(judge, subject.call("identity.contract_problems")["unknown"])


@check("identity.queries_are_thread_safe")
def queries_are_thread_safe(subject: Subject, judge: Judge) -> None:
    problems = subject.call("identity.thread_problems")
    judge.require(not problems, f"eight threads that ask at once are told {'; '.join(problems)}")


def _require_none(judge: Judge, problems: list[str]) -> None:
    judge.require(not problems, "; ".join(problems))
