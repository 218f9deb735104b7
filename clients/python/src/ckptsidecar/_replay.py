"""Sending what waits in the spool."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple, Optional

from .errors import AWAY, Busy, CkptError, Invalid
from ._transport import Ask, Link, deadline
from ._lock import Lock
from ._spool import Spool
from ._spool_form import Damaged, Lane, Spooled, TooNew

_log = logging.getLogger("ckptsidecar")
_PROBE = Ask("GET", "/healthz")
_PATIENCE, _LONGEST = 10.0, 60.0  # seconds for one request, with one more for each MiB


class Behind(Busy):
    """The daemon is there, but what waits in the spool must go first, and could not all be sent now."""

    def __init__(self, message: str, left: int) -> None:
        super().__init__(message)
        self.left = left  # how much of it waits


class Replayed(NamedTuple):
    """What a replay did: how many requests the daemon took, how many it refused for good, how many wait on."""

    sent: int
    rejected: int
    left: int


def replay(spool: Spool, link: Link, lane: Optional[Lane], until: float, probe: float) -> Replayed:
    """Sends what waits of a run, or of all, in order; raises CkptError where nobody answers, OSError of the folder.

    What belongs to another daemon is left alone. After ``until`` it begins no second request. It
    first asks whether the daemon answers at all, for at most ``probe`` seconds. The time that it takes to
    look into the folder does not count: a spool of many files would never become smaller.
    """
    begun = time.monotonic()
    if not spool.waiting(lane):
        return Replayed(0, 0, 0)
    until += time.monotonic() - begun
    link.ask(_PROBE, deadline(probe))
    begun = time.monotonic()
    names = spool.waiting(lane, link.owns)
    until += time.monotonic() - begun
    if not names:
        return Replayed(0, 0, 0)
    lock = spool.lock()
    while lock is None:
        names = spool.waiting(lane, link.owns)
        left = len(names)
        if left == 0:
            return Replayed(0, 0, 0)
        if time.monotonic() > until:
            raise Behind("another process is replaying the spool", left)
        time.sleep(0.05)
        lock = spool.lock()
    try:
        return _replay(spool, link, lock, names, until)
    finally:
        lock.release()


def _replay(spool: Spool, link: Link, lock: Lock, names: list[str], until: float) -> Replayed:
    sent = rejected = left = 0
    blocked: set[Lane] = set()
    for i, name in enumerate(names):
        if sent + rejected and time.monotonic() > until:
            left += len(names) - i
            break
        lock.touch()
        request, refused, stays = _read(spool, name)
        rejected += refused
        left += stays
        if request is None:
            continue
        if request.lane in blocked:
            left += 1
            continue
        try:
            link.ask(_ask(request), deadline(min(_PATIENCE + len(request.body) / (1 << 20), _LONGEST)))
            spool.remove(name)
            sent += 1
        except CkptError as error:
            if error.code == "no_daemon" or error.code == "busy" and error.status == 0:
                raise
            if error.code in AWAY:
                if spool.told != (name, error.code):  # the same again is no news
                    spool.told = (name, error.code)
                    _log.warning("the daemon does not accept %s of the spool now: %s", name, error)
                blocked.add(request.lane)
                left += 1
            else:
                aside = ", it is in rejected now" if spool.reject(name, error) else ""
                _log.error("the daemon refused %s of the spool for good%s: %s", name, aside, error)
                rejected += 1
    return Replayed(sent, rejected, left)


def _read(spool: Spool, name: str) -> tuple[Optional[Spooled], int, int]:
    """Reads a file, None where it is gone or cannot be read; how many were put aside; and how many wait on."""
    try:
        return spool.read(name), 0, 0
    except FileNotFoundError:
        return None, 0, 0  # another replayer was here first
    except Damaged as error:
        aside = ", it is in rejected now" if spool.reject(name, Invalid(str(error))) else ""
        _log.error("%s of the spool is damaged%s: %s", name, aside, error)
        return None, 1, 0
    except (TooNew, OSError) as error:
        _log.warning("%s of the spool cannot be read: %s", name, error)
        return None, 0, 1


def _ask(request: Spooled) -> Ask:
    headers = {**request.headers, "Ckpt-Spooled": request.created_at}
    return Ask(request.method, request.path, request.query, headers, request.body, write=True, repeatable=True)
