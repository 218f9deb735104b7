"""The last states that the daemon has said it has, so that only a change need be sent."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from typing import NamedTuple, Optional

from . import asks, delta
from .link import Ask
from .spool_form import Lane

MOST = 64 << 20  # bytes of states that a client keeps; no single one may have more than half


class Acked(NamedTuple):
    """A state that the daemon has, byte for byte."""

    id: str
    sha256: str
    state: bytes


class AckedStates:
    """The last one of each run."""

    def __init__(self) -> None:
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
        whole.smaller = self._smaller
        whole.meanwhile = self._hash

    def _smaller(self) -> Optional[Ask]:
        last = self._states.last(self._lane)
        if last is None:
            return None
        change = delta.change(last.state, self._whole.body)
        return None if change is None else asks.smaller(self._whole, last.id, last.sha256, change)

    def _hash(self) -> None:
        """Runs while the daemon works."""
        if not self._sha256:
            self._sha256 = hashlib.sha256(self._whole.body).hexdigest()

    def done(self, id: str, sha256: str) -> None:
        """Keeps the state where the daemon has the very bytes: it has others where a policy redacts secrets."""
        if sha256 == self._sha256:
            self._states.put(self._lane, Acked(id, sha256, self._whole.body))


def saver(states: AckedStates, whole: Ask) -> Optional[Saver]:
    """A saver where one is worth it."""
    return Saver(states, whole) if delta.LEAST <= len(whole.body) <= MOST // 2 else None
