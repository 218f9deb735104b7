"""The checkpointer itself."""

from __future__ import annotations

import random
import threading
from types import TracebackType
from typing import Any, AsyncIterator, Iterator, Mapping, Optional, Sequence

from .. import _requests
from .._aio import AsyncSidecar
from .._client import Sidecar
from .._drift import Drift
from .._transport import Ask
from ..errors import Internal, Invalid
from .calls import Calls
from .drift import Drifts, OnDrift
from .frames import Frame, Parts, Typed, json_of
from .held import HeldValues
from .steps import ToolSteps

try:
    from langgraph.checkpoint.base import (
        WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple, get_checkpoint_id, get_checkpoint_metadata,
    )  # fmt: skip
except ImportError as error:
    raise ImportError(f"ckptsidecar.langgraph needs LangGraph ({error}): pip install langgraph-checkpoint") from error

_TASKS = "__pregel_tasks"
_ASYNC_PAGE = 20  # tuples that an asynchronous list fetches at once; the daemon's pages have as many

_MOST_RUNS = 10_000  # threads whose runs are remembered

Config = Mapping[str, Any]  # LangGraph's RunnableConfig


class SidecarSaver(BaseCheckpointSaver):
    """A checkpointer over the daemon, for graphs that are invoked and for those that are awaited.

    ``sidecar``: the client; without it one with the defaults. ``agent``: the agent whose runs the threads
    are. ``serde``: as of any checkpointer of LangGraph. What a method has answered is on disk; where the
    daemon is away, methods raise after the client's deadline, and nothing is spooled. ``steps``: whether each answer
    of a tool is recorded as a step, with the model's turn, for drift detection and the timeline. ``on_drift`` is called
    with the config of a thread and its Drift when that gets worse or something new was found.
    """

    def __init__(
        self, sidecar: Optional[Sidecar] = None, *, agent: str = "langgraph", serde: Any = None, steps: bool = False,
        on_drift: Optional[OnDrift] = None,
    ) -> None:  # fmt: skip
        super().__init__(serde=serde)
        self.sidecar = sidecar if sidecar is not None else Sidecar()
        self._own = sidecar is None
        self._calls = Calls(self.sidecar, agent)
        self._async = AsyncSidecar.over(self.sidecar)
        self._held = HeldValues()
        self._agent = agent
        self._drifts = Drifts(on_drift)
        self._runs: dict[tuple[str, str], str] = {}
        self._steps = ToolSteps(agent, self._tell) if steps else None
        self._order = threading.Lock()  # so that no write comes between the two requests that a put may take

    # Its own life

    def close(self) -> None:
        """Closes the connection, unless the client was given. The saver may be used again."""
        if self._own:
            self.sidecar.close()

    def __enter__(self) -> "SidecarSaver":
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    async def __aenter__(self) -> "SidecarSaver":
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self._async.call(self.close)

    # What is written

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any = None) -> Any:
        """Stores a checkpoint; answers the config that names it. Without new_versions all values are new."""
        thread, ns, parent = _place(config)
        head = {name: value for name, value in checkpoint.items() if name != "channel_values"}
        values = checkpoint.get("channel_values") or {}
        versions = head.get("channel_versions") or {}
        given = [c for c in values if new_versions is None or c in new_versions or c not in versions]
        carry = [c for c in values if c not in given]
        about = get_checkpoint_metadata(config, metadata)
        about.pop("writes", None)  # of versions that kept them twice
        json_of(about, "the metadata of a checkpoint")
        names = {"thread": thread, "ns": ns, "parent": parent, "checkpoint": head, "metadata": about}
        with self._order:
            typed = {c: self.serde.dumps_typed(values[c]) for c in given}
            answer = self._put(names, typed, carry)
            missing = answer["missing"]
            if missing:
                typed.update((c, self.serde.dumps_typed(values[c])) for c in missing)
                answer = self._put(names, typed, [c for c in carry if c not in missing])
        if answer["missing"]:
            raise Internal(f"the daemon does not accept the channels {', '.join(answer['missing'])}: nothing was saved")
        self._runs[(thread, ns)] = answer["run"]
        if len(self._runs) > _MOST_RUNS:
            self._runs.pop(next(iter(self._runs)), None)
        self._drifts.note((thread, ns), answer.get("drift"))
        tags = answer.get("tags") or {}
        self._held.put((thread, ns), ((c, tags.get(c), value) for c, value in typed.items()), carry)
        if self._steps is not None:
            self._steps.send((thread, ns), answer["run"])
        return _config(thread, ns, checkpoint["id"])

    def _tell(self, place: tuple[str, str], ask: Ask) -> None:
        self._drifts.read(place, self.sidecar._ask(ask))

    # Drift

    def drift(self, config: Any) -> Drift:
        """The last verdict on the drift of a thread. It came with the last put or step: nothing is asked."""
        thread, ns, _ = _place(config)
        return self._drifts.last((thread, ns))

    def report(self, config: Any, rule: str, message: str, *, severity: str = "warn", **more: Any) -> dict[str, Any]:
        """Adds a finding of the graph itself to a thread and returns it. ``more``: advice, evidence, since; see Run.report."""
        thread, ns, _ = _place(config)
        body = {
            "run": self._run(config), "rule": rule, "message": message, "severity": severity, "advice": more.get("advice"),
            "evidence": more.get("evidence"), "since_seq": more.get("since"),
        }  # fmt: skip
        found = self.sidecar._dict(_requests.post(f"/v1/agents/{self._agent}/drift/findings", body))
        self._drifts.note((thread, ns), found.pop("drift", None))
        return found

    def dismiss(self, config: Any, finding: str, *, reason: str = "") -> dict[str, Any]:
        """Says that a finding of a thread was none, or is dealt with."""
        thread, ns, _ = _place(config)
        answer = self.sidecar.dismiss(finding, reason=reason)
        self._drifts.note((thread, ns), answer.pop("drift", None))
        return answer

    def _run(self, config: Any) -> str:
        """The run that a thread and namespace are; raises where the saver has put nothing there."""
        thread, ns, _ = _place(config)
        run = self._runs.get((thread, ns))
        if run is None:
            raise Invalid(f"thread {thread} has no checkpoint of this saver yet, so nothing can be reported about it")
        return run

    def _put(self, names: Mapping[str, Any], values: Mapping[str, Typed], carry: list[str]) -> dict[str, Any]:
        frame = Frame()
        named = [frame.add(value, channel=channel) for channel, value in values.items()]
        header = {name: value for name, value in names.items() if value is not None}
        return self._calls.send("put", frame.body({**header, "values": named, "carry": carry}, "a checkpoint"))

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        """Stores what a task has written so far."""
        if not writes:
            return
        thread, ns, checkpoint = _place(config)
        if checkpoint is None:
            raise Invalid("writes belong to a checkpoint, but the config has no checkpoint_id")
        frame = Frame()
        named = [
            frame.add(self.serde.dumps_typed(value), idx=WRITES_IDX_MAP.get(channel, n), channel=channel)
            for n, (channel, value) in enumerate(writes)
        ]
        header = {"thread": thread, "ns": ns, "checkpoint": checkpoint, "task": task_id, "path": task_path, "writes": named}
        with self._order:
            self._calls.send("put_writes", frame.body(header, "writes"))
        if self._steps is not None:
            for _, value in writes:
                self._steps.learn((thread, ns), value)
            for _, value in writes:
                self._steps.note((thread, ns), value)
            self._steps.send((thread, ns))

    # What is read

    def get_tuple(self, config: Any) -> Any:
        """The checkpoint that is named, or the newest of the thread; None where there is none."""
        thread, ns, checkpoint = _place(config)
        held = self._held.of((thread, ns))
        query = {"thread": thread, "ns": ns, "checkpoint": checkpoint}
        try:
            parts = self._calls.read("get", **query, have={c: one.tag for c, one in held.items()} or None)
        except Invalid:
            self._held.clear()  # another daemon may have taken the place of the one that gave the tags
            parts, held = self._calls.read("get", **query), {}
        for raw in parts.header["tuples"]:
            values = {v["channel"]: held[v["channel"]].value if v.get("held") else parts.take(v) for v in raw["values"]}
            if checkpoint is None:
                fresh = ((v["channel"], v.get("tag"), values[v["channel"]]) for v in raw["values"] if not v.get("held"))
                self._held.put((thread, ns), fresh, [v["channel"] for v in raw["values"] if v.get("held")])
            found = self._tuple(raw, parts, values)
            if self._steps is not None:
                for value in [*found.checkpoint["channel_values"].values(), *(w[2] for w in found.pending_writes)]:
                    self._steps.learn((thread, ns), value)
            return found
        return None

    def list(self, config: Any, *, filter: Any = None, before: Any = None, limit: Any = None) -> Iterator[Any]:
        """The checkpoints that fit, newest first; they are fetched while they are looked at."""
        wanted = config["configurable"] if config else {}
        query = {
            "thread": _text(wanted.get("thread_id")), "ns": wanted.get("checkpoint_ns"),
            "checkpoint": wanted.get("checkpoint_id") or None, "before": (get_checkpoint_id(before) if before else None) or None,
            "filter": filter or None,
        }  # fmt: skip
        cursor, left = None, limit
        while left is None or left > 0:
            parts = self._calls.read("list", **query, limit=left, cursor=cursor)
            for found in self._tuples(parts):
                yield found
            cursor = parts.header["next"]
            if cursor is None:
                return
            if left is not None:
                left -= len(parts.header["tuples"])

    def _tuples(self, parts: Parts) -> Iterator[Any]:
        for raw in parts.header["tuples"]:
            yield self._tuple(raw, parts, {v["channel"]: parts.take(v) for v in raw["values"]})

    def _tuple(self, raw: Mapping[str, Any], parts: Parts, typed: Mapping[str, Typed]) -> Any:
        load = self.serde.loads_typed
        values = {channel: load(value) for channel, value in typed.items()}
        writes = [(w["task"], w["channel"], load(parts.take(w))) for w in raw["writes"]]
        sends = [load(parts.take(s)) for s in raw.get("sends") or []]
        checkpoint = {**raw["checkpoint"], "channel_values": values}
        if sends:  # a checkpoint of before the tasks had a channel
            versions = dict(checkpoint.get("channel_versions") or {})
            values[_TASKS] = sends
            versions[_TASKS] = max(versions.values()) if versions else self.get_next_version(None, None)
            checkpoint["channel_versions"] = versions
        thread, ns, parent = raw["thread"], raw["ns"], raw["parent"]
        return CheckpointTuple(
            config=_config(thread, ns, raw["id"]),
            checkpoint=checkpoint,
            metadata=raw["metadata"],
            parent_config=_config(thread, ns, parent) if parent else None,
            pending_writes=writes,
        )

    def get_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        """What delta channels are made of: writes, oldest first, upon the value that they begin with."""
        if not channels:
            return {}
        thread, ns, checkpoint = _place(config)
        parts = self._calls.read("history", thread=thread, ns=ns, checkpoint=checkpoint, channels=list(channels))
        load = self.serde.loads_typed
        found: dict[str, dict[str, Any]] = {}
        for raw in parts.header["channels"]:
            entry: dict[str, Any] = {}
            if raw["seed"] is not None:
                entry["seed"] = load(parts.take(raw["seed"]))
            entry["writes"] = [(w["task"], w["channel"], load(parts.take(w))) for w in raw["writes"]]
            found[raw["channel"]] = entry
        return found

    # What is removed and copied

    def delete_thread(self, thread_id: str) -> None:
        """Removes a thread with all its namespaces."""
        self._calls.tell("delete_thread", thread=str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Removes the checkpoints whose metadata has one of these as run_id, and their writes."""
        self._calls.tell("delete_runs", run_ids=[str(r) for r in run_ids])

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies all checkpoints and writes of a thread."""
        self._calls.tell("copy_thread", **{"from": str(source_thread_id), "to": str(target_thread_id)})

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Leaves the newest checkpoint of each namespace, and what its delta channels need; or with "delete" none."""
        self._calls.tell("prune", threads=[str(t) for t in thread_ids], strategy=strategy)

    def get_next_version(self, current: Any, channel: Any = None) -> Any:
        """The version after another one: numbers, or the text of the checkpointers that threads were copied from."""
        if not isinstance(current, str):
            return super().get_next_version(current, None)
        number, _, _ = current.partition(".")
        return f"{int(number) + 1:032}.{random.random():016}"

    # The same for asyncio

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any = None) -> Any:
        """See put."""
        return await self._async.call(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        """See put_writes."""
        await self._async.call(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: Any) -> Any:
        """See get_tuple."""
        return await self._async.call(self.get_tuple, config)

    async def alist(self, config: Any, *, filter: Any = None, before: Any = None, limit: Any = None) -> AsyncIterator[Any]:
        """See list."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while True:
            some = await self._async.call(lambda: [t for _, t in zip(range(_ASYNC_PAGE), found)])
            for one in some:
                yield one
            if len(some) < _ASYNC_PAGE:
                return

    async def aget_delta_channel_history(self, *, config: Any, channels: Sequence[str]) -> Any:
        """See get_delta_channel_history."""
        return await self._async.call(self.get_delta_channel_history, config=config, channels=channels)

    async def areport(self, config: Any, rule: str, message: str, **more: Any) -> dict[str, Any]:
        """See report."""
        return await self._async.call(self.report, config, rule, message, **more)

    async def adismiss(self, config: Any, finding: str, *, reason: str = "") -> dict[str, Any]:
        """See dismiss."""
        return await self._async.call(self.dismiss, config, finding, reason=reason)

    async def adelete_thread(self, thread_id: str) -> None:
        """See delete_thread."""
        await self._async.call(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """See delete_for_runs."""
        await self._async.call(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """See copy_thread."""
        await self._async.call(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """See prune."""
        await self._async.call(self.prune, thread_ids, strategy=strategy)


def _place(config: Config) -> tuple[str, str, Optional[str]]:
    """The thread, namespace and checkpoint that a config names; without a thread it is a KeyError."""
    named = config["configurable"]
    return str(named["thread_id"]), named.get("checkpoint_ns") or "", named.get("checkpoint_id") or None


def _text(value: Any) -> Optional[str]:
    return None if value is None else str(value)


def _config(thread: str, ns: str, checkpoint: str) -> dict[str, Any]:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": ns, "checkpoint_id": checkpoint}}
