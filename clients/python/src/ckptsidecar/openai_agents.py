"""A ``Session`` of the OpenAI Agents SDK for Python: conversations that survive their process.

::

    from ckptsidecar.openai_agents import SidecarSession

    result = await Runner.run(agent, "hello", session=SidecarSession("thread-7"))

It has the members of the SDK's ``Session`` protocol, and imports nothing of the SDK.
"""

from __future__ import annotations

from typing import Any, Optional

from ._aio import AsyncSidecar
from ._client import Sidecar
from ._document import Document, Form, run_name
from ._encode import Encoded, dumps, loads
from .errors import Invalid
from .models import Checkpoint
from ._json import is_array, is_object, is_text

Item = dict[str, Any]  # the SDK's TResponseInputItem


class SidecarSession:
    """A conversation. It is a run of the agent, and each change of it a checkpoint.

    ``session_id`` is any text. ``session_settings`` is the SDK's: its ``limit`` counts where ``get_items`` is
    given none. What a method has answered is on disk. Any number of processes may use one session.
    """

    session_settings: Any = None

    def __init__(
        self,
        session_id: str,
        *,
        sidecar: Optional[Sidecar] = None,
        agent: str = "openai-agents-python",
        session_settings: Any = None,
    ) -> None:
        if not is_text(session_id):
            raise Invalid("the session_id is empty: give the session a name")
        self.session_id = session_id
        self.session_settings = session_settings
        client = sidecar if sidecar is not None else Sidecar()
        self._async = AsyncSidecar.over(client)
        about = {"workflow": "session", "external_session": session_id}
        self._history = Document(client.agent(agent), run_name(session_id, session_id), about, _Form(session_id))

    async def get_items(self, limit: Optional[int] = None) -> list[Item]:
        """The items, oldest first; with a limit the last ones, and all where it is below 0, as the SDK's own session has it."""
        if limit is None:
            limit = _limit(self.session_settings)
        items: list[Item] = await self._async.call(self._history.read) or []
        if limit is None or limit < 0:
            return items
        return items[len(items) - min(limit, len(items)) :]

    async def add_items(self, items: list[Item]) -> None:
        """Appends items, all of them or none."""
        if not items:
            return
        added = _plain(items)

        def add(old: Optional[list[Item]]) -> list[Item]:
            return [*(old or []), *added]

        await self._async.call(self._history.change, add)

    async def pop_item(self) -> Optional[Item]:
        """Removes the last item and answers it; None where there is none."""
        popped: list[Item] = []

        def pop(items: Optional[list[Item]]) -> Optional[list[Item]]:
            popped[:] = (items or [])[-1:]
            return items[:-1] if items else None

        await self._async.call(self._history.change, pop)
        return _plain(popped)[0] if popped else None

    async def clear_session(self) -> None:
        """Removes all items, also from the daemon's disk."""
        await self._async.call(self._history.remove)


class _Form(Form):
    """A session as it is saved: ``{"session": …, "items": […]}``."""

    def __init__(self, session: str) -> None:
        self._session = session

    def read(self, saved: Checkpoint) -> list[Item]:
        state = saved.state
        if not is_object(state) or state.get("session") != self._session or not is_array(state.get("items")):
            raise Invalid(f"run {saved.run} does not hold the session {self._session!r}: give another agent's name")
        return state["items"]

    def write(self, content: list[Item]) -> Encoded:
        return dumps({"session": self._session, "items": content})


def _plain(items: list[Item]) -> list[Item]:
    """A copy of items as they come back when they have been saved; raises NotSerializable."""
    return loads(dumps(items, refuse=True).data)


def _limit(settings: Any) -> Optional[int]:
    found = settings.get("limit") if is_object(settings) else getattr(settings, "limit", None)
    return found if isinstance(found, int) else None
