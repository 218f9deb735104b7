"""How a run begins: the plan of the daemon, of a supervisor, or what the spool knows."""

from __future__ import annotations

import base64
import json
import os
from typing import Any, Callable, NamedTuple, Optional, Union
from urllib.parse import unquote

from . import _requests
from .errors import AWAY, CkptError, NeedsOperator, SpoolError, Unsafe
from ._http import Reply
from .models import Checkpoint, Plan, checkpoint_of, plan_of
from ._spool import Spool
from ._spool_form import Damaged, Lane, Spooled, TooNew
from ._typed import drive, read

Resolve = Callable[[dict[str, Any]], Union[str, tuple[str, Any], None]]


def exec_run(agent: str) -> Optional[str]:
    """The run of an agent for which ``ckptsidecar exec`` has started this process, None without exec."""
    return os.environ.get("CKPTSIDECAR_RUN") or None if os.environ.get("CKPTSIDECAR_AGENT") == agent else None


def usual_run(agent: str) -> str:
    """The run of an agent where none is named: the one of exec, or main."""
    return exec_run(agent) or _requests.MAIN


def supervised(lane: Lane) -> Optional[Plan]:
    """The plan that ``ckptsidecar exec`` has handed over, None where there is none for this run."""
    env = os.environ
    file = env.get("CKPTSIDECAR_PLAN", "")
    if not file or lane != (env.get("CKPTSIDECAR_AGENT"), usual_run(lane[0])):
        return None
    try:
        with open(file, encoding="utf-8") as handed:
            raw = json.load(handed)
        plan = _plan_from(raw)
    except (OSError, ValueError, TypeError, KeyError):
        return None  # it is gone, or of another version
    if str(plan.epoch) != env.get("CKPTSIDECAR_EPOCH"):
        return None
    return plan if _take(file, plan.epoch) else None


