"""The one connection of a client: finding the daemon, and asking it once."""

from __future__ import annotations

import dataclasses
import time
from typing import Callable, Mapping, Optional

from . import _endpoint
from ._autostart import start
from .errors import BaseMissing, Busy, CkptError, NoDaemon, Stranger, from_reply
from ._http import Broken, Connection, Reply
from ._stream import Stream, dial_first

CONNECT_TIMEOUT = 5.0
_SETTLE = 1.0  # seconds that an interrupt waits for the answer to the write that it interrupted


@dataclasses.dataclass
class Ask:
    """A request that may be made more than once."""

    method: str
    path: str  # escaped
    query: str = ""  # encoded
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    body: bytes = b""
    write: bool = False
    repeatable: bool = False  # making it twice does it once
    lane: Optional[tuple[str, str]] = None  # the agent and run that it changes
    id: str = ""  # what makes it repeatable; such a one may be spooled
    smaller: Optional[Callable[[], Optional["Ask"]]] = None  # the same as a change, to be tried first
    meanwhile: Optional[Callable[[], None]] = None  # to be done while the daemon works

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


class Link:
    """Keeps one connection. It belongs to one thread at a time."""

    def __init__(self, socket: Optional[str], autostart: bool) -> None:
        self._chosen = _endpoint.absolute(socket) if socket else ""
        self._autostart = autostart
        self._found = ""  # where a daemon answered: a client stays with it
        self._connection: Optional[Connection] = None

    @property
    def endpoint(self) -> str:
        """Where this client's daemon is, "" where it has found none and was told of none."""
        return self._found or self._chosen

    @property
    def expected(self) -> str:
        """Where this client's daemon is or should be, "" where it has found none and neither caller nor environment names one."""
        return self.endpoint or _endpoint.named()

    def _dial(self) -> tuple[Stream, str]:
        """Connects. An endpoint that was named, or where a daemon answered, is the only one tried."""
        named = "" if self._found else "the argument socket" if self._chosen else _endpoint.SOCKET if _endpoint.named() else ""
        return dial_first([self.expected] if self.expected else _endpoint.usual(), CONNECT_TIMEOUT, named)

    def owns(self, wanted: str) -> bool:
        """Whether a file of the spool that names an endpoint belongs to the connected daemon."""
        return self._found in ([wanted] if wanted else _endpoint.usual())

    def connect(self) -> Connection:
        """A connection that may be used; raises NoDaemon."""
        if self._connection is not None and self._connection.usable():
            return self._connection
        self.close()
        try:
            stream, path = self._dial()
        except NoDaemon as error:
            if not self._autostart or isinstance(error, Stranger):
                raise
            start(self._chosen)
            stream, path = self._dial()
        self._found = path
        self._connection = Connection(stream, path)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def ask(self, ask: Ask, until: float) -> Reply:
        """Makes a request once and answers the good reply; raises CkptError otherwise."""
        if ask.smaller is not None:
            smaller = ask.smaller()
            if smaller is not None:
                try:
                    return self._exchange(smaller, until)
                except BaseMissing:
                    pass
        return self._exchange(ask, until)

    def _exchange(self, ask: Ask, until: float) -> Reply:
        connection = self.connect()
        try:
            reply = connection.ask(ask.method, ask.target, ask.headers, ask.body, until, ask.meanwhile)
        except Broken as error:
            self.close()
            raise _broken(error, ask.write) from error
        except BaseException:  # an interrupt
            try:
                if ask.write:
                    connection.settle(_SETTLE)
            finally:
                self.close()
            raise
        if not reply.good:
            raise from_reply(reply.status, reply.headers, reply.body, ask.write)
        return reply


def _broken(error: Broken, write: bool) -> CkptError:
    text = "the wait for the daemon's answer ended before it came" if error.timed_out else "the connection to the daemon broke"
    if write and error.sent:
        return Busy(f"{text}, so it is not known whether this was done ({error})", outcome="unknown")
    return Busy(f"{text} ({error})")


def deadline(seconds: float) -> float:
    """A moment so far from now, on the monotonic clock."""
    return time.monotonic() + seconds
