"""What LangGraph's messages say of tool calls, told to the daemon as steps, so that drift detection sees them."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from typing import Any, Callable, Iterable, Iterator, Optional, cast

from .. import _requests
from .._encode import dumps
from ..errors import CkptError
from .._json import is_array, is_object, is_text, object_of

_log = logging.getLogger("ckptsidecar")
_MOST_CALLS = 10_000  # that are remembered, of all threads
_MOST_WAITING = 1000  # steps of a thread whose run is not known yet
_MOST_ERROR = 16_000  # characters

Place = tuple[str, str]  # a thread and a namespace


class ToolSteps:
    """The steps of a saver's threads.

    A message of the model names its calls, and a message of a tool answers one. The key of the step is the
    call's id, and its turn the id of the model's message. A tool says that its answer was no by
    ``additional_kwargs={"outcome": "negative"}``. Messages are told by their members, so that nothing of
    LangChain is imported.
    """

    def __init__(self, agent: str, tell: Callable[[Place, _requests.Ask], Any]) -> None:
        self._path = f"/v1/agents/{agent}/runs/"
        self._tell = tell
        self._calls: OrderedDict[tuple[Place, str], dict[str, Any]] = OrderedDict()
        self._runs: OrderedDict[Place, str] = OrderedDict()
        self._waiting: OrderedDict[Place, list[bytes]] = OrderedDict()
        self._lock = threading.Lock()

    def learn(self, place: Place, value: Any) -> None:
        """Reads what the model has called in the messages of a value."""
        for message in _messages(value):
            for call in _list(_member(message, "tool_calls")):
                id, name = _text(_member(call, "id")), _text(_member(call, "name"))
                if id is None or name is None:
                    continue
                about = {"name": name, "args": _member(call, "args"), "turn": _text(_member(message, "id"))}
                with self._lock:
                    _put(self._calls, (place, id), about)

    def note(self, place: Place, value: Any) -> None:
        """Reads what tools have answered in the messages of a value, and keeps it until it is sent."""
        for message in _messages(value):
            id = _text(_member(message, "tool_call_id"))
            if id is None:
                continue
            with self._lock:
                call = self._calls.get((place, id)) or {}
                name = call.get("name") or _text(_member(message, "name"))
                waiting = self._waiting.get(place, [])
                if name is not None and len(waiting) < _MOST_WAITING:
                    waiting.append(_body(id, name, call, message))
                    _put(self._waiting, place, waiting)

    def send(self, place: Place, run: Optional[str] = None) -> None:
        """Tells the daemon of the steps of a thread, once its run is known.

        They are for drift detection, so the graph goes on where they cannot be told.
        """
        with self._lock:
            if run is not None:
                _put(self._runs, place, run)
            run = self._runs.get(place)
            steps = self._waiting.pop(place, []) if run is not None else []
        try:
            for body in steps:
                self._tell(place, _requests.post(f"{self._path}{run}/steps", body))
        except CkptError as error:
            _log.warning("the tool calls of run %s could not be recorded as steps: %s", run, error)


def _body(key: str, name: str, call: dict[str, Any], message: Any) -> bytes:
    failed = _member(message, "status") == "error"
    content, extra = _member(message, "content"), _member(message, "additional_kwargs")
    error = (content if isinstance(content, str) else json.dumps(content, default=str))[:_MOST_ERROR] if failed else None
    args = call.get("args")
    return _requests.members({
        "key": key, "name": name, "status": "failed" if failed else "succeeded", "turn": call.get("turn"),
        "outcome": "negative" if object_of(extra).get("outcome") == "negative" else None, "error": error,
        "args": None if args is None else dumps(args).data, "result": None if failed else dumps(content).data,
    })  # fmt: skip


def _messages(value: Any) -> Iterator[Any]:
    """The messages in a value, which may be one, or a list of them."""
    for one in cast("Iterable[Any]", value) if isinstance(value, (list, tuple)) else [value]:
        if one is not None and not isinstance(one, (str, bytes, int, float)):
            yield one


def _member(of: Any, name: str) -> Any:
    return of.get(name) if is_object(of) else getattr(of, name, None)


def _list(value: Any) -> list[Any]:
    return value if is_array(value) else []


def _text(value: Any) -> Optional[str]:
    return value if is_text(value) else None


def _put(table: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    """Puts into a table of a bounded size."""
    table.pop(key, None)
    table[key] = value
    if len(table) > _MOST_CALLS:
        table.popitem(last=False)
