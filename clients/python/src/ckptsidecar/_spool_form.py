"""The form of a file of the spool: a line of JSON, and the body of the request."""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import Any, NamedTuple

from ._json import is_object

VERSION = 1
MOST_HEADER = 1 << 20
NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f-]{36})\.ckpt\Z")
_PATH = re.compile(r"/v1/agents/[^/]+/(checkpoints/[^/]+|runs/[^/]+/(.+))\Z")
_RUN_PARTS = re.compile(r"(steps|steps/[^/]+/finish|operations|operations/[^/]+/(succeed|fail|doubt)|events|end)\Z")

Lane = tuple[str, str]  # agent and run


class Damaged(Exception):
    """A file of the spool that is not what was written."""


class TooNew(Exception):
    """A file of a later version of the form."""


class Spooled(NamedTuple):
    """A request as it lies in the spool."""

    name: str
    method: str
    path: str
    query: str
    headers: dict[str, str]
    agent: str
    run: str
    endpoint: str
    created_at: str
    body: bytes

    @property
    def lane(self) -> Lane:
        return self.agent, self.run


def now() -> str:
    """The time as the daemon writes it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_header(line: bytes) -> dict[str, Any]:
    """The first line of a file; raises Damaged or TooNew."""
    try:
        header = json.loads(line)
    except ValueError as error:
        raise Damaged("its first line is not JSON") from error
    if not is_object(header) or not isinstance(header.get("version"), int):
        raise Damaged("its first line is not a head")
    if header["version"] > VERSION:
        raise TooNew(f"it has the version {header['version']}: a newer program must replay it")
    return header


def read_request(name: str, header: dict[str, Any], body: bytes) -> Spooled:
    """The request that a file holds; raises Damaged."""

    def text(key: str) -> str:
        value = header.get(key)
        if not isinstance(value, str):
            raise Damaged(f"its head has no {key}")
        return value

    headers = header.get("headers")
    if not is_object(headers) or not all(_sendable(k) and _sendable(v) for k, v in headers.items()):
        raise Damaged("its head has headers that cannot be sent")
    method, path, query = text("method"), text("path"), text("query")
    if not _allowed(method, path, query, headers):
        raise Damaged(f"requests of this kind are never spooled: {method} {path}")
    return Spooled(
        name, method, path, query, headers, text("agent"), text("run"), text("endpoint"), text("created_at"), body
    )


def _sendable(text: Any) -> bool:
    return isinstance(text, str) and text.isascii() and not set("\r\n") & set(text)


def _allowed(method: str, path: str, query: str, headers: dict[str, str]) -> bool:
    match = _PATH.match(path)
    if match is None or not (path + query).isascii() or set(path + query) & set(" \r\n"):
        return False
    if match[2] is None:
        return method == "PUT"
    names = {name.lower() for name in headers}
    return method == "POST" and "idempotency-key" in names and _RUN_PARTS.match(match[2]) is not None
