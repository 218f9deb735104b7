"""Python values as JSON, so that nothing changes without a trace.

``None``, ``bool``, ``str``, ``list``, ``dict`` with text keys, whole numbers up to 2**53 and
finite numbers are JSON as everybody writes it. Other well-known types are written as an object
with the member ``$ckpt``, which ``loads`` reads back as the same type (typed.py has the table).
What remains is one of two things, each with its JSON pointer:

* *simplified*: a value of a class that stands for a plain one (a named tuple, an enumeration, a
  data class, a subclass of dict) is saved as that plain one;
* *dropped*: what cannot be saved, or contains itself, is replaced by
  ``{"$ckpt": "dropped", "type": …, "reason": …}``, which is read back as ``Dropped``.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import threading
from itertools import chain
from math import isfinite
from typing import Any, Callable, Iterable, NamedTuple, Optional

from .errors import NotSerializable
from ._typed import BIG, TAG, WRITERS, Dropped, Steps, drive, items_of, own_items, read, type_of

MAX_DEPTH = 900  # levels of JSON; the daemon takes 1000

Default = Callable[[Any], Any]


class Trace(NamedTuple):
    """What did not come through as it is. ``path`` is a JSON pointer into the value."""

    path: str
    type: str
    reason: str


class Encoded(NamedTuple):
    """A value as JSON in UTF-8, and what of it was dropped or simplified."""

    data: bytes
    dropped: list[Trace]
    simplified: list[Trace]
    content_type: str = "application/json"


def dumps(value: Any, *, default: Optional[Default] = None, refuse: bool = False) -> Encoded:
    """Writes a value as JSON.

    ``default`` is called with what cannot be saved and may return something that can, or raise
    TypeError. With ``refuse`` nothing is dropped or simplified: it raises NotSerializable.
    """
    if _plain(value):
        try:
            return Encoded(_text(value).encode(), [], [])
        except (UnicodeEncodeError, RecursionError):
            pass  # lone surrogates; or a caller who is deep in its own calls
    writer = _Writer(default)
    tree = drive(writer.write(value, "", 0))
    if refuse and (writer.dropped or writer.simplified):
        raise _refusal(writer.dropped + writer.simplified)
    return Encoded(_deeply(lambda: _text(tree)).encode(), writer.dropped, writer.simplified)


def loads(data: bytes) -> Any:
    """Reads what ``dumps``, or anybody else, wrote as JSON."""
    value = read_json(data)
    return drive(read(value)) if b'"' + TAG.encode() + b'"' in data else value


def write_json(tree: Any) -> bytes:
    """The JSON of lists, dicts and atoms, tags being what they are."""
    return _deeply(lambda: _any_text(tree)).encode()


def read_json(data: bytes) -> Any:
    """The value of a JSON text, tags being what they are."""
    return _deeply(lambda: json.loads(data))


def _encoder(ascii_only: bool) -> Callable[[Any], str]:
    return json.JSONEncoder(
        ensure_ascii=ascii_only, allow_nan=False, check_circular=False, separators=(",", ":")
    ).encode


_ascii_text, _any_text = _encoder(True), _encoder(False)
_ascii_last = True
_ESCAPED = re.compile(r"\\u").search  # three times as fast as the operator in


def _text(tree: Any) -> str:
    """The JSON of a plain value. The encoder for ASCII is twice as fast, so it goes first where it did before."""
    global _ascii_last
    if _ascii_last:
        text = _ascii_text(tree)
        if "\\" not in text or _ESCAPED(text) is None:
            return text
    text = _any_text(tree)
    _ascii_last = text.isascii()
    return text


_ATOMS = frozenset((str, bool, type(None)))
_NUMBERS = frozenset((int, float))
_KINDS = _ATOMS | _NUMBERS | {dict, list}


def _plain(value: Any) -> bool:
    """Whether the fast encoder writes the value as it is. Each level of nesting is looked at as a whole, by loops in C."""
    seen: set[int] = set()
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        kinds = set(map(type, level))
        if kinds <= _ATOMS:
            return True
        if not kinds <= _KINDS:
            return False
        level = [x for x in level if type(x) not in _ATOMS]
        if kinds & _NUMBERS:
            ints = [x for x in level if type(x) is int]
            if ints and not -BIG <= min(ints) <= max(ints) <= BIG:
                return False
            if not all(map(isfinite, (x for x in level if type(x) is float))):
                return False
            level = [x for x in level if type(x) not in _NUMBERS]
        ids = set(map(id, level))
        if len(ids) < len(level) or not seen.isdisjoint(ids):  # shared, or inside itself
            return False
        seen |= ids
        dicts: list[dict[Any, Any]] = [x for x in level if type(x) is dict]
        if dicts and (set(map(type, chain.from_iterable(dicts))) - {str} or any(TAG in x for x in dicts)):
            return False
        inner: list[Iterable[Any]] = [x for x in level if type_of(x) is list]
        inner += [x.values() for x in dicts]
        level = list(chain.from_iterable(inner))
    return False


def _deeply(work: Callable[[], Any]) -> Any:
    """Reads or writes JSON, on a fresh stack where the caller's is nearly used up."""
    try:
        return work()
    except RecursionError:
        pass
    outcome: list[Any] = [None, None]

    def run() -> None:
        try:
            outcome[0] = work()
        except BaseException as error:
            outcome[1] = error

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]


