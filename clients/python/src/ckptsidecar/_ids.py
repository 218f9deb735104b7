"""Ids: UUIDs of version 7, which grow with time."""

from __future__ import annotations

import os
import re
import threading
import time

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\Z")
_lock = threading.Lock()
_last = 0


def new_id() -> str:
    """A new UUID of version 7 in lower case, greater than all that this process made before."""
    global _last
    with _lock:
        # 48 bits of milliseconds and 12 of their fraction: RFC 9562, method 3.
        now = time.time_ns()
        stamp = (now // 1_000_000) << 12 | (now % 1_000_000) * 4096 // 1_000_000
        _last = max(stamp, _last + 1)
        stamp = _last
    tail = int.from_bytes(os.urandom(8), "big") & (1 << 62) - 1
    n = (stamp >> 12) << 80 | 7 << 76 | (stamp & 0xFFF) << 64 | 2 << 62 | tail
    text = f"{n:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_id(text: str) -> bool:
    """Whether text is a UUID of version 7 as the daemon writes it."""
    return _ID.match(text) is not None
