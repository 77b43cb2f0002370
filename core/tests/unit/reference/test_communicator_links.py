from __future__ import annotations

import json
import os
import socket
import threading
import time
from pathlib import Path

import pytest
from torch._C._distributed_c10d import FileStore, HashStore

from dougong.contracts import GroupKind, GroupOptions, PeerLost, UnsupportedError
from dougong.reference.communicator_group import Group
from dougong.reference.communicator_links import PeerLink, _home, connect_peers
from tests.support.ranks import PATIENT_S, in_threads


def _pair() -> tuple[PeerLink, PeerLink]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        return PeerLink(one), PeerLink(server.accept()[0])


def _received(link: PeerLink, count: int = 1) -> list[dict[str, object]] | None:
    """The next messages, however long they take; ``None`` at the end."""
    found: list[dict[str, object]] = []
    until = time.monotonic() + PATIENT_S
    while len(found) < count and time.monotonic() < until:
        if (more := link.receive()) is None:
            return None
        found += more
        time.sleep(0.001)
    return found


def _group(rank: int, size: int = 2) -> Group:
    ranks = tuple(range(size))
    return Group(GroupOptions(kind=GroupKind.TENSOR, ranks=ranks, rank=rank, init_method=""), rank)


def _soon() -> float:
    return time.monotonic() + PATIENT_S


def test_messages_arrive_whole_and_in_order_and_then_the_end() -> None:
    one, other = _pair()
    assert other.receive() == []
    one.send({"at": 1})
    assert _received(other) == [{"at": 1}]
    line = json.dumps({"at": 2}).encode() + b"\n"
    one.connection.sendall(line[:4])
    assert other.receive() == []
    one.connection.sendall(line[4:] + line)
    assert _received(other, 2) == [{"at": 2}, {"at": 2}]
    one.close()
    assert _received(other) is None
    other.send({"at": 3})
    other.close()


def test_a_forked_child_does_not_keep_its_parents_lines_open() -> None:
    one, other = _pair()
    is_closed, says = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(says, b"1" if one.connection.fileno() == -1 else b"0")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(is_closed, 1) == b"1"
    for end in (is_closed, says):
        os.close(end)
    one.close()
    other.close()


def test_each_rank_has_a_line_to_every_other(tmp_path: Path) -> None:
    store = HashStore()
    found = in_threads((0, 1, 2), lambda rank: connect_peers(store, _group(rank, 3), _soon()))
    assert [sorted(links) for links in found] == [[1, 2], [0, 2], [0, 1]]
    found[0][2].send({"from": 0})
    assert _received(found[2][0]) == [{"from": 0}]
    for links in found:
        for link in links.values():
            link.close()


def test_a_stranger_at_the_door_is_sent_away(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path / "meeting"), 2)
    store.set("home/1", _home())
    waiting: list[dict[int, PeerLink]] = []
    thread = threading.Thread(
        target=lambda: waiting.append(connect_peers(store, _group(0), _soon()))
    )
    thread.start()
    line = json.loads(store.get("line/0"))
    at = (line["address"], line["port"])
    with socket.create_connection(at) as stranger:
        stranger.sendall(b"0" * 32 + b" 00000001")
        stranger.settimeout(PATIENT_S)
        assert stranger.recv(1) == b""
    with socket.create_connection(at) as peer:
        peer.sendall(f"{line['token']} 00000001".encode())
        thread.join(PATIENT_S)
        assert list(waiting[0]) == [1]
        waiting[0][1].close()


def test_a_peer_whose_door_is_shut_is_lost(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        at = server.getsockname()
    store = FileStore(str(tmp_path / "meeting"), 2)
    store.set("home/0", _home())
    store.set("line/0", json.dumps({"address": at[0], "port": at[1], "token": "0" * 32}))
    with pytest.raises(PeerLost, match=r"rank 0 of group tp .* cannot be reached at 127"):
        connect_peers(store, _group(1), _soon())


def test_a_machine_without_an_address_is_told_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unresolved(name: str) -> str:
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "gethostbyname", unresolved)
    store = HashStore()
    store.set("home/1", "another machine")
    with pytest.raises(UnsupportedError, match=r"resolves to no address .* option 'address'"):
        connect_peers(store, _group(0), _soon())
