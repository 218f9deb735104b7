"""Questions to people: asking one, and waiting for its answer on a connection of its own."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any, Callable, Mapping, Optional

from . import _requests
from .errors import CkptError, Internal
from .models import body_of
from ._plans import is_away
from ._transport import Link, deadline

_PART = 300.0  # seconds that one request waits; the next one follows at once
_GLANCE = 0.2  # seconds after which who waits looks whether the run was asked to stop


@dataclasses.dataclass(frozen=True)
class Answer:
    """A person's answer: a choice, data, or both; ``prompt`` is the whole prompt."""

    choice: Optional[str]
    data: Any
    by: Optional[str]
    at: Optional[str]
    prompt: Mapping[str, Any]


class Unanswered(CkptError):
    """A question has no answer. ``prompt["status"]`` says why: ``open`` (the run is suspended until somebody answers),
    ``expired`` or ``withdrawn``."""

    code = "conflict"

    def __init__(self, message: str, prompt: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.prompt = prompt


def answer_of(prompt: Mapping[str, Any]) -> Answer:
    """The answer to a prompt; raises Unanswered."""
    status = prompt["status"]
    if status == "answered":
        return Answer(prompt["choice"], prompt["data"], prompt["answered_by"], prompt["answered_at"], prompt)
    if status == "expired":
        raise Unanswered(f"nobody answered prompt {prompt['id']} until it expired at {prompt['expires_at']}", prompt)
    if status == "withdrawn":
        raise Unanswered(f"prompt {prompt['id']} was withdrawn without an answer", prompt)
    raise Unanswered(
        f"run {prompt['run']} of {prompt['agent']} is suspended until somebody answers: "
        f"ckptsidecar prompts answer {prompt['id']}",
        prompt,
    )


class Waiting:
    """Waits in a thread of its own until a prompt is no longer open. Restarts of the daemon do not end the wait."""

    def __init__(self, endpoint: str, prompt: str, owner: Optional[str]) -> None:
        self._link = Link(endpoint or None, False)
        self._ask = _requests.get(f"/v1/prompts/{_requests.check_id(prompt)}", ("wait", f"{_PART:.0f}s"), ("owner", owner))
        self._told = threading.Event()
        self._over = threading.Event()
        self._prompt: Optional[dict[str, Any]] = None
        self._error: Optional[BaseException] = None
        threading.Thread(target=self._run, name="ckptsidecar-wait", daemon=True).start()

    def _run(self) -> None:
        try:
            self._prompt = self._until_closed()
        except BaseException as error:
            self._error = error
        finally:
            self._link.close()
            self._told.set()

    def _until_closed(self) -> Optional[dict[str, Any]]:
        pause = 0.02
        while not self._over.is_set():
            try:
                raw = body_of(self._link.ask(self._ask, deadline(_PART + 30)))
            except CkptError as error:
                if not is_away(error) or type(error) is Internal:
                    raise
                self._over.wait(max(pause, min(error.retry_after, 2.0)))
                pause = min(pause * 2, 2.0)
                continue
            pause = 0.02
            if raw["status"] != "open":
                return dict(raw)
        return None

    def result(self, look: Callable[[], None], timeout: Optional[float]) -> dict[str, Any]:
        """The prompt; ``look`` is called now and then, and may raise. TimeoutError after ``timeout`` seconds."""
        until = None if timeout is None else deadline(timeout)
        try:
            while not self._told.wait(_GLANCE):
                look()
                if until is not None and deadline(0) > until:
                    raise TimeoutError("nobody has answered yet")
        finally:
            self.close()
        if self._error is not None:
            raise self._error
        assert self._prompt is not None
        return self._prompt

    def close(self) -> None:
        """Ends the wait."""
        self._over.set()
        if not self._told.is_set():
            self._link.close()


def question(
    path: str, question: str, *, epoch: Optional[int], key: Optional[str], after: Optional[str],
    choices: Any, schema: Optional[Mapping[str, Any]], expires: Optional[float], reason: str, suspend: bool,
) -> _requests.Ask:  # fmt: skip
    """The request that asks."""
    return _requests.post(
        path,
        {
            "epoch": epoch, "question": question, "key": key, "after": None if key else after,
            "choices": None if choices is None else list(choices),
            "schema": None if schema is None else dict(schema),
            "expires": None if expires is None else _requests.duration(max(0.001, expires)),
            "reason": reason or None, "suspend": suspend or None,
        },
    )  # fmt: skip
