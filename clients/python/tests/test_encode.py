"""What becomes of values that are not JSON: nothing changes without a trace."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import json
import math
import pathlib
import random
import uuid
from typing import Any, NamedTuple

from .harness import World, ckptsidecar

dumps, loads = ckptsidecar.dumps, ckptsidecar.loads


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Job:
    name: str
    done: bool = False


class Named(dict[str, Any]):
    pass


EXACT: list[Any] = [
    None, True, False, 0, -1, 2**53 - 1, 2**53, -(2**53), 10**30, 2**70000, 0.1, -0.0, 1e308, 5e-324,
    float("inf"), float("-inf"), "", "text", "äöü 漢字 😀", "\x00\x1f\x7f\u2028", "\ud800", "a\udfff", "\ud83d\ude00",
    b"", b"\x00\xff", bytearray(b"ab"), 1 + 2j, complex("nan+infj").real and 1j,
    dt.datetime(2026, 3, 1, 12, 0, 0, 123456), dt.datetime(2026, 3, 1, tzinfo=dt.timezone.utc),
    dt.datetime(2026, 3, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, seconds=17))),
    dt.datetime(2026, 3, 1, tzinfo=dt.timezone(dt.timedelta(hours=2), "CEST")), dt.datetime(2026, 10, 25, 2, 30, fold=1),
    dt.date(1, 1, 1), dt.time(23, 59, 59, 999999), dt.timedelta(days=-1, microseconds=7), dt.timezone.utc,
    decimal.Decimal("1.10"), decimal.Decimal("-0E-7"), fractions.Fraction(1, 3), uuid.UUID(int=5), pathlib.Path("/a/b"),
    range(1, 10, 3), (), (1, (2, [3])), {1, "a", (2, 3)}, frozenset((1, 2)), set(), collections.deque([1, [2]], maxlen=5),
    collections.OrderedDict([("b", 1), ("a", 2)]), collections.Counter("abca"), collections.defaultdict(list, {"a": [1]}),
    {}, [], {"a": {"b": [1, {"c": None}]}}, {1: "int key", "1": "text key", None: 0, (1, 2): 3, 1.5: [True]},
    {"$ckpt": "mine", "value": 1}, {"$ckpt": {"$ckpt": "dropped"}}, {"\ud800": 1}, {"/a~b": [1]},
]  # fmt: skip


def same(a: Any, b: Any) -> bool:
    """Equal, of the same types, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
    if isinstance(a, dict):
        if isinstance(a, collections.defaultdict) and a.default_factory is not b.default_factory:
            return False
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items()))
    if isinstance(a, (set, frozenset)):
        return a == b
    if isinstance(a, (list, tuple, collections.deque)):
        return len(a) == len(b) and all(map(same, a, b)) and getattr(a, "maxlen", 0) == getattr(b, "maxlen", 0)
    if isinstance(a, (dt.datetime, dt.time)):
        return a == b and a.fold == b.fold and str(a.tzinfo) == str(b.tzinfo) and a.tzname() == b.tzname()
    return bool(a == b)


