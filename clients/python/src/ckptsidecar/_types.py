"""What the parts of the client know of one another: each names the members that it uses.

A Sidecar makes Agents, an Agent makes Runs, a Run makes Operations. So that none of these needs the module of
the one that made it, it knows that one by a protocol.
"""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Optional, Protocol, Union

from ._base_cache import AckedStates
from ._delivery import Delivery, Kept
from ._encode import Default, Encoded
from ._files import Folder
from ._http import Reply
from ._spool_form import Lane
from ._transport import Ask
from ._plans import Answer, Known
from .errors import NeedsOperator
from .models import Checkpoint, Diff, Saved


class Caller(Protocol):
    """A Sidecar, as an Agent and what comes of it know it."""

    _delivery: Delivery
    _acked: Optional[AckedStates]
    _default: Optional[Default]
    _refuse: bool
    _owner: Optional[str]

    @property
    def endpoint(self) -> str: ...
    def checkpoint(self, id: str, *, state: bool = True) -> Checkpoint: ...
    def diff(self, a: str, b: str) -> Diff: ...
    def dismiss(self, finding: str, *, reason: str = "") -> dict[str, Any]: ...
    def _deliver(self, ask: Ask) -> Union[Reply, Kept]: ...
    def _attempt(self, lane: Lane, ask: Ask, settle: bool = True) -> Reply: ...
    def _direct(self, ask: Ask) -> Reply: ...
    def _ask(self, ask: Ask) -> Reply: ...
    def _dict(self, ask: Ask) -> dict[str, Any]: ...
    def _pages(
        self, path: str, name: str, *pairs: tuple[str, Any], limit: Optional[int] = None
    ) -> Iterator[dict[str, Any]]: ...


class Named(Protocol):
    """An Agent, as a Run and what comes of it know it."""

    name: str

    @property
    def sidecar(self) -> Caller: ...
    def encode(self, state: Any) -> Encoded: ...
    def save(
        self,
        state: Any,
        *,
        kind: str = "routine",
        run: Optional[str] = None,
        epoch: Optional[int] = None,
        parent: Optional[str] = None,
        step: Optional[str] = None,
        labels: Optional[Mapping[str, str]] = None,
        metadata: Optional[Mapping[str, Any]] = None,
        program: Optional[Mapping[str, Any]] = None,
        content_type: Optional[str] = None,
        allow_empty: bool = False,
        id: Optional[str] = None,
        files: Optional[Folder] = None,
    ) -> Saved: ...
    def restore(
        self,
        checkpoint: Optional[str] = None,
        *,
        kind: Optional[str] = None,
        clean: bool = False,
        run: Optional[str] = None,
        reason: str = "",
    ) -> Checkpoint: ...


class Claim(Protocol):
    """A Session, as an Operation knows it."""

    def send(self, parts: tuple[str, ...], body: dict[str, Any]) -> Union[Reply, Kept]: ...
    def ask(self, parts: tuple[str, ...], body: dict[str, Any]) -> Ask: ...
    def direct(self, ask: Ask) -> Reply: ...
    def resolve(self, answer: Answer, attempt: Optional[int] = None) -> None: ...


class Claimed(Protocol):
    """A Run, as an Operation knows it."""

    name: str
    _operations: dict[str, Known]
    _uncertain: dict[str, str]
    _begins: dict[str, Ask]

    @property
    def agent(self) -> Named: ...
    @property
    def _session(self) -> Claim: ...
    def _boundary(self) -> None: ...
    def _attempt_of(self, key: str, status: str) -> Optional[dict[str, Any]]: ...
    def _needs_operator(self, refused: Optional[NeedsOperator], key: Optional[str] = None) -> NeedsOperator: ...
    def _work(self, more: int) -> None: ...
