"""A namespace back from what graph.py wrote."""

from __future__ import annotations

import collections
import functools
import importlib
import re
import types
from typing import Any, Callable, Optional, cast

from .._typed import READERS, TAG, Steps, drive, type_of
from .._json import is_array
from .classes import CannotRebuild, Classes
from .graph import Codec
from .lost import Lost
from .source import Source, follow

# The names that every module has, which are not the program's.
OF_MODULE = frozenset(
    ("__name__", "__builtins__", "__doc__", "__loader__", "__package__", "__spec__", "__annotations__")
)

_MUTABLE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "set": lambda _: set[Any](),
    "deque": lambda node: collections.deque[Any](maxlen=node["maxlen"]),
    "dict": lambda _: {},
    "ordereddict": lambda _: collections.OrderedDict[Any, Any](),
    "counter": lambda _: collections.Counter[Any](),
    "defaultdict": lambda node: READERS["defaultdict"]([], node),
}


# The methods of built-in classes, also for a subclass that has others of these names.
_new_tuple: Callable[..., Any] = tuple[Any, ...].__new__
_extend: Callable[[Any, list[Any]], None] = list[Any].extend
_set_item: Callable[[Any, Any, Any], None] = dict[Any, Any].__setitem__


class NeedsClass(Exception):
    """A value is made of a class that is not defined yet."""