class Encoding(World):
    def test_what_comes_back_as_it_was(self) -> None:
        for value in [*EXACT, float("nan"), EXACT]:
            encoded = dumps(value)
            with self.subTest(str(encoded.data[:80])):
                self.assertEqual((encoded.dropped, encoded.simplified), ([], []))
                self.assertTrue(same(loads(encoded.data), value), encoded.data[:200])
                json.loads(encoded.data.decode("utf-8", "strict"))
                self.assertEqual(dumps(loads(encoded.data)).data, encoded.data)
                dumps(value, refuse=True)

    def test_plain_values_are_plain_json(self) -> None:
        plain = {"a": [1, 2.5, None, True, "é"], "b": {"c": []}}
        self.assertEqual(dumps(plain).data.decode(), '{"a":[1,2.5,null,true,"é"],"b":{"c":[]}}')

    def test_what_the_daemon_stores_comes_back(self) -> None:
        self.start()
        agent = self.sidecar().agent("exact")
        agent.save(EXACT)
        self.assertTrue(same(agent.restore().state, EXACT))
        self.daemon.sound(self)

    def test_what_is_dropped_is_named(self) -> None:
        loop: dict[str, Any] = {"x": 1}
        loop["self"] = loop
        shared = [1]
        state = {
            "fine": 1, "loop": loop, "deep": [{"f": open}, {"g": lambda: 1}], "a/b": {"~": object()},
            "list": [1, (i for i in []), 3], "twice": [shared, shared], "text": "never touched",
        }  # fmt: skip
        saved = dumps(state)
        self.assertEqual(
            sorted((t.path, t.type) for t in saved.dropped),
            [
                ("/a~1b/~0", "object"),
                ("/deep/0/f", "builtin_function_or_method"),
                ("/deep/1/g", "function"),
                ("/list/1", "generator"),
                ("/loop/self", "dict"),
            ],
        )
        self.assertIn("'/loop'", next(t.reason for t in saved.dropped if t.path == "/loop/self"))
        back = loads(saved.data)
        self.assertEqual((back["fine"], back["text"], back["twice"]), (1, "never touched", [[1], [1]]))
        self.assertEqual([back["list"][0], back["list"][2]], [1, 3])
        self.assertIsInstance(back["list"][1], ckptsidecar.Dropped)
        self.assertFalse(back["loop"]["self"])
        again = dumps(back)  # a state that is saved again still says what it lacks
        self.assertEqual({t.path for t in again.dropped}, {t.path for t in saved.dropped})
        self.assertEqual(again.data, saved.data)

    def test_what_is_simplified_is_named(self) -> None:
        state = {"e": Colour.RED, "i": Level.HIGH, "p": Point(1, 2), "j": Job("x"), "d": Named(a=1), "in": [{"c": Colour.RED}]}
        saved = dumps(state)
        self.assertEqual(
            [(t.path, t.type.rsplit(".")[-1], t.reason) for t in saved.simplified],
            [
                ("/e", "Colour", "is saved as str"),
                ("/i", "Level", "is saved as int"),
                ("/p", "Point", "is saved as tuple"),
                ("/j", "Job", "is saved as dict"),
                ("/d", "Named", "is saved as dict"),
                ("/in/0/c", "Colour", "is saved as str"),
            ],
        )
        self.assertEqual(loads(saved.data)["p"], (1, 2))
        self.assertEqual(loads(saved.data)["j"], {"name": "x", "done": False})

    def test_refusing(self) -> None:
        self.start()
        for value, path in (({"a": [object()]}, "/a/0"), ({"e": Colour.RED}, "/e")):
            with self.assertRaises(ckptsidecar.NotSerializable) as caught:
                self.sidecar(refuse=True).agent("strict").save(value)
            self.assertIn(path, str(caught.exception))
            self.assertEqual(caught.exception.traces[0].path, path)
        self.assertIsNone(self.sidecar().agent("strict").latest())

    def test_default(self) -> None:
        class Money:
            def __init__(self, cents: int) -> None:
                self.cents = cents

        def default(value: Any) -> Any:
            if isinstance(value, Money):
                return {"cents": value.cents}
            raise TypeError("not mine")

        saved = dumps([Money(5), object()], default=default)
        self.assertEqual(loads(saved.data)[0], {"cents": 5})
        self.assertEqual([t.path for t in saved.simplified], ["/0"])
        self.assertEqual([t.path for t in saved.dropped], ["/1"])

    def test_depth(self) -> None:
        deep: Any = "bottom"
        for _ in range(5000):
            deep = [deep]
        saved = dumps({"deep": deep, "fine": 1})
        self.assertEqual(len(saved.dropped), 1)
        self.assertIn("900", saved.dropped[0].reason)
        self.assertEqual(loads(saved.data)["fine"], 1)
        self.start()
        self.sidecar().agent("deep").save({"deep": deep})

        def from_deep_down(n: int) -> bytes:
            return dumps([[["x"]]] * 3).data if n == 0 else from_deep_down(n - 1)

        self.assertEqual(from_deep_down(960), b'[[["x"]],[["x"]],[["x"]]]')

    def test_objects_that_misbehave(self) -> None:
        class Nasty(dict[str, Any]):
            def items(self) -> Any:
                raise RuntimeError("no")

            def __iter__(self) -> Any:
                raise RuntimeError("no")

        class Liar:
            @property
            def __class__(self) -> Any:  # type: ignore[override]
                raise RuntimeError("no")

        saved = dumps({"n": Nasty(a=1), "l": Liar(), "ok": 1})
        self.assertEqual(loads(saved.data)["ok"], 1)
        self.assertEqual({t.path for t in saved.dropped} | {t.path for t in saved.simplified}, {"/n", "/l"})

    def test_many_shapes(self) -> None:
        chance = random.Random(7)

        def value(depth: int) -> Any:
            kind = chance.randrange(12 if depth < 4 else 7)
            if kind >= 7:
                parts = [value(depth + 1) for _ in range(chance.randrange(4))]
                if kind == 7:
                    return parts
                if kind == 8:
                    return tuple(parts)
                if kind == 9:
                    return {str(n): p for n, p in enumerate(parts)}
                if kind == 10:
                    return {n: p for n, p in enumerate(parts)}
                return collections.deque(parts)
            return chance.choice(EXACT[:40])

        for _ in range(2000):
            made = value(0)
            self.assertTrue(same(loads(dumps(made).data), made), dumps(made).data[:300])

    def test_unknown_tags_stay(self) -> None:
        for text in (b'{"$ckpt":"from-the-future","value":[1]}', b'{"$ckpt":5}', b'{"$ckpt":"date","value":"no date"}'):
            self.assertEqual(loads(text), json.loads(text))
