"""What two states share, in the form in which a change travels.

A state is described by copies from its base and by new bytes. The searching is done by
``bytes.find`` and by comparing slices, which run at native speed.
"""

from __future__ import annotations

from typing import Optional, Union

LEAST = 8 << 10  # smaller states are sent whole: a change would save nothing
MOST = 1 << 30  # the daemon takes no larger numbers

_BLOCK = 64  # bytes that must match to go on copying
_COPY = 32  # a shorter copy is not worth an operation
_NEAR = 32 << 10  # where what was edited goes on, most of the time
_OPERATIONS = 2000

Operation = Union[int, tuple[int, int]]


def change(base: bytes, state: bytes) -> Optional[bytes]:
    """The change that makes state of base, None where it is not much less than the whole."""
    if len(state) < LEAST or len(state) >= MOST or len(base) >= MOST:
        return None
    operations, literals = compare(base, state)
    new = sum(map(len, literals))
    if new > len(state) // 2:
        return None
    line = ",".join(f"[{op[0]},{op[1]}]" if isinstance(op, tuple) else str(op) for op in operations)
    return b"".join([b"[", line.encode(), b"]\n", *literals])


def compare(base: bytes, state: bytes) -> tuple[list[Operation], list[bytes]]:
    """The operations, and the new bytes of each that is a number."""
    found = _Operations(state)
    at, done = 0, 0  # the places in base and state up to which they are described
    end = _common_end(base, state)
    budget = 4 * len(base) + (1 << 20)
    while done < len(state):
        same = _common(base, at, state, done)
        found.copy(at, done, same)
        at, done = at + same, done + same
        left = len(state) - done
        if left <= end:
            found.copy(len(base) - left, done, left)
            break
        place, budget = _meet(base, at, state, done, budget)
        if place is None or found.full():
            tail = min(end, left)
            found.new(done, left - tail)
            found.copy(len(base) - tail, len(state) - tail, tail)
            break
        found.new(done, place[1] - done)
        at, done = place
    return found.finish()


def _meet(
    base: bytes, at: int, state: bytes, done: int, budget: int
) -> tuple[Optional[tuple[int, int]], int]:
    """Where base and state meet again after they parted, and what is left of the budget."""
    last = len(state) - _BLOCK
    far = len(state) - done >= len(base) // 256  # all of the base is not searched for a small rest
    for n, place in enumerate(range(done, last + 1, _BLOCK), 1):
        block = state[place : place + _BLOCK]
        near = min(at + _NEAR + place - done, len(base))
        found = base.find(block, at, near)
        budget -= max(near - at, _BLOCK)
        if found < 0 and far and (n == 2 or n % 16 == 0):
            found = base.find(block)
            budget -= len(base)
        if found >= 0:
            return _backwards(base, found, state, place, done), budget
        if budget < 0:
            break
    return None, budget


def _backwards(base: bytes, found: int, state: bytes, place: int, done: int) -> tuple[int, int]:
    """The beginning of a match, not before done."""
    most = min(_BLOCK, place - done, found)
    back = _common_end(base[found - most : found], state[place - most : place])
    return found - back, place - back


def _common(a: bytes, i: int, b: bytes, j: int) -> int:
    """How many bytes a from i and b from j have in common."""
    most = min(len(a) - i, len(b) - j)
    n, step = 0, 256
    while n < most:
        step = min(step, most - n)
        if b.startswith(a[i + n : i + n + step], j + n):
            n += step
            step = min(step * 4, 1 << 16)
        else:
            most = n + step - 1  # they part within this step
            step = max(step // 2, 1)
    return n


def _common_end(a: bytes, b: bytes) -> int:
    """How many bytes a and b have in common at their ends."""
    most = min(len(a), len(b))
    n, step = 0, 256
    while n < most:
        step = min(step, most - n)
        if b.endswith(a[len(a) - n - step : len(a) - n], 0, len(b) - n):
            n += step
            step = min(step * 4, 1 << 16)
        else:
            most = n + step - 1  # they part within this step
            step = max(step // 2, 1)
    return n


class _Operations:
    """The operations so far, with neighbours joined."""

    def __init__(self, state: bytes) -> None:
        self._state = state
        self._list: list[tuple[int, int, int]] = []  # from in the base or -1, from in the state, length

    def full(self) -> bool:
        return len(self._list) >= _OPERATIONS

    def copy(self, at: int, done: int, length: int) -> None:
        if length < _COPY:
            self.new(done, length)
        elif length:
            last = self._list[-1] if self._list else (-1, 0, 0)
            if last[0] >= 0 and last[0] + last[2] == at:
                self._list[-1] = (last[0], last[1], last[2] + length)
            else:
                self._list.append((at, done, length))

    def new(self, done: int, length: int) -> None:
        if not length:
            return
        last = self._list[-1] if self._list else (0, 0, 0)
        if last[0] < 0:
            self._list[-1] = (-1, last[1], last[2] + length)
        else:
            self._list.append((-1, done, length))

    def finish(self) -> tuple[list[Operation], list[bytes]]:
        operations: list[Operation] = []
        literals: list[bytes] = []
        for at, done, length in self._list:
            if at >= 0:
                operations.append((at, length))
            else:
                operations.append(length)
                literals.append(self._state[done : done + length])
        return operations, literals


def apply(base: bytes, wire: bytes) -> bytes:
    """The state that a change makes of base: what the daemon does, for checking."""
    import json

    line, _, literals = wire.partition(b"\n")
    parts: list[bytes] = []
    used = 0
    for op in json.loads(line):
        if isinstance(op, int):
            parts.append(literals[used : used + op])
            used += op
        else:
            parts.append(base[op[0] : op[0] + op[1]])
    return b"".join(parts)
