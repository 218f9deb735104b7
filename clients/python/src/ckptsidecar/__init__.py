"""Durable checkpoints for AI agents: the Python client of ckptsidecar.

::

    import ckptsidecar

    agent = ckptsidecar.agent("fixer")
    agent.save({"step": 1})
    agent.restore().state  # {"step": 1}

docs/PYTHON.md shows the rest: runs that go on after a crash, steps, operations, autosave, asyncio,
and StreamingExecutor, which runs generated code.
"""

from ._version import __version__
from ._agent import Agent
from ._aio import AsyncAgent, AsyncOperation, AsyncRun, AsyncSidecar
from ._autosave import Autosave
from ._client import Sidecar, agent
from ._drift import Drift
from ._encode import Encoded, Trace, dumps, loads
from .errors import (
    AlreadyDone, BaseMissing, Busy, CkptError, Conflict, Corrupt, Denied, Done, Fenced, FilesMissing,
    IdempotencyMismatch, Internal, Invalid, NeedsOperator, NoDaemon, NotDone, NotFound, NotSerializable, Offline, PlanRefused, Quota, SchemaMismatch, SpoolError,
    StorageFull, TooLarge, Unsafe,
)  # fmt: skip
from .models import Checkpoint, Diff, Files, Plan, Saved
from ._operation import Operation
from ._ask import Answer, Unanswered
from ._replay import Replayed
from ._run import Run
from ._stop import Terminated
from ._typed import Dropped

__all__ = [
    "Agent", "AlreadyDone", "Answer", "AsyncAgent", "AsyncOperation", "AsyncRun", "AsyncSidecar", "Autosave",
    "BaseMissing", "Busy", "Checkpoint", "CkptError", "Conflict", "Corrupt", "Denied", "Diff", "Done", "Drift", "Dropped",
    "Encoded", "Fenced", "Files", "FilesMissing", "IdempotencyMismatch", "Internal", "Invalid", "NeedsOperator", "NoDaemon",
    "NotDone", "NotFound", "NotSerializable", "Offline", "Operation", "Plan", "PlanRefused", "Quota", "Replayed", "Run", "Saved",
    "SchemaMismatch", "Sidecar", "SpoolError", "StorageFull", "Terminated", "TooLarge", "Trace", "Unanswered", "Unsafe",
    "__version__", "agent", "dumps", "loads",
]  # fmt: skip