class _Writer:
    """Makes a value a tree that the fast encoder writes as it is."""

    def __init__(self, default: Optional[Default]) -> None:
        self.dropped: list[Trace] = []
        self.simplified: list[Trace] = []
        self._default = default
        self._open: dict[int, str] = {}  # what is being written, and where it stands

    def write(self, value: Any, path: str, depth: int) -> Steps:
        kind = type_of(value)
        if kind is str and value.isascii() or kind is bool or value is None:
            return value
        if kind is float and value - value == 0 or kind is int and -BIG <= value <= BIG:
            return value
        if depth >= MAX_DEPTH:
            return self._drop(value, path, f"is nested more than {MAX_DEPTH} deep")
        if id(value) in self._open:
            return self._drop(value, path, f"contains itself: it is also at {self._open[id(value)]!r}")
        self._open[id(value)] = path
        try:
            return (yield self._compound(value, kind, path, depth))
        finally:
            del self._open[id(value)]

    def _compound(self, value: Any, kind: type[Any], path: str, depth: int) -> Steps:
        if kind is list:
            parts: list[Any] = []
            for n, part in enumerate(value):
                parts.append((yield self.write(part, f"{path}/{n}", depth + 1)))
            return parts
        if kind is dict and TAG not in value and all(type(k) is str and _sound(k) for k in value):
            made: dict[str, Any] = {}
            for key, part in value.items():
                made[key] = yield self.write(part, f"{path}/{_escape(key)}", depth + 1)
            return made
        writer = WRITERS.get(kind)
        if writer is None:
            return (yield self._other(value, kind, path, depth))
        try:
            name, content, rest = writer(value)
        except (ValueError, TypeError, AttributeError) as error:
            return self._drop(value, path, f"cannot be saved: {error}")
        if name is None:
            return content  # it is plain after all
        if content is None:
            return {TAG: name, **rest}
        if isinstance(content, items_of):
            written = yield self._items(content, path, depth + 3)
        else:
            written: list[Any] = []
            for n, part in enumerate(content):
                written.append((yield self.write(part, f"{path}/{n}", depth + 2)))
            if name in ("set", "frozenset"):
                written.sort(key=lambda part: json.dumps(part, sort_keys=True))  # the same set, the same bytes
        return {TAG: name, "value": written, **rest}

    def _items(self, items: items_of, path: str, depth: int) -> Steps:
        pairs: list[list[Any]] = []
        for n, (key, part) in enumerate(items.pairs):
            at = f"{path}/{_escape(key) if isinstance(key, str) and _sound(key) else n}"
            pairs.append([(yield self.write(key, at, depth)), (yield self.write(part, at, depth))])
        return pairs

    def _other(self, value: Any, kind: type[Any], path: str, depth: int) -> Steps:
        if type(value) is Dropped:  # it was dropped before: so it stays
            self.dropped.append(Trace(path, value.type, value.reason))
            return {TAG: "dropped", "type": value.type, "reason": value.reason}
        try:
            plainer = _plainer(value, kind)
            if plainer is _NONE and self._default is not None:
                plainer = self._default(value)
        except Exception as error:  # of the object's own methods, or default's no
            return self._drop(value, path, f"cannot be saved: {type(error).__name__}")
        if plainer is _NONE or plainer is value:
            return self._drop(value, path, "is of a type that cannot be saved")
        self.simplified.append(Trace(path, _name(kind), f"is saved as {type(plainer).__name__}"))
        return (yield self.write(plainer, path, depth))

    def _drop(self, value: Any, path: str, reason: str) -> Any:
        trace = Trace(path, _name(type_of(value)), reason)
        self.dropped.append(trace)
        return {TAG: "dropped", "type": trace.type, "reason": reason}


_NONE = object()


def _own_parts(kind: Any) -> Callable[[Any], Any]:
    return lambda v: kind(kind.__iter__(v))


# How to see the plain value inside one of a subclass, by its own type's methods and no others.
_PLAINER: list[tuple[type[Any], Callable[[Any], Any]]] = [
    (dict, lambda v: dict(own_items(v))),
    *((kind, _own_parts(kind)) for kind in (list, tuple, set, frozenset, bytes, bytearray)),
    (str, str.__str__),
    (int, int.__pos__),
    (float, float.__pos__),
]


def _plainer(value: Any, kind: type[Any]) -> Any:
    """The plain value that one of another class stands for."""
    if issubclass(kind, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
    for plain, see in _PLAINER:
        if issubclass(kind, plain):
            return see(value)
    return _NONE


def _sound(text: str) -> bool:
    """Whether a text can be written in UTF-8."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _name(kind: type[Any]) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _refusal(traces: list[Trace]) -> NotSerializable:
    shown = "; ".join(f"{t.path or 'the value'} ({t.type}) {t.reason}" for t in traces[:5])
    more = f"; and {len(traces) - 5} more" if len(traces) > 5 else ""
    return NotSerializable(f"the value to save would not come back unchanged: {shown}{more}", traces)