class Reader:
    """Reads one namespace."""

    def __init__(
        self,
        written: dict[str, Any],
        source: Source,
        namespace: dict[str, Any],
        host: dict[str, Any],
        classes: Classes,
        codecs: list[Codec],
    ) -> None:
        self._written = written
        self._source = source
        self._namespace = namespace
        self._host = host
        self._classes = classes
        self._codecs = {codec.name: codec for codec in codecs}
        self._renew()

    def _renew(self) -> None:
        self._made: dict[int, Any] = {}
        self._first: collections.deque[Callable[[], None]] = collections.deque()  # attributes and lists
        self._then: collections.deque[Callable[[], None]] = collections.deque()  # what needs hashes

    def read(self) -> None:
        """Fills the namespace; raises CannotRebuild."""
        for place in self._written["classes"]:
            self._provide()
            try:
                self._classes.define(self._source, place, self._namespace)
            except CannotRebuild:
                raise
            except Exception as error:
                raise CannotRebuild(f"class {place['name']} could not be defined again: {error!r}") from error
        given = {name: value for name, value in self._namespace.items() if name in OF_MODULE}
        values = self._all(self._written["variables"])
        self._namespace.clear()
        self._namespace.update({**given, **values})

    def _provide(self) -> None:
        """Gives the definition of a class what it may look at: all that needs no later class."""
        for name, node in self._written["variables"].items():
            try:
                self._namespace[name] = self._all({name: node})[name]
            except NeedsClass:
                pass

    def _all(self, nodes: dict[str, Any]) -> dict[str, Any]:
        self._renew()
        values = {name: drive(self._read(node)) for name, node in nodes.items()}
        while self._first or self._then:
            (self._first or self._then).popleft()()
        return values

    def _read(self, node: Any) -> Steps:
        if type_of(node) is list:
            made: list[Any] = []
            self._first.append(lambda: made.extend(self._parts(node)))
            return made
        if type_of(node) is not dict:
            return node
        if TAG not in node:
            plain: dict[str, Any] = {}
            self._first.append(lambda: plain.update(zip(node, self._parts(list(node.values())))))
            return plain
        if node[TAG] != "ref":
            return (yield self._object(node, lambda _: None))
        id = node["id"]
        if id not in self._made:
            shared = self._written["shared"][str(id)]
            early = functools.partial(self._made.setdefault, id)
            if type_of(shared) is dict and TAG in shared:
                value = yield self._object(shared, early)
            else:
                value = yield self._read(shared)
            self._made.setdefault(id, value)
        return self._made[id]

    def _parts(self, nodes: list[Any]) -> list[Any]:
        return [drive(self._read(node)) for node in nodes]

    def _object(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        """Makes one object; ``early`` is told of it before its parts are made."""
        kind = node[TAG]
        if kind in _MUTABLE:
            made = _MUTABLE[kind](node)
            early(made)
            self._then.append(lambda: _fill(made, self._parts(node["value"])))
            return made
        builder = _BUILDERS.get(kind)
        if builder is not None:
            made = builder(self, node, early)
            return (yield made) if isinstance(made, types.GeneratorType) else made
        reader = READERS.get(kind)
        if reader is None:
            raise CannotRebuild(f"the state has a value of the kind {kind!r}: a newer client has written it")
        value: Any = node.get("value")
        if is_array(value) and kind in ("tuple", "frozenset"):
            parts: list[Any] = []
            for part in value:
                parts.append((yield self._read(part)))
            value = parts
        return reader(value, node)

    def function(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        whole = self._source.code_at(node["at"])
        code = follow(whole, node["path"]) if whole is not None else None
        if code is None:
            raise CannotRebuild(f"function {node['qualname']} is not in the source at byte {node['at']}")
        defaults, keywords, extra, *cells = node["value"]
        closure: list[Any] = []
        for cell in cells:
            closure.append((yield self._read(cell)))
        made = types.FunctionType(code, self._namespace, node["name"], None, tuple(closure))
        early(made)
        made.__qualname__, made.__doc__ = node["qualname"], node["doc"]

        def fill() -> None:
            made.__defaults__, made.__kwdefaults__, attributes = self._parts([defaults, keywords, extra])
            self._first.append(lambda: made.__dict__.update(attributes or {}))

        self._first.append(fill)
        return made

    def cell(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Any:
        made = types.CellType()
        early(made)
        if not node.get("empty"):
            self._first.append(lambda: setattr(made, "cell_contents", self._parts(node["value"])[0]))
        return made

    def lost(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Any:
        return Lost(node["path"], node["type"], node["reason"])

    def host(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Any:
        if node["name"] not in self._host:
            raise CannotRebuild(f"the executor does not have {node['name']!r}, which the program used")
        return self._host[node["name"]]

    def imported(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Any:
        if not self._classes.imported(node["module"]):
            raise CannotRebuild(f"the program did not import {node['module']}")
        try:
            found: Any = importlib.import_module(node["module"])
            if "name" in node:
                for part in node["name"].split("."):
                    found = getattr(found, part)
        except (ImportError, AttributeError) as error:
            raise CannotRebuild(f"an import of the program does not work here: {error}") from error
        return found

    def kind(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Any:
        made = self._classes.at_place(node["at"], node["line"], node["name"])
        if made is None:
            raise NeedsClass()
        early(made)

        def fill() -> None:
            attributes = self._parts(node["value"])[0]
            self._first.append(lambda: _set_attributes(made, attributes))

        self._first.append(fill)
        return made

    def attribute(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        owner = yield self._read(node["value"][0])
        return owner.__dict__[node["name"]]

    def method(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        return getattr((yield self._read(node["value"][0])), node["name"])

    def member(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        return (yield self._read(node["value"][0]))[node["name"]]

    def exception(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        kind = yield self._read(node["value"][0])
        args = yield self._read(node["value"][1])
        made = kind.__new__(kind, *args)
        made.args = args
        early(made)
        self._attributes(made, node["value"][2])
        return made

    def instance(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        kind = yield self._read(node["value"][0])
        content = node["value"][2]
        if issubclass(kind, tuple):
            items: list[Any] = []
            for part in content:
                items.append((yield self._read(part)))
            made: Any = _new_tuple(kind, items)
        else:
            made = kind.__new__(kind)
            early(made)
            if issubclass(kind, list):
                self._first.append(lambda: _extend(made, self._parts(content)))
            elif issubclass(kind, dict):
                self._then.append(lambda: _fill(made, [x for pair in content for x in self._parts(pair["value"])]))
        self._attributes(made, node["value"][1])
        return made

    def _attributes(self, made: Any, node: Any) -> None:
        def fill() -> None:
            attributes = self._parts([node])[0]
            self._first.append(lambda: _set_slots(made, attributes))

        self._first.append(fill)

    def partial(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        fn = yield self._read(node["value"][0])
        args = yield self._read(node["value"][1])
        names = node["value"][2]
        keywords: dict[str, Any] = {}
        for name in names:
            keywords[name] = yield self._read(names[name])
        return functools.partial(fn, *args, **keywords)

    def codec(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Any:
        codec = self._codecs.get(node["name"])
        if codec is None:
            raise CannotRebuild(f"the executor has no codec {node['name']!r}, with which the state was written")
        return codec.build(_plain(self._written, node["value"][0], self))

    def simple(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Any:
        made = types.SimpleNamespace()
        early(made)
        self._attributes(made, node["value"][0])
        return made

    def pattern(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        return re.compile((yield self._read(node["value"][0])), node["flags"])

    def slice(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Steps:
        ends: list[Any] = []
        for part in node["value"]:
            ends.append((yield self._read(part)))
        return slice(*ends)

    def ellipsis(self, node: dict[str, Any], early: Callable[[Any], Any]) -> Any:
        return ...


def _plain(written: dict[str, Any], node: Any, like: Reader) -> Any:
    """What a codec wrote, whole at once."""
    reader = Reader(written, like._source, like._namespace, like._host, like._classes, list(like._codecs.values()))
    return reader._all({"": node})[""]


def _fill(made: Any, parts: list[Any]) -> None:
    if isinstance(made, set):
        cast("set[Any]", made).update(parts)
    elif isinstance(made, collections.deque):
        cast("collections.deque[Any]", made).extend(parts)
    else:
        for key, value in zip(parts[::2], parts[1::2]):
            _set_item(made, key, value)


def _set_attributes(kind: type, attributes: dict[str, Any]) -> None:
    for name, value in attributes.items():
        setattr(kind, name, value)


def _set_slots(made: Any, attributes: Optional[dict[str, Any]]) -> None:
    for name, value in (attributes or {}).items():
        if hasattr(made, "__dict__"):
            made.__dict__[name] = value
        else:
            object.__setattr__(made, name, value)


_BUILDERS: dict[str, Callable[..., Any]] = {
    "function": Reader.function, "cell": Reader.cell, "lost": Reader.lost, "host": Reader.host,
    "import": Reader.imported, "module": Reader.imported,
    "class": Reader.kind, "attribute": Reader.attribute, "method": Reader.method, "member": Reader.member,
    "exception": Reader.exception, "object": Reader.instance, "partial": Reader.partial, "codec": Reader.codec,
    "namespace": Reader.simple, "pattern": Reader.pattern, "slice": Reader.slice, "ellipsis": Reader.ellipsis,
}  # fmt: skip
