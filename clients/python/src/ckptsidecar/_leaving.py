"""How a run ends: as it should, or by an exception, or because it was asked to."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from typing import TYPE_CHECKING, Optional

from .errors import CkptError, Fenced
from ._plans import error_text

if TYPE_CHECKING:
    from ._run import Run

_log = logging.getLogger("ckptsidecar")


def leave(run: "Run", error: Optional[BaseException]) -> None:
    """Ends a run that its owner leaves with an error, or with none."""
    for autosave in run._autosaves:
        autosave.stop()
    if run._ended or isinstance(error, Fenced):
        return
    if error is None or isinstance(error, SystemExit) and error.code in (None, 0):
        run.end("completed")
        return
    try:
        if isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError):
            _put_aside(run, error)
            run.end(run._on_error, error=error_text(error))
        else:
            if run._current is not None:
                run._save(run._current(), {})
            run.end("interrupted", error=error_text(error))
    except CkptError as unsaid:  # not instead of the error that ends the run
        _log.error("the end of run %s of agent %s could not be recorded: %s", run.name, run.agent.name, unsaid)


def _put_aside(run: "Run", error: Exception) -> None:
    """Saves the state of the moment of an exception, for looking at: a resume goes back to what the agent saved."""
    if run._last is None or run._last[2] is None or not run._session._delivery.reachable():
        return
    value, digest, back = run._last
    if run._current is not None:
        value = run._current()
    if value is None:
        return
    encoded = run.agent.encode(value)
    if hashlib.sha256(encoded.data).digest() == digest:
        return
    run._save(
        encoded, {"kind": "recovery", "labels": {"reason": "exception"}, "metadata": {"error": type(error).__name__}}
    )
    run.agent.restore(back, run=run.name, reason="the newest checkpoint is of an exception, for looking at")
