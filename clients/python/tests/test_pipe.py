"""The stream over a named pipe, against a stand-in for Windows: the calls go to a real daemon's socket.

What Windows itself does is not shown here; docs/PYTHON.md says so.
"""

from __future__ import annotations

import importlib
import os
import select
import socket
import sys
import time
import types
from typing import Any
from unittest import mock

from ckptsidecar import _endpoint, _stream as stream

from .harness import World, ckptsidecar

_PENDING = 997


class Overlapped:
    """A read or a write that is under way."""

    def __init__(self, windows: "Windows", sock: socket.socket, most: int = 0, data: bytes = b"") -> None:
        self.event, self.windows, self.sock, self.most, self.data = self, windows, sock, most, data
        self.got: bytes = b""
        self.cancelled = False

    def ready(self, seconds: float) -> bool:
        return bool(select.select([self.sock], [], [], seconds)[0])

    def cancel(self) -> None:
        self.cancelled = True

    def GetOverlappedResult(self, wait: bool) -> tuple[int, int]:
        if self.cancelled:
            return 0, 995
        if self.data:
            return self.sock.send(self.data[:1000]), 0  # a part, as may happen
        self.got = self.sock.recv(self.most)
        if not self.got:
            raise self.windows.error(109)
        return len(self.got), 0

    def getbuffer(self) -> bytes:
        return self.got


class Windows(types.ModuleType):
    """As much of _winapi as the stream uses."""

    NULL, OPEN_EXISTING, FILE_FLAG_OVERLAPPED, WAIT_OBJECT_0 = 0, 3, 0x40000000, 0

    def __init__(self) -> None:
        super().__init__("_winapi")
        self.open: dict[int, socket.socket] = {}
        self.busy = 0
        self.asked: list[int] = []

    def error(self, code: int) -> OSError:
        error = OSError(code, "an error of Windows")
        error.winerror = code  # type: ignore[attr-defined]
        return error

    def CreateFile(self, path: str, rights: int, share: int, attributes: int, disposition: int, flags: int, template: int) -> int:
        self.asked = [rights, flags]
        if self.busy:
            self.busy -= 1
            raise self.error(231)
        made = socket.socket(socket.AF_UNIX)
        try:
            made.connect(path)
        except OSError:
            made.close()
            raise
        self.open[made.fileno()] = made
        return made.fileno()

    def CloseHandle(self, handle: int) -> None:
        self.open.pop(handle).close()

    def WriteFile(self, handle: int, data: bytes, overlapped: bool) -> tuple[Overlapped, int]:
        return Overlapped(self, self.open[handle], data=data), 0

    def ReadFile(self, handle: int, most: int, overlapped: bool) -> tuple[Overlapped, int]:
        return Overlapped(self, self.open[handle], most), _PENDING

    def WaitForMultipleObjects(self, events: list[Overlapped], every: bool, milliseconds: int) -> int:
        return 0 if events[0].ready(milliseconds / 1000) else 258

    def PeekNamedPipe(self, handle: int) -> tuple[int, int]:
        sock = self.open[handle]
        if not select.select([sock], [], [], 0)[0]:
            return 0, 0
        if not sock.recv(1, socket.MSG_PEEK):
            raise self.error(109)
        return 1, 0


class Pipe(World):
    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.windows = Windows()
        self.addCleanup(lambda: [s.close() for s in self.windows.open.values()])
        self.addCleanup(sys.modules.pop, "ckptsidecar._pipe", None)
        with mock.patch.dict(sys.modules, {"_winapi": self.windows}):
            self.pipe = pipe = importlib.import_module("ckptsidecar._pipe")
        for where, name, value in (
            (pipe, "_owner_of", lambda handle: self.owner),
            (pipe, "own_sid", lambda: "S-1-5-21-1-2-3-1001"),
            (stream, "dial", pipe.PipeStream),
        ):
            patch = mock.patch.object(where, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        self.owner = "S-1-5-18"

    def test_saving_over_a_pipe(self) -> None:
        agent = self.sidecar().agent("pipes")
        states = [{"n": n, "pad": os.urandom(n * 40_000).hex()} for n in range(4)]
        for state in states:
            agent.save(state)
            latest = agent.latest()
            assert latest is not None
            self.assertEqual(latest.state, state)
        self.assertEqual(len(self.windows.open), 1)  # one connection
        self.daemon.stop()
        self.start()
        agent.save({"n": "after"})
        self.assertEqual((agent.restore().state, self.waiting()), ({"n": "after"}, []))
        self.assertEqual(self.windows.asked, [0x12019B, 0x40000000 | 0x00100000])

    def test_a_silent_daemon(self) -> None:
        agent = self.sidecar(deadline=0.2).agent("pipes")
        agent.save(1)
        self.daemon.pause()
        began = time.monotonic()
        with self.quiet():
            self.assertTrue(agent.save(2).spooled)
        self.assertLess(time.monotonic() - began, 3)
        self.daemon.go_on()

    def test_a_busy_pipe(self) -> None:
        self.windows.busy = 3
        self.sidecar().agent("pipes").save(1)

    def test_whose_pipe_it_is(self) -> None:
        for owner in ("S-1-5-18", "S-1-5-32-544", "S-1-5-21-1-2-3-1001", self.pipe._service_sid("ckptsidecar")):
            self.owner = owner
            self.sidecar(deadline=0).agent("pipes").save(1)
        self.owner = "S-1-5-21-1-2-3-6666"
        with self.assertRaises(ckptsidecar.NoDaemon):
            self.sidecar(deadline=0, fail_open=False).agent("pipes").save(1)

    def test_ones_own_pipe_comes_before_the_services(self) -> None:
        own, service = r"\\.\pipe\ckptsidecar-S-1-5-21-1-2-3-1001", r"\\.\pipe\ckptsidecar"
        local = os.path.join(self.folder, "local")
        known = mock.patch.dict(sys.modules, {"ckptsidecar._pipe": self.pipe})
        with known, mock.patch.object(_endpoint, "WINDOWS", True), mock.patch.dict(os.environ, {"LOCALAPPDATA": local}):
            self.assertEqual(_endpoint.usual(), [own, service])
            with mock.patch.object(self.pipe, "own_sid", lambda: ""):
                self.assertEqual(_endpoint.usual(), [service])
            self.assertEqual(_endpoint.own_database(), "")
            database = os.path.join(local, "ckptsidecar", "ckpt.db")
            os.makedirs(os.path.dirname(database))
            with open(database, "wb"):
                pass
            self.assertEqual(_endpoint.own_database(), database)

    def test_who_takes_ones_own_pipe_keeps_nobody_from_the_service(self) -> None:
        asked: list[int] = []

        def owner(handle: int) -> str:
            asked.append(handle)
            return "S-1-5-21-1-2-3-6666" if len(asked) == 1 else "S-1-5-18"

        taken = os.path.join(self.folder, "taken")
        os.symlink(self.daemon.socket, taken)
        with mock.patch.object(self.pipe, "_owner_of", owner):
            connection, path = stream.dial_first([taken, self.daemon.socket], 10.0)
        connection.close()
        self.assertEqual((path, len(asked)), (self.daemon.socket, 2))

    def test_the_sid_of_a_service(self) -> None:
        known = "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464"
        self.assertEqual(self.pipe._service_sid("TrustedInstaller"), known)
