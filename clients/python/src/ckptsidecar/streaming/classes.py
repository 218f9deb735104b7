"""The classes of a program: where each is defined, and how they are defined again."""

from __future__ import annotations

import ast
import builtins
import enum
import sys
import types
import weakref
from typing import Any, Callable, NamedTuple, Optional

from .source import Source, Statement, offset_of

_DATA = (bool, int, float, complex, str, bytes, list, dict, tuple, set, frozenset, type(None))


class Place(NamedTuple):
    """Where a class is defined: statement, line, name, and the how-many-eth class of the program it is."""

    at: int
    line: int
    name: str
    number: int


class CannotRebuild(Exception):
    """A definition of the program could not be executed again."""


class Classes:
    """Watches a program define classes, and import modules."""

    def __init__(self) -> None:
        self._places: weakref.WeakKeyDictionary[type, Place] = weakref.WeakKeyDictionary()
        self._count = 0
        self._outermost: set[tuple[int, int, str]] = set()
        self._modules = {"builtins"}
        self._names: set[tuple[str, str]] = set()

    def builtins(self) -> dict[str, Any]:
        """The builtins for a program, with a way to see its classes."""
        made = dict(vars(builtins))
        made["__build_class__"] = self._build
        return made

    def _build(self, body: Callable[..., Any], name: str, *bases: Any, **options: Any) -> Any:
        made = builtins.__build_class__(body, name, *bases, **options)
        at = offset_of(body.__code__)
        if at is not None and isinstance(made, type):
            self._count += 1
            self._places[made] = Place(at, body.__code__.co_firstlineno, name, self._count)
        return made

    def place_of(self, kind: type) -> Optional[dict[str, Any]]:
        """Where a class of the program is defined, None for any other."""
        place = self._places.get(kind)
        if place is None or "<locals>" in kind.__qualname__:
            return None
        return {"at": place.at, "line": place.line, "name": place.name}

    def at_place(self, at: int, line: int, name: str) -> Optional[type]:
        """The newest class that was defined at a place."""
        found = [(p.number, kind) for kind, p in self._places.items() if p[:3] == (at, line, name)]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def owner_of(self, fn: types.FunctionType) -> Optional[type]:
        """The class of the program that has a function as its method."""
        if "." not in fn.__qualname__ or "<locals>" in fn.__qualname__:
            return None
        for kind in list(self._places):
            if kind.__dict__.get(fn.__name__) is fn:
                return kind
        return None

    def data_of(self, kind: type) -> dict[str, Any]:
        """The plain values among the attributes of a class, which the program may have changed."""
        if issubclass(kind, enum.Enum):
            return {}
        own = {name: value for name, value in kind.__dict__.items() if not name.startswith("__")}
        return {name: value for name, value in own.items() if type(value) in _DATA}

    def described(self) -> list[dict[str, Any]]:
        """The classes to define again, in the order in which they were defined."""
        newest: dict[tuple[int, int, str], Place] = {}
        for place in sorted(self._places.values(), key=lambda place: place.number):
            newest[place[:3]] = place
        ordered = sorted(newest.values(), key=lambda place: place.number)
        return [{"at": p.at, "line": p.line, "name": p.name} for p in ordered if p[:3] in self._outermost]

    # Imports

    def learn(self, statement: Statement, namespace: dict[str, Any]) -> None:
        """Notes which classes a statement has defined and what it has imported, wherever in it."""
        for node in class_nodes(statement.node):
            place = (statement.at, first_line(node), node.name)
            self._outermost.add(place)
            made = namespace.get(node.name)
            if isinstance(made, type) and made not in self._places and made.__qualname__ == node.name:
                self._count += 1  # a decorator has made another class of it
                self._places[made] = Place(*place, self._count)
        for inner in ast.walk(statement.node):
            if isinstance(inner, ast.Import):
                self._modules.update(alias.name.split(".")[0] for alias in inner.names)
            elif isinstance(inner, ast.ImportFrom) and inner.module and not inner.level:
                self._modules.add(inner.module.split(".")[0])
                self._names.update((inner.module, alias.name) for alias in inner.names)

    def import_of(self, value: Any) -> Optional[tuple[str, str]]:
        """The module and the name under which the program has imported an object."""
        for module, name in self._names:
            if getattr(sys.modules.get(module), name, None) is value:
                return module, name
        return None

    def imported(self, module: str) -> bool:
        """Whether the program has imported a module, or the package that it is in."""
        top = module.split(".")[0]
        return top in self._modules or top.lstrip("_") in self._modules  # _io, _collections, …

    # Defining again

    def define(self, source: Source, place: dict[str, Any], namespace: dict[str, Any]) -> None:
        """Executes the definition of a class, and nothing around it."""
        statement = source.executed.get(place["at"])
        for node in class_nodes(statement.node) if statement is not None else []:
            if (first_line(node), node.name) == (place["line"], place["name"]):
                assert statement is not None
                exec(source.fresh(statement._replace(node=node)), namespace)
                return
        raise CannotRebuild(f"class {place['name']} is not in the source at byte {place['at']}")


def class_nodes(node: ast.AST) -> list[ast.ClassDef]:
    """The classes of a statement that are not inside a function or another class."""
    if isinstance(node, ast.ClassDef):
        return [node]
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        return []
    return [found for child in ast.iter_child_nodes(node) for found in class_nodes(child)]


def first_line(node: ast.ClassDef) -> int:
    """The line where a class begins, which is that of its first decorator."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
