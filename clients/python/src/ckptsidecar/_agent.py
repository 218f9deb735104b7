"""One agent: saving, restoring, looking, and the way to its runs."""

from __future__ import annotations

import functools
from typing import Any, Callable, Iterator, Mapping, Optional

from . import _files, _requests
from ._base_cache import saver
from ._autosave import Autosave
from ._delivery import Kept
from ._drift import Drift, drift_of
from ._encode import Encoded, dumps
from .errors import NotFound
from ._ids import new_id
from ._plans import exec_run, usual_run
from ._run import Run
from ._transport import Ask
from ._types import Caller
from .models import Checkpoint, Diff, Files, Saved, body_of, checkpoint_of, saved_of, with_state


class Agent:
    """An agent of this user, by its name.

    Where no run is named, a call is about the run for which ``ckptsidecar exec`` has started this process for the
    agent, else about ``main``. Without exec, ``restore`` takes the newest run if there is no ``main``. ``latest`` and ``list``
    are about all runs.
    """

    def __init__(self, sidecar: Caller, name: str) -> None:
        self.sidecar = sidecar
        self.name = _requests.check_agent(name)
        self._path = f"/v1/agents/{self.name}"

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    def save(
        self,
        state: Any,
        *,
        kind: str = "routine",
        run: Optional[str] = None,
        epoch: Optional[int] = None,
        parent: Optional[str] = None,
        fork_from: Optional[str] = None,
        step: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        metadata: Optional[Mapping[str, Any]] = None,
        program: Optional[Mapping[str, Any]] = None,
        content_type: Optional[str] = None,
        allow_empty: bool = False,
        id: Optional[str] = None,
        files: Optional[_files.Folder] = None,
    ) -> Saved:
        """Saves a state and returns when it is on disk.

        Bytes are saved as they are, of the ``content_type`` that is named; anything else as JSON, see
        ``dumps`` (the result of which is taken as well): what of it was dropped or simplified is in
        the answer. No bytes at all raise ValueError unless ``allow_empty`` is true. ``kind`` is routine, pre_operation or recovery. The ``id`` is made here; who wants to
        repeat a save gives it. ``files`` is a folder whose files are kept with the checkpoint, see docs/FILES.md:
        it needs the program ckptsidecar on the PATH. The answer's ``files`` says what became of them; the state is
        saved in any case.
        """
        run = _requests.check_run(usual_run(self.name) if run is None else run)
        program_of_files = _files.program() if files is not None else ""
        encoded = self.encode(state)
        if not encoded.data and not allow_empty:
            raise ValueError("the state is empty, so nothing was saved: to save an empty state, say allow_empty=True")
        content_type = content_type or encoded.content_type
        ask = _requests.save(
            self.name, _requests.check_id(id) if id else new_id(), encoded.data, kind=kind, content_type=content_type,
            run=run, epoch=epoch, parent=parent, fork_from=fork_from, step=step, labels=labels, metadata=metadata,
            program=program,
        )  # fmt: skip
        delta = saver(self.sidecar._acked, ask) if self.sidecar._acked is not None else None
        reply = self.sidecar._deliver(ask)
        if isinstance(reply, Kept):
            saved = Saved(ask.id, self.name, run, kind, size=len(encoded.data), content_type=content_type)
            saved.labels, saved.metadata = dict(labels or {}), dict(metadata or {})
            saved.spooled, saved.lost = reply.dropped is None, reply.dropped is not None
            saved.why = reply.dropped or reply.reason
        else:
            saved = saved_of(body_of(reply), reply.replayed)
            if delta is not None:
                delta.done(saved.id, saved.sha256)
        saved.dropped, saved.simplified = encoded.dropped, encoded.simplified
        if files is not None:
            if saved.spooled or saved.lost:
                saved.files = Files(error="the daemon is away: the checkpoint has no files")
            else:
                endpoint = self.sidecar._delivery.link.endpoint
                saved.files = _files.attach(
                    program_of_files, files, saved.id, agent=self.name, run=run, epoch=epoch, endpoint=endpoint
                )
        return saved

    def encode(self, state: Any) -> Encoded:
        """The saved form of a state: bytes unchanged, anything else as JSON."""
        if isinstance(state, Encoded):
            return state
        if type(state) is bytes:
            return Encoded(state, [], [], _requests.BYTES)
        return dumps(state, default=self.sidecar._default, refuse=self.sidecar._refuse)

    def restore(
        self,
        checkpoint: Optional[str] = None,
        *,
        kind: Optional[str] = None,
        clean: bool = False,
        run: Optional[str] = None,
        reason: str = "",
    ) -> Checkpoint:
        """Goes back to a checkpoint: the newest that matches, or the one named. The audit log records who and why.

        Nothing is removed: the run's next save has it as its parent. Raises NotFound where there is none.
        """
        if checkpoint is None and run is None:
            run = exec_run(self.name)
        body = {
            "checkpoint": _requests.check_id(checkpoint) if checkpoint else None,
            "kind": kind, "clean": clean or None, "run": run, "reason": reason or None,
        }  # fmt: skip
        self._settled(run)
        return with_state(self.sidecar._ask(_requests.post(f"{self._path}/restore", body)))

    def latest(
        self, *, run: Optional[str] = None, kind: Optional[str] = None, clean: bool = False, state: bool = True
    ) -> Optional[Checkpoint]:
        """The newest checkpoint, or None. Nothing is recorded or changed."""
        self._settled(run)
        pairs = [("run", run), ("kind", kind), ("clean", clean or None), ("state", None if state else False)]
        try:
            return with_state(self.sidecar._ask(_requests.get(f"{self._path}/checkpoints/latest", *pairs)))
        except NotFound:
            return None

    def _settled(self, run: Optional[str]) -> None:
        """Sends the waiting writes of a run first, or the answer would be old."""
        self.sidecar._delivery.settle((self.name, run or usual_run(self.name)))

    def get(self, checkpoint: str, *, state: bool = True) -> Checkpoint:
        """Reads a checkpoint by its id."""
        return self.sidecar.checkpoint(checkpoint, state=state)

    def list(
        self,
        *,
        run: Optional[str] = None,
        kind: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        suspect: Optional[bool] = None,
        limit: Optional[int] = None,
    ) -> Iterator[Checkpoint]:
        """The checkpoints, newest first, without states. Without a limit, all of them."""
        pairs: list[tuple[str, Any]] = [("run", run), ("kind", kind), ("suspect", suspect)]
        pairs.extend(("label", f"{key}={value}") for key, value in sorted((labels or {}).items()))
        for raw in self.sidecar._pages(f"{self._path}/checkpoints", "checkpoints", *pairs, limit=limit):
            yield checkpoint_of(raw)

    def diff(self, a: str, b: str) -> Diff:
        """The difference between the states of two checkpoints."""
        return self.sidecar.diff(a, b)

    def policy(self) -> dict[str, Any]:
        """The agent's settings: retention, drift, secrets, monitor."""
        return self.sidecar._dict(_requests.get(f"{self._path}/policy"))

    def policy_layers(self) -> dict[str, Any]:
        """The settings in ``policy``, where each comes from in ``from``, and what the agent, its owner for
        all agents and the daemon have set."""
        return self.sidecar._dict(_requests.get(f"{self._path}/policy", ("layers", "true")))

    def set_policy(self, **settings: Any) -> dict[str, Any]:
        """Changes some of the agent's own settings, for example ``routine_keep=10``; None sets one no more, so
        that what is set for all agents or the default counts. Answers what then counts."""
        try:
            settings = {**self.policy_layers()["agent"], **settings}
        except NotFound:
            pass
        settings = {key: value for key, value in settings.items() if value is not None}
        ask = _requests.post(f"{self._path}/policy", settings)
        ask.method, ask.headers = "PUT", {"Content-Type": _requests.JSON}
        return self.sidecar._dict(ask)

    def drift(self, *, run: Optional[str] = None) -> Drift:
        """Asks the daemon for the verdict on a run's drift, with all findings that are open.

        The verdict of an agent or a run that the daemon does not know yet is ``none``.
        """
        try:
            return drift_of(self.sidecar._dict(_requests.get(f"{self._path}/drift", ("run", run or exec_run(self.name)))))
        except NotFound:
            return Drift()

    def erase(self) -> dict[str, Any]:
        """Erases the agent and everything that belongs to it, for good."""
        return self.sidecar._dict(Ask("DELETE", self._path, write=True))

    def delete_run(self, run: str, *, force: bool = False) -> dict[str, Any]:
        """Removes a run with everything in it, unless its owner is alive or something in it waits; see the CLI."""
        path, query = f"{self._path}/runs/{_requests.check_life(run)}", _requests.query(("force", force or None))
        return self.sidecar._dict(Ask("DELETE", path, query, write=True))

    def clear(self, run: Optional[str] = None) -> dict[str, Any]:
        """Removes the checkpoints of a run that are not pinned and that nothing needs."""
        run = usual_run(self.name) if run is None else run
        path = f"{self._path}/runs/{_requests.check_life(run)}/checkpoints"
        return self.sidecar._dict(Ask("DELETE", path, write=True))

    def fork(self, checkpoint: str, state: Any, *, run: str, agent: Optional[str] = None) -> Saved:
        """Starts a new run with an edited state of a checkpoint, which is the parent of the run's first checkpoint.

        Raises Conflict where the run is there already. In another ``agent`` it has no parent; its metadata say where it came from.
        """
        begun = self.sidecar.checkpoint(checkpoint, state=False)
        to = Agent(self.sidecar, agent or self.name)
        metadata = {"fork": {"checkpoint": begun.id, "agent": begun.agent, "run": begun.run, "seq": begun.seq}}
        return to.save(state, run=run, fork_from=begun.id, metadata=metadata, program=begun.program)

    def runs(self, **find: Any) -> Iterator[dict[str, Any]]:
        """The agent's runs, the last changed first; see ``Sidecar.runs`` for the filters."""
        return self.sidecar._pages(f"{self._path}/runs", "runs", *_requests.finding(find))

    def run(self, name: Optional[str] = None, **options: Any) -> Run:
        """A run, to be used with ``with``: see Run."""
        return Run(self, name, **options)

    def autosave(
        self,
        state: Callable[[], Any],
        *,
        every: float = 900.0,
        refresh_after: float = 7200.0,
        run: Optional[str] = None,
    ) -> Autosave:
        """Saves the result of ``state()`` at an interval, in the background: see Autosave."""
        return Autosave(functools.partial(self.save, run=run), self.encode, state, every, refresh_after)
