"""Operations: risky pieces of work that must not happen twice, with a state to go back to."""

from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import weakref
from types import TracebackType
from typing import Any, Callable, Mapping, Optional, Union

from ._delivery import Kept
from ._encode import Encoded, dumps
from .errors import AWAY, AlreadyDone, CkptError, Fenced, NeedsOperator, NotDone, Offline
from .models import Checkpoint, body_of, checkpoint_of, cut_state
from ._plans import Check, Known, answer_of, error_text
from ._steps import warn_of
from ._typed import drive, read
from ._types import Claimed
from ._json import object_of

_log = logging.getLogger("ckptsidecar")

NotDoneErrors = Union[type[BaseException], tuple[type[BaseException], ...]]


@dataclasses.dataclass(frozen=True)
class Declared:
    """What an operation declares about itself where it is written."""

    args: Any = None
    idempotent: bool = False
    check: Optional[Check] = None
    not_done: NotDoneErrors = ()
    offline: str = "refuse"
    result_schema: Optional[Mapping[str, Any]] = None

    def __post_init__(self) -> None:
        if self.offline not in ("refuse", "allow"):
            raise ValueError(f'offline is {self.offline!r}: say "refuse" or "allow"')

    @property
    def kinds(self) -> tuple[type[BaseException], ...]:
        """The exceptions that mean that nothing was done."""
        return (NotDone, *(self.not_done if isinstance(self.not_done, tuple) else (self.not_done,)))


