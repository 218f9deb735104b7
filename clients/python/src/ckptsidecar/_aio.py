"""The same client for asyncio.

Each AsyncSidecar does its requests in one thread of its own, so that they stay in order and never
hold up the event loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import inspect
from types import TracebackType
from typing import Any, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Optional, Sequence, TypeVar, Union, cast

from ._drift import Drift, OnDrift
from ._agent import Agent
from ._ask import Answer
from ._autosave import Autosave
from ._client import Sidecar
from ._encode import Encoded
from .errors import AlreadyDone, NotDone
from .models import Checkpoint, Diff, Plan, Saved
from ._operation import Operation
from ._replay import Replayed
from ._run import Run
from ._steps import Measure, Negative, args_of, call_key, name_of, recorded
from ._stop import Stopper, Terminated

T = TypeVar("T")


class AsyncSidecar:
    """A client of the daemon for asyncio. It takes what Sidecar takes; ``sync`` is the Sidecar inside."""

    def __init__(self, socket: Optional[str] = None, **options: Any) -> None:
        self.sync = options["over"] if "over" in options else Sidecar(socket, **options)
        self._executor = concurrent.futures.ThreadPoolExecutor(1, "ckptsidecar")

    @classmethod
    def over(cls, sidecar: Sidecar) -> "AsyncSidecar":
        """The same client for asyncio."""
        return cls(over=sidecar)

    async def call(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Calls a function in the thread of this client, after all earlier calls.

        Where the awaiting task is cancelled, the function is done all the same.
        """
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._executor, functools.partial(fn, *args, **kwargs)))

    async def enter(self, enter: Callable[[], Any], leave: Callable[[BaseException], Any]) -> None:
        """Calls ``enter``. Where the awaiting task is cancelled, nobody will leave, so ``leave`` follows at once."""
        entering = self._executor.submit(enter)
        try:
            await asyncio.shield(asyncio.wrap_future(entering))
        except asyncio.CancelledError as error:
            self._executor.submit(_left, entering, leave, error)
            raise

    async def _each(self, found: Iterator[T]) -> AsyncIterator[T]:
        """The items of an iterator that makes requests."""
        while True:
            some = await self.call(lambda: [item for _, item in zip(range(50), found)])
            for item in some:
                yield item
            if len(some) < 50:
                return

    def agent(self, name: str) -> "AsyncAgent":
        """The agent of this name."""
        return AsyncAgent(self, self.sync.agent(name))

    async def checkpoint(self, id: str, *, state: bool = True) -> Checkpoint:
        """Reads a checkpoint."""
        return await self.call(self.sync.checkpoint, id, state=state)

    async def diff(self, a: str, b: str) -> Diff:
        """Compares the states of two checkpoints."""
        return await self.call(self.sync.diff, a, b)

    async def change(self, id: str, **changes: Any) -> Checkpoint:
        """Changes the labels or the pin of a checkpoint; see Sidecar.change."""
        return await self.call(self.sync.change, id, **changes)

    async def delete(self, id: str) -> None:
        """Removes a checkpoint."""
        await self.call(self.sync.delete, id)

    async def status(self) -> dict[str, Any]:
        """The daemon's status."""
        return await self.call(self.sync.status)

    async def version(self) -> dict[str, Any]:
        """The daemon's version."""
        return await self.call(self.sync.version)

    def agents(self) -> AsyncIterator[dict[str, Any]]:
        """The agents of this user."""
        return self._each(self.sync.agents())

    def runs(self, **find: Any) -> AsyncIterator[dict[str, Any]]:
        """The runs of all agents, the last changed first; see Sidecar.runs."""
        return self._each(self.sync.runs(**find))

    async def policy_for_all(self) -> dict[str, Any]:
        """The settings for all of this user's agents; see Sidecar.policy_for_all."""
        return await self.call(self.sync.policy_for_all)

    async def set_policy_for_all(self, **settings: Any) -> dict[str, Any]:
        """Changes some of the settings for all of this user's agents; see Sidecar.set_policy_for_all."""
        return await self.call(self.sync.set_policy_for_all, **settings)

    def prompts(self, *, open: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Questions to people, newest first."""
        return self._each(self.sync.prompts(open=open))

    async def prompt(self, id: str) -> dict[str, Any]:
        """Reads one question."""
        return await self.call(self.sync.prompt, id)

    async def request(self, method: str, path: str, **options: Any) -> Any:
        """Makes any other call of the HTTP API; see Sidecar.request."""
        return await self.call(self.sync.request, method, path, **options)

    @property
    def spooled(self) -> int:
        """How many writes wait in the spool."""
        return self.sync.spooled

    @property
    def endpoint(self) -> str:
        """The daemon's endpoint, "" before one was found."""
        return self.sync.endpoint

    async def answer(self, prompt: str, choice: Optional[str] = None, **options: Any) -> dict[str, Any]:
        """Answers a question; see Sidecar.answer."""
        return await self.call(self.sync.answer, prompt, choice, **options)

    async def dismiss(self, finding: str, **options: Any) -> dict[str, Any]:
        """Dismisses a finding; see Sidecar.dismiss."""
        return await self.call(self.sync.dismiss, finding, **options)

    async def replay(self) -> Replayed:
        """Sends all waiting writes in the spool."""
        return await self.call(self.sync.replay)

    async def close(self) -> None:
        """Closes the connection, as Sidecar.close does."""
        await self.call(self.sync.close)
        self._executor.shutdown(wait=False)

    async def __aenter__(self) -> "AsyncSidecar":
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close()


class AsyncAgent:
    """An agent, for asyncio; ``sync`` is the Agent inside. Methods are those of Agent."""

    def __init__(self, sidecar: AsyncSidecar, agent: Agent) -> None:
        self.sidecar = sidecar
        self.sync = agent
        self.name = agent.name

    async def save(self, state: Any, **options: Any) -> Saved:
        """Saves a state; see Agent.save."""
        return await self.sidecar.call(self.sync.save, state, **options)

    async def restore(self, checkpoint: Optional[str] = None, **options: Any) -> Checkpoint:
        """Goes back to a checkpoint; see Agent.restore."""
        return await self.sidecar.call(self.sync.restore, checkpoint, **options)

    async def latest(self, **options: Any) -> Optional[Checkpoint]:
        """The newest checkpoint, or None; see Agent.latest."""
        return await self.sidecar.call(self.sync.latest, **options)

    async def encode(self, state: Any) -> Encoded:
        """Encodes a state; see Agent.encode."""
        return await self.sidecar.call(self.sync.encode, state)

    async def get(self, checkpoint: str, *, state: bool = True) -> Checkpoint:
        """Reads a checkpoint; see Agent.get."""
        return await self.sidecar.call(self.sync.get, checkpoint, state=state)

    def list(self, **options: Any) -> AsyncIterator[Checkpoint]:
        """The checkpoints, newest first; see Agent.list."""
        return self.sidecar._each(self.sync.list(**options))

    def runs(self, **find: Any) -> AsyncIterator[dict[str, Any]]:
        """The runs of the agent; see Agent.runs."""
        return self.sidecar._each(self.sync.runs(**find))

    async def erase(self) -> dict[str, Any]:
        """Removes all that is kept of the agent; see Agent.erase."""
        return await self.sidecar.call(self.sync.erase)

    async def diff(self, a: str, b: str) -> Diff:
        """The difference between two states; see Agent.diff."""
        return await self.sidecar.call(self.sync.diff, a, b)

    async def drift(self, **options: Any) -> Drift:
        """Asks the daemon for the verdict on a run's drift; see Agent.drift."""
        return await self.sidecar.call(self.sync.drift, **options)

    async def delete_run(self, run: str, **options: Any) -> dict[str, Any]:
        """Removes a run; see Agent.delete_run."""
        return await self.sidecar.call(self.sync.delete_run, run, **options)

    async def clear(self, *args: Any) -> dict[str, Any]:
        """Removes the checkpoints of a run that nothing needs; see Agent.clear."""
        return await self.sidecar.call(self.sync.clear, *args)

    async def fork(self, checkpoint: str, state: Any, **options: Any) -> Saved:
        """Begins a new run with an edited state; see Agent.fork."""
        return await self.sidecar.call(self.sync.fork, checkpoint, state, **options)

    async def policy(self) -> dict[str, Any]:
        """The agent's settings."""
        return await self.sidecar.call(self.sync.policy)

    async def policy_layers(self) -> dict[str, Any]:
        """The settings and where each comes from; see Agent.policy_layers."""
        return await self.sidecar.call(self.sync.policy_layers)

    async def set_policy(self, **settings: Any) -> dict[str, Any]:
        """Changes some of the agent's own settings; see Agent.set_policy."""
        return await self.sidecar.call(self.sync.set_policy, **settings)

    def run(self, name: Optional[str] = None, **options: Any) -> "AsyncRun":
        """A run, to be used with ``async with``; see Run."""
        return AsyncRun(self, name, **options)

    def autosave(self, state: Callable[[], Any], **options: Any) -> Autosave:
        """Saves the result of ``state()`` at an interval; see Agent.autosave."""
        return self.sync.autosave(state, **options)


class AsyncRun:
    """A run, for asyncio; ``sync`` is the Run inside. The documentation of Run applies here too.

    After the ``grace`` of a SIGTERM the task that entered the run is cancelled.
    """

    def __init__(
        self, agent: AsyncAgent, name: Optional[str] = None, *, sigterm: bool = True, grace: float = 5.0,
        on_drift: Optional[OnDrift] = None, **options: Any,
    ) -> None:  # fmt: skip
        self.agent = agent
        self.sync = Run(agent.sync, name, sigterm=False, grace=grace, **options)
        self.name = self.sync.name
        self._call = agent.sidecar.call
        self._sigterm = sigterm
        self._grace = grace
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._tasks: set["asyncio.Future[Any]"] = set()
        if on_drift is not None:
            self.on_drift(on_drift)

    @classmethod
    def over(cls, run: Run) -> "AsyncRun":
        """A run that has begun, for asyncio. Who began it ends it."""
        agent = AsyncAgent(AsyncSidecar.over(cast(Sidecar, run.agent.sidecar)), cast(Agent, run.agent))
        made = cls(agent, run.name)
        made.sync = run
        return made

    async def __aenter__(self) -> "AsyncRun":
        self._loop = asyncio.get_running_loop()
        await self.agent.sidecar.enter(self.sync.begin, self._leave)
        if self._sigterm:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            self.sync._stopper = Stopper(self._grace, lambda: _cancel(loop, task))
            self.sync._stopper.install()
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            await self._call(self._leave, error)
        finally:
            self.sync._stopper.remove()
        if isinstance(error, asyncio.CancelledError) and self.sync.stopping:
            raise Terminated() from error

    def _leave(self, error: Optional[BaseException]) -> None:
        try:
            self.sync._leave(error)
        finally:
            self.sync._session.stop()

    @property
    def plan(self) -> Plan:
        """The resume plan."""
        return self.sync.plan

    @property
    def state(self) -> Any:
        """The state to continue from, or None."""
        return self.sync.state

    @property
    def epoch(self) -> Optional[int]:
        """The fencing token, None while the daemon is away."""
        return self.sync.epoch

    @property
    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self.sync.stopping

    def stop(self) -> None:
        """Asks the run to stop, as SIGTERM does."""
        self.sync.stop()

    def drift(self) -> Drift:
        """The last verdict on the run's drift; see Run.drift."""
        return self.sync.drift()

    def on_drift(self, fn: OnDrift) -> OnDrift:
        """Has a function or a coroutine function called in the event loop; see Run.on_drift."""
        self.sync.on_drift(functools.partial(self._tell, fn))
        return fn

    def _tell(self, fn: OnDrift, drift: Drift) -> None:
        """Hands a verdict over to the event loop."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._told, fn, drift)

    def _told(self, fn: OnDrift, drift: Drift) -> None:
        done = fn(drift)
        if inspect.isawaitable(done):
            task = asyncio.ensure_future(done)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def report(self, rule: str, message: str, **options: Any) -> dict[str, Any]:
        """Adds a finding of the agent itself; see Run.report."""
        return await self._call(self.sync.report, rule, message, **options)

    async def dismiss(self, finding: str, **options: Any) -> dict[str, Any]:
        """Dismisses a finding; see Run.dismiss."""
        return await self._call(self.sync.dismiss, finding, **options)

    async def ask(
        self,
        question: str,
        *,
        key: Optional[str] = None,
        choices: Optional[Sequence[str]] = None,
        schema: Optional[Mapping[str, Any]] = None,
        expires: Optional[float] = None,
        reason: str = "",
        suspend: bool = False,
        timeout: Optional[float] = None,
    ) -> Answer:
        """Asks a person and waits for the answer; see Run.ask. Other calls continue in the meantime."""
        run = self.sync
        prompt = await self._call(
            run._put_question, question,
            key=key, choices=choices, schema=schema, expires=expires, reason=reason, suspend=suspend,
        )  # fmt: skip
        if prompt["status"] == "open" and not suspend:
            run._boundary()
            waiting = run._waiting(prompt["id"])
            try:
                prompt = await asyncio.to_thread(waiting.result, run._while_waiting, timeout)
            finally:
                waiting.close()
        return run._answered(prompt)

    async def save(self, state: Any, **options: Any) -> Saved:
        """Saves a state of the run; see Run.save."""
        return await self._call(self.sync.save, state, **options)

    def step(
        self,
        key: Union[str, Callable[..., Any]],
        *,
        name: Optional[str] = None,
        args: Any = None,
        measure: Optional[Measure] = None,
        turn: Optional[str] = None,
        negative: Optional[Negative] = None,
    ) -> Callable[..., Awaitable[Any]]:
        """A piece of work that is done once; see Run.step. The function may be a coroutine function or not."""
        if callable(key):
            fn = key

            @functools.wraps(fn)
            async def stepped(*args: Any, **kwargs: Any) -> Any:
                return await self._do(call_key(fn, args, kwargs), fn, args, kwargs, name, None, measure, turn, negative, True)

            return stepped

        def once(fn: Callable[..., Any], *a: Any, **kw: Any) -> Awaitable[Any]:
            return self._do(key, fn, a, kw, name, args, measure, turn, negative)

        return once

    async def _do(
        self, key: str, fn: Callable[..., Any], a: tuple[Any, ...], kw: Mapping[str, Any],
        name: Optional[str], args: Any, measure: Optional[Measure], turn: Optional[str], negative: Optional[Negative],
        call: bool = False,
    ) -> Any:  # fmt: skip
        run = self.sync
        run._boundary()
        begun = await self._call(run._steps.begin, key, name or name_of(fn), args_of(fn, a, kw) if args is None else args, turn, call)
        if begun.done:
            return begun.result
        record = recorded(run._steps, key, measure, negative)
        outcome = record.__enter__()
        with run._working():
            try:
                result = fn(*a, **kw)
                outcome.append(await result if inspect.isawaitable(result) else result)
            except Exception as error:
                await self._call(record.__exit__, type(error), error, error.__traceback__)
                raise
            await self._call(record.__exit__, None, None, None)
        return outcome[0]

    def operation(self, name: str, state: Any = None, *, check: Optional[Callable[..., Any]] = None, **declared: Any) -> "AsyncOperation":
        """A risky action; see Run.operation. The check may be a coroutine function or not."""
        if check is not None and inspect.iscoroutinefunction(check):
            check = functools.partial(_in_loop, asyncio.get_running_loop(), check)
        return AsyncOperation(self, self.sync.operation(name, state, check=check, **declared))

    async def event(self, type: str, payload: Any = None) -> None:
        """Appends a line to the run's journal."""
        await self._call(self.sync.event, type, payload)

    async def progress(self, value: float) -> None:
        """Declares the progress of the run."""
        await self._call(self.sync.progress, value)

    async def end(self, status: str = "completed", **options: Any) -> None:
        """Ends the run; see Run.end."""
        await self._call(self.sync.end, status, **options)

    def autosave(self, state: Callable[[], Any], **options: Any) -> Autosave:
        """Saves the result of ``state()`` at an interval; see Run.autosave."""
        return self.sync.autosave(state, **options)


class AsyncOperation:
    """A risky action. Use it with ``async with``, or call it with the function that does the work; see Operation."""

    def __init__(self, run: AsyncRun, operation: Operation) -> None:
        self.sync = operation
        self._call = run._call
        self._enter = run.agent.sidecar.enter

    @property
    def result(self) -> Any:
        """The operation's result. Set it inside the block; it is kept."""
        return self.sync.result

    @result.setter
    def result(self, value: Any) -> None:
        self.sync.result = value

    @property
    def key(self) -> str:
        """What a provider takes as its idempotency key."""
        return self.sync.key

    @property
    def resolved_by(self) -> Optional[str]:
        """Who told that an uncertain attempt took effect; see Operation."""
        return self.sync.resolved_by

    @property
    def restore(self) -> Optional[Checkpoint]:
        """After a failure, the checkpoint to go back to."""
        return self.sync.restore

    async def __aenter__(self) -> "AsyncOperation":
        await self._enter(self.sync.__enter__, self._cancelled)
        return self

    def _cancelled(self, error: BaseException) -> None:
        """It was begun, but nothing was done: so it has failed, and is not uncertain."""
        self.sync.__exit__(NotDone, NotDone("the call was cancelled before the operation began"), None)

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self._call(self.sync.__exit__, kind, error, trace)

    async def __call__(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.sync._called_with(args, kwargs)
        try:
            async with self:
                result = fn(*args, **kwargs)
                self.result = await result if inspect.isawaitable(result) else result
        except AlreadyDone as done:
            return done.result
        return self.result


def _left(entering: "concurrent.futures.Future[Any]", leave: Callable[[BaseException], Any], error: BaseException) -> None:
    """Leaves what was entered."""
    if entering.exception() is None:
        leave(error)


def _in_loop(loop: asyncio.AbstractEventLoop, check: Callable[..., Any], attempt: dict[str, Any]) -> Any:
    """Has the event loop answer a check, while the thread of the client waits."""
    return asyncio.run_coroutine_threadsafe(check(attempt), loop).result()


def _cancel(loop: asyncio.AbstractEventLoop, task: "asyncio.Task[Any]") -> None:
    loop.call_soon_threadsafe(task.cancel)
