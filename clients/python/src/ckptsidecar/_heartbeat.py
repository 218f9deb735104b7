"""The heartbeat: tells at regular times that the owner of a run is alive."""

from __future__ import annotations

import logging
import threading
from typing import Callable, Optional

from .errors import CkptError, Conflict, Fenced

_log = logging.getLogger("ckptsidecar")


class Heartbeat:
    """Calls ``beat`` every so many seconds, until it is stopped or the run is not ours any more."""

    def __init__(self, every: float, beat: Callable[[], None], lost: Callable[[CkptError], None]) -> None:
        self._every = every
        self._beat = beat
        self._lost = lost  # told once that the run is not ours any more
        self._stopped = threading.Event()
        self._thread: Optional[threading.Thread] = None

    def start(self) -> None:
        """Begins, where the time between two beats is more than 0."""
        if self._every > 0:
            self._thread = threading.Thread(target=self._work, name="ckptsidecar heartbeat", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self._beat()
            except (Fenced, Conflict) as error:
                if not self._stopped.is_set():
                    self._lost(error)
                return
            except Exception as error:  # the daemon is away: it does not count its own absence against us
                _log.debug("no heartbeat: %s", error)

    def stop(self, most: float) -> None:
        """Stops, and waits at most so many seconds for a beat that is under way."""
        self._stopped.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(most)
