"""A lock that is given in the order in which it was asked for."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType
from typing import Optional


class Turn:
    """Requests of one client go out one after the other, first come, first served.

    ``threading.Lock`` promises no order, and a heartbeat that waits behind a flood of saves for
    ever is as good as none.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: deque[tuple[threading.Lock, int]] = deque()
        self._holder: Optional[int] = None

    def __enter__(self) -> None:
        me = threading.get_ident()
        with self._mutex:
            if self._holder is None:
                self._holder = me
                return
            if self._holder == me or any(me == waiter for _, waiter in self._waiting):
                raise RuntimeError(
                    "this thread already has a request in progress: do not call the client from a signal handler"
                )
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append((gate, me))
        try:
            gate.acquire()
        except BaseException:  # an interrupt of the main thread
            self._give_up((gate, me))
            raise
        self._holder = me

    def _give_up(self, place: tuple[threading.Lock, int]) -> None:
        with self._mutex:
            if place in self._waiting:
                self._waiting.remove(place)
                return
        self._pass_on()

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        with self._mutex:
            self._holder = -1 if self._waiting else None  # nobody's, but taken
            if self._waiting:
                self._waiting.popleft()[0].release()
