"""How a run begins: the plan of the daemon, of a supervisor, or what the spool knows."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
from typing import Any, Callable, NamedTuple, Optional, cast
from urllib.parse import unquote

from . import _requests
from .errors import AWAY, CkptError, Done, NeedsOperator, NotDone, SpoolError, Unsafe
from ._http import Reply
from .models import Checkpoint, Plan, checkpoint_of, plan_of
from ._spool import Spool
from ._spool_form import Damaged, Lane, Spooled, TooNew
from ._typed import drive, read

Check = Callable[[dict[str, Any]], Any]
"""Asked about an uncertain attempt; answers Done(result), NotDone(), or None where it cannot tell."""


_BETWEEN = "-_./:#@~ "
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


def step_name(key: str) -> str:
    """The name that the daemon gives to a step without one: its key without a counter, an id or a date at the end."""
    name = key
    while name:
        begin = max(name.rfind(c) for c in _BETWEEN) + 1
        found = _UUID.search(name)
        if found:
            begin = found.start()
        if not _is_counter(name[begin:]):
            return name.rstrip("0123456789") or name
        name = name[:begin].rstrip(_BETWEEN)
    return "step"


def _is_counter(word: str) -> bool:
    """A number, an id, or a part of a date."""
    digits = sum(c in "0123456789" for c in word)
    others = sum(c not in "0123456789TZ" for c in word)
    return not word or (digits > 0 and (others == 0 or len(word.encode()) >= 8))


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


def refuse(plan: Plan) -> None:
    """Raises where the plan does not let the run begin."""
    if plan.verdict == "ask":
        raise needs_operator(plan)
    if plan.verdict == "unsafe" or not plan.claimed:
        raise Unsafe(f"run {plan.run} of {plan.agent} cannot go on: {' '.join(plan.reasons)}", plan)


def needs_operator(plan: Plan, key: Optional[str] = None, refused: str = "") -> NeedsOperator:
    """The refusal: what, the evidence, and the command that answers. It is about the operation of a key, or the first that needs a person.

    ``refused`` is what the daemon said, for an operation that is uncertain in an earlier life of the run.
    """
    run = f"run {plan.run} of agent {plan.agent}"
    found = [o for o in plan.uncertain_operations if key in (None, o["key"])]
    asked = next((o for o in found if o.get("prompt")), found[0] if found else None)
    if asked is not None:
        what = f"Nobody knows whether operation {asked['key']} of {run} took effect: it is not repeated by itself."
        if asked.get("status") == "open":
            what = f"Operation {asked['key']} of {run} is open: its code has not said how it ended."
        began = f"Attempt {asked.get('attempt') or 1} began" + (f" at {asked['started_at']}" if asked.get("started_at") else "")
        why = f"{began}: {asked['error']}" if asked.get("error") else f"{began}, and its end was never recorded."
        command = resolve_command(plan, asked["key"])
        if plan.verdict == "offline":
            why += " Start the daemon first: ckptsidecar serve."
    elif refused:
        what = f"Operation {key} of {run} did not begin: nobody knows whether it took effect in an earlier life of the run."
        why, _, command = refused.partition(" Find out whether it took effect, then run: ")
    else:
        what = f"A person must decide how {run} goes on: the verdict is {plan.verdict}."
        why = " ".join(plan.reasons)
        answer = f" answer {short(plan.prompt['id'])} resume|reinitialize|abandon" if plan.prompt else ""
        command = f"ckptsidecar prompts{answer}"
    return NeedsOperator("\n".join([what, " ".join(why.split()), command]), plan)


def resolve_command(plan: Plan, key: str) -> str:
    """The command with which a person resolves an operation."""
    run = "" if plan.run == _requests.MAIN else f" --run {shlex.quote(plan.run)}"
    return f"ckptsidecar operation resolve {plan.agent} {shlex.quote(key)} it_did|it_did_not|repeat{run}"


def short(id: str) -> str:
    """The beginning of an id, which no other id made in another millisecond has."""
    return id[:13]


class Known(NamedTuple):
    """An operation that succeeded: its result, and who resolved it if it was in doubt."""

    result: Any
    resolved_by: Optional[str]


class Answer(NamedTuple):
    """What the agent's own code has found out about an operation."""

    key: str
    done: bool
    result: Any


def answer_of(key: str, told: Any, who: str) -> Optional[Answer]:
    """What a check or ``resolve`` has answered, None where it cannot tell."""
    if told is None:
        return None
    if isinstance(told, Done):
        return Answer(key, True, told.result)
    if isinstance(told, NotDone) or told is NotDone or told == "failed":
        return Answer(key, False, None)
    if told == "succeeded":
        return Answer(key, True, None)
    if isinstance(told, tuple):
        said = cast("tuple[Any, ...]", told)
        if len(said) == 2 and said[0] == "succeeded":
            return Answer(key, True, said[1])
    raise ValueError(f"{who} answered {told!r}: it answers Done(result), NotDone(), or None where it cannot tell")


def resolved(plan: Plan, resolve: Optional[Check]) -> list[Answer]:
    """What the agent's own code knows of the operations that are uncertain."""
    if resolve is None or plan.verdict not in ("ask", "offline"):
        return []
    asked = [o for o in plan.uncertain_operations if o.get("prompt") or not (o.get("idempotent") or o.get("check"))]
    answers = (answer_of(o["key"], resolve(o), "resolve") for o in asked)
    return [answer for answer in answers if answer is not None]


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
        {"key": key, "name": known.names.get(key) or step_name(key), "result": drive(read(json.loads(result)))}
        for key, result in known.done.items()
    ]
    plan.interrupted_steps = [{"key": key, "name": name} for key, name in known.names.items() if key not in known.done]
    plan.uncertain_operations = list(known.open.values())
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
                self.__init__()  # what comes begins anew
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
            self.names[body["key"]] = body.get("name") or step_name(body["key"])
        elif body.get("status", "succeeded") == "succeeded":
            self.done[unquote(part[1])] = json.dumps(body.get("result")).encode()
        else:
            self.names.pop(unquote(part[1]), None)

    def _operation(self, part: list[str], body: dict[str, Any], request: Spooled) -> None:
        if len(part) == 1:
            if body["key"] in self.succeeded:
                return  # it was not done again
            self.open[body["key"]] = {
                "key": body["key"], "name": body["name"], "status": "uncertain", "args": body.get("args"),
                "idempotent": bool(body.get("idempotent")), "check": bool(body.get("check")), "started_at": request.created_at, "error": None,
            }  # fmt: skip
            if body.get("state") is not None:
                state = _json(body["state"])
                self.checkpoint = Checkpoint(
                    "", request.agent, request.run, "pre_operation", created_at=request.created_at, size=len(state),
                    state_bytes=state,
                )  # fmt: skip
            return
        key = unquote(part[1])
        if part[2] == "doubt":
            self.open.setdefault(key, {"key": key, "name": key, "status": "uncertain", "idempotent": False, "check": False})["error"] = body.get("error")
            return
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
