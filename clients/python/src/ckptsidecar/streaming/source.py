"""A program as its top-level statements, with the bytes of the source that each takes."""

from __future__ import annotations

import __future__

import ast
import linecache
import types
from typing import NamedTuple, Optional, Union

_COMPOUND = (
    ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.For, ast.AsyncFor, ast.While, ast.If, ast.With,
    ast.AsyncWith, ast.Try, *(getattr(ast, name) for name in ("Match", "TryStar") if hasattr(ast, name)),
)  # fmt: skip
_NAME = "<program {}>"


class Statement(NamedTuple):
    """A top-level statement. ``at`` and ``next`` are byte offsets: where it begins and where the rest does."""

    at: int
    next: int
    line: int
    text: str
    node: ast.stmt


class Source:
    """The source of a program, of which more may come."""

    def __init__(self, text: str = "") -> None:
        self.text = text
        self.executed: dict[int, Statement] = {}  # by offset
        self._codes: dict[int, types.CodeType] = {}

    def learn(self, executed: int) -> None:
        """Learns the statements before a byte offset, which were executed elsewhere."""
        before = self.text.encode()[:executed].decode()
        self.executed = {s.at: s for s in self._split(before, 0, True)}

    def statements(self, after: int, final: bool) -> list[Statement]:
        """The statements from a byte offset on; where more may come, only those that are surely whole.

        Raises SyntaxError where all has come and it is no program.
        """
        if final:
            return self._split(self.text, after, True)
        whole = self.text[: self.text.rfind("\n") + 1]
        for text in _prefixes(whole, len(self.text.encode()[:after].decode())):
            try:
                found = self._split(text, after, False)
            except (SyntaxError, ValueError):
                continue
            if found and isinstance(found[-1].node, _COMPOUND):
                found.pop()  # more of it may come, such as an else
            return found
        return []

    def _split(self, text: str, after: int, whole: bool) -> list[Statement]:
        data = text.encode()
        starts = [0]
        for line in data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        nodes = ast.parse(text).body
        found: list[Statement] = []
        at = 0
        for node, then in zip(nodes, [*nodes[1:], None]):
            assert node.end_lineno is not None
            if then is not None and then.lineno == node.end_lineno:
                end = starts[then.lineno - 1] + then.col_offset
            else:
                end = starts[min(node.end_lineno, len(starts) - 1)]
            if then is None and whole:
                end = len(data)
            if at >= after:
                found.append(Statement(at, end, node.lineno, data[at:end].decode(), node))
            at = end
        return found

    def compiled(self, statement: Statement) -> types.CodeType:
        """The code of a statement: the same object each time."""
        code = self._codes.get(statement.at)
        if code is None:
            code = self.fresh(statement)
            self._codes[statement.at] = code
        return code

    def fresh(self, statement: Statement) -> types.CodeType:
        """New code of a statement."""
        name = _NAME.format(statement.at)
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(keepends=True), name)
        flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | self._futures(statement.at)
        node = statement.node
        tree: Union[ast.Module, ast.Expression] = (
            ast.Expression(node.value) if isinstance(node, ast.Expr) else ast.Module([node], [])
        )
        mode = "eval" if isinstance(node, ast.Expr) else "exec"
        return compile(tree, name, mode, flags=flags, dont_inherit=True)

    def _futures(self, before: int) -> int:
        """The flags of the __future__ statements of the program."""
        flags = 0
        if "__future__" not in self.text:
            return flags
        for statement in self.executed.values():
            node = statement.node
            if statement.at < before and isinstance(node, ast.ImportFrom) and node.module == "__future__":
                for alias in node.names:
                    flags |= getattr(__future__, alias.name).compiler_flag
        return flags

    def code_at(self, at: int) -> Optional[types.CodeType]:
        """The code of the executed statement that begins at an offset, None where there is none."""
        return self.compiled(self.executed[at]) if at in self.executed else None

    def amend(self, executed: int, rest: str) -> None:
        """Replaces what was not executed."""
        self.text = self.text.encode()[:executed].decode() + rest
        self._codes = {at: code for at, code in self._codes.items() if at < executed}


def offset_of(code: types.CodeType) -> Optional[int]:
    """Where the statement begins that a code object comes from, None where it is not of a program."""
    name = code.co_filename
    return int(name[9:-1]) if name.startswith("<program ") and name[9:-1].isdigit() else None


def path_to(code: types.CodeType, wanted: types.CodeType) -> Optional[list[list[Union[str, int]]]]:
    """The way to a code object inside another: names, and which of several of a name."""
    if code is wanted:
        return []
    counts: dict[str, int] = {}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            n = counts.get(inner.co_name, 0)
            counts[inner.co_name] = n + 1
            rest = path_to(inner, wanted)
            if rest is not None:
                return [[inner.co_name, n], *rest]
    return None


def follow(code: types.CodeType, path: list[list[Union[str, int]]]) -> Optional[types.CodeType]:
    """The code object at the end of a way, None where there is none."""
    for name, n in path:
        named = [c for c in code.co_consts if isinstance(c, types.CodeType) and c.co_name == name]
        if not isinstance(n, int) or n >= len(named):
            return None
        code = named[n]
    return code


def _prefixes(text: str, after: int) -> list[str]:
    """The text, and what is left of it when top-level lines are taken from its end, down to a place."""
    found, place = [text], len(text)
    while place > after:
        place = text.rfind("\n", 0, place - 1) + 1
        if place < len(text) and not text[place].isspace() and place >= after:
            found.append(text[:place])
        if place == 0:
            break
    return found
