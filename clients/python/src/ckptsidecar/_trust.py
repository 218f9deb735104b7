"""Whom a client speaks to over a Unix socket: root, itself, and the user of the service."""

from __future__ import annotations

import os
import socket
import stat
import struct
import sys

from . import _endpoint

_NOBODY = 65534  # a user who has no place in this user namespace
_DYNAMIC = range(61184, 65520)  # what systemd gives to services with DynamicUser=
_MACOS = sys.platform == "darwin"
_FIRST_PERSON = 500 if _MACOS else 1000
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class StrangerListens(OSError):
    """The socket belongs to a user who is not trusted with states. Nothing was sent."""

    def __init__(self, peer: int, own: int) -> None:
        super().__init__(
            f"uid {peer} listens there, and this process is uid {own}; "
            "it speaks only to root, to itself and to the user of the service"
        )
        self.peer = peer
        self.own = own


def check_listener(connection: socket.socket, path: str) -> None:
    """Asks the kernel who listens; raises StrangerListens. Call it before the first byte is sent."""
    peer, own = _peer(connection), os.geteuid()
    if peer not in (0, own) and not is_service_user(peer, path):
        raise StrangerListens(peer, own)


def _peer(connection: socket.socket) -> int:
    if _MACOS:
        # struct xucred of LOCAL_PEERCRED: version, uid, and groups after them.
        return int(struct.unpack_from("II", connection.getsockopt(0, 1, 76))[1])
    # struct ucred: pid, uid, gid.
    return int(struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1])


def is_service_user(uid: int, path: str) -> bool:
    """Whether root has given the place of the socket to uid. The Go package endpoint has the same rule."""
    if uid == _NOBODY:
        return False
    try:
        folder = os.path.realpath(os.path.dirname(path))
        found = os.stat(folder)
        if found.st_mode & _OTHERS_WRITE:
            return False
        if found.st_uid == 0:
            place = os.lstat(os.path.join(folder, os.path.basename(path)))
            return place.st_uid == uid and _above_is_roots(folder, sticky_counts=True)
        service = path == _endpoint.systems() or uid < _FIRST_PERSON or uid in _DYNAMIC
        return found.st_uid == uid and service and _above_is_roots(folder, sticky_counts=False)
    except OSError:
        return False


def _above_is_roots(folder: str, sticky_counts: bool) -> bool:
    """Whether only root can change which folder this is."""
    while True:
        above = os.path.dirname(folder)
        found = os.stat(above)
        sticky = sticky_counts and found.st_mode & stat.S_ISVTX
        if found.st_uid != 0 or (found.st_mode & _OTHERS_WRITE and not sticky):
            return False
        if above == folder or above == os.path.dirname(above):
            return True
        folder = above
