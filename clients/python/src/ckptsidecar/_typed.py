"""The table of types that are written as an object with the member ``$ckpt``, and read back."""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime as dt
import decimal
import fractions
import pathlib
import uuid
from typing import Any, Callable, Generator, Iterable, Optional

TAG = "$ckpt"
BIG = 2**53 - 1  # beyond it other languages read whole numbers wrong

own_items: Callable[[Any], Iterable[tuple[Any, Any]]] = dict[Any, Any].items  # of a subclass of dict too
type_of: Callable[[Any], type[Any]] = type  # the same, for a checker of types: what is known of the value stays Any


@dataclasses.dataclass(frozen=True)
class Dropped:
    """Stands where a value was dropped when the state was saved. It is false."""

    type: str
    reason: str

    def __bool__(self) -> bool:
        return False


class items_of:
    """The pairs of a dict-like value, to be written as a list of lists."""

    def __init__(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self.pairs = pairs



# A writer answers the name, the parts to write on (None for none), and the other members.
Written = tuple[Optional[str], Any, dict[str, Any]]


def _plain(name: str, text: Callable[[Any], Any]) -> Callable[[Any], Written]:
    return lambda value: (name, None, {"value": text(value)})


def _base64(value: Any) -> str:
    return base64.b64encode(bytes(value)).decode()


def _str(value: str) -> Written:
    try:
        value.encode()
        return None, value, {}
    except UnicodeEncodeError:
        return "str", None, {"value": _base64(value.encode("utf-8", "surrogatepass"))}


def _int(value: int) -> str:
    # Decimal digits are refused by Python, and slow, from some thousand on.
    return str(value) if value.bit_length() < 8192 else hex(value)


def _zone(value: Any) -> dict[str, Any]:
    """What isoformat does not tell of a time's zone."""
    rest: dict[str, Any] = {"fold": 1} if value.fold else {}
    zone = value.tzinfo
    key = getattr(zone, "key", None)
    if type(zone).__module__.startswith("zoneinfo") and isinstance(key, str):
        rest["zone"] = key
    elif zone is not None and type(zone) is not dt.timezone:
        raise ValueError("its time zone has a custom type")
    elif zone is not None and zone.tzname(None) != dt.timezone(zone.utcoffset(None)).tzname(None):
        rest["zone_name"] = zone.tzname(None)
    return rest


def _datetime(value: dt.datetime) -> Written:
    rest = _zone(value)
    if "zone" in rest:
        value = value.replace(tzinfo=None)
    return "datetime", None, {"value": value.isoformat(), **rest}


def _time(value: dt.time) -> Written:
    rest = _zone(value)
    if "zone" in rest:
        value = value.replace(tzinfo=None)
    return "time", None, {"value": value.isoformat(), **rest}


def _delta(value: dt.timedelta) -> tuple[int, int, int]:
    return value.days, value.seconds, value.microseconds


_FACTORIES: dict[str, Any] = {f.__name__: f for f in (list, dict, set, int, float, str, bool, tuple)}


def _defaultdict(value: Any) -> Written:
    factory = value.default_factory
    if factory is not None and factory not in _FACTORIES.values():
        raise ValueError("its factory cannot be saved")
    name = factory.__name__ if factory else None
    return "defaultdict", items_of(own_items(value)), {"factory": name}


WRITERS: dict[type, Callable[[Any], Written]] = {
    str: _str,
    int: _plain("int", _int),
    float: _plain("float", str),
    bytes: _plain("bytes", _base64),
    bytearray: _plain("bytearray", _base64),
    complex: _plain("complex", lambda c: [str(c.real), str(c.imag)]),
    dt.datetime: _datetime,
    dt.date: _plain("date", dt.date.isoformat),
    dt.time: _time,
    dt.timedelta: _plain("timedelta", lambda d: [*_delta(d)]),
    dt.timezone: lambda z: ("timezone", None, {"value": [*_delta(z.utcoffset(None))], "name": z.tzname(None)}),
    decimal.Decimal: _plain("decimal", str),
    fractions.Fraction: _plain("fraction", lambda f: [_int(f.numerator), _int(f.denominator)]),
    uuid.UUID: _plain("uuid", str),
    type(pathlib.Path()): _plain("path", str),
    range: _plain("range", lambda r: [r.start, r.stop, r.step]),
    tuple: lambda value: ("tuple", value, {}),
    set: lambda value: ("set", value, {}),
    frozenset: lambda value: ("frozenset", value, {}),
    collections.deque: lambda value: ("deque", value, {"maxlen": value.maxlen}),
    dict: lambda value: ("dict", items_of(own_items(value)), {}),
    collections.OrderedDict: lambda value: ("ordereddict", items_of(value.items()), {}),
    collections.Counter: lambda value: ("counter", items_of(own_items(value)), {}),
    collections.defaultdict: _defaultdict,
}


def _zoned(value: Any, node: dict[str, Any]) -> Any:
    if node.get("fold"):
        value = value.replace(fold=1)
    if "zone" in node:
        import zoneinfo

        return value.replace(tzinfo=zoneinfo.ZoneInfo(node["zone"]))
    if "zone_name" in node:
        return value.replace(tzinfo=dt.timezone(value.utcoffset(), node["zone_name"]))
    return value


def _timezone(offset: dt.timedelta, name: str) -> dt.timezone:
    plain = dt.timezone(offset)
    return plain if plain.tzname(None) == name else dt.timezone(offset, name)


def _int_back(text: str) -> int:
    return int(text, 16) if "x" in text else int(text)


def _dict_back(kind: Callable[[], Any]) -> Callable[[Any, dict[str, Any]], Any]:
    def back(pairs: Any, _: dict[str, Any]) -> Any:
        made = kind()
        for key, value in pairs:
            made[key] = value
        return made

    return back


def _defaultdict_back(pairs: Any, node: dict[str, Any]) -> Any:
    return collections.defaultdict(_FACTORIES[node["factory"]] if node["factory"] else None, map(tuple, pairs))


# A reader takes the value, the parts of which were read before, and the object itself.
READERS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "str": lambda v, _: base64.b64decode(v).decode("utf-8", "surrogatepass"),
    "int": lambda v, _: _int_back(v),
    "float": lambda v, _: float(v),
    "bytes": lambda v, _: base64.b64decode(v),
    "bytearray": lambda v, _: bytearray(base64.b64decode(v)),
    "complex": lambda v, _: complex(float(v[0]), float(v[1])),
    "datetime": lambda v, node: _zoned(dt.datetime.fromisoformat(v), node),
    "date": lambda v, _: dt.date.fromisoformat(v),
    "time": lambda v, node: _zoned(dt.time.fromisoformat(v), node),
    "timedelta": lambda v, _: dt.timedelta(*v),
    "timezone": lambda v, node: _timezone(dt.timedelta(*v), node["name"]),
    "decimal": lambda v, _: decimal.Decimal(v),
    "fraction": lambda v, _: fractions.Fraction(_int_back(v[0]), _int_back(v[1])),
    "uuid": lambda v, _: uuid.UUID(v),
    "path": lambda v, _: pathlib.Path(v),
    "range": lambda v, _: range(*v),
    "tuple": lambda v, _: tuple(v),
    "set": lambda v, _: set(v),
    "frozenset": lambda v, _: frozenset(v),
    "deque": lambda v, node: collections.deque(v, node["maxlen"]),
    "dict": _dict_back(dict),
    "ordereddict": _dict_back(collections.OrderedDict),
    "counter": _dict_back(collections.Counter),
    "defaultdict": _defaultdict_back,
    "dropped": lambda _, node: Dropped(node["type"], node["reason"]),
}


# Recursive work as a generator that yields the parts of the work and is sent their results, so
# that deep values need no deep stack. Its own result is what it returns.
Steps = Generator[Any, Any, Any]


def drive(work: Steps) -> Any:
    """Does the work with all its parts."""
    stack, result = [work], None
    while stack:
        try:
            stack.append(stack[-1].send(result))
            result = None
        except StopIteration as done:
            stack.pop()
            result = done.value
    return result


def read(value: Any) -> Steps:
    """Makes tagged objects what they stand for. One that is not known stays as it is."""
    if type_of(value) is list:
        made: list[Any] = []
        for part in value:
            made.append((yield read(part)) if type(part) in (list, dict) else part)
        return made
    if type_of(value) is not dict:
        return value
    reader = READERS.get(value[TAG]) if isinstance(value.get(TAG), str) else None
    if reader is None:
        plain: dict[str, Any] = {}
        for key, part in value.items():
            plain[key] = (yield read(part)) if type(part) in (list, dict) else part
        return plain
    parts = yield read(value.get("value"))
    try:
        return reader(parts, value)
    except (ValueError, TypeError, LookupError, ArithmeticError):
        return value
