"""The lock of those who replay a spool: a file that says who does."""

from __future__ import annotations

import json
import os
import socket
import time
from typing import Any

from ._endpoint import WINDOWS
from ._ids import new_id
from ._json import object_of

_STALE = 120.0  # seconds after which an untouched lock counts no more


class Lock:
    """The file that says that somebody replays. It saves work; nothing depends on it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._token = new_id()
        self._held = False

    def take(self) -> bool:
        """Whether nobody else holds the lock. Where it cannot be written, it is done without."""
        for _ in range(3):
            try:
                descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            except FileExistsError:
                if not self._stale():
                    return False
                self._remove()
                continue
            except OSError:
                return True
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump({"pid": os.getpid(), "host": _host(), "token": self._token}, file)
                self._held = True
            except OSError:
                self._remove()  # nobody could tell whose it is
            return True
        return True  # it is stale, and cannot be removed

    def touch(self) -> None:
        if not self._held:
            return
        try:
            os.utime(self._path)
        except OSError:
            pass  # somebody thought it stale

    def release(self) -> None:
        if self._holder().get("token") == self._token:
            self._remove()

    def _remove(self) -> None:
        try:
            os.remove(self._path)
        except OSError:
            pass

    def _holder(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:
                return object_of(json.load(file))
        except (OSError, ValueError):
            return {}

    def _stale(self) -> bool:
        try:
            if time.time() - os.stat(self._path).st_mtime > _STALE:
                return True
        except OSError:
            return True
        holder = self._holder()
        return holder.get("host") == _host() and not _alive(holder.get("pid"))


def _host() -> str:
    """Where a number names this process: the machine, and on Linux the process namespace too. Containers can have one name of a machine."""
    try:
        return f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def remove_file(path: str) -> None:
    """Removes a file that may be gone already."""
    try:
        os.remove(path)
    except FileNotFoundError:
        pass


def _alive(pid: Any) -> bool:
    if WINDOWS or not isinstance(pid, int) or pid <= 0:
        return True  # only time will tell
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
