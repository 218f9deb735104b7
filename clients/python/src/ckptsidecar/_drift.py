"""What the daemon last said of a run's drift: it says so with every save, step, operation and heartbeat."""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from typing import Any, Callable, Optional

from ._http import Reply
from ._json import is_object, object_of

_log = logging.getLogger("ckptsidecar")
_RANK = {"none": 0, "info": 1, "warn": 2, "critical": 3}


@dataclasses.dataclass(frozen=True)
class Drift:
    """A verdict: the highest severity of what is open in the run. It is true for warn and critical.

    ``advice`` is for the model. ``findings`` are those that the answer told of first, or all open ones if the daemon
    was asked. ``secrets`` are findings of what looks like a secret, which is no drift. While checkpoints are in doubt,
    ``clean`` is the id of the checkpoint to go back to. While the verdict is critical, ``recovery`` is the id of the
    checkpoint that was made first.
    """

    verdict: str = "none"
    advice: Optional[str] = None
    findings: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    secrets: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    clean: Optional[str] = None
    recovery: Optional[str] = None
    run: Optional[str] = None  # if the daemon was asked

    @property
    def critical(self) -> bool:
        """Whether the run should go back to ``clean``."""
        return self.verdict == "critical"

    @property
    def warn(self) -> bool:
        """Whether the run should change its approach."""
        return self.verdict == "warn"

    def __bool__(self) -> bool:
        return _RANK.get(self.verdict, 0) >= 2


OnDrift = Callable[[Drift], Any]


def drift_of(raw: Any) -> Drift:
    """A verdict of an answer."""
    names = [field.name for field in dataclasses.fields(Drift)]
    found = object_of(raw)
    return Drift(**{name: found[name] for name in names if found.get(name) is not None})


class DriftWatch:
    """Keeps the last verdict, and tells those who asked. It is safe for concurrent use."""

    def __init__(self) -> None:
        self.last = Drift()
        self._told: list[OnDrift] = []
        self._lock = threading.Lock()

    def listen(self, fn: OnDrift) -> None:
        """Has a function called with each verdict that is worse than the one before, or has new findings."""
        with self._lock:
            self._told = [*self._told, fn]

    def note(self, raw: Any) -> None:
        """Takes in the verdict of an answer, None where it had none."""
        if not is_object(raw):
            return
        now = drift_of(raw)
        with self._lock:
            worse = _RANK.get(now.verdict, 0) > _RANK.get(self.last.verdict, 0)
            self.last, told = now, self._told
        if not worse and not now.findings:
            return
        for fn in told:
            try:
                fn(now)
            except Exception:
                _log.exception("on_drift has raised")

    def read(self, reply: Any) -> None:
        """Takes in the verdict of an answer that has one."""
        if isinstance(reply, Reply) and b'"drift":' in reply.body:
            try:
                raw = json.loads(reply.body)
            except ValueError:
                return  # who reads the answer says so
            self.note(object_of(raw).get("drift"))
