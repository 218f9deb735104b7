"""HTTP/1.1 over a stream: one request after the other on one connection.

The standard library's client cannot speak over a pipe, and parses headers four times slower.
"""

from __future__ import annotations

import time
from typing import Callable, Mapping, NamedTuple, Optional

from ._stream import Stream

_MOST_HEAD = 512 << 10  # bytes of a reply's status line and headers
_CHUNK = 256 << 10
_IDLE = 300.0  # seconds; the daemon closes what is idle for twice as long


class Reply(NamedTuple):
    """An answer, read to its end. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def replayed(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"


class Broken(Exception):
    """The connection broke before the answer came; ``sent`` says whether the daemon may have the request."""

    def __init__(self, cause: BaseException, sent: bool) -> None:
        super().__init__(str(cause) or type(cause).__name__)
        self.sent = sent
        self.timed_out = isinstance(cause, TimeoutError)


class Connection:
    """One connection to a daemon. It belongs to one thread at a time."""

    def __init__(self, stream: Stream, path: str) -> None:
        self.path = path
        self._stream = stream
        self._rest = b""
        self._used = time.monotonic()
        self._owed = False  # a request was sent, and nothing of its answer has come

    def usable(self) -> bool:
        """Whether the next request may go over it."""
        return not self._rest and time.monotonic() - self._used < _IDLE and not self._stream.stale()

    def close(self) -> None:
        self._stream.close()

    def settle(self, patience: float) -> None:
        """Waits for the answer to a request that was interrupted: what is sent next cannot overtake it then."""
        if not self._owed:
            return
        try:
            self._stream.receive(1, patience)
        except OSError:
            pass

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes,
        until: float,
        meanwhile: Optional[Callable[[], None]] = None,
    ) -> Reply:
        """Makes a request and reads the answer; raises Broken, after which the connection must be closed.

        ``until`` is on the monotonic clock; ``meanwhile`` is called while the daemon works.
        """
        lines = [f"{method} {target} HTTP/1.1", "Host: ckptsidecar"]
        lines.extend(f"{name}: {value}" for name, value in headers.items())
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body)}")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        failure: Optional[OSError] = None
        try:
            self._stream.send([head, body] if body else [head], _left(until))
        except TimeoutError as error:
            raise Broken(error, True) from error
        except OSError as error:
            failure = error  # the daemon may have refused and closed: then its answer is there
        self._owed = failure is None
        if meanwhile is not None:
            meanwhile()
        try:
            reply = self._read(method, until)
        except (OSError, ValueError) as error:
            raise Broken(failure or error, True) from error
        self._used = time.monotonic()
        if failure is not None or reply.headers.get("connection", "").lower() == "close":
            self._used = -_IDLE  # not again
        return reply

    def _read(self, method: str, until: float) -> Reply:
        while True:
            head = self._until(b"\r\n\r\n", until)
            lines = head.decode("latin-1").split("\r\n")
            version, status = lines[0].split(" ", 2)[:2]
            if not version.startswith("HTTP/1."):
                raise ValueError("the answer is not HTTP/1.1")
            if int(status) >= 200:
                break
        headers: dict[str, str] = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        return Reply(int(status), headers, self._body(method, int(status), headers, until))

    def _body(self, method: str, status: int, headers: Mapping[str, str], until: float) -> bytes:
        if method == "HEAD" or status in (204, 304):
            return b""
        if headers.get("transfer-encoding", "").lower() == "chunked":
            return b"".join(self._chunks(until))
        return self._exactly(int(headers["content-length"]) if "content-length" in headers else 0, until)

    def _chunks(self, until: float) -> list[bytes]:
        parts: list[bytes] = []
        while True:
            size = int(self._until(b"\r\n", until).split(b";")[0], 16)
            if size == 0:
                break
            parts.append(self._exactly(size, until))
            self._exactly(2, until)
        while self._until(b"\r\n", until):  # trailers
            pass
        return parts

    def _until(self, end: bytes, until: float) -> bytes:
        data = self._rest
        while True:
            at = data.find(end)
            if at >= 0:
                self._rest = data[at + len(end) :]
                return data[:at]
            if len(data) > _MOST_HEAD:
                raise ValueError("the head of the answer is too long")
            data += self._more(16 << 10, until)

    def _exactly(self, size: int, until: float) -> bytes:
        if len(self._rest) >= size:
            body, self._rest = self._rest[:size], self._rest[size:]
            return body
        parts, missing = [self._rest], size - len(self._rest)
        self._rest = b""
        while missing:
            part = self._more(min(missing, _CHUNK), until)
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def _more(self, most: int, until: float) -> bytes:
        data = self._stream.receive(most, _left(until))
        self._owed = False
        if not data:
            raise ConnectionResetError("the daemon closed the connection")
        return data


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("the wait for the daemon's answer ended before it came any longer")
    return left
