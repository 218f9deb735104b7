"""A byte stream to the daemon: a Unix socket in unix.py, a named pipe in pipe.py."""

from __future__ import annotations

import errno
import os
import shutil
from typing import Protocol

from . import _endpoint
from .errors import NoDaemon, Stranger
from ._trust import StrangerListens

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


def dial(path: str, timeout: float) -> Stream:
    """Connects to the daemon at path; raises OSError."""
    if _endpoint.WINDOWS:
        from ._pipe import PipeStream

        return PipeStream(path, timeout)
    from ._unix import UnixStream

    return UnixStream(path, timeout)


def dial_first(paths: list[str], timeout: float, named: str = "") -> tuple[Stream, str]:
    """Connects to the first daemon that answers; raises NoDaemon. ``named`` is what named the one path.

    An endpoint that is there and refuses us says more than one that is missing, so its error is
    the one to show. A stranger ends the search: the environment is then not what its user thinks.
    The first of several paths is the user's own. A user who has a database there does not get another daemon:
    its work would begin anew.
    """
    telling = None
    origin = f" (named by {named})" if named else ""
    for path in paths:
        try:
            stream = dial(path, timeout)
            database = _endpoint.own_database() if path != paths[0] else ""
            if not database:
                return stream, path
            stream.close()
            raise NoDaemon(
                f"refused to use the system's daemon at {path}: your own database {database} exists, and your own daemon "
                f'does not answer at {paths[0]}; start your own daemon with "{PROGRAM} serve", or choose the system\'s '
                f"with {_endpoint.SOCKET}, or move your own database away"
            )
        except OSError as error:
            if isinstance(error, StrangerListens):
                raise _stranger(path + origin, error) from error
            if telling is None and not isinstance(error, FileNotFoundError):
                telling = _why(path + origin, error)
    raise telling or _why(" or ".join(paths) + origin, FileNotFoundError())


def _stranger(path: str, error: StrangerListens) -> Stranger:
    return Stranger(
        f"refused to talk to the program at {path}: {error}; "
        f"name your own daemon in {_endpoint.SOCKET}, or run this as that user"
    )


def _how_to_join(path: str) -> str:
    """Names the group that may connect, and the command that lets this user in."""
    if _endpoint.WINDOWS:
        return "the daemon's users are those of the access list of its pipe"
    try:
        path = path.split(" (named by ")[0]
        try:
            info = os.stat(path)
        except OSError:
            info = os.stat(os.path.dirname(path))
        if not info.st_mode & 0o060 or info.st_gid == 0:
            return "only its owner may"
        import grp
        import pwd

        group, user = grp.getgrgid(info.st_gid).gr_name, pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError, OSError):  # a process that has become another user may not read the modules
        return "join the group that owns it"
    return f"join the group {group}, which owns it (sudo usermod -aG {group} {user}, then log in again)"


def _why(path: str, error: OSError) -> NoDaemon:
    if shutil.which(PROGRAM):
        start = f'start one with "{PROGRAM} serve", or name its endpoint in {_endpoint.SOCKET}'
    else:
        start = f"{PROGRAM} is not installed here: {INSTALL}"
    if isinstance(error, FileNotFoundError):
        text = f"no daemon answers at {path}: {start}"
    elif isinstance(error, ConnectionRefusedError):
        text = f"no daemon answers at {path}; its socket is from a daemon that has ended: {start}"
    elif isinstance(error, PermissionError):
        text = f"not allowed to connect to {path}: {_how_to_join(path)}, or name another in {_endpoint.SOCKET}"
    elif isinstance(error, (BlockingIOError, TimeoutError)) or error.errno == errno.EAGAIN:
        text = f"the daemon at {path} cannot accept more connections now: try again later"
    else:
        text = f"cannot connect to {path}: {error}"
    return NoDaemon(text)
