from __future__ import annotations

import pytest

from dougong.contracts import CommunicatorTimeout, GroupKind, GroupOptions, PeerLost
from dougong.reference.communicator_group import Group, kind_of


def test_messages_speak_of_global_ranks() -> None:
    options = GroupOptions(kind=GroupKind.EXPERT, ranks=(4, 6, 9), rank=6, init_method="")
    group = Group(options, 1)
    assert group.name == "group ep of ranks 4, 6, 9"
    assert group.members([2]) == "rank 9"
    assert group.members({2, 0}) == "ranks 4, 9"
    assert group.peers == (0, 2)
    error = group.error(PeerLost, "rank 9 is gone")
    assert error.rank == 6


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Timed out waiting 8000ms for recv operation to complete", CommunicatorTimeout),
        ("watchdog: collective timeout", CommunicatorTimeout),
        ("Connection closed by peer [127.0.0.1]:39328", PeerLost),
        ("Broken pipe", PeerLost),
        ("the process group was aborted", PeerLost),
        ("Invalid scalar type", None),
    ],
)
def test_libraries_say_what_they_mean_in_words(text: str, kind: type[Exception] | None) -> None:
    assert kind_of(RuntimeError(text)) is kind
