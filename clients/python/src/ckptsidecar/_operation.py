"""Operations: risky pieces of work, with a state to go back to."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Callable, Mapping, Optional

from ._delivery import Kept
from ._encode import Encoded, dumps
from .errors import AlreadyDone, CkptError, Fenced
from .models import Checkpoint, body_of, checkpoint_of, cut_state
from ._plans import error_text
from ._steps import warn_of
from ._typed import drive, read
from ._types import Claimed

_log = logging.getLogger("ckptsidecar")


class Operation:
    """A risky action. Use it with ``with``, or call it with the function that does the work.

    It begins with a ``pre_operation`` checkpoint. An exception makes it failed, and ``restore`` is then
    the checkpoint to go back to, with its state. An interrupt or the death of the process leaves it
    uncertain: nobody knows whether it took effect. One that succeeded before is not to be done again:
    ``with`` raises AlreadyDone, and a call answers what was answered then.
    """

    def __init__(
        self, run: Claimed, name: str, state: Any, key: Optional[str], labels: Optional[Mapping[str, str]]
    ) -> None:
        self.name = name
        self.key = key or name
        self.result: Any = None  # to be set inside, and kept
        self.restore: Optional[Checkpoint] = None  # after a failure
        self._run = run
        self._encoded: Optional[Encoded] = None if state is None else run.agent.encode(state)
        self._labels = labels

    def _begin(self) -> bool:
        """Begins the operation; false if it was done before."""
        self._run._boundary()
        state = self._encoded.data if self._encoded is not None else None
        if self._encoded is not None and self._encoded.content_type != "application/json":
            raise ValueError("the state of an operation must be JSON: save the bytes first, and give no state")
        done, result = self._run._operations.get(self.key, (False, None))
        if not done:
            body = {"key": self.key, "name": self.name, "state": state, "labels": dict(self._labels or {}) or None}
            try:
                reply = self._run._session.send(("operations",), body)
            except CkptError as error:
                self._not_begun(error)
                raise
            if isinstance(reply, Kept) and not self._run._operations_known:
                raise type(reply.reason)(
                    f"it is not known whether operation {self.key!r} was done while the daemon is away: {reply.reason.message}"
                )
            raw = {} if isinstance(reply, Kept) else body_of(reply)
            done, result = bool(raw.get("replayed")), drive(read(raw.get("result")))
            if done:
                self._run._operations[self.key] = (True, result)
        self.result = result
        return not done

    def _not_begun(self, error: CkptError) -> None:
        """The daemon may have it as open, but nothing was done: so it has failed, and is not uncertain."""
        if error.outcome != "unknown":
            return
        try:
            self._run._session.send(("operations", self.key, "fail"), {"error": error_text(error)})
        except CkptError as unrecorded:
            _log.warning("operation %s was not begun, which could not be recorded: %s", self.key, unrecorded)

    def _succeed(self) -> None:
        encoded = None
        if type(self.result) is bytes:
            _log.warning("the result of operation %s is bytes and is not kept", self.key)
        elif self.result is not None:  # never refused: what it came from has happened
            encoded = dumps(self.result, default=self._run.agent.sidecar._default)
            warn_of(f"operation {self.key}", encoded)
        body = {"result": encoded.data if encoded else None}
        self._run._session.send(("operations", self.key, "succeed"), body)
        self._run._operations[self.key] = (True, self.result)

    def _fail(self, error: BaseException) -> None:
        reply = self._run._session.send(("operations", self.key, "fail"), {"error": error_text(error)})
        if isinstance(reply, Kept):
            self.restore = self._known()
            return
        raw, state = cut_state(reply)
        if raw.get("restore") is not None:
            self.restore = checkpoint_of(raw["restore"], state)

    def _known(self) -> Optional[Checkpoint]:
        """The state to go back to if the daemon cannot be reached."""
        if self._encoded is None:
            return None
        run = self._run
        return Checkpoint("", run.agent.name, run.name, "pre_operation", state_bytes=self._encoded.data)

    def __enter__(self) -> "Operation":
        if not self._begin():
            raise AlreadyDone(
                f"operation {self.key!r} succeeded before: it must not run again. Give each operation its own key, or let "
                "run.operation(…)(function) answer the result of then",
                self.result,
            )
        self._run._work(1)
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._run._work(-1)
        if error is None:
            self._succeed()
        elif isinstance(error, Exception) and not isinstance(error, Fenced):
            try:
                self._fail(error)
            except CkptError as unrecorded:
                _log.warning("the failure of operation %s could not be recorded: %s", self.key, unrecorded)

    def __call__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            with self:
                self.result = fn(*args, **kwargs)
        except AlreadyDone as done:
            return done.result
        return self.result


