"""The client: one connection to the daemon, and what belongs to no single agent."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Any, Iterator, Mapping, Optional, Union

from . import _requests
from ._base_cache import AckedStates
from ._agent import Agent
from ._delivery import Delivery, Kept, Settings
from ._encode import Default
from ._endpoint import spool_folder
from ._http import Reply
from ._transport import Ask, Link
from .models import Checkpoint, Diff, body_of, checkpoint_of, with_state
from ._replay import Replayed
from ._spool import Spool
from ._spool_form import Lane
from ._json import object_of

DEFAULT_SPOOL_BYTES = 1 << 30


class Sidecar:
    """A client of the daemon. It is safe for concurrent use; requests go out in order.

    ``socket``: where the daemon listens. Without ``socket`` the endpoint is the one that ``CKPTSIDECAR_SOCKET`` names. An endpoint
    that is named is the only one tried. Otherwise the user's own endpoint is tried, then the system's, and the client stays with the first that answers.

    ``deadline``: seconds that a call waits for a daemon that is away, busy or silent. After it, what
    changes a run goes to the spool and the agent goes on (``fail_open``), or raises; reads raise.

    ``timeout``: seconds that one answer may take where there is no way around it.

    ``spool``: the folder; without it ``CKPTSIDECAR_SPOOL`` or the usual place of this user.
    ``spool_bytes``: what it may hold. ``on_spool_error``: "raise", or "drop" to lose the write, say so in
    the log, and answer ``lost``.

    ``autostart``: where no daemon answers, start the user's own (``ckptsidecar serve`` on the PATH).

    ``default`` and ``refuse``: for values that are not JSON, see ``dumps``.

    ``send``: of a large state "changes" sends only what changed since the last one, "whole" all of it;
    "auto" measures now and then which of them is faster here.

    ``owner``: whose agents calls are about, for administrators.
    """

    def __init__(
        self,
        socket: Optional[str] = None,
        *,
        deadline: float = 5.0,
        timeout: float = 60.0,
        fail_open: bool = True,
        spool: Optional[str] = None,
        spool_bytes: int = DEFAULT_SPOOL_BYTES,
        on_spool_error: str = "raise",
        autostart: bool = False,
        default: Optional[Default] = None,
        refuse: bool = False,
        send: str = "auto",
        owner: Optional[str] = None,
    ) -> None:
        if on_spool_error not in ("raise", "drop"):
            raise ValueError(f'on_spool_error is {on_spool_error!r}: say "raise" or "drop"')
        if send not in ("auto", "changes", "whole"):
            raise ValueError(f'send is {send!r}: say "auto", "changes" or "whole"')
        if deadline < 0 or timeout <= 0:
            raise ValueError("deadline and timeout are in seconds and must be more than 0")
        self._delivery = Delivery(
            Link(socket, autostart),
            Spool(spool_folder(spool), spool_bytes),
            Settings(deadline, timeout, fail_open, on_spool_error),
        )
        self._acked: Optional[AckedStates] = None if send == "whole" else AckedStates(send)
        self._default = default
        self._refuse = refuse
        self._owner = owner

    def agent(self, name: str) -> Agent:
        """The agent of this name. Its first save creates it."""
        return Agent(self, name)

    # What is asked by id

    def checkpoint(self, id: str, *, state: bool = True) -> Checkpoint:
        """Reads a checkpoint."""
        path = f"/v1/checkpoints/{_requests.check_id(id)}"
        return with_state(self._ask(_requests.get(path, ("state", None if state else False))))

    def diff(self, a: str, b: str) -> Diff:
        """Compares the states of two checkpoints."""
        raw = self._json(_requests.get(f"/v1/checkpoints/{_requests.check_id(a)}/diff/{_requests.check_id(b)}"))
        return Diff(raw["patch"], raw["summary"])

    def change(
        self, id: str, *, labels: Optional[Mapping[str, str]] = None, pinned: Optional[bool] = None
    ) -> Checkpoint:
        """Changes the labels (all of them) or the pin of a checkpoint."""
        body = _requests.members({"labels": None if labels is None else dict(labels), "pinned": pinned})
        path, headers = f"/v1/checkpoints/{_requests.check_id(id)}", {"Content-Type": _requests.JSON}
        ask = Ask("PATCH", path, "", headers, body, write=True, repeatable=True)
        return checkpoint_of(self._json(ask))

    def delete(self, id: str) -> None:
        """Removes a checkpoint."""
        self._ask(Ask("DELETE", f"/v1/checkpoints/{_requests.check_id(id)}", write=True))

    # The daemon

    def status(self) -> dict[str, Any]:
        """The daemon's status."""
        return self._dict(_requests.get("/v1/status"))

    def version(self) -> dict[str, Any]:
        """The daemon's version."""
        return self._dict(_requests.get("/v1/version"))

    def agents(self) -> Iterator[dict[str, Any]]:
        """The agents of this user."""
        return self._pages("/v1/agents", "agents")

    def runs(self, **find: Any) -> Iterator[dict[str, Any]]:
        """The runs of all agents, the last changed first. ``status``, ``workflow``, ``labels`` (a dict), ``goal``
        (words that it has; ``deploy*`` is the beginning of one), ``since`` and ``until`` (of their start),
        ``severity`` (of a finding that nobody has dismissed, or a worse one) and ``agent`` find some of them;
        ``sort="started"`` is an order in which no change moves them; ``lives=True`` lists the earlier lives of runs too,
        such as ``main~1``."""
        return self._pages("/v1/runs", "runs", *_requests.finding(find))

    def policy_for_all(self) -> dict[str, Any]:
        """What counts for this user's agents that have set nothing themselves; see Agent.policy_layers."""
        return self._dict(_requests.get("/v1/policy"))

    def set_policy_for_all(self, **settings: Any) -> dict[str, Any]:
        """Changes some of the settings for all of this user's agents; None sets one no more. What an agent sets
        itself goes over them."""
        settings = {**self.policy_for_all()["owner"], **settings}
        ask = _requests.post("/v1/policy", {key: value for key, value in settings.items() if value is not None})
        ask.method, ask.headers = "PUT", {"Content-Type": _requests.JSON}
        return self._dict(ask)

    def prompts(self, *, open: bool = False) -> Iterator[dict[str, Any]]:
        """Questions to people, newest first."""
        return self._pages("/v1/prompts", "prompts", ("open", open or None))

    def prompt(self, id: str) -> dict[str, Any]:
        """Reads one question."""
        return self._dict(_requests.get(f"/v1/prompts/{_requests.check_id(id)}"))

    def answer(
        self, prompt: str, choice: Optional[str] = None, *, data: Any = None, reason: str = ""
    ) -> dict[str, Any]:
        """Answers a question: how to go on with a run ("resume", "reinitialize" or "abandon"), or what a run asked.

        The same answer again changes nothing; another one raises Conflict.
        """
        body = {"choice": choice, "data": _requests.value_json(data), "reason": reason or None}
        return self._dict(_requests.post(f"/v1/prompts/{_requests.check_id(prompt)}/answer", body))

    def dismiss(self, finding: str, *, reason: str = "") -> dict[str, Any]:
        """Says that a finding was wrong, or has been dealt with."""
        path = f"/v1/findings/{_requests.check_id(finding)}/dismiss"
        return self._dict(_requests.post(path, {"reason": reason or None}))

    def request(
        self, method: str, path: str, *, query: Optional[Mapping[str, Any]] = None, json_body: Any = None
    ) -> Any:
        """Makes any other call of the HTTP API, with a JSON body, and returns the JSON answer."""
        body = b"" if json_body is None else json.dumps(json_body, allow_nan=False).encode()
        headers = {"Content-Type": _requests.JSON} if body else {}
        told = _requests.query(*(query or {}).items())
        ask = Ask(method, path, told, headers, body, method != "GET", repeatable=method == "GET")
        reply = self._ask(ask)
        return body_of(reply) if reply.body else None

    # The spool

    def replay(self) -> Replayed:
        """Sends all waiting writes in the spool, of any agent; raises CkptError if no daemon answers."""
        return self._delivery.replay()

    @property
    def spooled(self) -> int:
        """How many writes wait in the spool."""
        return len(self._delivery.spool.waiting())

    # Its own life

    @property
    def endpoint(self) -> str:
        """The daemon's endpoint, "" before one was found."""
        return self._delivery.link.endpoint

    def close(self) -> None:
        """Sends the spooled writes, if the daemon answers, and closes the connection. The client may be used again."""
        self._delivery.close(flush=True)

    def __enter__(self) -> "Sidecar":
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    # For this package

    def _deliver(self, ask: Ask) -> Union[Reply, Kept]:
        return self._delivery.deliver(self._owned(ask))

    def _direct(self, ask: Ask) -> Reply:
        """Makes a request of a run now or not at all."""
        return self._delivery.direct(self._owned(ask))

    def _attempt(self, lane: Lane, ask: Ask, settle: bool = True) -> Reply:
        """Makes a request about a run once. It is never spooled."""
        return self._delivery.attempt(lane, self._owned(ask), settle)

    def _owned(self, ask: Ask) -> Ask:
        if self._owner is not None:
            owner = _requests.query(("owner", self._owner))
            ask.query = f"{ask.query}&{owner}" if ask.query else owner
        return ask

    def _ask(self, ask: Ask) -> Reply:
        """Makes a request that is never spooled."""
        ask.id = ""
        reply = self._deliver(ask)
        assert isinstance(reply, Reply)
        return reply

    def _json(self, ask: Ask) -> Any:
        return body_of(self._ask(ask))

    def _dict(self, ask: Ask) -> dict[str, Any]:
        return object_of(self._json(ask))

    def _pages(
        self, path: str, name: str, *pairs: tuple[str, Any], limit: Optional[int] = None
    ) -> Iterator[dict[str, Any]]:
        """The items of all pages, at most limit."""
        before, left = None, limit
        while left is None or left > 0:
            size = None if left is None else min(left, 1000)
            page = self._json(_requests.get(path, *pairs, ("before", before), ("limit", size)))
            yield from page[name]
            before = page["next"]
            if left is not None:
                left -= len(page[name])
            if before is None:
                return


_shared: Optional[Sidecar] = None
_shared_lock = threading.Lock()


def agent(name: str) -> Agent:
    """The agent of this name, over the process's shared client with default settings."""
    global _shared
    with _shared_lock:
        if _shared is None:
            _shared = Sidecar()
        return _shared.agent(name)
