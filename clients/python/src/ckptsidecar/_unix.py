"""A Unix socket as a byte stream."""

from __future__ import annotations

import socket

from ._trust import check_listener


class UnixStream:
    """A connection over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(timeout)
            self._socket.connect(path)
            check_listener(self._socket, path)
        except BaseException:
            self._socket.close()
            raise

    def send(self, parts: list[bytes], timeout: float) -> None:
        try:
            self._socket.settimeout(timeout)
            sent = self._socket.sendmsg(parts)
            for part in parts:
                if sent < len(part):
                    self._socket.sendall(memoryview(part)[sent:])
                sent = max(0, sent - len(part))
        except socket.timeout as error:  # before Python 3.10 it is no TimeoutError
            raise TimeoutError("the daemon did not read the request in time") from error

    def receive(self, most: int, timeout: float) -> bytes:
        try:
            self._socket.settimeout(timeout)
            return self._socket.recv(most)
        except socket.timeout as error:
            raise TimeoutError("the daemon did not answer in time") from error

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
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # ends a receive of another thread as well
        except OSError:
            pass
        self._socket.close()
