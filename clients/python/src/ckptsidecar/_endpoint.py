"""Where daemons listen and where this user's files lie."""

from __future__ import annotations

import os
import stat
import sys
from typing import Optional

SOCKET = "CKPTSIDECAR_SOCKET"
SPOOL = "CKPTSIDECAR_SPOOL"
PIPE = r"\\.\pipe\ckptsidecar"
RUNTIME_FOLDERS = "/run/user" if sys.platform == "linux" else ""
WINDOWS = sys.platform == "win32"


def state_home() -> Optional[str]:
    """The folder of this user's state, None where no home is known."""
    if WINDOWS:
        return os.environ.get("LOCALAPPDATA") or None
    named = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):
        return named
    home = os.path.expanduser("~")
    return os.path.join(home, ".local", "state") if os.path.isabs(home) else None


def users_own() -> Optional[str]:
    """Where the user's own daemon listens, None where that is not known."""
    if WINDOWS:
        from ._pipe import own_sid

        sid = own_sid()
        return f"{PIPE}-{sid}" if sid else None
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isabs(runtime):
        runtime = runtime_folder(RUNTIME_FOLDERS, os.getuid())
    if runtime:
        return os.path.join(runtime, "ckptsidecar.sock")
    state = state_home()
    return os.path.join(state, "ckptsidecar", "ckptsidecar.sock") if state else None


def runtime_folder(above: str, uid: int) -> str:
    """The folder that a login manager made for a user, "" where there is none: cron sets no XDG_RUNTIME_DIR."""
    folder = os.path.join(above, str(uid))
    try:
        info = os.stat(folder)
    except OSError:
        return ""
    return folder if above and stat.S_ISDIR(info.st_mode) and info.st_uid == uid else ""


def systems() -> str:
    """Where the system's daemon listens."""
    if WINDOWS:
        return PIPE
    run = "/var/run" if sys.platform == "darwin" else "/run"
    return os.path.join(run, "ckptsidecar", "ckptsidecar.sock")


def named() -> str:
    """The endpoint that the environment names, "" where it names none."""
    path = os.environ.get(SOCKET, "")
    return absolute(path) if path else ""


def usual() -> list[str]:
    """The endpoints where a daemon of this user or of the system listens by default, in the order in which they are tried."""
    return list(dict.fromkeys(path for path in (users_own(), systems()) if path))


def own_database() -> str:
    """The database of the user's own daemon, "" where there is none in the usual place."""
    state = state_home()
    path = os.path.join(state, "ckptsidecar", "ckpt.db") if state else ""
    return path if os.path.isfile(path) else ""


def absolute(path: str) -> str:
    """The whole path of a socket; the name of a pipe as it is."""
    return path if WINDOWS else os.path.abspath(path)


def spool_folder(chosen: Optional[str]) -> str:
    """The folder of the spool, "" where none can be found."""
    folder = chosen or os.environ.get(SPOOL, "")
    if folder:
        return os.path.abspath(folder)
    state = state_home()
    return os.path.join(state, "ckptsidecar", "spool") if state else ""
