"""A ``BaseStore`` of LangGraph: long-term memory that survives its process.

::

    from ckptsidecar.langgraph_store import SidecarStore

    graph = builder.compile(checkpointer=SidecarSaver(), store=SidecarStore())

It has all methods of LangGraph's ``BaseStore`` and takes its operations. Nothing of LangGraph is imported with this module; where
LangGraph is installed, items are of its classes, and a store counts as one of its ``BaseStore``.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
from typing import Any, Callable, Iterable, Mapping, Optional, Sequence, cast

from ._aio import AsyncSidecar
from ._client import Sidecar
from ._document import Document, Form, Shelf, run_name
from ._encode import Encoded, dumps, loads
from .errors import Invalid
from .models import Checkpoint
from ._json import is_array, is_object, is_text, object_of

Namespace = tuple[str, ...]
_WORKFLOW = "store"


@dataclasses.dataclass
class Item:
    """What is kept under a key, where LangGraph is not installed."""

    value: dict[str, Any]
    key: str
    namespace: Namespace
    created_at: datetime.datetime
    updated_at: datetime.datetime


@dataclasses.dataclass
class SearchItem(Item):
    """The same, as a search finds it."""

    score: Optional[float] = None


class SidecarStore:
    """A store. Each namespace is a run of the agent, and each change of it a checkpoint.

    What ``put`` has answered is on disk. Several puts of one ``batch`` into one namespace are one checkpoint.
    Items are found by namespace, key and filter; there is no index of meanings, so that a ``query`` sorts nothing, as
    in LangGraph's own stores without an index. A ``ttl`` is refused, as by every store that has none.
    """

    supports_ttl = False
    ttl_config: Any = None

    def __init__(self, sidecar: Optional[Sidecar] = None, *, agent: str = "langgraph-store") -> None:
        client = sidecar if sidecar is not None else Sidecar()
        self._async = AsyncSidecar.over(client)
        self._shelf = Shelf(client.agent(agent))
        base = _langgraph("BaseStore")
        if base is not None:
            base.register(type(self))

    # One at a time

    def get(self, namespace: Namespace, key: str, *, refresh_ttl: Optional[bool] = None) -> Any:
        """One item, None where there is none."""
        return self._item(namespace, str(key))

    def put(self, namespace: Namespace, key: str, value: dict[str, Any], index: Any = None, *, ttl: Any = None) -> None:
        """Keeps an item, in the place of one that is there."""
        _check(namespace)
        if isinstance(ttl, (int, float)):
            raise NotImplementedError("TTL is not supported by SidecarStore: remove items with delete")
        self._put(namespace, {str(key): value})

    def delete(self, namespace: Namespace, key: str) -> None:
        """Removes an item."""
        self._put(namespace, {str(key): None})

    def search(
        self,
        namespace_prefix: Namespace,
        /,
        *,
        query: Optional[str] = None,
        filter: Optional[dict[str, Any]] = None,
        limit: int = 10,
        offset: int = 0,
        refresh_ttl: Optional[bool] = None,
    ) -> list[Any]:
        """The items of all namespaces that begin so and fit the filter, the last changed first."""
        made = _langgraph("SearchItem") or SearchItem
        found: list[Any] = []
        for namespace, items in self._namespaces():
            if namespace[: len(namespace_prefix)] != tuple(namespace_prefix):
                continue
            for key, kept in items.items():
                if all(_fits(kept["value"].get(name), wanted) for name, wanted in (filter or {}).items()):
                    found.append(_made(made, namespace, key, kept))
        found.sort(key=lambda item: item.updated_at, reverse=True)
        return found[offset : offset + limit]

    def list_namespaces(
        self,
        *,
        prefix: Optional[Namespace] = None,
        suffix: Optional[Namespace] = None,
        max_depth: Optional[int] = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[Namespace]:
        """The namespaces that hold something, in order."""
        conditions = [(kind, path) for kind, path in (("prefix", prefix), ("suffix", suffix)) if path]
        return self._list(conditions, max_depth, limit, offset)

    # Several at once

    def batch(self, ops: Iterable[Any]) -> list[Any]:
        """Does LangGraph's operations: reads first, as they were given, and then puts; of two puts of one item the last counts."""
        results: list[Any] = []
        puts: dict[Namespace, dict[str, Any]] = {}
        for op in ops:
            if hasattr(op, "namespace_prefix"):
                found = self.search(op.namespace_prefix, query=op.query, filter=op.filter, limit=op.limit, offset=op.offset)
                results.append(found)
            elif hasattr(op, "match_conditions"):
                conditions = [(c.match_type, c.path) for c in op.match_conditions or ()]
                results.append(self._list(conditions, op.max_depth, op.limit, op.offset))
            elif hasattr(op, "value"):
                puts.setdefault(tuple(op.namespace), {})[str(op.key)] = op.value
                results.append(None)
            elif hasattr(op, "key"):
                results.append(self._item(tuple(op.namespace), str(op.key)))
            else:
                raise ValueError(f"Unknown operation type: {type(op)}")
        for namespace, values in puts.items():
            self._put(namespace, values)
        return results

    # The same for asyncio

    async def abatch(self, ops: Iterable[Any]) -> list[Any]:
        """See batch."""
        return await self._async.call(self.batch, list(ops))

    async def aget(self, namespace: Namespace, key: str, **options: Any) -> Any:
        """See get."""
        return await self._async.call(self.get, namespace, key, **options)

    async def aput(self, namespace: Namespace, key: str, value: dict[str, Any], index: Any = None, **options: Any) -> None:
        """See put."""
        await self._async.call(self.put, namespace, key, value, index, **options)

    async def adelete(self, namespace: Namespace, key: str) -> None:
        """See delete."""
        await self._async.call(self.delete, namespace, key)

    async def asearch(self, namespace_prefix: Namespace, /, **options: Any) -> list[Any]:
        """See search."""
        return await self._async.call(self.search, namespace_prefix, **options)

    async def alist_namespaces(self, **options: Any) -> list[Namespace]:
        """See list_namespaces."""
        return await self._async.call(self.list_namespaces, **options)

    # How it is kept

    def _item(self, namespace: Namespace, key: str) -> Any:
        kept = object_of(self._document(tuple(namespace)).read()).get(key)
        return None if kept is None else _made(_langgraph("Item") or Item, tuple(namespace), key, kept)

    def _put(self, namespace: Namespace, values: Mapping[str, Any]) -> None:
        """Puts items of one namespace, and removes those without a value."""
        now = datetime.datetime.now(datetime.timezone.utc)
        told = {key: None if value is None else dumps(value, refuse=True) for key, value in values.items()}

        def put(old: Optional[dict[str, Any]]) -> Optional[dict[str, Any]]:
            items: dict[str, Any] = dict(old or {})
            for key, value in told.items():
                if value is None:
                    items.pop(key, None)
                    continue
                created = items[key]["created_at"] if key in items else now
                items[key] = {"value": loads(value.data), "created_at": created, "updated_at": now}
            return None if items == (old or {}) else items

        self._document(tuple(namespace)).change(put)

    def _list(self, conditions: list[tuple[str, Any]], depth: Optional[int], limit: int, offset: int) -> list[Namespace]:
        found = {n[:depth] for n, items in self._namespaces() if items and all(_matches(kind, path, n) for kind, path in conditions)}
        return sorted(found)[offset : offset + limit]

    def _namespaces(self) -> Iterable[tuple[Namespace, dict[str, Any]]]:
        for run in self._shelf.runs():
            if run["workflow"] != _WORKFLOW:
                continue
            newest = self._shelf.agent.latest(run=run["run"], kind="routine")
            if newest is not None:
                yield _content(newest)

    def _document(self, namespace: Namespace) -> Document:
        readable = ".".join(namespace)
        about = {"workflow": _WORKFLOW, "external_session": readable or None}
        return self._shelf.document(run_name(readable, *namespace), about, _Form(namespace))


