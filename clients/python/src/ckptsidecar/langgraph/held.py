"""The values that a saver has sent or read, so that they need not be sent again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Iterable, Mapping, NamedTuple, Optional

from .frames import Typed

_MOST_BYTES = 32 << 20  # of all values of a saver

Place = tuple[str, str]  # a thread and a namespace


class Held(NamedTuple):
    """A value by the name that the daemon gave it."""

    tag: str
    value: Typed


class HeldValues:
    """The values of the newest checkpoint of each thread and namespace.

    A value is only ever used where the daemon says that its own has the same tag, so that nothing here can be out of date.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: OrderedDict[Place, dict[str, Held]] = OrderedDict()  # the last used one last
        self._bytes = 0

    def of(self, place: Place) -> Mapping[str, Held]:
        """What is held of a thread and namespace. It does not change any more."""
        with self._lock:
            return self._places.get(place, {})

    def put(self, place: Place, values: Iterable[tuple[str, Optional[str], Typed]], kept: Iterable[str]) -> None:
        """Holds the values of a checkpoint: channel, tag, value. Those of the channels in ``kept`` are held already."""
        with self._lock:
            before = self._places.get(place, {})
            after = {channel: before[channel] for channel in kept if channel in before}
            after.update((channel, Held(tag, (value[0], bytes(value[1])))) for channel, tag, value in values if tag is not None)
            self._drop(place)
            if not after:
                return
            self._places[place] = after
            self._bytes += _size(after)
            while self._bytes > _MOST_BYTES:
                self._drop(next(iter(self._places)))

    def clear(self) -> None:
        """Forgets all: the daemon is another one."""
        with self._lock:
            self._places.clear()
            self._bytes = 0

    def _drop(self, place: Place) -> None:
        self._bytes -= _size(self._places.pop(place, {}))


def _size(values: Mapping[str, Held]) -> int:
    return sum(len(held.value[1]) for held in values.values())
