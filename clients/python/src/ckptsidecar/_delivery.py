"""How a request gets to the daemon: in turn, again and again, or by way of the spool."""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import threading
import time
from typing import Optional, Union

from .errors import AWAY, CkptError, SpoolError, Stranger
from ._http import Reply
from ._transport import Ask, Link, deadline
from ._replay import Behind, Replayed, replay
from ._spool import Spool
from ._spool_form import Lane
from ._turn import Turn

_log = logging.getLogger("ckptsidecar")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 2.0  # seconds between tries of one request
_MOST_CLEAN = 4096  # runs of which it is remembered that nothing of them waits
_FIRST_REST, _LONGEST_REST = 0.25, 5.0  # seconds for which nobody is asked after a deadline was missed


@dataclasses.dataclass(frozen=True)
class Settings:
    """How patient a client is."""

    deadline: float = 5.0  # seconds that a call waits for a daemon that is away or busy
    timeout: float = 60.0  # seconds that the answer to one request may take where nothing else can be done
    fail_open: bool = True  # what changes a run is spooled after the deadline; else it raises
    on_spool_error: str = "raise"  # or "drop": what becomes of a write that the spool does not take


@dataclasses.dataclass(frozen=True)
class Kept:
    """A write that lies in the spool, or was dropped as the user chose."""

    reason: CkptError
    dropped: Optional[SpoolError] = None