class _Form(Form):
    """A namespace as it is saved: ``{"namespace": […], "items": {key: {"value", "created_at", "updated_at"}}}``."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def read(self, saved: Checkpoint) -> dict[str, Any]:
        namespace, items = _content(saved)
        if namespace != self._namespace:
            raise Invalid(f"run {saved.run} holds a namespace other than {self._namespace}: give another agent's name")
        return items

    def write(self, content: dict[str, Any]) -> Encoded:
        return dumps({"namespace": list(self._namespace), "items": content})


def _content(saved: Checkpoint) -> tuple[Namespace, dict[str, Any]]:
    state = saved.state
    if not is_object(state) or not is_array(state.get("namespace")) or not is_object(state.get("items")):
        raise Invalid(f"run {saved.run} does not hold a namespace of a store: give another agent's name")
    return tuple(state["namespace"]), state["items"]


def _made(made: Callable[..., Any], namespace: Namespace, key: str, kept: Mapping[str, Any]) -> Any:
    return made(namespace=namespace, key=key, value=kept["value"], created_at=kept["created_at"], updated_at=kept["updated_at"])


def _langgraph(name: str) -> Any:
    """A class of LangGraph's, None where it is not installed."""
    try:
        return getattr(importlib.import_module("langgraph.store.base"), name, None)
    except ImportError:
        return None


def _check(namespace: Namespace) -> None:
    """Refuses what LangGraph refuses as the namespace of an item."""
    wrong = None
    if not namespace:
        wrong = "Namespace cannot be empty."
    elif any(not is_text(label) or "." in label for label in namespace):
        wrong = f"Namespace labels are text that is not empty and has no periods, not as in {namespace}"
    elif namespace[0] == "langgraph":
        wrong = f'Root label for namespace cannot be "langgraph". Got: {namespace}'
    if wrong:
        raise (_langgraph("InvalidNamespaceError") or ValueError)(wrong)


def _matches(kind: str, path: Any, namespace: Namespace) -> bool:
    if len(namespace) < len(path):
        return False
    if kind not in ("prefix", "suffix"):
        raise ValueError(f"Unsupported match type: {kind}")
    ours, wanted = (namespace, path) if kind == "prefix" else (namespace[::-1], tuple(path)[::-1])
    return all(want in ("*", label) for label, want in zip(ours, wanted))


def _fits(value: Any, wanted: Any) -> bool:
    """Whether a value fits a filter, which compares members, lists and operators."""
    if is_object(wanted):
        if any(name.startswith("$") for name in wanted):
            return all(_compared(value, name, other) for name, other in wanted.items())
        return is_object(value) and all(_fits(value.get(name), other) for name, other in wanted.items())
    if isinstance(wanted, (list, tuple)):
        want = cast("Sequence[Any]", wanted)
        if not isinstance(value, (list, tuple)):
            return False
        have = cast("Sequence[Any]", value)
        return len(have) == len(want) and all(map(_fits, have, want))
    return bool(value == wanted)


def _compared(value: Any, operator: str, other: Any) -> bool:
    if operator == "$eq":
        return bool(value == other)
    if operator == "$ne":
        return bool(value != other)
    orders: dict[str, Callable[[float, float], bool]] = {
        "$gt": lambda a, b: a > b, "$gte": lambda a, b: a >= b, "$lt": lambda a, b: a < b, "$lte": lambda a, b: a <= b,
    }  # fmt: skip
    if operator not in orders:
        raise ValueError(f"Unsupported operator: {operator}")
    return orders[operator](float(value), float(other))
