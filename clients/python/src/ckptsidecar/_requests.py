"""The requests of the HTTP API, as values."""

from __future__ import annotations

import json
import re
from typing import Any, Mapping, Optional, Union
from urllib.parse import quote, quote_plus

from ._encode import dumps
from .errors import Invalid
from ._ids import is_id, new_id
from ._transport import Ask
from ._spool_form import Lane
from ._json import is_text

JSON = "application/json"
BYTES = "application/octet-stream"
DELTA = "application/vnd.ckptsidecar.delta"
MAIN = "main"

_AGENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,254}\Z")
_LIFE = re.compile(r"~[1-9][0-9]{0,8}\Z")


def check_agent(name: Any) -> str:
    """Refuses what cannot be the name of an agent."""
    if not is_text(name) or not _AGENT.match(name):
        raise Invalid(
            f"{name!r} is not an agent name: use 1 to 128 letters, digits and ._-, with a letter or digit first"
        )
    return name


def check_run(name: Any) -> str:
    """Refuses what cannot be the name of a run."""
    if not is_text(name) or not _RUN.match(name):
        raise Invalid(
            f"{name!r} is not a run name: use 1 to 255 letters, digits and ._:@+-, with a letter or digit first"
        )
    return name


def check_life(name: Any) -> str:
    """Refuses what cannot be the name of a run, or of an earlier life of one: ``main~1`` is the one before."""
    check_run(_LIFE.sub("", name) if is_text(name) else name)
    return name


def check_id(id: Any) -> str:
    """Refuses what is no id."""
    if not is_text(id) or not is_id(id):
        raise Invalid(f"{id!r} is not an id: an id is a UUID of version 7 in lower case")
    return id


def duration(seconds: Optional[float]) -> Optional[str]:
    """A length of time as the daemon takes it, None for none."""
    return None if seconds is None else f"{round(seconds * 1000)}ms"


def query(*pairs: tuple[str, Any]) -> str:
    """A query string of the pairs that have a value."""
    parts: list[str] = []
    for name, value in pairs:
        if value is None or value == "":
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        parts.append(f"{name}={quote_plus(text)}")
    return "&".join(parts)


def finding(find: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The pairs of a query that finds runs: labels are a dict there."""
    labels: Mapping[str, Any] = find.get("labels") or {}
    pairs = [(name, value) for name, value in find.items() if name != "labels"]
    return pairs + [("label", f"{key}={value}") for key, value in labels.items()]


def segment(text: str) -> str:
    """One part of a path. Dots alone would mean another place."""
    if text in (".", ".."):
        return text.replace(".", "%2E")
    return quote(text, safe="")


def header_json(value: Any) -> str:
    """JSON on one line of printable ASCII, as a header takes it."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Invalid(f"metadata and program must be plain JSON: {error}") from error


def get(path: str, *pairs: tuple[str, Any]) -> Ask:
    """A read."""
    return Ask("GET", path, query(*pairs), repeatable=True)


def post(
    path: str, body: Union[bytes, Mapping[str, Any]], *, key: Optional[str] = None, lane: Optional[Lane] = None
) -> Ask:
    """A POST with a JSON body and a key that makes it repeatable. With a lane it may be spooled."""
    key = key or new_id()
    data = body if isinstance(body, bytes) else members(body)
    headers = {"Content-Type": JSON, "Idempotency-Key": key}
    return Ask("POST", path, "", headers, data, write=True, repeatable=True, lane=lane, id=key)


def members(body: Mapping[str, Any]) -> bytes:
    """A JSON object of the members that have a value. Bytes are JSON already."""
    parts: list[bytes] = []
    for name, value in body.items():
        if value is None:
            continue
        text = value if isinstance(value, bytes) else json.dumps(value, allow_nan=False).encode()
        parts.append(f'"{name}":'.encode() + text)
    return b"{" + b",".join(parts) + b"}"


def value_json(value: Any) -> Optional[bytes]:
    """A value of the agent's as JSON, None for None."""
    return None if value is None else dumps(value).data


def save(
    agent: str,
    id: str,
    state: bytes,
    *,
    kind: str,
    content_type: str,
    run: str,
    epoch: Optional[int],
    parent: Optional[str],
    fork_from: Optional[str] = None,
    step: Optional[str],
    labels: Optional[Mapping[str, str]],
    metadata: Optional[Mapping[str, Any]],
    program: Optional[Mapping[str, Any]],
) -> Ask:
    """A save under an id of ours."""
    if not content_type.isascii() or not content_type.isprintable():
        raise Invalid("the content type has a character that is not printable ASCII")
    headers = {"Content-Type": content_type}
    if metadata is not None:
        headers["Ckpt-Metadata"] = header_json(dict(metadata))
    if program is not None:
        headers["Ckpt-Program"] = header_json({"source": program["source"], "executed": program["executed"]})
    pairs: list[tuple[str, Any]] = [("kind", kind), ("run", run), ("epoch", epoch), ("parent", parent), ("fork_from", fork_from), ("step", step)]
    pairs.extend(("label", f"{key}={value}") for key, value in sorted((labels or {}).items()))
    return Ask(
        "PUT", f"/v1/agents/{agent}/checkpoints/{id}", query(*pairs), headers, state,
        write=True, repeatable=True, lane=(agent, run), id=id,
    )  # fmt: skip


def smaller(whole: Ask, base: str, sha256: str, change: bytes) -> Ask:
    """The same save as a change to a checkpoint that the daemon has."""
    headers = dict(whole.headers)
    state_type = headers.pop("Content-Type")
    headers.update({"Content-Type": DELTA, "Ckpt-Base-Sha256": sha256})
    more = query(("base", base), ("content_type", state_type))
    return Ask(
        whole.method, whole.path, f"{whole.query}&{more}", headers, change,
        write=True, repeatable=True, meanwhile=whole.meanwhile,
    )  # fmt: skip
