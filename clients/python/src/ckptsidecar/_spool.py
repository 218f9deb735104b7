"""The spool: writes that wait in a folder for a daemon. docs/SPOOL.md describes the form."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import threading
import time
from typing import Callable, Optional

from ._version import __version__
from ._endpoint import WINDOWS
from .errors import CkptError, SpoolError
from ._lock import Lock, remove_file
from ._spool_form import (
    MOST_HEADER, NAME, VERSION, Damaged, Lane, Spooled, TooNew, now, read_header, read_request,
)  # fmt: skip

_log = logging.getLogger("ckptsidecar")
_LEFT_OVER = 3600.0  # seconds after which a temporary file belongs to nobody

Owner = Optional[tuple[Lane, str]]  # the run and the endpoint; None of a file that cannot be read
_clock = time.time_ns
_orders: dict[str, int] = {}  # by folder: the greatest order given out or seen
_orders_lock = threading.Lock()
_count = 0


class Spool:
    """One user's spool. It is safe for concurrent use."""

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.told: tuple[str, str] = ("", "")  # the file and the code of the last warning that the daemon does not accept it
        self._owners: dict[str, Owner] = {}  # by name: what a file belongs to
        self._settled: set[str] = set()  # files that were sent or refused, and could not be moved
        self._used = (0, float("-inf"))  # bytes, and when they were counted
        self._checked = False

    # Writing

    def write(
        self, method: str, path: str, query: str, headers: dict[str, str], body: bytes,
        lane: Lane, id: str, endpoint: str,
    ) -> str:  # fmt: skip
        """Puts a request on disk and answers its name; raises SpoolError."""
        if not self.folder:
            raise SpoolError("there is no folder for the spool: set CKPTSIDECAR_SPOOL to a folder that you own")
        header = {
            "version": VERSION, "method": method, "path": path, "query": query, "headers": headers,
            "agent": lane[0], "run": lane[1], "endpoint": endpoint, "created_at": now(),
            "size": len(body), "sha256": hashlib.sha256(body).hexdigest(), "client": f"python/{__version__}",
        }  # fmt: skip
        line = json.dumps(header, separators=(",", ":")).encode() + b"\n"
        if len(line) > MOST_HEADER:
            raise SpoolError(f"the head of the request has {len(line)} bytes: the spool takes {MOST_HEADER}")
        try:
            self._check_folder()
            self._need_room(len(line) + len(body))
            name = f"{self._order():016x}-{id}.ckpt"
            self._put(name, line, body)
        except OSError as error:
            raise SpoolError(f"the spool {self.folder} cannot be written: {error.strerror or error}") from error
        self._owners[name] = (lane, endpoint)
        self._used = (self._used[0] + len(line) + len(body), self._used[1])
        return name

    def _check_folder(self) -> None:
        if self._checked and os.path.isdir(self.folder):
            return
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        self.check()
        self._checked = True

    def check(self) -> None:
        """Refuses a folder that others could write to, by SpoolError. One that is not there is fine."""
        if WINDOWS:
            return
        try:
            info = os.lstat(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        if not stat.S_ISDIR(info.st_mode):
            raise SpoolError(f"the spool {self.folder} is not a folder: remove it, or set CKPTSIDECAR_SPOOL")
        if info.st_uid != os.geteuid() or info.st_mode & 0o022:
            raise SpoolError(
                f"the spool {self.folder} belongs to another user, or others may write to it: "
                "run chown and chmod 700 on it, or set CKPTSIDECAR_SPOOL to a folder that you own"
            )

    def _need_room(self, more: int) -> None:
        used, counted = self._used
        if time.monotonic() - counted > 1 or used + more > self.max_bytes:  # since then, some may have been sent
            used = sum(_size(folder) for folder in (self.folder, self._rejected()))
            self._used = (used, time.monotonic())
        if used + more > self.max_bytes:
            raise SpoolError(
                f"the spool {self.folder} is full: it holds {used} of at most {self.max_bytes} bytes; "
                'start the daemon and let "ckptsidecar spool replay" empty it, or allow it more'
            )

    def _order(self) -> int:
        if self.folder not in _orders:
            self.names()
        with _orders_lock:
            _orders[self.folder] = max(_clock(), _orders.get(self.folder, 0) + 1)
            return _orders[self.folder]

    def _put(self, name: str, line: bytes, body: bytes) -> None:
        global _count
        _count += 1
        temporary = os.path.join(self.folder, f".{name[:16]}-{os.getpid()}-{_count}.tmp")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(temporary, flags, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(line)
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, os.path.join(self.folder, name))
        except BaseException:
            remove_file(temporary)
            raise
        _flush_folder(self.folder)

    # Reading

    def names(self) -> list[str]:
        """The files that wait, in their order."""
        try:
            names = sorted(name for name in os.listdir(self.folder) if NAME.match(name))
        except (FileNotFoundError, NotADirectoryError):
            return []
        if names:
            with _orders_lock:
                _orders[self.folder] = max(_orders.get(self.folder, 0), int(names[-1][:16], 16))
        return names

    def waiting(self, lane: Optional[Lane] = None, owns: Optional[Callable[[str], bool]] = None) -> list[str]:
        """The files of a run, or all, in their order; with ``owns`` those of the endpoints that it says."""
        names = self.names() if self.folder else []
        self._settled.intersection_update(names)
        names = [name for name in names if name not in self._settled]
        self._owners = {name: self._owners[name] for name in names if name in self._owners}
        if lane is None and owns is None:
            return names
        found: list[str] = []
        for name in names:
            if name not in self._owners:
                self._owners[name] = self._owner_of(name)
            owner = self._owners[name]
            if owner is None:
                found.extend([name] if lane is None else [])
            elif lane in (None, owner[0]) and (owns is None or owns(owner[1])):
                found.append(name)
        return found

    def _owner_of(self, name: str) -> Owner:
        try:
            request = self.read(name, with_body=False)
        except (Damaged, TooNew, OSError):
            return None
        return request.lane, request.endpoint

    def read(self, name: str, with_body: bool = True) -> Spooled:
        """Reads a file; raises Damaged, TooNew, FileNotFoundError or another OSError."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        descriptor = os.open(os.path.join(self.folder, name), flags)
        with os.fdopen(descriptor, "rb") as file:
            line = file.readline(MOST_HEADER + 1)
            if not line.endswith(b"\n"):
                raise Damaged("its first line does not end")
            header = read_header(line)
            body = file.read() if with_body else b""
        if with_body and (len(body) != header["size"] or hashlib.sha256(body).hexdigest() != header["sha256"]):
            raise Damaged("the body does not have the size and the hash in its head")
        return read_request(name, header, body)

    # What became of a file

    def remove(self, name: str) -> None:
        """Removes a file that the daemon has taken."""
        try:
            remove_file(os.path.join(self.folder, name))
        except OSError as error:
            self._settle(name, "was sent, but cannot be removed", error)
        self._owners.pop(name, None)

    def reject(self, name: str, error: CkptError) -> bool:
        """Puts aside a file that the daemon refused for good, with the reason beside it; whether it could."""
        self._owners.pop(name, None)
        try:
            self._put_aside(name, error)
            return True
        except OSError as failure:
            self._settle(name, "cannot be put aside", failure)
            return False

    def _put_aside(self, name: str, error: CkptError) -> None:
        folder = self._rejected()
        os.makedirs(folder, mode=0o700, exist_ok=True)
        reason = {"code": error.code, "detail": error.message, "status": error.status, "at": now()}
        path = os.path.join(folder, name[: -len(".ckpt")] + ".json")
        with open(path, "w", encoding="utf-8", opener=_private) as file:
            json.dump(reason, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.replace(os.path.join(self.folder, name), os.path.join(folder, name))
        except FileNotFoundError:
            remove_file(path)  # another replayer was here first
        _flush_folder(folder)

    def _settle(self, name: str, what: str, error: OSError) -> None:
        """Leaves a file where it is. It waits no more: the daemon has answered it."""
        _log.warning("%s of the spool %s %s: %s", name, self.folder, what, error.strerror or error)
        self._settled.add(name)

    def _rejected(self) -> str:
        return os.path.join(self.folder, "rejected")

    # The lock of replayers

    def lock(self) -> Optional[Lock]:
        """The lock of replayers, None where another one has it."""
        self.check()
        lock = Lock(os.path.join(self.folder, "replay.lock"))
        if not lock.take():
            return None
        self._tidy()
        return lock

    def _tidy(self) -> None:
        for entry in os.scandir(self.folder):
            if entry.name.startswith(".") and entry.name.endswith(".tmp"):
                try:
                    if time.time() - entry.stat().st_mtime > _LEFT_OVER:
                        remove_file(entry.path)
                except OSError:
                    pass


def _size(folder: str) -> int:
    total = 0
    try:
        for entry in os.scandir(folder):
            if entry.is_file(follow_symlinks=False):
                try:
                    total += entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    pass
    except (FileNotFoundError, NotADirectoryError):
        pass
    return total


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _flush_folder(folder: str) -> None:
    if WINDOWS:
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
