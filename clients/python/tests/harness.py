"""Real daemons in folders of their own, and children that can be killed."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
import warnings
import zlib
from pathlib import Path
from typing import Any, Callable, Optional

import ckptsidecar

ROOT = Path(__file__).resolve().parents[3]
logging.getLogger("ckptsidecar").addHandler(logging.NullHandler())
_binary: Optional[str] = None
_environment = dict(os.environ)  # as it was before any test changed it


def binary() -> str:
    """The daemon's program: $CKPTSIDECAR_BIN, or built once."""
    global _binary
    if _binary is None:
        _binary = _environment.get("CKPTSIDECAR_BIN") or _build()
    return os.path.abspath(_binary)


def _build() -> str:
    folder = tempfile.mkdtemp(prefix="ckptpy-bin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run(["go", "build", "-o", folder + "/", "./cmd/ckptsidecar"], cwd=ROOT, check=True, env=_environment)
    return os.path.join(folder, "ckptsidecar")


class Daemon:
    """A daemon over a database and a socket in a folder."""

    def __init__(self, folder: str, socket_path: Optional[str] = None) -> None:
        self.folder = folder
        self.socket = socket_path or os.path.join(folder, "s")
        self.database = os.path.join(folder, "ckpt.db")
        self.process: Optional[subprocess.Popen[bytes]] = None

    def start(self) -> "Daemon":
        log = open(os.path.join(self.folder, "daemon.log"), "ab")
        with log:
            command = [binary(), "serve", "--db", self.database, "--socket", self.socket]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 20
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the daemon did not start: " + Path(log.name).read_text()[-2000:])
            time.sleep(0.01)
        return self

    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(self.socket)
            except OSError:
                return False
        return True

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                os.kill(self.process.pid, how)
            self.process.wait()
            self.process = None

    def alone(self) -> bool:
        """Whether nobody is connected: what a dead client has sent was taken up then, or is lost."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.socket)
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            with s.makefile("rb") as answer:
                return b"\nckptsidecar_connections 1\n" in answer.read()

    def pause(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)  # until every thread has stopped: one that runs on may still answer

    def go_on(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGCONT)

    def rows(self, query: str, *args: Any) -> list[tuple[Any, ...]]:
        """What an auditor sees, with nothing but SQLite and the one function that its command has."""
        db = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        db.create_function("sqlar_uncompress", 2, lambda b, n: b if len(b) == n else zlib.decompress(b))
        try:
            return db.execute(query, args).fetchall()
        finally:
            db.close()

    def sound(self, test: unittest.TestCase) -> None:
        test.assertEqual(self.rows("SELECT * FROM audit_violations"), [])


class World(unittest.TestCase):
    """A test with a folder, an environment of its own, and a daemon that can be started."""

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="ckptpy-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        before = dict(os.environ)
        self.addCleanup(os.environ.update, before)
        self.addCleanup(os.environ.clear)
        for name in list(os.environ):
            if name.startswith(("CKPTSIDECAR_", "XDG_")):
                del os.environ[name]
        os.environ["HOME"] = os.environ["XDG_STATE_HOME"] = self.folder
        self.daemon = Daemon(self.folder)
        self.addCleanup(self.daemon.stop, signal.SIGKILL)
        self.spool = os.path.join(self.folder, "ckptsidecar", "spool")

    def start(self) -> Daemon:
        return self.daemon.start()

    def sidecar(self, **options: Any) -> ckptsidecar.Sidecar:
        made = ckptsidecar.Sidecar(self.daemon.socket, **options)
        self.addCleanup(made._delivery.close, flush=False)
        return made

    def waiting(self) -> list[str]:
        return sorted(n for n in os.listdir(self.spool) if n.endswith(".ckpt")) if os.path.isdir(self.spool) else []

    def quiet(self) -> Any:
        """For calls that warn: the log is looked at, and not shown."""
        return self.assertLogs("ckptsidecar", "WARNING")


def child(work: Callable[[], Any]) -> int:
    """Does work in a process of its own, and answers its pid. An exception ends it with 1."""
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of clients: the child uses none of theirs
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        warnings.simplefilter("ignore", ResourceWarning)  # who is killed closes nothing
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    """How a child ended: its exit code, or minus the signal."""
    status = os.waitpid(pid, 0)[1]
    return -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def until(true: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Waits until something is true."""
    end = time.monotonic() + seconds
    while True:
        answer = true()
        if answer or time.monotonic() > end:
            return answer
        time.sleep(0.01)


def report(*lines: str) -> None:
    """Prints what was measured."""
    for line in lines:
        print("    " + line, file=sys.stderr, flush=True)


def percentile(values: list[float], q: float) -> float:
    """A percentile in milliseconds."""
    return sorted(values)[min(len(values) - 1, int(len(values) * q))] * 1000
