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
from .agent import Agent
from .aio import AsyncAgent, AsyncOperation, AsyncRun, AsyncSidecar
from .autosave import Autosave
from .client import Sidecar, agent
from .encode import Encoded, Trace, dumps, loads
from .errors import (
    AlreadyDone, BaseMissing, Busy, CkptError, Conflict, Corrupt, Denied, Fenced, IdempotencyMismatch, Internal,
    Invalid, NeedsOperator, NoDaemon, NotFound, NotSerializable, PlanRefused, Quota, SchemaMismatch, SpoolError,
    StorageFull, TooLarge, Unsafe,
)  # fmt: skip
from .models import Checkpoint, Diff, Plan, Saved
from .operation import Operation
from .replay import Replayed
from .run import Run
from .stop import Terminated
from .typed import Dropped

__all__ = [
    "Agent", "AlreadyDone", "AsyncAgent", "AsyncOperation", "AsyncRun", "AsyncSidecar", "Autosave",
    "BaseMissing", "Busy", "Checkpoint", "CkptError", "Conflict", "Corrupt", "Denied", "Diff", "Dropped",
    "Encoded", "Fenced", "IdempotencyMismatch", "Internal", "Invalid", "NeedsOperator", "NoDaemon",
    "NotFound", "NotSerializable", "Operation", "Plan", "PlanRefused", "Quota", "Replayed", "Run", "Saved",
    "SchemaMismatch", "Sidecar", "SpoolError", "StorageFull", "Terminated", "TooLarge", "Trace", "Unsafe",
    "__version__", "agent", "dumps", "loads",
]  # fmt: skip
