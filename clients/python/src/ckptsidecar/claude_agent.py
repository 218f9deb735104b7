"""A ``SessionStore`` of the Claude Agent SDK for Python: transcripts that survive their machine's files.

::

    from ckptsidecar.claude_agent import SidecarSessionStore

    options = ClaudeAgentOptions(session_store=SidecarSessionStore())

It has the methods of the SDK's ``SessionStore`` protocol, and imports nothing of the SDK, but its
``fold_session_summary`` at the first append, where that is installed. Transcripts are saved as the TypeScript
store saves them: both read those of the other.
"""

from __future__ import annotations

import copy
import datetime
import importlib
import json
from typing import Any, Callable, Mapping, Optional

from ._aio import AsyncSidecar
from ._client import Sidecar
from ._document import Document, Form, Shelf, run_name
from ._encode import Encoded
from .errors import Invalid
from .models import Checkpoint
from ._json import is_array, is_object, is_text

Key = Mapping[str, str]  # the SDK's SessionKey: project_key, session_id, and for a subagent subpath
Entry = dict[str, Any]  # the SDK's SessionStoreEntry
Fold = Callable[[Any, Any, list[Entry]], Mapping[str, Any]]

_SUMMARY = "session_summary_python"  # in the metadata; the TypeScript SDK's summaries have another form
_MOST_SUMMARY = 16 * 1024  # bytes; the SDK reads the transcript where there is none


class SidecarSessionStore:
    """A store of transcripts. Each is a run of the agent, and each append a checkpoint.

    What ``append`` has answered is on disk. An entry whose ``uuid`` is there already is left out.
    ``fold_session_summary`` is the SDK's function of that name, otherwise that of the SDK that is installed.
    """

    def __init__(
        self,
        *,
        sidecar: Optional[Sidecar] = None,
        agent: str = "claude-agent",
        fold_session_summary: Optional[Fold] = None,
    ) -> None:
        client = sidecar if sidecar is not None else Sidecar()
        self._async = AsyncSidecar.over(client)
        self._shelf = Shelf(client.agent(agent))
        self._fold = fold_session_summary
        self._looked = fold_session_summary is not None

    async def append(self, key: Key, entries: list[Entry]) -> None:
        """Appends entries in order, all of them or none."""
        if not entries:
            return
        own = json.loads(_json(entries))  # now: they are the caller's to change
        fold = None if key.get("subpath") is not None else self._folding()

        def add(old: Any) -> Optional[dict[str, Any]]:
            return _with_entries(old, own, key, fold)

        await self._async.call(self._transcript(key).change, add)

    async def load(self, key: Key) -> Optional[list[Entry]]:
        """All entries in order, None where nothing was appended."""
        found = await self._async.call(self._transcript(key).read)
        return None if found is None else copy.deepcopy(found["entries"])

    async def list_sessions(self, project_key: str) -> list[dict[str, Any]]:
        """The sessions of a project, and when each was written to last, in milliseconds."""
        runs = await self._async.call(self._sessions, project_key)
        return [{"session_id": run["external_session"], "mtime": _ms(run["updated_at"])} for run in runs]

    async def list_session_summaries(self, project_key: str) -> list[dict[str, Any]]:
        """What the SDK lists of the sessions of a project, without a transcript being read.

        A session whose last append came without the SDK's ``fold_session_summary`` is left out.
        """

        def look() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = []
            for run in self._sessions(project_key):
                newest = self._shelf.agent.latest(run=run["run"], kind="routine", state=False)
                data = newest.metadata.get(_SUMMARY) if newest is not None else None
                if is_object(data):
                    found.append({"session_id": run["external_session"], "mtime": _ms(run["updated_at"]), "data": data})
            return found

        return await self._async.call(look)

    async def list_subkeys(self, key: Key) -> list[str]:
        """The transcripts of a session's subagents."""
        return await self._async.call(self._subkeys, key)

    async def delete(self, key: Key) -> None:
        """Removes a transcript, and with that of a session those of its subagents, also from the daemon's disk."""

        def remove() -> None:
            for subpath in self._subkeys(key) if key.get("subpath") is None else []:
                self._transcript({**key, "subpath": subpath}).remove()
            self._transcript(key).remove()

        await self._async.call(remove)

    def _folding(self) -> Optional[Fold]:
        if not self._looked:
            self._looked = True
            try:
                self._fold = getattr(importlib.import_module("claude_agent_sdk"), "fold_session_summary", None)
            except ImportError:
                pass
        return self._fold

    def _transcript(self, key: Key) -> Document:
        for name in ("project_key", "session_id", "subpath"):
            value = key.get(name)
            if (name != "subpath" or value is not None) and not is_text(value):
                raise Invalid(f"the {name} of the session is {value!r}: it must be text that is not empty")
        names = [key["project_key"], key["session_id"]]
        about: dict[str, Any] = {"workflow": names[0], "external_session": names[1]}
        if key.get("subpath") is not None:
            about["parent_run"] = run_name(names[1], *names)
            about["labels"] = {"subpath": key["subpath"]}
            names.append(key["subpath"])
        return self._shelf.document(run_name(names[1], *names), about, _Form(names))

    def _sessions(self, project_key: str) -> list[dict[str, Any]]:
        runs = self._shelf.runs()
        return [r for r in runs if r["workflow"] == project_key and r["external_session"] and "subpath" not in r["labels"]]

    def _subkeys(self, key: Key) -> list[str]:
        return [
            run["labels"]["subpath"]
            for run in self._shelf.runs()
            if run["workflow"] == key["project_key"] and run["external_session"] == key["session_id"] and "subpath" in run["labels"]
        ]


