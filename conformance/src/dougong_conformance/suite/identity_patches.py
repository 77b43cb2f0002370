"""Whether a plugin stays within its own modules."""

from __future__ import annotations

from dougong_conformance.check import check
from dougong_conformance.judging import Judge
from dougong_conformance.subject import Subject

_SHOWN = 8


@check("identity.no_patches")
def no_patches(subject: Subject, judge: Judge) -> None:
    seen = subject.call("patches.seen")
    if not seen["is_known"]:  # this process looked at nothing before it loaded the plugin
        seen = subject.fresh().call("patches.seen")
    replaced, added = seen["replaced"], seen["added"]
    judge.require(seen["is_known"], "nothing was noted before the plugin was loaded")
    judge.metric("attributes that device registration added", len(added))
    judge.metric("attributes replaced", len(replaced), 0)
    more = f" and {len(replaced) - _SHOWN} more" if len(replaced) > _SHOWN else ""
    judge.require(not replaced, f"loading it replaced {'; '.join(replaced[:_SHOWN])}{more}")
