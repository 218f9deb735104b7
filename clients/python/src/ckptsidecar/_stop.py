"""Being asked to stop: SIGTERM lets the agent finish what it is doing, and then ends it."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import Any, Callable, Optional

_log = logging.getLogger("ckptsidecar")


class Terminated(SystemExit):
    """The agent was asked to stop, by SIGTERM. It leaves the run, which is interrupted and can be resumed."""

    def __init__(self) -> None:
        super().__init__(128 + int(signal.SIGTERM))


class Stopper:
    """Waits for SIGTERM on behalf of a run, where the run is used in the main thread.

    The first signal only sets ``asked``: the run looks at it between two pieces of work. After
    ``grace`` seconds, or at a second signal, ``interrupt`` is called, in the main thread.
    """

    def __init__(self, grace: float, interrupt: Callable[[], None]) -> None:
        self.asked = False
        self._grace = grace
        self._interrupt = interrupt
        self._until = 0.0
        self._before: Any = None
        self._installed = False
        self._timer: Optional[threading.Timer] = None

    def install(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread can
        self._before = signal.getsignal(signal.SIGTERM)
        ours = isinstance(getattr(self._before, "__self__", None), Stopper)
        if self._before == signal.SIG_DFL or ours:  # a handler of the program's own stays
            signal.signal(signal.SIGTERM, self._handle)
            self._installed = True

    def remove(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._installed:
            self._installed = False
            if signal.getsignal(signal.SIGTERM) == self._handle:
                signal.signal(signal.SIGTERM, self._before)

    def _handle(self, number: int, frame: Any) -> None:
        if self.asked:
            if self._installed:
                self._interrupt()
            return
        self.asked = True
        self._until = time.monotonic() + self._grace
        self._timer = threading.Timer(self._grace, self._again)
        self._timer.daemon = True
        self._timer.start()

    def _again(self) -> None:
        _log.warning("the agent was asked to stop, but did not finish its work within %g s", self._grace)
        if hasattr(signal, "pthread_kill"):
            ident = threading.main_thread().ident
            if ident is not None:
                signal.pthread_kill(ident, signal.SIGTERM)
        else:
            signal.raise_signal(signal.SIGTERM)


def terminate() -> None:
    """Ends the agent where it is."""
    raise Terminated()
