"""A namespace as JSON: values with their sharing, functions and classes as places in the source.

Objects that are met more than once, or inside themselves, are written once, under ``shared``, and
referred to by ``{"$ckpt": "ref", "id": …}``. What cannot be saved is named under ``lost``.
"""

from __future__ import annotations

import enum
import functools
import re
import sys
import types
from typing import Any, Callable, NamedTuple, Optional

from .._encode import MAX_DEPTH, Trace
from .._typed import BIG, TAG, WRITERS, Steps, drive, items_of, own_items, type_of
from .classes import Classes
from .lost import Lost
from .source import Source, offset_of, path_to

_ATOMS = (str, int, float, bool, type(None))
_DEEPEST = MAX_DEPTH // 3  # of Python values; each takes up to three levels of JSON


class Codec(NamedTuple):
    """How values of a class of yours are saved: ``plain`` makes one of JSON-able values, ``build`` makes it back."""

    kind: type
    name: str
    plain: Callable[[Any], Any]
    build: Callable[[Any], Any]


class Node(NamedTuple):
    """An object as it is written: its kind, JSON members, and the objects inside."""

    kind: str
    meta: dict[str, Any]
    parts: list[Any]
    keys: Optional[list[str]] = None  # of a dict that is written as a JSON object


class Attributes(dict[str, Any]):
    """Names and values of an object: always written as a JSON object."""


class Unsaved(Exception):
    """Why an object cannot be saved."""


class Writer:
    """Writes one namespace."""

    def __init__(
        self, source: Source, namespace: dict[str, Any], host: dict[int, str], classes: Classes, codecs: list[Codec]
    ) -> None:
        self.lost: list[Trace] = []
        self._source = source
        self._namespace = namespace
        self._host = host  # by id: names of what the host has given
        self._classes = classes
        self._codecs = codecs
        self._nodes: dict[int, Node] = {}
        self._counts: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no id is used again meanwhile
        self._ids: dict[int, int] = {}  # of what is shared: its number
        self._todo: list[Any] = []

    def write(self, variables: dict[str, Any]) -> dict[str, Any]:
        """The members ``variables``, ``shared`` and ``classes`` of a state."""
        for name, value in variables.items():
            self._count(value, name)
        written = {name: drive(self._emit(value, 0)) for name, value in variables.items()}
        shared: dict[str, Any] = {}
        while self._todo:
            value = self._todo.pop()
            shared[str(self._ids[id(value)])] = drive(self._node(self._nodes[id(value)], 0))
        return {"variables": written, "shared": shared, "classes": self._classes.described()}

    # First look: what is there, and what is met more than once

    def _count(self, value: Any, name: str) -> None:
        stack = [(value, name)]
        while stack:
            value, path = stack.pop()
            if _atomic(value):
                continue
            n = self._counts.get(id(value), 0)
            self._counts[id(value)] = n + 1
            if n:
                continue
            self._alive.append(value)
            try:
                node = self._describe(value)
            except Unsaved as why:
                origin = None if isinstance(value, Lost) else self._classes.import_of(value)
                if origin is not None:
                    node = Node("import", {"module": origin[0], "name": origin[1]}, [])
                else:
                    node = self._lose(value, path, str(why))
            except Exception as error:  # of a strange object's own methods
                node = self._lose(value, path, f"cannot be read: {type(error).__name__}")
            self._nodes[id(value)] = node
            labels = node.keys or [str(n) for n in range(len(node.parts))]
            stack.extend((part, f"{path}/{label}") for part, label in zip(node.parts, labels))

    def _lose(self, value: Any, path: str, reason: str) -> Node:
        kind = type_of(value)
        name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
        if isinstance(value, Lost):
            name, reason = value._type, value._reason
        self.lost.append(Trace(path, name, reason))
        return Node("lost", {"path": path, "type": name, "reason": reason}, [])

    def _describe(self, value: Any) -> Node:
        kind = type_of(value)
        if id(value) in self._host:
            return Node("host", {"name": self._host[id(value)]}, [])
        if isinstance(value, Lost):
            raise Unsaved("was lost before")
        if kind is list:
            return Node("list", {}, list(value))
        if kind is Attributes:
            return Node("dict", {}, list(value.values()), list(value))
        if kind is dict and TAG not in value and all(type(k) is str and k.isascii() for k in value):
            return Node("dict", {}, list(value.values()), list(value))
        if kind in WRITERS:
            return _typed(WRITERS[kind], value)
        for codec in self._codecs:
            if kind is codec.kind:
                return Node("codec", {"name": codec.name}, [codec.plain(value)])
        described = _DESCRIBERS.get(kind)
        if described is not None:
            return described(self, value)
        return self._object(value, kind)

    def function(self, fn: types.FunctionType) -> Node:
        owner = self._classes.owner_of(fn)
        if owner is not None:
            return Node("attribute", {"name": fn.__name__}, [owner])
        at = offset_of(fn.__code__)
        if at is None:
            return self.reference(fn)
        code = self._source.code_at(at)
        path = path_to(code, fn.__code__) if code is not None else None
        if path is None or fn.__globals__ is not self._namespace:
            raise Unsaved("is a function that is not in the program")
        meta = {"at": at, "path": path, "name": fn.__name__, "qualname": fn.__qualname__, "doc": fn.__doc__}
        cells = list(fn.__closure__ or ())
        parts = [fn.__defaults__, fn.__kwdefaults__, Attributes(fn.__dict__) or None, *cells]
        return Node("function", meta, parts)

    def cell(self, cell: Any) -> Node:
        try:
            return Node("cell", {}, [cell.cell_contents])
        except ValueError:
            return Node("cell", {"empty": True}, [])

    def method(self, method: Any) -> Node:
        if isinstance(method, types.BuiltinMethodType) and isinstance(method.__self__, (types.ModuleType, type(None))):
            return self.reference(method)
        name = method.__name__
        if getattr(method.__self__, name, None) != method:
            raise Unsaved("is a method, and its object has no method of that name")
        return Node("method", {"name": name}, [method.__self__])

    def reference(self, value: Any) -> Node:
        """Something of a module that the program has imported."""
        module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if isinstance(module, str) and isinstance(name, str) and self._classes.imported(module):
            found: Any = sys.modules.get(module)
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is value:
                return Node("import", {"module": module, "name": name}, [])
        raise Unsaved("is of a module that the program did not import")

    def module(self, module: types.ModuleType) -> Node:
        if not self._classes.imported(module.__name__) or sys.modules.get(module.__name__) is not module:
            raise Unsaved("is a module that the program did not import")
        return Node("module", {"module": module.__name__}, [])

    def partial(self, value: Any) -> Node:
        return Node("partial", {}, [value.func, tuple(value.args), Attributes(value.keywords)])

    def pattern(self, value: Any) -> Node:
        return Node("pattern", {"flags": value.flags}, [value.pattern])

    def slice(self, value: slice) -> Node:
        return Node("slice", {}, [value.start, value.stop, value.step])

    def simple(self, value: Any) -> Node:
        return Node("namespace", {}, [Attributes(value.__dict__)])

    def _object(self, value: Any, kind: type[Any]) -> Node:
        if isinstance(value, type):
            place = self._classes.place_of(value)
            if place is None:
                return self.reference(value)
            return Node("class", place, [Attributes(self._classes.data_of(value))])
        if isinstance(value, enum.Enum):
            return Node("member", {"name": value.name}, [kind])
        if isinstance(value, BaseException):
            return Node("exception", {}, [kind, tuple(value.args), Attributes(vars(value))])
        if self._classes.place_of(kind) is None:
            raise Unsaved("is of a type that cannot be saved")
        attributes = Attributes(getattr(value, "__dict__", {}))
        for slot in _slots(kind):
            if hasattr(value, slot):
                attributes[slot] = getattr(value, slot)
        content: Optional[list[Any]] = None
        if issubclass(kind, dict):
            content = list(own_items(value))
        elif issubclass(kind, (list, tuple)):
            content = list(value)
        elif _solid_base(kind) is not object:
            raise Unsaved(f"is of a class built on {_solid_base(kind).__name__}")
        return Node("object", {}, [kind, attributes, content])

    # Second look: writing

    def _emit(self, value: Any, depth: int) -> Steps:
        if _atomic(value):
            return value
        if self._counts[id(value)] > 1 or depth > _DEEPEST:
            if id(value) not in self._ids:
                self._ids[id(value)] = len(self._ids) + 1
                self._todo.append(value)
            return {TAG: "ref", "id": self._ids[id(value)]}
        return (yield self._node(self._nodes[id(value)], depth))

    def _node(self, node: Node, depth: int) -> Steps:
        parts: list[Any] = []
        for part in node.parts:
            parts.append((yield self._emit(part, depth + 1)))
        if node.keys is not None:
            return dict(zip(node.keys, parts))
        if node.kind == "list":
            return parts
        value = {"value": parts} if "value" not in node.meta else {}
        return {TAG: node.kind, **node.meta, **value}


