"""Saving by the clock, without a change to the agent's own code."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from types import TracebackType
from typing import Any, Callable, Optional

from ._encode import Encoded
from .errors import CkptError, Fenced
from .models import Saved

_log = logging.getLogger("ckptsidecar")


class Autosave:
    """Saves a state at an interval while it is open; use it with ``with``, or call ``stop``.

    ``state()`` is called in a thread of its own, so it should answer something that nobody changes
    meanwhile: a copy, or a value that the agent replaces instead of changing. A state that is as it
    was is saved again only after ``refresh_after`` seconds. Errors are logged; ``Fenced`` ends it.
    """

    def __init__(
        self,
        save: Callable[..., Saved],
        encode: Callable[[Any], Encoded],
        state: Callable[[], Any],
        every: float = 900.0,
        refresh_after: float = 7200.0,
    ) -> None:
        if every <= 0 or refresh_after <= 0:
            raise ValueError("every and refresh_after are in seconds and must be more than 0")
        self.error: Optional[Exception] = None  # of the last try
        self.saves = 0
        self._save, self._encode, self._state = save, encode, state
        self._every, self._refresh_after = every, refresh_after
        self._last = (b"", float("-inf"))  # the hash of what was saved last, and when
        self._stopped = threading.Event()
        self._one = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="ckptsidecar autosave", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._stopped.wait(self._every):
            try:
                self.now(force=False)
                self.error = None
            except Fenced as error:
                self.error = error
                _log.error("autosave ends: %s", error)
                return
            except Exception as error:  # of the daemon or of state(): the next try may go better
                self.error = error
                _log.warning("autosave failed; it continues: %s", error)

    def now(self, *, force: bool = True) -> Optional[Saved]:
        """Saves now. Without ``force``, it saves only a changed state, and otherwise returns None."""
        with self._one:
            encoded = self._snapshot()
            digest = hashlib.sha256(encoded.data).digest()
            fresh = time.monotonic() - self._last[1] < self._refresh_after
            if not force and fresh and digest == self._last[0]:
                return None
            saved = self._save(encoded, labels={"autosave": "true"})
            self._last = (digest, time.monotonic())
            self.saves += 1
            return saved

    def _snapshot(self) -> Encoded:
        for _ in range(3):
            try:
                return self._encode(self._state())
            except RuntimeError:  # something changed its size while it was read
                time.sleep(0.01)
        return self._encode(self._state())

    def stop(self, *, save: bool = False) -> None:
        """Ends the autosave. With ``save``, it first saves a changed state once more."""
        self._stopped.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        if save:
            try:
                self.now(force=False)
            except CkptError as error:
                self.error = error
                raise

    def __enter__(self) -> "Autosave":
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.stop(save=kind is None)