def _take(file: str, epoch: Optional[int]) -> bool:
    """Whether nobody has begun with a plan yet.

    It leaves a file beside that of the plan, which the supervisor removes: a later run of this process, and every other
    process of the command, must claim the run itself.
    """
    try:
        os.close(os.open(f"{file}.taken-{epoch}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError:
        return False
    return True


def _plan_from(raw: dict[str, Any]) -> Plan:
    checkpoint = raw.get("checkpoint")
    plan = plan_of(Reply(200, {}, json.dumps({**raw, "checkpoint": None}).encode()))
    if checkpoint is not None:
        if "state_base64" in checkpoint:
            state: Optional[bytes] = base64.b64decode(checkpoint["state_base64"])
        else:
            state = _json(checkpoint.get("state"))
        plan.checkpoint = checkpoint_of(checkpoint, state)
    return plan


def _json(state: Any) -> bytes:
    return json.dumps(state, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _named(operation: dict[str, Any]) -> str:
    key, name = repr(operation["key"]), operation.get("name")
    return key if name in (None, "", operation["key"]) else f"{name} ({key})"


def refuse(plan: Plan, *, offline: bool = False) -> None:
    """Raises where the plan does not let the run begin. ``offline``: the plan came from the spool."""
    told = " ".join(plan.reasons)
    if plan.verdict == "ask":
        names = ", ".join(_named(o) for o in plan.uncertain_operations)
        run = "" if plan.run == _requests.MAIN else f" --run {plan.run}"
        if offline:
            hint = (
                f"find out whether {names} took effect, and start the daemon. Then ckptsidecar resume {plan.agent}{run} sends what waits "
                "in the spool and says how to record what you have found out. Or use the argument resolve of run()"
            )
        elif names:
            hint = (
                f"find out whether {names} took effect and say so: "
                f"ckptsidecar operation resolve {plan.agent} KEY succeeded|failed{run}, or the argument resolve of run()"
            )
        else:
            hint = "answer the prompt: ckptsidecar prompts"
        raise NeedsOperator(
            f"a person must decide before run {plan.run} of {plan.agent} continues: {told} To do: {hint}", plan
        )
    if plan.verdict == "unsafe" or not plan.claimed:
        raise Unsafe(f"run {plan.run} of {plan.agent} cannot go on: {told}", plan)


class Answer(NamedTuple):
    """What the agent itself has found out of an operation."""

    key: str
    status: str
    result: Any


def resolved(plan: Plan, resolve: Optional[Resolve]) -> list[Answer]:
    """What the agent itself knows of the operations that are uncertain."""
    if plan.verdict != "ask" or resolve is None:
        return []
    answers = []
    for operation in plan.uncertain_operations:
        told = resolve(operation)
        if told is None:
            continue
        status, result = told if isinstance(told, tuple) else (told, None)
        if status not in ("succeeded", "failed"):
            raise ValueError(
                f'resolve answered {told!r}: it answers "succeeded", "failed", ("succeeded", result), '
                "or None where it does not know"
            )
        answers.append(Answer(operation["key"], status, result))
    return answers


def from_spool(spool: Spool, lane: Lane, why: CkptError) -> tuple[Plan, dict[str, bytes], dict[str, Any]]:
    """What the spool knows of a run whose daemon is away: a plan, and what the steps and operations that succeeded gave."""
    reason = f"The daemon is away ({why.message}), so only what lies in the spool is known."
    plan = Plan("offline", [reason], *lane, None)
    known = _Known()
    names: list[str] = []
    try:
        spool.check()
        names = spool.waiting(lane)
    except (SpoolError, OSError) as error:
        unread = error.message if isinstance(error, SpoolError) else error
        plan.reasons.append(f"It is not known what the spool has of this run, so it starts from the beginning: {unread}.")
    for name in names:
        try:
            known.learn(spool.read(name))
        except (Damaged, TooNew, OSError, ValueError):
            plan.skipped.append({"id": name, "seq": 0, "reason": "this file of the spool cannot be read"})
    plan.checkpoint = known.checkpoint
    plan.completed_steps = [
        {"key": key, "name": known.names.get(key, key), "result": drive(read(json.loads(result)))}
        for key, result in known.done.items()
    ]
    plan.interrupted_steps = [{"key": key, "name": name} for key, name in known.names.items() if key not in known.done]
    plan.uncertain_operations = list(known.open.values())
    if plan.uncertain_operations:
        plan.verdict = "ask"
    return plan, known.done, known.succeeded


class _Known:
    """What the requests of a run tell, one after the other."""

    def __init__(self) -> None:
        self.checkpoint: Optional[Checkpoint] = None
        self.done: dict[str, bytes] = {}
        self.names: dict[str, str] = {}
        self.open: dict[str, dict[str, Any]] = {}
        self.succeeded: dict[str, Any] = {}  # the results of operations

    def learn(self, request: Spooled) -> None:
        if request.method == "PUT":
            self._saved(request)
            return
        part = request.path.split("/runs/", 1)[1].split("/")[1:]
        if part == ["end"]:
            if json.loads(request.body).get("status") in ("completed", "failed"):
                self.__init__()  # type: ignore[misc]  # what comes begins anew
        elif part[0] == "steps":
            self._step(part, json.loads(request.body))
        elif part[0] == "operations":
            self._operation(part, json.loads(request.body), request)

    def _saved(self, request: Spooled) -> None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        program = json.loads(headers["ckpt-program"]) if "ckpt-program" in headers else None
        self.checkpoint = Checkpoint(
            request.path.rsplit("/", 1)[1], request.agent, request.run, "routine", created_at=request.created_at,
            size=len(request.body), content_type=headers.get("content-type", _requests.BYTES), program=program,
            state_bytes=request.body,
        )  # fmt: skip

    def _step(self, part: list[str], body: dict[str, Any]) -> None:
        if len(part) == 1:
            self.names[body["key"]] = body["name"]
        elif body.get("status", "succeeded") == "succeeded":
            self.done[unquote(part[1])] = json.dumps(body.get("result")).encode()
        else:
            self.names.pop(unquote(part[1]), None)

    def _operation(self, part: list[str], body: dict[str, Any], request: Spooled) -> None:
        if len(part) == 1:
            if body["key"] in self.succeeded:
                return  # it was not done again
            self.open[body["key"]] = {"key": body["key"], "name": body["name"], "status": "uncertain"}
            if body.get("state") is not None:
                state = _json(body["state"])
                self.checkpoint = Checkpoint(
                    "", request.agent, request.run, "pre_operation", created_at=request.created_at, size=len(state),
                    state_bytes=state,
                )  # fmt: skip
            return
        key = unquote(part[1])
        self.open.pop(key, None)
        if part[2] == "succeed":
            self.succeeded[key] = drive(read(body.get("result")))


def is_away(error: CkptError) -> bool:
    """Whether an error says that the daemon cannot be had now."""
    return error.code in AWAY


def error_text(error: BaseException) -> str:
    """An exception in words that the daemon takes."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.encode("utf-8", "replace")[:4096].decode("utf-8", "ignore")
