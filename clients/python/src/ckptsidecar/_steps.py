"""Steps: pieces of work that are done once, whose results are kept."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import json
import logging
import threading
import time
from collections import OrderedDict
from typing import Any, Callable, Generator, Mapping, NamedTuple, Optional

from ._delivery import Kept
from ._encode import Encoded, dumps, loads
from .errors import CkptError, NotSerializable
from .models import Plan, body_of
from ._plans import error_text
from ._session import Session
from ._typed import drive, read

_log = logging.getLogger("ckptsidecar")
_MOST = 32 << 20  # bytes of results that are remembered here; the daemon has them all
PAGES = 5  # of a resumed run's steps, and of its operations, that are read at its beginning

Measure = Callable[[Any], Mapping[str, Any]]
Negative = Callable[[Any], bool]


class Begun(NamedTuple):
    """The answer to the beginning of a step: whether it was done before, and then its result."""

    done: bool
    result: Any
    same: bool = True  # whether it was done with the same arguments, as far as that is known


class Steps:
    """The steps of one run. It is safe for concurrent use."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._results: OrderedDict[str, Optional[bytes]] = OrderedDict()  # None: done, but not remembered
        self._args: dict[str, bytes] = {}  # hashes of what steps were done with
        self._held = 0
        self._all_known = True
        self._lock = threading.Lock()

    def learn(self, plan: Plan) -> None:
        """Learns which steps were done before, so that none is done twice while the daemon is away."""
        for key, result in self._session.known.items():
            self._remember(key, result)
        for step in plan.completed_steps:
            if step["key"] not in self._results:
                self._remember(step["key"], json.dumps(step.get("result")).encode())
        if plan.attempt > 1:
            try:
                steps, self._all_known = self._session.read("steps", "steps", "succeeded", PAGES)
            except CkptError:
                self._all_known = False
                return
            for step in steps:
                self._remember(step["key"], json.dumps(step.get("result")).encode())
                self._args[step["key"]] = _digest(drive(read(step.get("args"))))

    def begin(
        self, key: str, name: Optional[str], args: Any, turn: Optional[str] = None, call: bool = False
    ) -> Begun:
        """Begins a step, or answers that it was done; raises CkptError.

        With ``call`` the daemon is told of it also if it was done before, so that drift detection counts it.
        """
        self._session.ready()
        known = self._results.get(key)
        encoded = None if args is None else dumps(args).data
        digest = _digest(None if encoded is None else loads(encoded))
        if known is not None and not call:
            return Begun(True, loads(known), self._args.get(key, digest) == digest)
        reply = self._session.send(("steps",), {"key": key, "name": name, "args": encoded, "turn": turn, "call": call or None})
        if isinstance(reply, Kept) and known is not None:
            return Begun(True, loads(known), self._args.get(key, digest) == digest)
        if isinstance(reply, Kept):
            if key in self._results or not self._all_known:
                raise type(reply.reason)(
                    f"it is not known whether step {key!r} was done while the daemon is away: {reply.reason.message}"
                )
            return Begun(False, None)
        raw = body_of(reply)
        if not raw.get("replayed"):
            self._args[key] = digest
            return Begun(False, None)
        self._remember(key, json.dumps(raw.get("result")).encode())
        self._args[key] = _digest(drive(read(raw.get("args"))))
        return Begun(True, drive(read(raw.get("result"))), self._args[key] == digest)

    def succeed(self, key: str, result: Any, measures: Mapping[str, Any]) -> None:
        """Records that a step was done."""
        encoded = dumps(result)
        warn_of(f"step {key}", encoded)
        body = {"status": "succeeded", "result": None if result is None else encoded.data, **measures}
        self._session.send(("steps", key, "finish"), body)
        self._remember(key, encoded.data)

    def fail(self, key: str, error: BaseException, measures: Mapping[str, Any]) -> None:
        """Records that a step failed. It is done again when it is asked for again."""
        body = {"status": "failed", "error": error_text(error), **measures}
        self._session.send(("steps", key, "finish"), body)

    def _remember(self, key: str, result: bytes) -> None:
        with self._lock:
            old = self._results.pop(key, None)
            self._held += len(result) - len(old or b"")
            self._results[key] = result
            for other in list(self._results) if self._held > _MOST else []:
                self._held -= len(self._results[other] or b"")
                self._results[other] = None
                if self._held <= _MOST:
                    break


@contextlib.contextmanager
def recorded(
    steps: Steps, key: str, measure: Optional[Measure], negative: Optional[Negative] = None
) -> Generator[list[Any], None, None]:
    """Records how the work inside ends; the work puts its result into the list."""
    began = time.perf_counter()
    outcome: list[Any] = []
    try:
        yield outcome
    except Exception as error:
        try:
            steps.fail(key, error, {"duration_ms": _ms(began), "outcome": _outcome(key, negative, error)})
        except CkptError as unrecorded:
            _log.warning("the failure of step %s could not be recorded: %s", key, unrecorded)
        raise
    result = outcome[0] if outcome else None
    measures = dict(measure(result)) if measure is not None else {}
    steps.succeed(key, result, {"duration_ms": _ms(began), "outcome": _outcome(key, negative, result), **measures})


def _outcome(key: str, negative: Optional[Negative], answer: Any) -> Optional[str]:
    """Asks whether the answer was negative. The work has been done, so an error here is only a warning."""
    try:
        return "negative" if negative is not None and negative(answer) else None
    except Exception as error:
        _log.warning("it cannot be decided whether the answer of step %s was negative: %s", key, error)
        return None


def call_key(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The key of a call: the function's name and its arguments."""
    try:
        told = dumps([list(args), dict(sorted(kwargs.items()))], refuse=True).data
    except NotSerializable as error:
        raise NotSerializable(
            f"the arguments of {fn.__qualname__} do not give a key, because {error.message}: name one with run.step(KEY)",
            error.traces,
        ) from error
    return f"{fn.__qualname__}:{hashlib.sha256(told).hexdigest()[:16]}"


def name_of(fn: Callable[..., Any]) -> Optional[str]:
    """The name of a step: the function's, where it has one. Without one, the daemon makes it from the key."""
    inner = fn.func if isinstance(fn, functools.partial) else fn
    name = getattr(inner, "__name__", "")
    return name if name and name != "<lambda>" else None


_MOST_ARGS = 64 << 10  # bytes of a call's own arguments; of longer ones only the hash is noted


def args_of(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The arguments of a call, by name where the function has names for them; None for a call without any."""
    if isinstance(fn, functools.partial):
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    if not args and not kwargs:
        return None
    try:
        told: Any = dict(inspect.signature(fn).bind(*args, **kwargs).arguments)
    except (TypeError, ValueError):
        told = [*args, dict(kwargs)] if kwargs else list(args)
    try:
        text = dumps(told).data
    except CkptError:
        return None
    if len(text) > _MOST_ARGS:
        return {"cut": True, "size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
    return told


def _digest(args: Any) -> bytes:
    return hashlib.sha256(dumps(args).data).digest()


def _ms(began: float) -> int:
    return int((time.perf_counter() - began) * 1000)


def warn_of(what: str, encoded: Encoded) -> None:
    """Tells what of a result could not be kept."""
    for trace in encoded.dropped[:5]:
        _log.warning("of the result of %s, %s (%s) %s", what, trace.path or "all", trace.type, trace.reason)
