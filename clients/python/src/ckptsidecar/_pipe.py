"""A named pipe of Windows as a byte stream. It is imported there alone.

The pipe is opened as a file, for overlapped work, so that waiting can be bounded; ``_winapi`` is what
the standard library's own ``multiprocessing`` uses for it.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import time
from ctypes import wintypes
from typing import Any

import _winapi

_RIGHTS = 0x12019B  # read and write, without the right to make instances of the pipe
_ANONYMOUS = 0x00100000  # SECURITY_SQOS_PRESENT and SECURITY_ANONYMOUS: who squats gets nothing to impersonate
_BUSY = 231  # ERROR_PIPE_BUSY
_PENDING = 997  # ERROR_IO_PENDING
_GONE = (109, 233)  # ERROR_BROKEN_PIPE, ERROR_PIPE_NOT_CONNECTED
_PART = 64 << 10  # bytes of one write, which is what the daemon's buffer takes
_TRUSTED = ("S-1-5-18", "S-1-5-32-544")  # LocalSystem, Administrators
_SERVICE = "ckptsidecar"


class PipeStream:
    """A connection over a named pipe."""

    def __init__(self, path: str, timeout: float) -> None:
        self._handle = _open(path, timeout)
        try:
            _check_owner(self._handle)
        except BaseException:
            _winapi.CloseHandle(self._handle)
            raise

    def send(self, parts: list[bytes], timeout: float) -> None:
        until = time.monotonic() + timeout
        for part in parts:
            for at in range(0, len(part), _PART):
                piece = part[at : at + _PART]
                while piece:
                    work, error = _winapi.WriteFile(self._handle, piece, overlapped=True)
                    piece = piece[self._finish(work, error, until) :]

    def receive(self, most: int, timeout: float) -> bytes:
        try:
            work, error = _winapi.ReadFile(self._handle, most, overlapped=True)
            self._finish(work, error, time.monotonic() + timeout)
        except OSError as broken:
            if getattr(broken, "winerror", 0) in _GONE:
                return b""
            raise
        return bytes(work.getbuffer() or b"")

    def _finish(self, work: Any, error: int, until: float) -> int:
        """Waits for a read or a write, and answers how many bytes it moved."""
        if error == _PENDING:
            left = max(0, int((until - time.monotonic()) * 1000))
            if _winapi.WaitForMultipleObjects([work.event], False, left) != _winapi.WAIT_OBJECT_0:
                work.cancel()
                work.GetOverlappedResult(True)
                raise TimeoutError("the daemon did not answer in time")
        count, _ = work.GetOverlappedResult(True)
        return int(count)

    def stale(self) -> bool:
        try:
            waiting = _winapi.PeekNamedPipe(self._handle)[0]
        except OSError:
            return True
        return bool(waiting)

    def close(self) -> None:
        if self._handle:
            _winapi.CloseHandle(self._handle)
            self._handle = 0


def _open(path: str, timeout: float) -> int:
    until = time.monotonic() + timeout
    flags = _winapi.FILE_FLAG_OVERLAPPED | _ANONYMOUS
    while True:
        try:
            return _winapi.CreateFile(path, _RIGHTS, 0, _winapi.NULL, _winapi.OPEN_EXISTING, flags, _winapi.NULL)
        except OSError as error:
            if getattr(error, "winerror", 0) != _BUSY:
                raise
            if time.monotonic() > until:
                raise TimeoutError("no instance of the pipe became free") from error
            time.sleep(0.01)


def _check_owner(handle: int) -> None:
    """Refuses a pipe that somebody else has made under the daemon's name."""
    owner = _owner_of(handle)
    if owner not in (*_TRUSTED, own_sid(), _service_sid(_SERVICE)):
        raise PermissionError(
            f"the pipe belongs to {owner}, which is neither the service, an administrator nor you; "
            "stop the program that created it"
        )


def _owner_of(handle: int) -> str:
    advapi = ctypes.WinDLL("advapi32", use_last_error=True)
    owner, descriptor = ctypes.c_void_p(), ctypes.c_void_p()
    get = advapi.GetSecurityInfo
    get.argtypes = [wintypes.HANDLE, ctypes.c_int, wintypes.DWORD, *[ctypes.c_void_p] * 5]
    error = get(handle, 6, 1, ctypes.byref(owner), None, None, None, ctypes.byref(descriptor))
    if error:
        raise PermissionError(f"the owner of the pipe cannot be read (Windows error {error})")
    try:
        return _text_of(advapi, owner)
    finally:
        _free(descriptor)


def own_sid() -> str:
    """The SID of this process's user, "" where it cannot be read."""
    advapi = ctypes.WinDLL("advapi32", use_last_error=True)
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.GetCurrentProcess.restype = wintypes.HANDLE
    advapi.OpenProcessToken.argtypes = [wintypes.HANDLE, wintypes.DWORD, ctypes.POINTER(wintypes.HANDLE)]
    token = wintypes.HANDLE()
    if not advapi.OpenProcessToken(kernel.GetCurrentProcess(), 8, ctypes.byref(token)):
        return ""
    try:
        room = ctypes.create_string_buffer(256)
        size = wintypes.DWORD()
        advapi.GetTokenInformation.argtypes = [
            wintypes.HANDLE, ctypes.c_int, ctypes.c_void_p, wintypes.DWORD, ctypes.POINTER(wintypes.DWORD),
        ]  # fmt: skip
        if not advapi.GetTokenInformation(token, 1, room, len(room), ctypes.byref(size)):
            return ""
        return _text_of(advapi, ctypes.cast(room, ctypes.POINTER(ctypes.c_void_p)).contents)
    finally:
        _winapi.CloseHandle(token.value or 0)


def _text_of(advapi: Any, sid: Any) -> str:
    text = ctypes.c_wchar_p()
    advapi.ConvertSidToStringSidW.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_wchar_p)]
    if not advapi.ConvertSidToStringSidW(sid, ctypes.byref(text)):
        return ""
    try:
        return text.value or ""
    finally:
        _free(ctypes.cast(text, ctypes.c_void_p))


def _free(pointer: Any) -> None:
    kernel = ctypes.WinDLL("kernel32")
    kernel.LocalFree.argtypes = [ctypes.c_void_p]
    kernel.LocalFree(pointer)


def _service_sid(name: str) -> str:
    """The SID of the virtual account NT SERVICE\\NAME, which follows from the name."""
    digest = hashlib.sha1(name.upper().encode("utf-16-le")).digest()
    return "S-1-5-80-" + "-".join(str(n) for n in struct.unpack("<5I", digest))