def _typed(writer: Any, value: Any) -> Node:
    try:
        name, parts, rest = writer(value)
    except (ValueError, TypeError, AttributeError) as error:
        raise Unsaved(f"cannot be saved: {error}") from error
    if parts is None:
        return Node(name, rest, [])
    if isinstance(parts, items_of):
        return Node(name, {**rest, "pairs": True}, [part for pair in parts.pairs for part in pair])
    return Node(name, rest, list(parts))


def _atomic(value: Any) -> bool:
    kind = type_of(value)
    if kind is str:
        return value.isascii() or _sound(value)
    if kind is int:
        return -BIG <= value <= BIG
    if kind is float:
        return value - value == 0
    return kind is bool or value is None


def _sound(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _solid_base(kind: type) -> type:
    """The built-in class that instances of a class are made of."""
    for base in kind.__mro__:
        if base.__module__ == "builtins":
            return base
    return object


def _slots(kind: type) -> list[str]:
    found: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in [slots] if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                found.append(f"_{base.__name__.lstrip('_')}{name}" if private else name)
    return found


_DESCRIBERS: dict[type, Callable[[Writer, Any], Node]] = {
    types.FunctionType: Writer.function,
    types.BuiltinFunctionType: Writer.method,  # of an object, or a function of a module
    types.MethodType: Writer.method,
    types.CellType: Writer.cell,
    types.ModuleType: Writer.module,
    types.SimpleNamespace: Writer.simple,
    functools.partial: Writer.partial,
    re.Pattern: Writer.pattern,
    slice: Writer.slice,
    type(Ellipsis): lambda _, __: Node("ellipsis", {}, []),
}
