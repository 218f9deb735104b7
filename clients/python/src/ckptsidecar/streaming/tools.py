"""What the host gives to a program: functions whose calls are steps of the run."""

from __future__ import annotations

import contextvars
import functools
import inspect
from typing import Any, Awaitable, Callable, Optional

from .._aio import AsyncRun
from .._encode import dumps, loads
from ..errors import CkptError
from .._steps import Begun, recorded


class Diverged(CkptError):
    """A statement that is executed again calls other things than it did the first time."""

    code = "diverged"


class Calls:
    """Counts the calls of one execution of a statement."""

    def __init__(self, at: int) -> None:
        self._at = at
        self._count = 0

    def key(self, name: str) -> str:
        """The key of the next call: place of the statement, number, name."""
        self._count += 1
        return f"{self._at}.{self._count}:{name}"


# The statement that is being executed. Tasks that it starts inherit it.
current: contextvars.ContextVar[Optional[Calls]] = contextvars.ContextVar("ckptsidecar_statement", default=None)


def tool(run: AsyncRun, name: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function as a program sees it: each call is done once, and its result is kept.

    The key is made when the function is called, so that the order of calls decides, not the order in
    which they are awaited.
    """
    if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None)):

        @functools.wraps(fn)
        def later(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            return _call_async(run, _key(name), name, fn, args, kwargs)

        return later

    @functools.wraps(fn)
    def now(*args: Any, **kwargs: Any) -> Any:
        return _call(run, _key(name), name, fn, args, kwargs)

    return now


def _key(name: str) -> str:
    calls = current.get()
    if calls is None:
        raise RuntimeError(f"{name} is a tool of a program: it can only be called while the program runs")
    return calls.key(name)


def _call(
    run: AsyncRun, key: str, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    steps = run.sync._steps
    begun = steps.begin(key, name, [list(args), kwargs])
    if begun.done:
        _check(key, begun)
        return begun.result
    with recorded(steps, key, None) as outcome:
        outcome.append(fn(*args, **kwargs))
    return _kept(outcome[0])


async def _call_async(
    run: AsyncRun, key: str, name: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    steps, call = run.sync._steps, run.agent.sidecar.call
    begun = await call(steps.begin, key, name, [list(args), kwargs])
    if begun.done:
        _check(key, begun)
        return begun.result
    record = recorded(steps, key, None)
    outcome = record.__enter__()
    try:
        outcome.append(await fn(*args, **kwargs))
    except Exception as error:
        await call(record.__exit__, type(error), error, error.__traceback__)
        raise
    await call(record.__exit__, None, None, None)
    return _kept(outcome[0])


def _kept(result: Any) -> Any:
    """The result as it would come back after a crash, so that a program sees the same in both cases."""
    return loads(dumps(result).data)


def _check(key: str, begun: Begun) -> None:
    if not begun.same:
        raise Diverged(
            f"call {key} was made before with other arguments: a statement that runs again after a crash must "
            "make the same calls, so get what it depends on (time, random numbers, the order of tasks) from a tool"
        )
