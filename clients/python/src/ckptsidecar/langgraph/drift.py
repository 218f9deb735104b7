"""What the daemon last said of the drift of each thread."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any, Callable, Mapping, Optional

from .._drift import Drift, DriftWatch
from .._http import Reply

Place = tuple[str, str]  # a thread and a namespace
OnDrift = Callable[[dict[str, Any], Drift], Any]

_MOST = 10_000  # threads that are remembered


class Drifts:
    """The verdicts of the threads of one saver. It is safe for concurrent use."""

    def __init__(self, on_drift: Optional[OnDrift]) -> None:
        self._on_drift = on_drift
        self._watches: OrderedDict[Place, DriftWatch] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, place: Place) -> DriftWatch:
        """The verdict of a thread."""
        with self._lock:
            watch = self._watches.pop(place, None)
            if watch is None:
                watch = DriftWatch()
                tell = self._on_drift
                if tell is not None:
                    config = {"configurable": {"thread_id": place[0], "checkpoint_ns": place[1]}}
                    watch.listen(lambda drift: tell(config, drift))
            self._watches[place] = watch
            if len(self._watches) > _MOST:
                self._watches.popitem(last=False)
            return watch

    def last(self, place: Place) -> Drift:
        """What was said last of a thread."""
        with self._lock:
            watch = self._watches.get(place)
        return Drift() if watch is None else watch.last

    def note(self, place: Place, raw: Optional[Mapping[str, Any]]) -> None:
        """Takes in the verdict of an answer."""
        if raw is not None:
            self.of(place).note(raw)

    def read(self, place: Place, reply: Any) -> None:
        """Takes in the verdict of an answer that may have one."""
        if isinstance(reply, Reply) and b'"drift":' in reply.body:
            self.of(place).read(reply)
