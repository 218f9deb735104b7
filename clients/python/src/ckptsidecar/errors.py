"""What can go wrong, in the words of the daemon."""

from __future__ import annotations

import json
from typing import Any, Mapping, Optional


class CkptError(Exception):
    """An error of the daemon or of this client.

    ``code`` is for programs; ``outcome`` says what is known of a write: ``saved``,
    ``not_saved`` or ``unknown``; ``retry_after`` is in seconds, 0 for none; ``status`` is the
    HTTP status, 0 where nothing was answered.
    """

    code = "internal"

    def __init__(
        self, message: str, *, outcome: str = "not_saved", retry_after: float = 0.0, status: int = 0
    ) -> None:
        super().__init__(message)
        self.message = message
        self.outcome = outcome
        self.retry_after = retry_after
        self.status = status

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self.code in _RETRYABLE or self.outcome == "unknown"


class Invalid(CkptError):
    """The request is wrong. Repeating it will not help."""

    code = "invalid"


class Denied(CkptError):
    """Only an administrator may do this."""

    code = "denied"


class NotFound(CkptError):
    """It does not exist, or belongs to another user."""

    code = "not_found"


class Conflict(CkptError):
    """The request conflicts with the stored data."""

    code = "conflict"


class Fenced(Conflict):
    """A newer owner has taken over the run: stop, or resume the run."""

    code = "fenced"


class BaseMissing(Conflict):
    """The base of a change is gone: send the whole state."""

    code = "base_missing"


class FilesMissing(Conflict):
    """Contents or a tree of files are missing: store them again."""

    code = "files_missing"


class TooLarge(CkptError):
    """A size limit is exceeded."""

    code = "too_large"


class IdempotencyMismatch(CkptError):
    """The same id or key was used with another request."""

    code = "idempotency_mismatch"


class SchemaMismatch(CkptError):
    """The state does not match the agent's schema."""

    code = "schema_mismatch"


class Quota(CkptError):
    """The user's share is used up."""

    code = "quota"


class Busy(CkptError):
    """Too many requests at once, or the connection broke: try again."""

    code = "busy"


class Corrupt(CkptError):
    """Stored data is damaged and is not served, or the daemon serves only reads."""

    code = "corrupt"


class StorageFull(CkptError):
    """No room on the disk or in the database."""

    code = "storage_full"


class NotReplicated(CkptError):
    """The write is on the host's disk, and the engine of the fleet has not confirmed it: try again with the same id."""

    code = "not_replicated"


class Internal(CkptError):
    """A bug in the daemon, or an answer that cannot be read."""


class NoDaemon(CkptError):
    """No daemon answers at the endpoint; the message says what to do."""

    code = "no_daemon"


class Stranger(NoDaemon):
    """Another user listens at the endpoint; nothing was sent."""


class SpoolError(CkptError):
    """The daemon is away and the spool cannot take the write: it is full or cannot be written."""

    code = "spool"


class NotSerializable(CkptError):
    """A value cannot be saved unchanged, and the caller asked to refuse that."""

    code = "not_serializable"

    def __init__(self, message: str, traces: list[Any]) -> None:
        super().__init__(message)
        self.traces = traces


class PlanRefused(CkptError):
    """A run cannot start; ``plan`` has the reasons and says what to do."""

    code = "conflict"

    def __init__(self, message: str, plan: Any = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.plan = plan


class NeedsOperator(PlanRefused):
    """A person must decide first. The text has three lines: what, the evidence, and the command that answers.

    ``plan`` lists the uncertain operations. It is None where a call about no run of this process was refused, such as
    the removal of a run.
    """

    code = "uncertain_operation"

    def __str__(self) -> str:
        return self.message


class Offline(CkptError):
    """An operation was not begun, because the daemon is away. ``reason`` is the error that says so."""

    code = "offline"

    def __init__(self, message: str, reason: CkptError) -> None:
        super().__init__(message, outcome=reason.outcome)
        self.reason = reason


class NotDone(Exception):
    """Raised inside an operation: it is known not to have happened. A check answers ``NotDone()`` to say the same."""


class Done:
    """What a check answers if the operation took effect, with its result."""

    def __init__(self, result: Any = None) -> None:
        self.result = result


class Unsafe(PlanRefused):
    """The owner of the run is alive, or no checkpoint is intact: the verdict is ``unsafe``."""


class AlreadyDone(CkptError):
    """The operation succeeded before and must not run again. ``result`` is its result, ``resolved_by`` see Operation."""

    code = "conflict"

    def __init__(self, message: str, result: Any, resolved_by: Optional[str] = None) -> None:
        super().__init__(message)
        self.result = result
        self.resolved_by = resolved_by


_BY_CODE = {
    kind.code: kind
    for kind in (
        Invalid, Denied, NotFound, Conflict, Fenced, BaseMissing, FilesMissing, TooLarge, IdempotencyMismatch,
        SchemaMismatch, Quota, Busy, Corrupt, StorageFull, NotReplicated, Internal, NeedsOperator,
    )
}  # fmt: skip
_RETRYABLE = frozenset(("busy", "storage_full", "quota", "not_replicated", "no_daemon"))

# What met no daemon, or one that cannot save just now: waiting or the spool helps.
AWAY = frozenset(("busy", "quota", "storage_full", "internal", "corrupt", "not_replicated", "no_daemon"))


def from_reply(status: int, headers: Mapping[str, str], body: bytes, write: bool) -> CkptError:
    """The error in a reply."""
    try:
        problem = json.loads(body)
        code, detail = problem["code"], problem["detail"]
    except (ValueError, KeyError, TypeError):
        return _foreign(status, write)
    error = _BY_CODE.get(code, Internal)(
        detail, outcome=problem.get("outcome", "not_saved"), status=status, retry_after=_seconds(headers)
    )
    error.code = code
    return error


def _seconds(headers: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(headers.get("retry-after", "0")))
    except ValueError:
        return 0.0


def _foreign(status: int, write: bool) -> CkptError:
    """The error of a reply without our error format, such as one of the HTTP layer itself."""
    text = f"the daemon refused the request with HTTP status {status}"
    if 400 <= status < 500:
        return Invalid(text, status=status)
    return Internal(text, status=status, outcome="unknown" if write else "not_saved")