class Operation:
    """A risky action. Use it with ``with``, or call it with the function that does the work.

    It begins with a ``pre_operation`` checkpoint. NotDone, or an exception that ``not_done`` names, makes it failed: it
    is known not to have happened, and ``restore`` is the checkpoint to go back to, with its state. Every other
    exception, an interrupt, a cancellation and the death of the process leave it uncertain: nobody knows whether it took
    effect, and it does not begin again before that is resolved. One that succeeded before is not to be done again:
    ``with`` raises AlreadyDone, and a call answers the result of then.

    ``key`` is what a provider takes as its idempotency key. ``resolved_by`` says who told that an uncertain attempt took
    effect: the identity of a person, ``check`` or ``agent``; None for a success that was never in doubt.
    """

    def __init__(
        self, run: Claimed, name: str, state: Any, key: Optional[str], labels: Optional[Mapping[str, str]], declared: Declared
    ) -> None:
        self.name = name
        self.key = key or name
        self.result: Any = None  # to be set inside, and kept
        self.restore: Optional[Checkpoint] = None  # after a failure
        self.resolved_by: Optional[str] = None
        self._run = run
        self._encoded: Optional[Encoded] = None if state is None else run.agent.encode(state)
        self._labels = labels
        self._declared = declared
        self._args = declared.args
        self._attempt: Optional[int] = None  # its number, None where the spool has it
        self._pid = 0  # of the process in which it is open

    # Its beginning

    def _begin(self) -> bool:
        """Begins the operation; false if it was done before."""
        self._run._boundary()
        if self._encoded is not None and self._encoded.content_type != "application/json":
            raise ValueError("the state of an operation must be JSON: save the bytes first, and give no state")
        known = self._run._operations.get(self.key)
        if known is None:
            raw = self._begun()
            self._attempt = raw.get("attempt")
            if raw.get("replayed"):
                known = Known(drive(read(raw.get("result"))), raw.get("resolved_by"))
                self._run._operations[self.key] = known
        if known is not None:
            self.result, self.resolved_by = known
        return known is None

    def _begun(self) -> dict[str, Any]:
        """The answer to the beginning, {} where the spool has it; raises NeedsOperator or Offline."""
        try:
            return self._ask()
        except NeedsOperator as refused:
            self._check(refused)
        try:
            return self._ask()
        except NeedsOperator as refused:
            raise self._run._needs_operator(refused, self.key) from None

    def _ask(self) -> dict[str, Any]:
        run, declared = self._run, self._declared
        body = {
            "key": self.key, "name": self.name, "args": None if self._args is None else dumps(self._args).data,
            "idempotent": declared.idempotent or None, "check": declared.check is not None or None,
            "result_schema": None if declared.result_schema is None else dict(declared.result_schema),
            "state": self._encoded.data if self._encoded is not None else None, "labels": dict(self._labels or {}) or None,
        }  # fmt: skip
        if declared.offline == "allow" and (declared.idempotent or self.key not in run._uncertain):
            reply = run._session.send(("operations",), body)
            return {} if isinstance(reply, Kept) else object_of(body_of(reply))
        # A beginning of which the answer did not come is asked again as it was: the daemon may have it already.
        ask = run._begins.pop(self.key, None) or run._session.ask(("operations",), body)
        try:
            return object_of(body_of(run._session.direct(ask)))
        except CkptError as error:
            if error.outcome == "unknown":
                run._begins[self.key] = ask
            if error.code not in AWAY:
                raise
            if self.key in run._uncertain:
                raise run._needs_operator(None, self.key) from error
            raise Offline(
                f"operation {self.key!r} was not begun, because the daemon is away ({error.message}): start the daemon with "
                '"ckptsidecar serve" and run this again, or say offline="allow" where the operation is written',
                error,
            ) from error

    def _check(self, refused: NeedsOperator) -> None:
        """Asks the operation's own check about the uncertain attempt; raises NeedsOperator where that cannot tell."""
        run, check = self._run, self._declared.check
        attempt = run._attempt_of(self.key, "uncertain")
        if check is None or attempt is None:
            raise run._needs_operator(refused, self.key) from None
        failed: Optional[Exception] = None
        try:
            answer = answer_of(self.key, check(attempt), "check")
        except Exception as error:
            _log.warning("the check of operation %s failed: %s", self.key, error)
            answer, failed = None, error
        if answer is not None:
            run._session.resolve(answer, attempt.get("attempt"))
            return
        why = "the check cannot tell" if failed is None else f"the check failed: {error_text(failed)}"
        run._session.send(("operations", self.key, "doubt"), {"attempt": attempt.get("attempt"), "error": why})
        raise run._needs_operator(refused, self.key) from failed

    # Its end

    def _succeed(self) -> None:
        encoded = None
        if type(self.result) is bytes:
            _log.warning("the result of operation %s is bytes and is not kept", self.key)
        elif self.result is not None:  # never refused: what it came from has happened
            encoded = dumps(self.result, default=self._run.agent.sidecar._default)
            warn_of(f"operation {self.key}", encoded)
        self._run._uncertain[self.key] = "its end could not be recorded"
        self._run._session.send(("operations", self.key, "succeed"), {"attempt": self._attempt, "result": encoded.data if encoded else None})
        self._run._uncertain.pop(self.key, None)
        self._run._operations[self.key] = Known(self.result, None)

    def _fail(self, error: BaseException) -> None:
        """Records that it is known not to have happened."""
        reply = self._run._session.send(("operations", self.key, "fail"), {"attempt": self._attempt, "error": error_text(error)})
        self._run._uncertain.pop(self.key, None)
        if isinstance(reply, Kept):
            self.restore = self._known()
            return
        raw, state = cut_state(reply)
        if raw.get("restore") is not None:
            self.restore = checkpoint_of(raw["restore"], state)

    def _doubt(self, error: BaseException) -> None:
        """Records that nobody knows whether it took effect."""
        self._run._uncertain[self.key] = error_text(error)
        self._run._session.send(("operations", self.key, "doubt"), {"attempt": self._attempt, "error": error_text(error)})

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
                self.result, self.resolved_by,
            )  # fmt: skip
        self._run._work(1)
        self._pid = os.getpid()
        _open.add(self)
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        _open.discard(self)
        self._run._work(-1)
        if error is None:
            self._succeed()
        elif not isinstance(error, Fenced):  # the new owner's plan has it as uncertain
            end = self._fail if isinstance(error, self._declared.kinds) else self._doubt
            try:
                end(error)
            except CkptError as unrecorded:
                _log.warning("the end of operation %s (%s) could not be recorded: %s", self.key, error_text(error), unrecorded)

    def __call__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._called_with(args, kwargs)
        try:
            with self:
                self.result = fn(*args, **kwargs)
        except AlreadyDone as done:
            return done.result
        return self.result

    def _called_with(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Notes the arguments of the call, for the person who may be asked."""
        if self._args is None and (args or kwargs):
            self._args = [*args, dict(kwargs)] if kwargs else list(args)


_open: "weakref.WeakSet[Operation]" = weakref.WeakSet()


@atexit.register
def _exiting() -> None:
    """A process that ends in an operation, in another thread or in a task that nobody awaits, says so."""
    for operation in list(_open):
        if operation._pid == os.getpid():
            operation.__exit__(SystemExit, SystemExit("the process ended in the operation"), None)
