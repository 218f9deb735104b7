"""The shapes of what the daemon answers. What a newer daemon says more is in ``raw``."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any, Mapping, Optional

from ._encode import Trace, loads
from .errors import Internal
from ._http import Reply

_FIELDS = (
    "id", "agent", "owner", "run", "seq", "kind", "parent", "created_at", "size", "stored_size", "sha256",
    "content_type", "labels", "metadata", "step", "operation", "pinned", "suspect", "program",
)  # fmt: skip


@dataclasses.dataclass
class Checkpoint:
    """A saved state, with or without the state itself."""

    id: str
    agent: str
    run: str
    kind: str
    owner: str = ""
    seq: int = 0  # 1, 2, … in its run; 0 where it is not known yet
    parent: Optional[str] = None
    created_at: str = ""
    size: int = 0  # bytes of the state
    stored_size: int = 0
    sha256: str = ""
    content_type: str = "application/json"
    labels: dict[str, str] = dataclasses.field(default_factory=dict[str, str])
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any])
    step: Optional[str] = None
    operation: Optional[str] = None
    pinned: bool = False
    suspect: bool = False
    program: Optional[dict[str, Any]] = None
    state_bytes: Optional[bytes] = dataclasses.field(default=None, repr=False)  # None where it was not asked for
    raw: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any], repr=False)

    @property
    def state(self) -> Any:
        """The state: the value of JSON, or bytes for any other content type. Each call reads it again."""
        if self.state_bytes is None:
            raise ValueError("the state was not asked for: use get() or latest() with state=True")
        return loads(self.state_bytes) if is_json(self.content_type) else self.state_bytes


@dataclasses.dataclass
class Files:
    """The files saved with a checkpoint. If saving them failed, ``error`` has the reason, and ``tree`` is empty."""

    tree: str = ""
    root: str = ""
    count: int = 0
    bytes: int = 0
    complete: bool = False
    left_out: dict[str, str] = dataclasses.field(default_factory=dict[str, str])  # by path, the reason
    error: str = ""


@dataclasses.dataclass
class Saved(Checkpoint):
    """The answer to a save.

    Where the daemon was away, ``spooled`` is true and the rest is what the client knows: the
    checkpoint is on this machine's disk, in the spool. ``lost`` is true where not even that went
    and the user chose to drop it.
    """

    pruned: list[str] = dataclasses.field(default_factory=list[str])  # what retention removed in the same transaction
    replayed: bool = False  # it was saved before under this id
    spooled: bool = False
    lost: bool = False
    why: Optional[Exception] = dataclasses.field(default=None, repr=False)  # why it is in the spool, or lost
    dropped: list[Trace] = dataclasses.field(default_factory=list[Trace])  # what of the state could not be saved
    simplified: list[Trace] = dataclasses.field(default_factory=list[Trace])
    drift: Any = None  # the daemon's verdict
    files: Optional[Files] = None  # where ``files`` was asked for


@dataclasses.dataclass
class Diff:
    """The difference between two states: an RFC 6902 patch, and a line for each top-level member."""

    patch: list[dict[str, Any]]
    summary: dict[str, Any]


@dataclasses.dataclass
class Plan:
    """The plan to continue a run. ``verdict`` is fresh, resume, repair, ask, unsafe or offline.

    Where the daemon was away when the run began it is ``offline``, and what is known comes from
    the spool.
    """

    verdict: str
    reasons: list[str]
    agent: str
    run: str
    epoch: Optional[int]
    attempt: int = 1
    claimed: bool = False
    checkpoint: Optional[Checkpoint] = None
    completed_steps: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    interrupted_steps: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    uncertain_operations: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    skipped: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    events_after: int = 0
    program: Optional[dict[str, Any]] = None
    continuation_prompt: Optional[str] = None
    accumulated_ms: int = 0
    external_session: Optional[str] = None
    memory_diff: Any = None
    prompt: Optional[dict[str, Any]] = None
    questions: list[dict[str, Any]] = dataclasses.field(default_factory=list[dict[str, Any]])
    raw: dict[str, Any] = dataclasses.field(default_factory=dict[str, Any], repr=False)

    @property
    def state(self) -> Any:
        """The state to continue from, or None."""
        return self.checkpoint.state if self.checkpoint is not None else None


def is_json(content_type: str) -> bool:
    """Whether a content type promises one JSON value."""
    media = content_type.split(";")[0].strip().lower()
    return media == "application/json" or media.endswith("+json")


def body_of(reply: Reply) -> Any:
    """The JSON of an answer."""
    try:
        return json.loads(reply.body)
    except ValueError as error:
        raise _misunderstood() from error


def checkpoint_of(raw: Mapping[str, Any], state: Optional[bytes] = None) -> Checkpoint:
    """A checkpoint of an answer."""
    try:
        return Checkpoint(**{name: raw[name] for name in _FIELDS if name in raw}, state_bytes=state, raw=dict(raw))
    except TypeError as error:
        raise _misunderstood() from error


def saved_of(raw: Mapping[str, Any], replayed: bool) -> Saved:
    try:
        fields = {name: raw[name] for name in _FIELDS if name in raw}
        return Saved(**fields, pruned=raw.get("pruned", []), replayed=replayed, drift=raw.get("drift"), raw=dict(raw))
    except TypeError as error:
        raise _misunderstood() from error


def cut_state(reply: Reply) -> tuple[Any, Optional[bytes]]:
    """An answer that has a state somewhere inside, and the state's own bytes."""
    where = reply.headers.get("ckpt-state-range")
    if where is None:
        return body_of(reply), None
    try:
        first, last = (int(part) for part in where.split("-"))
        before, value, after = reply.body[:first], reply.body[first : last + 1], reply.body[last + 1 :]
        raw = json.loads(before + b"null" + after)
        return raw, base64.b64decode(value.strip(b'"')) if before.endswith(b'"state_base64":') else value
    except ValueError as error:
        raise _misunderstood() from error


def with_state(reply: Reply) -> Checkpoint:
    """The checkpoint of an answer, with its state where the answer has it."""
    raw, state = cut_state(reply)
    return checkpoint_of(raw, state)


def plan_of(reply: Reply) -> Plan:
    """A resume plan, with the state of its checkpoint."""
    raw, state = cut_state(reply)
    names = [f.name for f in dataclasses.fields(Plan) if f.name not in ("raw", "checkpoint")]
    checkpoint = raw.get("checkpoint")
    try:
        plan = Plan(**{name: raw[name] for name in names if name in raw}, raw=raw)
    except TypeError as error:
        raise _misunderstood() from error
    if checkpoint is not None:
        plan.checkpoint = checkpoint_of(checkpoint, state)
    return plan


def _misunderstood() -> Internal:
    return Internal("the daemon's answer cannot be read: install the same version of client and daemon", outcome="unknown")
