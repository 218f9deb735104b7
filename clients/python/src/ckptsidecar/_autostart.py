"""Starting the user's own daemon where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import time

from . import _endpoint
from .errors import NoDaemon
from ._stream import INSTALL, PROGRAM, dial_first

PATIENCE = 15.0  # seconds


def start(socket: str) -> None:
    """Starts ``ckptsidecar serve`` and waits until somebody answers; raises NoDaemon.

    ``socket`` is where it is to listen, "" for the usual place. The daemon stays when this
    process ends. Where two start one at once, one of them ends by itself, and both are served.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise NoDaemon(f"no daemon answers, and {PROGRAM} is not on the PATH: install it with {INSTALL}")
    log = _log_file()
    command = [program, "serve", *(["--socket", socket] if socket else [])]
    with open(log, "ab") as out:
        root = os.path.abspath(os.sep)
        daemon = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd=root
        )
    named = socket or _endpoint.named()
    paths = [named] if named else _endpoint.usual()
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            dial_first(paths, 1.0)[0].close()
            daemon.returncode = 0  # it goes on without us: nobody is to wait for it
            return
        except NoDaemon:
            if daemon.poll() not in (None, 4):  # 4: another one is there, or about to be
                break
        time.sleep(0.02)
    code = daemon.poll()
    ended = f"ended with exit code {code}" if code is not None else "does not answer"
    daemon.returncode = 0
    raise NoDaemon(f'"{" ".join(command)}" was started and {ended}: {log} says why')


def _log_file() -> str:
    state = _endpoint.state_home()
    if state is None:
        raise NoDaemon("no daemon answers, and none can be started, because this user has no home: set XDG_STATE_HOME")
    folder = os.path.join(state, "ckptsidecar")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    return os.path.join(folder, "serve.log")
