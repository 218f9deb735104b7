"""Bodies that carry values as they are: a line of JSON, and then the bytes that it names."""

from __future__ import annotations

import json
from typing import Any, Mapping

from ..errors import Internal, Invalid

FRAMED = "application/vnd.ckptsidecar.graph"

Typed = tuple[str, bytes]  # what a serializer of LangGraph makes


class Frame:
    """A body that is being written."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, value: Typed, **names: Any) -> dict[str, Any]:
        """Takes a value and answers how the header names it."""
        kind, data = value
        self._parts.append(data)
        return {**names, "type": kind, "length": len(data)}

    def body(self, header: Mapping[str, Any], what: str) -> bytes:
        """The whole of it."""
        return b"".join([json_of(header, what), b"\n", *self._parts])


class Parts:
    """The values of an answer, which are taken one after the other."""

    def __init__(self, body: bytes) -> None:
        line, end, _ = body.partition(b"\n")
        self._body = memoryview(body)
        self._at = len(line) + len(end)
        self.header: dict[str, Any] = json.loads(line)

    def take(self, named: Mapping[str, Any]) -> Typed:
        """The next value, as the header names it."""
        end = self._at + int(named["length"])
        if end > len(self._body):
            raise Internal("the daemon's answer cannot be read: it is shorter than its stated length")
        data = bytes(self._body[self._at : end])
        self._at = end
        return named["type"], data


def json_of(value: Any, what: str) -> bytes:
    """Plain JSON; ``what`` is said in the error."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"{what} must be plain JSON: {error}") from error
