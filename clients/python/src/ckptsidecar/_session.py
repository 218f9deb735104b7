"""The claim on a run: its epoch, its heartbeat, and what it writes."""

from __future__ import annotations

import logging
import math
import os
import threading
from typing import Any, Optional, Union

from . import _requests
from ._delivery import Kept
from ._drift import DriftWatch
from .errors import CkptError, Conflict, Fenced
from ._heartbeat import Heartbeat
from ._http import Reply
from ._ids import new_id
from ._replay import Behind
from ._transport import Ask
from ._types import Named
from .models import Plan, body_of, plan_of
from ._plans import Answer, Check, from_spool, is_away, needs_operator, refuse, resolved, supervised

_log = logging.getLogger("ckptsidecar")


class Session:
    """One process's ownership of a run. It is safe for concurrent use."""

    def __init__(
        self, agent: Named, run: str, *, heartbeat: float, timeouts: dict[str, Optional[float]], reason: str, force: bool,
        leave_uncertain: Optional[str] = None,
    ) -> None:  # fmt: skip
        self.agent = agent
        self.run = _requests.check_run(run)
        self.lane = (agent.name, self.run)
        self.epoch: Optional[int] = None
        self.known: dict[str, bytes] = {}  # results of steps that only the spool knows
        self.known_operations: dict[str, Any] = {}  # and of operations
        self.supervised = False
        self._require_daemon = False
        self.progress: Optional[float] = None
        self.drift = DriftWatch()
        self._path = f"/v1/agents/{agent.name}/runs/{self.run}"
        self._delivery = agent.sidecar._delivery
        self._heartbeat = Heartbeat(heartbeat, self.beat, self._lose)
        self._timeouts = {name: _requests.duration(seconds) for name, seconds in timeouts.items()}
        self._reason = reason
        self._force = force
        self._leave = leave_uncertain
        self._lost: Optional[CkptError] = None  # why the run is not ours any more
        self._claiming = threading.RLock()
        self._claim = new_id()  # so that a claim whose answer did not come is not made twice
        self._asked = False  # whether a person must decide before the run is claimed

    # Beginning

    def begin(self, resolve: Optional[Check], require_daemon: bool, fork: Optional[dict[str, Any]]) -> Plan:
        """Claims the run and answers the plan; raises NeedsOperator, Unsafe or another CkptError.

        ``fork`` has what a new run is registered with, if it begins with a checkpoint.
        """
        self._require_daemon = require_daemon
        plan = supervised(self.lane)
        if plan is not None:
            self.supervised = True
            self.epoch = plan.epoch
            # The supervisor sends the heartbeats, and knows how often.
            self._timeouts = {"progress_timeout": self._timeouts["progress_timeout"]}
            return self._forked(plan, fork) if fork is not None and plan.verdict == "fresh" else plan
        if fork is not None:
            try:
                self.register(fork)
            except Conflict:
                pass  # it was forked before, and goes on
        plan = self._plan(resolve)
        self.epoch = plan.epoch
        self._heartbeat.start()
        return plan

    def _forked(self, plan: Plan, fork: dict[str, Any]) -> Plan:
        """Makes a run that a supervisor has claimed a fork. The plan is then as the daemon makes it for a fork."""
        self.register(fork)
        plan.checkpoint = checkpoint = self.agent.sidecar.checkpoint(fork["fork_from"])
        plan.verdict, plan.reasons = "resume", [f"Load checkpoint {checkpoint.id}, from which the run was forked."]
        if checkpoint.program is not None:
            executed = checkpoint.program["executed"]
            plan.program = {"executed": executed, "remaining": checkpoint.program["source"].encode()[executed:].decode()}
        return plan

    def _plan(self, resolve: Optional[Check]) -> Plan:
        try:
            self._settle()
            plan = plan_of(self.agent.sidecar._ask(self._resume()))
            answers = resolved(plan, resolve)
            for answer in answers:
                self.resolve(answer)
            if answers:
                plan = plan_of(self.agent.sidecar._ask(self._resume()))
        except CkptError as error:
            if not self._passes(error):
                raise
            return self._offline(error, resolve)
        refuse(plan)
        return plan

    def _passes(self, error: CkptError) -> bool:
        """Whether the run starts although the daemon is away."""
        return is_away(error) and not self._require_daemon and self._delivery.settings.fail_open

    def _settle(self) -> None:
        """Sends what waits of the run. The deadline does not count for as long as that gets on: the daemon is there."""
        left: float = math.inf
        while True:
            try:
                return self._delivery.settle(self.lane)
            except Behind as behind:
                if behind.left >= left:
                    raise
                left = behind.left

    def _resume(self, key: Optional[str] = None, *, dry_run: Optional[bool] = None) -> Ask:
        body = {"pid": os.getpid(), "reason": self._reason or self._leave, "force": self._force or None, "dry_run": dry_run, "leave_uncertain": self._leave is not None or None, **self._timeouts}
        return _requests.post(f"{self._path}/resume", body, key=key)

    def resolve(self, answer: Answer, attempt: Optional[int] = None) -> None:
        """Tells the daemon what the agent's own code has found out about an uncertain operation."""
        body = {
            "choice": "it_did" if answer.done else "it_did_not", "attempt": attempt, "check": True,
            "result": _requests.value_json(answer.result), "reason": "the agent's own code has found out",
        }  # fmt: skip
        path = f"{self._path}/operations/{_requests.segment(answer.key)}/resolve"
        self.agent.sidecar._ask(_requests.post(path, body))

    def _offline(self, why: CkptError, resolve: Optional[Check]) -> Plan:
        plan, self.known, self.known_operations = from_spool(self._delivery.spool, self.lane, why)
        for answer in resolved(plan, resolve):
            plan.uncertain_operations = [o for o in plan.uncertain_operations if o["key"] != answer.key]
            if answer.done:
                self.known_operations[answer.key] = answer.result
            verb = "succeed" if answer.done else "fail"
            self.send(("operations", answer.key, verb), {"result": _requests.value_json(answer.result)})
        if any(not (o["idempotent"] or o["check"]) for o in plan.uncertain_operations):
            raise needs_operator(plan)
        _log.warning("run %s of agent %s starts without the daemon: %s", self.run, self.agent.name, why)
        return plan

    def claimed(self) -> bool:
        """Claims the run as soon as the daemon is back, where it began without; whether it is claimed."""
        if self.epoch is not None or not self._delivery.reachable():
            return self.epoch is not None
        with self._claiming:
            if self.epoch is not None:
                return True
            try:
                plan = self._late_plan()
            except CkptError as error:
                if is_away(error):
                    return False
                raise
            if plan.verdict == "unsafe":
                self._lost = Fenced(f"run {self.run} of {self.agent.name} has another owner: {' '.join(plan.reasons)}")
                raise self._lost
            if plan.claimed:
                self.epoch = plan.epoch
            return plan.claimed

    def _late_plan(self) -> Plan:
        """Claims the run. While a person must decide first it only looks whether that was done: each claim is recorded."""
        if self._asked:
            plan = plan_of(self.agent.sidecar._attempt(self.lane, self._resume(dry_run=True)))
            if plan.verdict == "ask":
                return plan
            self._claim = new_id()  # the same request would get the same answer
        plan = plan_of(self.agent.sidecar._attempt(self.lane, self._resume(self._claim)))
        if plan.verdict == "ask" and not self._asked:
            _log.warning("a person must decide before run %s of agent %s is claimed: %s", self.run, self.agent.name, " ".join(plan.reasons))
        self._asked = plan.verdict == "ask"
        return plan

    # Writing

    def check(self) -> None:
        """Raises where the run is not ours any more."""
        if self._lost is not None:
            raise self._lost

    def ready(self) -> None:
        """To be called before a write is put together, because that names the epoch."""
        self.check()
        self.claimed()

    def send(self, parts: tuple[str, ...], body: dict[str, Any]) -> Union[Reply, Kept]:
        """Makes a write to the run, or spools it."""
        return self.deliver(self.ask(parts, body))

    def ask(self, parts: tuple[str, ...], body: dict[str, Any]) -> Ask:
        """The request of a write to the run."""
        self.ready()
        path = "/".join([self._path, *map(_requests.segment, parts)])
        return _requests.post(path, {"epoch": self.epoch, **body}, lane=self.lane)

    def direct(self, ask: Ask) -> Reply:
        """Makes a write to the run now or not at all; raises CkptError."""
        self.check()
        try:
            reply = self.agent.sidecar._direct(ask)
        except Fenced as error:
            self._lost = error
            raise
        self.drift.read(reply)
        return reply

    def send_events(self, events: bytes) -> Union[Reply, Kept]:
        self.ready()
        ask = _requests.post(f"{self._path}/events", events, lane=self.lane)
        ask.query = _requests.query(("epoch", self.epoch))
        return self.deliver(ask)

    def deliver(self, ask: Ask) -> Union[Reply, Kept]:
        try:
            reply = self.agent.sidecar._deliver(ask)
        except Fenced as error:
            self._lost = error
            raise
        self.drift.read(reply)
        return reply

    def register(self, details: dict[str, Any]) -> None:
        """Tells the daemon more of the run, which is ours already or does not exist."""
        body = {"run": self.run, "pid": os.getpid(), "epoch": self.epoch, **self._timeouts, **details}
        self.agent.sidecar._ask(_requests.post(f"/v1/agents/{self.agent.name}/runs", body))

    def describe(self, details: dict[str, Any]) -> None:
        """Tells the daemon what the run is for, if the agent says it. The run goes on also if the daemon has just gone away."""
        if self.supervised:
            details = {**details, **self._timeouts}
        if self.epoch is None or not any(details.values()):
            return
        try:
            self.register(details)
        except CkptError as error:
            if not self._passes(error):
                raise
            _log.warning("run %s of agent %s has no description, because the daemon is away: %s", self.run, self.agent.name, error)

    def read(self, part: str, name: str, status: str, pages: int) -> tuple[list[dict[str, Any]], bool]:
        """The first pages of a list of the run's, and whether that is all of it."""
        found: list[dict[str, Any]] = []
        before = None
        for _ in range(pages):
            ask = _requests.get(f"{self._path}/{part}", ("status", status), ("before", before), ("limit", 1000))
            page = body_of(self.agent.sidecar._ask(ask))
            found.extend(page[name])
            before = page["next"]
            if before is None:
                return found, True
        return found, False

    # The heartbeat

    def beat(self) -> None:
        """Says once that the owner lives, and how far it has come."""
        if not self.claimed() or not self._delivery.reachable():
            return
        body = _requests.members({"epoch": self.epoch, "progress": self.progress})
        headers = {"Content-Type": _requests.JSON}
        ask = Ask("POST", f"{self._path}/heartbeat", "", headers, body, write=True, repeatable=True)
        self.drift.read(self.agent.sidecar._attempt(self.lane, ask, settle=False))

    def _lose(self, error: CkptError) -> None:
        self._lost = error if isinstance(error, Fenced) else None
        _log.error("the run %s of agent %s is not ours any more: %s", self.run, self.agent.name, error)

    def stop(self) -> None:
        """Ends the heartbeat."""
        self._heartbeat.stop(self._delivery.settings.deadline + 1)
