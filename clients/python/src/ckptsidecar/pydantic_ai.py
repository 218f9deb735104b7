"""Message histories of Pydantic AI that survive their process.

::

    from ckptsidecar.pydantic_ai import SidecarHistory

    history = SidecarHistory("thread-7")
    result = agent.run_sync("hello", message_history=history.messages())
    history.add(result)

Pydantic AI has no interface for storage: its documents have you keep the JSON of the messages. Messages are saved as that
JSON. The package is imported at the first use.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, Optional

from ._aio import AsyncSidecar
from ._client import Sidecar
from ._document import Document, Form, run_name
from ._encode import Encoded
from .errors import Invalid
from .models import Checkpoint
from ._json import is_array, is_object, is_text


class SidecarHistory:
    """The messages of a conversation. It is a run of the agent, and each ``add`` a checkpoint.

    ``conversation`` is any text. ``adapter`` is what turns messages into JSON and back; without it
    ``pydantic_ai.messages.ModelMessagesTypeAdapter``. The methods that begin with ``a`` are for asyncio.
    """

    def __init__(
        self, conversation: str, *, sidecar: Optional[Sidecar] = None, agent: str = "pydantic-ai", adapter: Any = None
    ) -> None:
        if not is_text(conversation):
            raise Invalid("the conversation is empty: give it a name")
        self.conversation = conversation
        self._given: Any = adapter
        client = sidecar if sidecar is not None else Sidecar()
        self._async = AsyncSidecar.over(client)
        about = {"workflow": "conversation", "external_session": conversation}
        self._history = Document(client.agent(agent), run_name(conversation, conversation), about, _Form(conversation))

    def messages(self) -> list[Any]:
        """All messages, oldest first, for ``message_history``."""
        return self._adapter.validate_json(_json(self._history.read() or []))

    def add(self, result: Any) -> None:
        """Keeps the new messages of a run: its result, or a list of messages."""
        added = self._told(result)
        if added:
            self._history.change(lambda old: [*(old or []), *added])

    def replace(self, messages: list[Any]) -> None:
        """Keeps these messages instead of all others, for histories that were shortened or summed up."""
        told = self._told(messages)
        self._history.change(lambda _: told)

    def clear(self) -> None:
        """Removes all messages, also from the daemon's disk."""
        self._history.remove()

    async def amessages(self) -> list[Any]:
        """See messages."""
        return await self._async.call(self.messages)

    async def aadd(self, result: Any) -> None:
        """See add."""
        await self._async.call(self.add, result)

    async def areplace(self, messages: list[Any]) -> None:
        """See replace."""
        await self._async.call(self.replace, messages)

    async def aclear(self) -> None:
        """See clear."""
        await self._async.call(self.clear)

    def _told(self, result: Any) -> list[Any]:
        """Messages as plain JSON."""
        new: Any = getattr(result, "new_messages_json", None)
        text: Any = new() if callable(new) else self._adapter.dump_json(list(result))
        told = json.loads(text)
        if not is_array(told):
            raise Invalid("the value to keep is not a list of messages: give the result of a run, or its messages")
        return told

    @property
    def _adapter(self) -> Any:
        if self._given is None:
            try:
                self._given = importlib.import_module("pydantic_ai.messages").ModelMessagesTypeAdapter
            except (ImportError, AttributeError) as error:
                raise ImportError(f"ckptsidecar.pydantic_ai needs Pydantic AI ({error}): pip install pydantic-ai") from error
        return self._given


class _Form(Form):
    """A history as it is saved: ``{"conversation": …, "messages": […]}``, in Pydantic AI's own JSON."""

    def __init__(self, conversation: str) -> None:
        self._conversation = conversation

    def read(self, saved: Checkpoint) -> list[Any]:
        state = json.loads(saved.state_bytes or b"null")
        if not is_object(state) or state.get("conversation") != self._conversation or not is_array(state.get("messages")):
            raise Invalid(f"run {saved.run} does not hold {self._conversation!r}: give another agent's name")
        return state["messages"]

    def write(self, content: list[Any]) -> Encoded:
        return Encoded(_json({"conversation": self._conversation, "messages": content}), [], [])


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()
