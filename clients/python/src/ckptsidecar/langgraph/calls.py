"""The calls of the daemon that a checkpointer makes, one request each."""

from __future__ import annotations

from typing import Any, Mapping

from .. import _requests
from .._client import Sidecar
from .._transport import Ask
from ..models import body_of
from .._json import object_of
from .frames import FRAMED, Parts, json_of


class Calls:
    """The calls of one agent. Each may be made twice, and does once."""

    def __init__(self, sidecar: Sidecar, agent: str) -> None:
        self._sidecar = sidecar
        self._path = f"/v1/agents/{_requests.check_agent(agent)}/graph/"

    def send(self, call: str, frame: bytes) -> dict[str, Any]:
        """Sends values."""
        return self._json(self._ask(call, FRAMED, frame))

    def tell(self, call: str, **members: Any) -> dict[str, Any]:
        """Sends no values and gets none."""
        return self._json(self._ask(call, _requests.JSON, json_of(_given(members), call)))

    def read(self, call: str, **members: Any) -> Parts:
        """Asks for values."""
        return Parts(self._sidecar._ask(self._ask(call, _requests.JSON, json_of(_given(members), call))).body)

    def _json(self, ask: Ask) -> dict[str, Any]:
        return object_of(body_of(self._sidecar._ask(ask)))

    def _ask(self, call: str, content_type: str, body: bytes) -> Ask:
        return Ask("POST", self._path + call, "", {"Content-Type": content_type}, body, write=True, repeatable=True)


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that have a value."""
    return {name: value for name, value in members.items() if value is not None}