class _Form(Form):
    """A transcript as it is saved: ``{"projectKey": …, "sessionId": …, "subpath"?: …, "entries": […]}``."""

    def __init__(self, names: list[str]) -> None:
        self._head = dict(zip(("projectKey", "sessionId", "subpath"), names))

    def read(self, saved: Checkpoint) -> dict[str, Any]:
        state = json.loads(saved.state_bytes or b"null")
        mine = is_object(state) and all(state.get(n) == self._head.get(n) for n in ("projectKey", "sessionId", "subpath"))
        if not mine or not is_array(state.get("entries")):
            raise Invalid(f"run {saved.run} does not hold the session {self._head['sessionId']}: give another agent's name")
        data = saved.metadata.get(_SUMMARY)
        return {"entries": state["entries"], "summary": data if is_object(data) else None}

    def write(self, content: dict[str, Any]) -> Encoded:
        return Encoded(_json({**self._head, "entries": content["entries"]}).encode(), [], [])

    def metadata(self, content: dict[str, Any]) -> Optional[Mapping[str, Any]]:
        return None if content["summary"] is None else {_SUMMARY: content["summary"]}


def _with_entries(old: Any, entries: list[Entry], key: Key, fold: Optional[Fold]) -> Optional[dict[str, Any]]:
    """A transcript with more entries; None where all of them are there already."""
    before: list[Entry] = old["entries"] if old else []
    known = {e["uuid"] for e in before if isinstance(e.get("uuid"), str)}
    added: list[Entry] = []
    for entry in entries:
        uuid = entry.get("uuid")
        if isinstance(uuid, str):
            if uuid in known:
                continue
            known.add(uuid)
        added.append(entry)
    if not added:
        return None
    return {"entries": [*before, *added], "summary": _folded(old, before, added, key, fold)}


def _folded(old: Any, before: list[Entry], added: list[Entry], key: Key, fold: Optional[Fold]) -> Optional[dict[str, Any]]:
    """What the SDK lists of a transcript; None where that is not known, fails or grows too large."""
    if fold is None:
        return None
    data = old["summary"] if old else None
    try:
        previous = None if data is None else {"session_id": key["session_id"], "mtime": 0, "data": copy.deepcopy(data)}
        told = fold(previous, dict(key), copy.deepcopy(added if data is not None else [*before, *added]))["data"]
        return dict(told) if len(_json(told)) <= _MOST_SUMMARY else None
    except Exception:
        return None  # the entries are kept all the same


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _ms(time: str) -> int:
    return int(datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp() * 1000)
