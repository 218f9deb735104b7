"""Something that is read and changed as a whole, such as a conversation."""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
import time
from collections import OrderedDict
from typing import Any, Callable, Iterator, Mapping, Optional

from . import _requests
from ._agent import Agent
from ._encode import Encoded
from .errors import CkptError, Conflict, Fenced, NotFound
from .models import Checkpoint, body_of, plan_of
from ._plans import is_away, refuse
from ._transport import Ask
from ._json import is_object

_TRIES = 50  # to write, while others do
_FIRST_PAUSE, _MOST_PAUSE = 0.02, 1.0  # seconds
_MOST_OPEN = 64  # documents of a shelf that are remembered between two changes

Work = Callable[[Any], Any]


class Form:
    """How the content of documents is read and written; None is the content where nothing was saved."""

    def read(self, saved: Checkpoint) -> Any:
        """The content of a checkpoint."""
        return saved.state

    def write(self, content: Any) -> Encoded:
        """The state that is saved."""
        raise NotImplementedError

    def metadata(self, content: Any) -> Optional[Mapping[str, Any]]:
        """What is kept beside the content, and is listed without it."""
        return None


class Document:
    """One run, whose newest checkpoint is its content.

    Any number of processes may change it: each claims the run for its changes, and one that was overtaken
    reads again and makes its change again. A run that has ended is an empty document. It is safe for
    concurrent use.
    """

    def __init__(self, agent: Agent, run: str, about: Mapping[str, Any], form: Form) -> None:
        self._agent = agent
        self._run = _requests.check_run(run)
        self._about = about
        self._form = form
        self._path = f"/v1/agents/{agent.name}/runs/{self._run}"
        self._epoch: Optional[int] = None
        self._content: Any = None
        self._lock = threading.Lock()

    def read(self) -> Any:
        """What it holds, with what other processes have written. While the daemon is away it is what was last written here."""
        with self._lock:
            try:
                return self._newest() if self._begun() else None
            except CkptError as error:
                if self._epoch is None or not is_away(error):
                    raise
                return self._content

    def change(self, work: Work) -> None:
        """Changes it: ``work`` answers the new content, None to leave it, or raises. It may be asked more than once."""
        with self._lock:
            refused: list[BaseException] = []

            def once(known: bool) -> None:
                refused.clear()
                try:
                    content = work(self._content)
                except Exception as error:
                    refused.append(error)
                    content = None
                if content is None:
                    if known:
                        self._verify()
                    return
                state, metadata = self._form.write(content), self._form.metadata(content)
                self._agent.save(state, run=self._run, epoch=self._epoch, metadata=metadata)
                self._content = content

            self._insist(once)
            if refused:
                raise refused[0]

    def remove(self) -> None:
        """Ends the run and removes its checkpoints. A change after it begins anew."""
        with self._lock:
            ids = [c.id for c in self._listed()]

            def end(_: bool) -> None:
                ids[:] = [c.id for c in self._listed()]  # and none after them: who saves must claim the run first
                body = {"epoch": self._epoch, "status": "completed"}
                self._agent.sidecar._ask(_requests.post(f"{self._path}/end", body))

            if self._begun():
                self._insist(end)
            self._epoch = self._content = None
            for id in ids:
                try:
                    self._agent.sidecar._ask(Ask("DELETE", f"/v1/checkpoints/{id}", write=True))
                except NotFound:
                    pass

    def _insist(self, work: Callable[[bool], None]) -> None:
        """Does something as the run's owner, again where another has become it."""
        pause = _FIRST_PAUSE
        for n in range(1, _TRIES + 1):
            known = self._epoch is not None
            try:
                if not known:
                    self._claim()
                return work(known)
            except CkptError as error:
                self._epoch = None  # whatever it was: what the daemon has is not known any more
                if n == _TRIES or not isinstance(error, Conflict):  # a fence is one
                    raise
            time.sleep(random.random() * pause)
            pause = min(pause * 1.5, _MOST_PAUSE)

    def _claim(self) -> None:
        self._prepare()
        self._agent._settled(self._run)
        never = {"heartbeat_timeout": "0s", "progress_timeout": "0s"}
        plan = plan_of(self._agent.sidecar._ask(_requests.post(f"{self._path}/resume", never)))
        refuse(plan)
        if plan.verdict == "fresh":
            body = {"run": self._run, **never, **self._about}
            self._agent.sidecar._ask(_requests.post(f"/v1/agents/{self._agent.name}/runs", body_json(body)))
            self._content = None
        else:
            self._content = self._newest()
        self._epoch = plan.epoch

    def _prepare(self) -> None:
        """A new agent is not watched for drift: a history that is cut or rewritten is none here."""
        try:
            self._agent.policy()
        except NotFound:
            self._agent.set_policy(sensitivity="off")

    def _verify(self) -> None:
        """Raises where another has become the owner, so that what is known here may be old. A daemon that is away cannot say so."""
        try:
            run = self._info()
        except CkptError as error:
            if is_away(error):
                return
            raise
        if run is None or run["epoch"] != self._epoch or run["ended_at"] is not None:
            raise Fenced(f"run {self._run} has another owner")

    def _begun(self) -> bool:
        run = self._info()
        return run is not None and run["ended_at"] is None and run["status"] != "starting"

    def _info(self) -> Optional[dict[str, Any]]:
        self._agent._settled(self._run)
        try:
            raw = body_of(self._agent.sidecar._ask(_requests.get(self._path)))
        except NotFound:
            return None
        return raw if is_object(raw) else None

    def _newest(self) -> Any:
        found = self._agent.latest(run=self._run, kind="routine")
        return None if found is None else self._form.read(found)

    def _listed(self) -> Iterator[Checkpoint]:
        try:
            yield from self._agent.list(run=self._run)
        except NotFound:
            return


class Shelf:
    """The documents of a kind that this process has open. It is safe for concurrent use."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._open: OrderedDict[str, Document] = OrderedDict()
        self._lock = threading.Lock()

    def document(self, run: str, about: Mapping[str, Any], form: Form) -> Document:
        """A document by the name of its run."""
        with self._lock:
            found = self._open.pop(run, None) or Document(self.agent, run, about, form)
            self._open[run] = found
            if len(self._open) > _MOST_OPEN:
                self._open.popitem(last=False)
            return found

    def runs(self) -> Iterator[dict[str, Any]]:
        """The runs that hold something, the last changed first."""
        try:
            for run in self.agent.runs():
                if run["ended_at"] is None and run["status"] != "starting":
                    yield run
        except NotFound:
            return


def run_name(readable: str, *key: str) -> str:
    """A name of a run that people can read, another one for each key; as the TypeScript client makes it."""
    text = re.sub(r"^[^A-Za-z0-9]+", "", re.sub(r"[^A-Za-z0-9._:@+-]", "_", readable))[:100]
    told = json.dumps(key, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(told).hexdigest()[:16]
    return f"{text}-{digest}" if text else digest


def body_json(members: Mapping[str, Any]) -> bytes:
    """A JSON object of the members that have a value."""
    return json.dumps({k: v for k, v in members.items() if v is not None}, ensure_ascii=True).encode()
