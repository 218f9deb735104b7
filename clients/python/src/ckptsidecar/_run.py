"""A run: one execution of an agent's loop, which goes on where the last one ended."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import inspect
import logging
import threading
from types import TracebackType
from typing import Any, Callable, Generator, Mapping, Optional, Sequence, Union

from . import _ask, _requests
from ._ask import Answer, Waiting, answer_of
from ._autosave import Autosave
from ._base_cache import saver
from ._drift import Drift, OnDrift
from ._encode import Encoded, dumps
from ._files import Folder
from ._ids import new_id
from .errors import AWAY, CkptError, Conflict, Fenced, NeedsOperator, NotFound
from .models import Plan, Saved, body_of, is_json
from ._operation import Declared, NotDoneErrors, Operation
from ._plans import Check, Known, error_text, needs_operator, usual_run
from ._session import Session
from ._steps import PAGES, Measure, Negative, Steps, args_of, call_key, name_of, recorded
from ._stop import Stopper, Terminated, terminate
from ._transport import Ask
from ._typed import drive, read
from ._types import Named

_log = logging.getLogger("ckptsidecar")


class Run:
    """One execution of an agent, to be used with ``with``. Without a name it is the run of ``ckptsidecar exec``, if
    that has started this process for the agent, else ``main``.

    Entering claims the run: ``plan`` says how to go on, ``state`` is what to go on from (None for
    nothing). A heartbeat tells the daemon every ``heartbeat`` seconds that this process lives; after
    ``heartbeat_timeout`` seconds without one the run counts as timed out, after
    ``progress_timeout`` seconds in which ``progress`` did not grow too.

    Leaving ends the run as completed; after an exception as interrupted, so that it can be resumed
    (``on_error="failed"`` ends it for good). SIGTERM lets the agent come to its next ``save``, ``step`` or
    ``operation``, at most ``grace`` seconds, and ends the run as interrupted; a program that handles
    SIGTERM itself calls ``stop``.

    ``state``: a function that answers what to save when the run must end early.
    ``resolve``: asked about each operation that is uncertain and would need a person; answers Done(result), NotDone(), or
    None where it cannot tell. ``ckptsidecar exec`` asks a person instead. ``leave_uncertain``: a reason to go on although an
    operation is uncertain. It stays uncertain, and its key does not begin before it is resolved.
    ``force``: take the run over from an owner that lives. ``require_daemon``: never begin without it.
    ``workflow``, ``goal``, ``labels``, ``parent_run``, ``external_session``: what the run is, for people.
    ``fork_from``: a checkpoint of this agent that a new run begins with.
    ``on_drift``: a function that is called with a Drift when the run's verdict gets worse or something new was found;
    see ``drift``. It is called in the thread that got the answer, which may be that of the heartbeat.
    """

    def __init__(
        self,
        agent: Named,
        name: Optional[str] = None,
        *,
        heartbeat: float = 10.0,
        heartbeat_timeout: Optional[float] = 30.0,
        progress_timeout: Optional[float] = None,
        state: Optional[Callable[[], Any]] = None,
        resolve: Optional[Check] = None,
        leave_uncertain: Optional[str] = None,
        on_error: str = "interrupted",
        sigterm: bool = True,
        grace: float = 5.0,
        force: bool = False,
        reason: str = "",
        require_daemon: bool = False,
        fork_from: Optional[str] = None,
        workflow: Optional[str] = None,
        goal: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        parent_run: Optional[str] = None,
        external_session: Optional[str] = None,
        on_drift: Optional[OnDrift] = None,
    ) -> None:
        if on_error not in ("interrupted", "failed"):
            raise ValueError(f'on_error is {on_error!r}: say "interrupted" or "failed"')
        self.agent = agent
        self.name = name = name or usual_run(agent.name)
        self.plan: Plan = Plan("fresh", ["the run has not begun"], agent.name, name, None)
        timeouts = {"heartbeat_timeout": heartbeat_timeout, "progress_timeout": progress_timeout}
        self._session = Session(agent, name, heartbeat=heartbeat, timeouts=timeouts, reason=reason, force=force, leave_uncertain=leave_uncertain)
        if on_drift is not None:
            self._session.drift.listen(on_drift)
        self._steps = Steps(self._session)
        self._operations: dict[str, Known] = {}  # those that succeeded, by key
        self._uncertain: dict[str, str] = {}  # the evidence of those that nobody knows the end of, by key
        self._begins: dict[str, Ask] = {}  # beginnings of operations of which the answer did not come, by key
        self._details = {
            "workflow": workflow, "goal": goal, "labels": dict(labels) if labels else None,
            "parent_run": parent_run, "external_session": external_session,
        }  # fmt: skip
        self._fork_from = fork_from
        self._current = state
        self._resolve = resolve
        self._require_daemon = require_daemon
        self._on_error = on_error
        self._stopper = Stopper(grace, terminate)
        self._sigterm = sigterm
        self._busy = 0  # steps and operations that are being done
        self._lock = threading.Lock()
        self._last: Optional[tuple[Any, Optional[str]]] = None  # what the run saved last, and its id
        self._ended = False
        self._asked: dict[str, str] = {}  # for the words of each question the last prompt that had an answer
        self._autosaves: list[Autosave] = []

    # Its life

    def begin(self) -> Plan:
        """Claims the run; ``with`` does it. Raises NeedsOperator, Unsafe or another CkptError."""
        fork = None if self._fork_from is None else {**self._details, "fork_from": self._fork_from}
        self.plan = self._session.begin(self._resolve, self._require_daemon, fork)
        try:
            self._learn()
        except BaseException:
            self._session.stop()
            raise
        if self._sigterm:
            self._stopper.install()
        return self.plan

    def _learn(self) -> None:
        checkpoint = self.plan.checkpoint
        if checkpoint is not None and checkpoint.state_bytes is not None and checkpoint.run == self.name:
            self._last = (None, checkpoint.id or None)
        self._session.describe(self._details)
        self._steps.learn(self.plan)
        for key, result in self._session.known_operations.items():
            self._operations[key] = Known(result, None)
        for operation in self.plan.uncertain_operations:
            self._uncertain[operation["key"]] = operation.get("error") or "its process ended in it"
        if self.epoch is not None:
            self._learn_operations()

    def _learn_operations(self) -> None:
        """Learns which operations were done before, so that none is done twice while the daemon is away."""
        try:
            found, _ = self._session.read("operations", "operations", "succeeded", PAGES)
        except CkptError:
            return
        for operation in found:
            self._operations[operation["key"]] = Known(drive(read(operation.get("result"))), operation.get("resolved_by"))

    def _attempt_of(self, key: Optional[str], status: str) -> Optional[dict[str, Any]]:
        """The newest attempt of a key, or of any, that has a status, None where there is none or it cannot be read."""
        try:
            found, _ = self._session.read("operations", "operations", status, PAGES)
        except CkptError:
            return None
        return next((operation for operation in found if key in (None, operation["key"])), None)

    def _needs_operator(self, refused: Optional[NeedsOperator], key: Optional[str] = None) -> NeedsOperator:
        """The refusal with the plan and the three lines; ``refused`` is what the daemon said, None where it is away."""
        found = None
        if refused is not None:
            found = self._attempt_of(key, "uncertain") or self._attempt_of(key, "open")
        else:
            key = key or next(iter(self._uncertain))
            found = {"key": key, "status": "uncertain", "error": self._uncertain[key]}
        verdict = "ask" if refused is not None else "offline"
        reasons = [refused.message] if refused is not None else self.plan.reasons
        plan = dataclasses.replace(self.plan, verdict=verdict, reasons=reasons, uncertain_operations=[found] if found else [])
        return needs_operator(plan, key, refused.message if refused is not None else "")

    def __enter__(self) -> "Run":
        self.begin()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        try:
            self._leave(error)
        finally:
            self._stopper.remove()
            self._session.stop()

    def _leave(self, error: Optional[BaseException]) -> None:
        """Ends the run when its owner leaves the block, with or without an error."""
        for autosave in self._autosaves:
            autosave.stop()
        if self._ended or isinstance(error, Fenced):
            return
        if error is None or isinstance(error, SystemExit) and error.code in (None, 0):
            try:
                self.end("completed")
            except NeedsOperator as refused:  # an error in an operation was caught around it
                self._end_interrupted(refused)
                raise
            return
        status = "interrupted"
        try:
            if isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError):
                status = self._on_error
                self._put_aside(error)
            elif self._current is not None:
                self._save(self._current(), {})
        except Exception as unsaved:  # the run ends all the same
            _log.error("the last state of run %s of agent %s could not be saved: %s", self.name, self.agent.name, unsaved)
        try:
            self.end(status, error=error_text(error))
        except NeedsOperator:  # it cannot be over for good
            self._end_interrupted(error)
        except CkptError as unsaid:  # not instead of the error that ends the run
            self._unsaid(unsaid)

    def _end_interrupted(self, error: BaseException) -> None:
        """Ends the segment, so that a resume goes on when the uncertain operation is resolved."""
        try:
            self.end("interrupted", error=error_text(error))
        except CkptError as unsaid:
            self._unsaid(unsaid)

    def _unsaid(self, error: CkptError) -> None:
        _log.error("the end of run %s of agent %s could not be recorded: %s", self.name, self.agent.name, error)

    def _put_aside(self, error: Exception) -> None:
        """Saves the state at an exception, for inspection: a resume goes back to the agent's last own save."""
        if self._last is None or self._last[1] is None or not self._session._delivery.reachable():
            return
        value, back = self._last
        if self._current is not None:
            value = self._current()
        checkpoint = self.plan.checkpoint
        if value is not None:
            encoded = self.agent.encode(value)
        elif checkpoint is not None and checkpoint.id == back and is_json(checkpoint.content_type):
            encoded = Encoded(checkpoint.state_bytes or b"null", [], [])
        else:
            return
        self._session.ready()
        self._put(encoded.data, encoded.content_type, "recovery", {"reason": "exception"}, {"error": type(error).__name__})
        try:
            self.agent.restore(back, run=self.name, reason="the newest checkpoint is of an exception, for looking at")
        except NotFound:  # retention has removed it, because its operation is over
            if checkpoint is None or checkpoint.id != back or checkpoint.state_bytes is None:
                raise
            self._put(checkpoint.state_bytes, checkpoint.content_type, "routine", None, None)

    def _put(self, data: bytes, content_type: str, kind: str, labels: Optional[dict[str, str]], metadata: Optional[dict[str, str]]) -> None:
        """Saves bytes, but not by way of the spool: a resume goes on from the newest checkpoint, and only the daemon can go back to another."""
        ask = _requests.save(
            self.agent.name, new_id(), data, kind=kind, content_type=content_type, run=self.name, epoch=self.epoch,
            parent=None, step=None, labels=labels, metadata=metadata, program=None,
        )  # fmt: skip
        if self.agent.sidecar._acked is not None:
            saver(self.agent.sidecar._acked, ask)  # where the state is as it was last saved, only that is sent
        self._session.drift.read(self.agent.sidecar._attempt(self._session.lane, ask))

    def end(
        self,
        status: str = "completed",
        *,
        result: Any = None,
        error: Optional[str] = None,
        continuation_prompt: Optional[str] = None,
        state: Any = None,
        leave_uncertain: Optional[str] = None,
    ) -> None:
        """Ends the run: completed or failed for good; suspended, awaiting_continuation or interrupted until a resume.

        With a state the final checkpoint is saved in the same transaction. While an operation is open or uncertain, the
        end for good raises NeedsOperator, unless ``leave_uncertain`` says why it may stay so.
        """
        body = {
            "status": status, "error": error, "continuation_prompt": continuation_prompt,
            "result": None if result is None else dumps(result).data,
            "state": None if state is None else self.agent.encode(state).data,
            "leave_uncertain": leave_uncertain is not None or None, "reason": leave_uncertain,
        }  # fmt: skip
        self._end_begins()
        doubtful = bool(self._uncertain) and status in ("completed", "failed") and leave_uncertain is None
        try:
            if doubtful:  # only the daemon knows whether they are resolved
                self._session.direct(self._session.ask(("end",), body))
            else:
                self._session.send(("end",), body)
        except NeedsOperator as refused:
            raise self._needs_operator(refused) from None
        except CkptError as failed:
            if doubtful and failed.code in AWAY:
                raise self._needs_operator(None) from failed
            raise
        self._ended = True

    def _end_begins(self) -> None:
        """Ends the operations of whose beginning no answer came: their work was not done, so no person need be asked."""
        for key, ask in list(self._begins.items()):
            try:
                begun = body_of(self.agent.sidecar._attempt(self._session.lane, ask))
                body = {"attempt": begun.get("attempt"), "error": "the answer to its beginning did not come, so its work was not done"}
                if not begun.get("replayed"):
                    self._session.send(("operations", key, "fail"), body)
            except CkptError as error:
                _log.warning("it is not known whether operation %s is open, though its work was not done: %s", key, error)
            self._begins.pop(key, None)

    @property
    def state(self) -> Any:
        """The state to continue from, or None. Each call reads it again."""
        return self.plan.state

    @property
    def epoch(self) -> Optional[int]:
        """The fencing token, None while the daemon is away."""
        return self._session.epoch

    def drift(self) -> Drift:
        """The last verdict on the drift of the run. It came with the last save, step or heartbeat."""
        return self._session.drift.last

    def on_drift(self, fn: OnDrift) -> OnDrift:
        """Sets a function to call when the verdict gets worse or a new finding appears; see Run."""
        self._session.drift.listen(fn)
        return fn

    def report(
        self,
        rule: str,
        message: str,
        *,
        severity: str = "warn",
        advice: Optional[str] = None,
        evidence: Optional[Mapping[str, Any]] = None,
        since: Optional[int] = None,
    ) -> dict[str, Any]:
        """Adds a finding of the agent itself and returns it, with its ``id``.

        ``severity`` is info, warn or critical; ``since`` is of a critical one the number of the newest checkpoint that
        is still good, without it the newest one. Needs the daemon: it raises where that is away.
        """
        self._session.ready()
        body = {
            "run": self.name, "epoch": self.epoch, "rule": rule, "severity": severity, "message": message,
            "advice": advice, "evidence": None if evidence is None else dict(evidence), "since_seq": since,
        }  # fmt: skip
        found = self.agent.sidecar._dict(_requests.post(f"/v1/agents/{self.agent.name}/drift/findings", body))
        self._session.drift.note(found.pop("drift", None))
        return found

    def dismiss(self, finding: str, *, reason: str = "") -> dict[str, Any]:
        """Says that a finding was wrong or dealt with; returns it, with the checkpoints ``cleaned``."""
        answer = self.agent.sidecar.dismiss(finding, reason=reason)
        self._session.drift.note(answer.pop("drift", None))
        return answer

    def ask(
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
        """Asks a person and waits for the answer. Heartbeats continue.

        ``choices``: the only answers; without them any is allowed. ``schema``: the JSON Schema of the data that comes
        with the answer. ``expires``: seconds in which it may be answered. ``reason``: why it is asked, for the person.
        ``key``: asked again under it, it is the same question. Without a key it is the same where the words are, until
        the run has saved something after the answer.

        After a crash the resumed run asks again, and gets the same question, or its answer at once. ``suspend``: where
        there is no answer yet, the run is suspended and Unanswered is raised; ``timeout``: seconds after which
        TimeoutError is raised, while the question stays open. A question that expired raises Unanswered.
        """
        prompt = self._put_question(
            question, key=key, choices=choices, schema=schema, expires=expires, reason=reason, suspend=suspend
        )
        if prompt["status"] == "open" and not suspend:
            self._boundary()
            prompt = self._waiting(prompt["id"]).result(self._while_waiting, timeout)
        return self._answered(prompt)

    def _put_question(self, question: str, **options: Any) -> dict[str, Any]:
        self._session.ready()
        request = _ask.question(
            f"{self._session._path}/prompts", question, epoch=self.epoch, after=self._asked.get(question), **options
        )
        prompt = self.agent.sidecar._dict(request)
        if options["suspend"] and prompt["status"] == "open":
            self._ended = True
            self._session.stop()
        return prompt

    def _waiting(self, prompt: str) -> Waiting:
        sidecar = self.agent.sidecar
        return Waiting(sidecar.endpoint, prompt, sidecar._owner)

    def _while_waiting(self) -> None:
        self._session.check()
        self._boundary()

    def _answered(self, prompt: dict[str, Any]) -> Answer:
        if prompt["status"] != "open":
            self._asked[prompt["question"]] = prompt["id"]
        return answer_of(prompt)

    def stop(self) -> None:
        """Asks the run to stop, as SIGTERM does: for programs with a handler of their own, which the client leaves alone."""
        self._stopper.asked = True

    @property
    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._stopper.asked

    def _boundary(self) -> None:
        """Between two pieces of work: the place to stop."""
        if self._stopper.asked and self._busy == 0:
            raise Terminated()

    # Its work

    def save(
        self,
        state: Any,
        *,
        kind: str = "routine",
        step: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        metadata: Optional[Mapping[str, Any]] = None,
        program: Optional[Mapping[str, Any]] = None,
        content_type: Optional[str] = None,
        allow_empty: bool = False,
        files: Optional[Folder] = None,
    ) -> Saved:
        """Saves a state of the run, with ``files`` those of a folder as well; see Agent.save."""
        options = {
            "kind": kind, "step": step, "labels": labels, "metadata": metadata, "program": program,
            "content_type": content_type, "allow_empty": allow_empty, "files": files,
        }  # fmt: skip
        saved = self._save(state, options)
        self._boundary()
        return saved

    def _save(self, state: Any, options: dict[str, Any]) -> Saved:
        self._session.ready()
        encoded = self.agent.encode(state)
        try:
            saved = self.agent.save(encoded, run=self.name, epoch=self.epoch, **options)
        except Fenced as error:
            self._session._lost = error
            raise
        self._session.drift.note(saved.drift)
        if options.get("kind", "routine") != "recovery":
            self._last = (state, None if saved.lost else saved.id)
        return saved

    def step(
        self,
        key: Union[str, Callable[..., Any]],
        *,
        name: Optional[str] = None,
        args: Any = None,
        measure: Optional[Measure] = None,
        turn: Optional[str] = None,
        negative: Optional[Negative] = None,
    ) -> Callable[..., Any]:
        """Work that is done once in a run. Its result is kept.

        ``run.step("fetch")(fn, …)`` calls ``fn(…)`` now, unless a step of this key has succeeded
        before: then it answers the result of then. ``@run.step`` makes each call of a function a step, with a key
        made of the function's name and the arguments. A step that raises has failed, and is done again
        when it is asked for again.

        ``args`` is noted with the step; the default is the arguments of the call. ``name`` says what kind of call it is;
        the default is the name of the function, or the key without a counter, an id or a date at its end. Drift
        detection compares both.  ``measure(result)`` answers a dict of ``input_tokens``,
        ``output_tokens``, ``cost_usd`` and ``progress``, for drift detection. ``turn`` is the id of the model's answer
        that made this call: equal calls of one turn count once. ``negative(answer)`` says whether the answer was no
        (a search that found nothing), which is no error; it is given the result, or the exception.
        """
        if callable(key):
            fn = key

            @functools.wraps(fn)
            def stepped(*args: Any, **kwargs: Any) -> Any:
                return self._do(call_key(fn, args, kwargs), fn, args, kwargs, name, None, measure, turn, negative, True)

            return stepped
        
        def once(fn: Callable[..., Any], *a: Any, **kw: Any) -> Any:
            return self._do(key, fn, a, kw, name, args, measure, turn, negative)

        return once

    def _do(
        self, key: str, fn: Callable[..., Any], a: tuple[Any, ...], kw: dict[str, Any],
        name: Optional[str], args: Any, measure: Optional[Measure], turn: Optional[str], negative: Optional[Negative],
        call: bool = False,
    ) -> Any:  # fmt: skip
        if inspect.iscoroutinefunction(fn):
            raise TypeError("a coroutine function needs an AsyncRun: use AsyncSidecar")
        self._boundary()
        begun = self._steps.begin(key, name or name_of(fn), args_of(fn, a, kw) if args is None else args, turn, call)
        if begun.done:
            return begun.result
        with self._working(), recorded(self._steps, key, measure, negative) as outcome:
            outcome.append(fn(*a, **kw))
        return outcome[0]

    @contextlib.contextmanager
    def _working(self) -> Generator[None, None, None]:
        self._work(1)
        try:
            yield
        finally:
            self._work(-1)

    def _work(self, more: int) -> None:
        """Counts the steps and operations that are being done."""
        with self._lock:
            self._busy += more

    def operation(
        self,
        name: str,
        state: Any = None,
        *,
        key: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        args: Any = None,
        idempotent: bool = False,
        check: Optional[Check] = None,
        not_done: NotDoneErrors = (),
        offline: str = "refuse",
        result_schema: Optional[Mapping[str, Any]] = None,
    ) -> Operation:
        """A risky action: see Operation. ``state`` is the state to go back to; the default is the last saved one.

        The ``key`` is the name where none is given; in a loop each turn needs its own. ``args`` are for the person who is
        asked if nobody knows how it ended; a call gives its own.

        ``idempotent``: the provider takes ``key`` as its idempotency key, so it is repeated without a question.
        ``check``: asked about an uncertain attempt before a person is; it is given the attempt, and answers Done(result),
        NotDone(), or None where it cannot tell. ``not_done``: the exceptions that mean that nothing was done, beside
        NotDone. ``offline="allow"``: begin it although the daemon is away, which otherwise raises Offline.
        ``result_schema``: the JSON Schema of the result that a person must give who says that it took effect.
        """
        declared = Declared(args, idempotent, check, not_done, offline, result_schema)
        return Operation(self, name, state, key, labels, declared)

    def event(self, type: str, payload: Any = None) -> None:
        """Appends a line to the run's journal."""
        parts = [b'{"type":', dumps(type).data]
        if payload is not None:
            parts += [b',"payload":', dumps(payload).data]
        self._session.send_events(b"[" + b"".join(parts) + b"}]")

    def progress(self, value: float) -> None:
        """Declares the progress of the run, from 0 to 1 or in any unit that grows."""
        self._session.check()
        self._session.progress = value
        try:
            self._session.beat()
        except CkptError as error:
            if isinstance(error, Conflict):
                raise
            _log.debug("progress is told with the next heartbeat: %s", error)

    def autosave(
        self, state: Callable[[], Any], *, every: float = 900.0, refresh_after: float = 7200.0
    ) -> Autosave:
        """Saves the result of ``state()`` at an interval, until it is stopped or the run ends: see Autosave."""

        def save(value: Encoded, **options: Any) -> Saved:
            return self._save(value, options)

        autosave = Autosave(save, self.agent.encode, state, every, refresh_after)
        self._autosaves.append(autosave)
        return autosave
