"""A line to every peer of a group, apart from the library that carries the tensors.

The kernel ends a dead process's connections at once; where a whole machine or the network between
falls silent, its keep-alive probes fail within seven seconds. Neither needs anything of the peer's
interpreter, so one that computes, compiles or is stopped for an hour is not taken for dead.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from weakref import WeakSet

from torch._C._distributed_c10d import Store

from dougong.contracts import CommunicatorTimeout, PeerLost, UnsupportedError
from dougong.reference.communicator_group import Group

_POLL_S = 0.005
_HELLO_S = 5.0
_LOOPBACK = "127.0.0.1"
# First probe after 3 idle seconds, then one a second; dead after four without an answer.
_KEEPALIVE = (("TCP_KEEPIDLE", 3), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 4))
_USER_TIMEOUT_MS = 7000  # the same patience for what was sent and never acknowledged

Message = dict[str, Any]
_open: WeakSet[PeerLink] = WeakSet()


class PeerLink:
    """One connection: short JSON lines both ways, and its end.

    Args:
        connection: Connected.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self.connection = connection
        self._rest = b""
        self._lock = threading.Lock()
        _open.add(self)

    def send(self, message: Message) -> None:
        """Send, or drop it: a peer that is gone or reads nothing is found in other ways."""
        with self._lock:
            try:
                self.connection.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                return

    def receive(self) -> list[Message] | None:
        """What has arrived; ``None`` when the peer is gone."""
        try:
            data = self.connection.recv(1 << 16)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close this end."""
        self.connection.close()


def _close_in_child() -> None:
    # A forked child would hold its parent's connections open after the parent's death.
    for link in list(_open):
        link.connection.close()


os.register_at_fork(after_in_child=_close_in_child)


def connect_peers(
    store: Store, group: Group, until: float, address: str = ""
) -> dict[int, PeerLink]:
    """Meet every peer over ``store`` and connect to each.

    Args:
        store: Of this group alone.
        group: The group.
        until: On the monotonic clock.
        address: Of this rank's machine, as its peers reach it; empty: the loopback where all ranks
            are on one machine, else what the machine's name resolves to.

    Returns:
        Rank within the group → link.

    Raises:
        CommunicatorTimeout: Names the ranks that did not come.
        PeerLost: One cannot be reached.
        UnsupportedError: This machine's name resolves to no address, and none was given.
    """
    store.set(f"home/{group.index}", _home())
    homes = {_wait_for(store, f"home/{peer}", group, until) for peer in group.peers}
    if not address:
        is_alone = homes <= {_home().encode()}
        address = _LOOPBACK if is_alone else _own_address()
    token = secrets.token_hex(16)
    links: dict[int, PeerLink] = {}
    try:
        with socket.create_server((address, 0), backlog=group.size) as server:
            line = {"address": address, "port": server.getsockname()[1], "token": token}
            store.set(f"line/{group.index}", json.dumps(line))
            for peer in range(group.index):
                links[peer] = _connect(_wait_for(store, f"line/{peer}", group, until), group, peer)
            while missing := [peer for peer in group.peers if peer not in links]:
                peer, connection = _accept(server, token, missing, group, until)
                links[peer] = PeerLink(connection)
    except BaseException:
        for link in links.values():
            link.close()
        raise
    return links


def _home() -> str:
    """The same for ranks that share a loopback, unlike for all others."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    network = Path("/proc/self/ns/net")
    if not (boot.exists() and network.exists()):
        return socket.gethostname()
    return f"{boot.read_text().strip()} {network.readlink()}"


def _own_address() -> str:
    name = socket.gethostname()
    try:
        return socket.gethostbyname(name)
    except OSError as exc:
        raise UnsupportedError(
            f"this machine's name {name!r} resolves to no address ({exc}), and ranks on other "
            "machines need one; give it as the group's option 'address'"
        ) from exc


def _wait_for(store: Store, key: str, group: Group, until: float) -> bytes:
    while not store.check([key]):
        if time.monotonic() > until:
            kind = key.split("/", maxsplit=1)[0]
            raise _missing(
                group, [peer for peer in group.peers if not store.check([f"{kind}/{peer}"])]
            )
        time.sleep(_POLL_S)
    value: bytes = store.get(key)
    return value


def _missing(group: Group, peers: Iterable[int]) -> Exception:
    return group.error(
        CommunicatorTimeout,
        f"{group.members(peers)} did not join {group.name} at {group.options.init_method} before "
        "the deadline of phase load; look at what those ranks do",
    )


def _connect(line: bytes, group: Group, peer: int) -> PeerLink:
    at = json.loads(line)
    try:
        connection = socket.create_connection((at["address"], at["port"]), timeout=_HELLO_S)
        connection.sendall(f"{at['token']} {group.index:08d}".encode())
    except OSError as exc:
        raise group.error(
            PeerLost,
            f"{group.members([peer])} of {group.name} cannot be reached at {at['address']}: {exc}; "
            "it is gone, or its address is not that of its machine as others see it",
        ) from exc
    return PeerLink(connection)


def _accept(
    server: socket.socket, token: str, missing: list[int], group: Group, until: float
) -> tuple[int, socket.socket]:
    while True:
        server.settimeout(max(until - time.monotonic(), _POLL_S))
        try:
            connection, _ = server.accept()
        except TimeoutError:
            raise _missing(group, missing) from None
        spoken, _, rank = _hello(connection, len(f"{token} {0:08d}")).partition(b" ")
        if secrets.compare_digest(spoken, token.encode()) and int(rank) in missing:
            return int(rank), connection
        connection.close()  # a stranger


def _hello(connection: socket.socket, length: int) -> bytes:
    connection.settimeout(_HELLO_S)
    hello = b""
    try:
        while len(hello) < length and (data := connection.recv(length - len(hello))):
            hello += data
    except OSError:
        return b""
    return hello