class Delivery:
    """Sends requests in the order in which they come. It is safe for concurrent use."""

    def __init__(self, link: Link, spool: Spool, settings: Settings) -> None:
        self.link = link
        self.spool = spool
        self.settings = settings
        self._renew()

    def _renew(self) -> None:
        self._turn = Turn()
        self._pid = os.getpid()
        self._clean: set[Lane] = set()  # runs of which nothing waits
        self._asked_for_others = False  # whether writes of other runs were looked for
        self._unread = False  # whether it was told that the spool cannot be read
        self._away: Optional[CkptError] = None  # why the daemon was given up last
        self._rest = 0.0
        self._rest_until = 0.0
        self._drainer: Optional[threading.Thread] = None
        self._closed = threading.Event()

    def _mine(self) -> None:
        """After a fork nothing of the parent's is ours; its connection stays open there."""
        if self._pid != os.getpid():
            self.link.close()
            self._renew()

    def deliver(self, ask: Ask) -> Union[Reply, Kept]:
        """Makes a request. Answers the good reply, or Kept; raises CkptError."""
        self._mine()
        with self._turn:
            return self._in_turn(ask)

    def reachable(self) -> bool:
        """Whether it is worth asking: the daemon was not given up just now."""
        return self._away is None or time.monotonic() >= self._rest_until

    def attempt(self, lane: Lane, ask: Ask, settle: bool = True) -> Reply:
        """Makes a request once, after what waits of its run unless ``settle`` is false; raises CkptError."""
        self._mine()
        with self._turn:
            try:
                if settle:
                    self._clean.discard(lane)
                    self._settle(lane, deadline(self.settings.deadline))
                reply = self.link.ask(ask, deadline(self.settings.deadline))
            except CkptError as error:
                if error.code in AWAY and not isinstance(error, Behind):
                    self._give_up(error)
                raise
            self._back()
            return reply

    def direct(self, ask: Ask) -> Reply:
        """Makes a request of a run now, after what waits of the run, or not at all; raises CkptError."""
        self._mine()
        lane = ask.lane
        assert lane is not None
        with self._turn:
            if self._away is not None and not self.reachable():
                raise self._away
            until = deadline(self.settings.deadline)
            try:
                self._settle(lane, until)
                return self._insist(ask, until)
            except CkptError as error:
                if error.code in AWAY and not isinstance(error, Behind):
                    self._give_up(error)
                raise

    def _in_turn(self, ask: Ask) -> Union[Reply, Kept]:
        until = deadline(self.settings.deadline)
        if ask.lane is None:
            return self._insist(ask, until)
        may_wait = self.settings.fail_open and ask.id != ""
        if may_wait and self._away is not None and time.monotonic() < self._rest_until:
            return self._keep(ask, self._away)
        try:
            self._settle(ask.lane, until)
            return self._insist(ask, until)
        except CkptError as error:
            if not may_wait or error.code not in AWAY:
                raise
            if not isinstance(error, Behind):
                self._give_up(error)
            return self._keep(ask, error)

    def _insist(self, ask: Ask, until: float) -> Reply:
        """Tries until the deadline, or once where the daemon was away before."""
        pause = _FIRST_PAUSE
        patient = self._away is None or not self.settings.fail_open or not ask.id
        while True:
            try:
                reply = self.link.ask(ask, until if self._limited(ask) else deadline(self.settings.timeout))
                self._back()
                return reply
            except CkptError as error:
                wait = max(pause * random.uniform(0.5, 1.5), min(error.retry_after, self.settings.deadline))
                if not patient or not _may_repeat(ask, error) or time.monotonic() + wait > until:
                    raise
                time.sleep(wait)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _limited(self, ask: Ask) -> bool:
        """Whether an answer that does not come in time can be done without."""
        return self.settings.fail_open and ask.id != "" and ask.lane is not None

    def _give_up(self, error: CkptError) -> None:
        if self._away is None:
            goes = f"what is saved goes to the spool {self.spool.folder}" if self.settings.fail_open else "saves fail"
            _log.warning("%s; %s meanwhile", error, goes)
        self._away = error
        self._rest = min(max(self._rest * 2, _FIRST_REST), _LONGEST_REST)
        self._rest_until = time.monotonic() + self._rest * random.uniform(0.5, 1.0)

    def _back(self) -> None:
        if self._away is not None:
            _log.warning("the daemon is back")
            self._away, self._rest, self._rest_until = None, 0.0, 0.0

    def _keep(self, ask: Ask, reason: CkptError) -> Kept:
        """Spools a request."""
        lane = ask.lane
        assert lane is not None
        try:
            self.spool.write(
                ask.method, ask.path, ask.query, dict(ask.headers), ask.body, lane, ask.id, self.link.expected
            )
        except SpoolError as error:
            text = f"{error.message}; and {reason.message}"
            if self.settings.on_spool_error == "drop":
                _log.error("a write of agent %s, run %s was dropped: %s", *lane, text)
                return Kept(reason, error)
            raise SpoolError(text, outcome=reason.outcome) from error
        self._clean.discard(lane)
        self._drain()
        return Kept(reason)

    # The spool

    def settle(self, lane: Lane) -> None:
        """Sends what waits of a run, before it is read or resumed; raises CkptError where that cannot be done."""
        self._mine()
        with self._turn:
            self._clean.discard(lane)  # another client may have spooled since
            self._settle(lane, deadline(self.settings.deadline))

    def _settle(self, lane: Lane, until: float) -> None:
        if lane in self._clean:
            return
        try:
            self._send_waiting(lane, until)
        except (SpoolError, OSError) as error:
            self._warn_unread(error)
        self._note_clean(lane)
        if not self._asked_for_others and self._away is None:
            self._asked_for_others = True
            self._send_for_others()

    def _send_for_others(self) -> None:
        """What other runs of the user have left in the spool is sent beside: their processes may never start again."""
        try:
            if self.spool.waiting():
                self._drain()
        except (SpoolError, OSError) as error:
            self._warn_unread(error)

    def _warn_unread(self, error: Union[SpoolError, OSError]) -> None:
        """A spool that cannot be read holds nothing up."""
        if not self._unread:
            self._unread = True
            why = error.message if isinstance(error, SpoolError) else f"{self.spool.folder}: {error.strerror or error}"
            _log.warning("the spool is not replayed: %s", why)

    def _send_waiting(self, lane: Lane, until: float) -> None:
        if not self.spool.waiting(lane):
            return
        if self._away is not None and self.settings.fail_open and time.monotonic() < self._rest_until:
            raise self._away
        while True:
            try:
                left = replay(self.spool, self.link, lane, until, self.settings.deadline).left
                break
            except CkptError as error:
                wait = _FIRST_PAUSE * random.uniform(1, 5)
                if self._away is not None or not error.retryable or time.monotonic() + wait > until:
                    raise
                time.sleep(wait)
        if left:
            raise Behind(f"{left} writes of agent {lane[0]}, run {lane[1]} wait in the spool {self.spool.folder}", left)
        self._back()

    def _note_clean(self, lane: Lane) -> None:
        """Remembers a run. Forgetting it costs one look at the spool."""
        if len(self._clean) >= _MOST_CLEAN:
            self._clean.clear()
        self._clean.add(lane)

    def replay(self) -> Replayed:
        """Sends all that waits; raises CkptError where nobody answers."""
        self._mine()
        with self._turn:
            try:
                done = replay(self.spool, self.link, None, float("inf"), self.settings.timeout)
            except OSError as error:
                raise SpoolError(f"the spool {self.spool.folder} cannot be replayed: {error.strerror or error}") from error
            self._back()
            return done

    def _drain(self) -> None:
        """Sees to it that the spool empties when the daemon is back, also if nothing more is saved."""
        if self._drainer is None or not self._drainer.is_alive():
            self._drainer = threading.Thread(target=self._drains, name="ckptsidecar spool", daemon=True)
            self._drainer.start()

    def _drains(self) -> None:
        pause = _FIRST_REST
        while not self._closed.wait(pause * random.uniform(0.75, 1.25)):
            with self._turn:
                try:
                    # Not for long: others wait for the turn.
                    done = replay(self.spool, self.link, None, deadline(0.2), self.settings.deadline)
                except (Behind, SpoolError, OSError):  # of another replayer, or of the folder
                    pause = min(pause * 2, _LONGEST_REST)
                    continue
                except CkptError as error:
                    self._give_up(error)
                    pause = self._rest
                    continue
                if done.sent:
                    _log.warning("%d writes of the spool were sent, %d are waiting", done.sent, done.left)
                    self._back()
                if done.left == 0:
                    self._drainer = None
                    return
                pause = 0.05 if done.sent else min(pause * 2, 60.0)

    def close(self, flush: bool) -> None:
        """Closes the connection; tries once more to send what waits."""
        self._mine()
        self._closed.set()
        with self._turn:
            try:
                if flush and self.spool.folder and self.spool.waiting():
                    replay(self.spool, self.link, None, deadline(self.settings.deadline), self.settings.deadline)
            except (CkptError, OSError) as error:
                _log.warning("what waits stays in the spool %s: %s", self.spool.folder, error)
            self.link.close()
            self._closed = threading.Event()
            self._drainer = None


def _may_repeat(ask: Ask, error: CkptError) -> bool:
    """Whether the error passes by itself and the request can do no harm twice."""
    if error.code == "no_daemon":
        return not isinstance(error, Stranger)
    if error.code in ("busy", "quota", "storage_full", "not_replicated"):
        return ask.repeatable or error.outcome == "not_saved"
    return False


