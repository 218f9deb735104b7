"""The last states that the daemon has said it has, so that only a change need be sent."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from typing import NamedTuple, Optional

from . import _requests, _delta
from ._transport import Ask
from ._spool_form import Lane

MOST = 64 << 20  # bytes of states that a client keeps; no single one may have more than half


class Pace:
    """Finds out whether sending only the change pays: on a machine whose cores are busy it may not.

    It tries both forms in turns at first, then uses the faster one, and the other one now and then.
    """

    _TRIALS, _SOMETIMES, _WEIGHT = 8, 32, 0.2

    def __init__(self, send: str) -> None:
        self._send = send
        self._count = 0
        self._took: dict[bool, float] = {}  # seconds for a MB, a moving average, by whether it was a change

    def change(self, ahead: int = 0) -> bool:
        """Whether the next save is to be a change, or the one after it."""
        if self._send != "auto":
            return self._send == "changes"
        n = self._count + ahead
        if n < self._TRIALS or len(self._took) < 2:
            return n % 2 == 1
        faster = self._took[True] <= self._took[False]
        return faster if n % self._SOMETIMES else not faster

    def note(self, change: bool, seconds: float, size: int) -> None:
        """Learns how long a save took."""
        self._count += 1
        took = seconds / size * 1e6
        old = self._took.get(change, took)
        self._took[change] = old + self._WEIGHT * (took - old)


class Acked(NamedTuple):
    """A state that the daemon has, byte for byte."""

    id: str
    sha256: str
    state: bytes


class AckedStates:
    """The last one of each run, as far as it is worth keeping."""

    def __init__(self, send: str = "auto") -> None:
        self.pace = Pace(send)
        self._lock = threading.Lock()
        self._states: OrderedDict[Lane, Acked] = OrderedDict()
        self._held = 0

    def last(self, lane: Lane) -> Optional[Acked]:
        with self._lock:
            found = self._states.get(lane)
            if found is not None:
                self._states.move_to_end(lane)
            return found

    def put(self, lane: Lane, acked: Acked) -> None:
        with self._lock:
            self._drop(lane)
            self._states[lane] = acked
            self._held += len(acked.state)
            while self._held > MOST:
                self._drop(next(iter(self._states)))

    def _drop(self, lane: Lane) -> None:
        old = self._states.pop(lane, None)
        if old is not None:
            self._held -= len(old.state)


class Saver:
    """One save of a state that is large enough for sending only what changed."""

    def __init__(self, states: AckedStates, whole: Ask) -> None:
        assert whole.lane is not None
        self._states = states
        self._whole = whole
        self._lane = whole.lane
        self._sha256 = ""
        self._change = False
        self._began = 0.0
        whole.smaller = self._smaller
        whole.meanwhile = self._hash

    def _smaller(self) -> Optional[Ask]:
        self._began = time.perf_counter()
        last = self._states.last(self._lane) if self._states.pace.change() else None
        change = _delta.change(last.state, self._whole.body) if last is not None else None
        self._change = change is not None
        if last is None or change is None:
            return None
        return _requests.smaller(self._whole, last.id, last.sha256, change)

    def _hash(self) -> None:
        """Runs while the daemon works. Without it the state cannot be the base of a change."""
        pace = self._states.pace
        if not self._sha256 and (pace.change() or pace.change(ahead=1)):
            self._sha256 = hashlib.sha256(self._whole.body).hexdigest()

    def done(self, id: str, sha256: str) -> None:
        """Keeps the state where the daemon has the very bytes: it has others where a policy redacts secrets."""
        self._states.pace.note(self._change, time.perf_counter() - self._began, len(self._whole.body))
        if sha256 == self._sha256:
            self._states.put(self._lane, Acked(id, sha256, self._whole.body))


def saver(states: AckedStates, whole: Ask) -> Optional[Saver]:
    """A saver where one is worth it."""
    return Saver(states, whole) if _delta.LEAST <= len(whole.body) <= MOST // 2 else None
