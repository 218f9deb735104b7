"""A byte stream to the daemon: a Unix socket here, a named pipe in pipe.py."""

from __future__ import annotations

import errno
import shutil
import socket
from typing import Protocol

from . import endpoint
from .errors import NoDaemon

PROGRAM = "ckptsidecar"
INSTALL = "go install github.com/ckptsidecar/ckptsidecar/cmd/ckptsidecar@latest"


class Stream(Protocol):
    """What HTTP needs of a connection. Timeouts are in seconds and raise TimeoutError."""

    def send(self, parts: list[bytes], timeout: float) -> None: ...

    def receive(self, most: int, timeout: float) -> bytes: ...

    def stale(self) -> bool:
        """Whether the other end has closed it, or sent what nobody asked for."""
        ...

    def close(self) -> None: ...


class UnixStream:
    """A connection over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise

    def send(self, parts: list[bytes], timeout: float) -> None:
        self._socket.settimeout(timeout)
        sent = self._socket.sendmsg(parts)
        for part in parts:
            if sent < len(part):
                self._socket.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))

    def receive(self, most: int, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        return self._socket.recv(most)

    def stale(self) -> bool:
        try:
            self._socket.settimeout(0)
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
        return True  # closed, or a byte too many

    def close(self) -> None:
        self._socket.close()


def dial(path: str, timeout: float) -> Stream:
    """Connects to the daemon at path; raises OSError."""
    if endpoint.WINDOWS:
        from .pipe import PipeStream

        return PipeStream(path, timeout)
    return UnixStream(path, timeout)


def dial_first(paths: list[str], timeout: float) -> tuple[Stream, str]:
    """Connects to the first daemon that answers; raises NoDaemon.

    An endpoint that is there and refuses us says more than one that is missing, so its error is
    the one to show.
    """
    telling = None
    for path in paths:
        try:
            return dial(path, timeout), path
        except OSError as error:
            if telling is None and not isinstance(error, FileNotFoundError):
                telling = _why(path, error)
    raise telling or _why(" or ".join(paths), FileNotFoundError())


def _why(path: str, error: OSError) -> NoDaemon:
    if shutil.which(PROGRAM):
        start = f'start one with "{PROGRAM} serve", or name its endpoint in {endpoint.SOCKET}'
    else:
        start = f"{PROGRAM} is not installed here: {INSTALL}"
    if isinstance(error, FileNotFoundError):
        text = f"no daemon answers at {path}: {start}"
    elif isinstance(error, ConnectionRefusedError):
        text = f"no daemon answers at {path}, only the socket of one that ended is there: {start}"
    elif isinstance(error, PermissionError):
        text = f"not allowed to connect to {path}: join the group that owns it, or name another in {endpoint.SOCKET}"
    elif isinstance(error, (BlockingIOError, TimeoutError)) or error.errno == errno.EAGAIN:
        text = f"the daemon at {path} takes no more connections just now: try again later"
    else:
        text = f"cannot connect to {path}: {error}"
    return NoDaemon(text)
