"""Checkpoints of generated code that another system wrote, as ``ckptsidecar import`` brings them in."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, Mapping

from .._encode import Trace
from ..errors import CkptError
from .._json import is_object
from .lost import Lost

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

_DEFINES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_UNKNOWN = "the imported checkpoint does not hold"


class CannotAdopt(CkptError):
    """The program cannot go on from the checkpoint of another system."""

    code = "cannot_adopt"


def is_foreign(state: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a state is a checkpoint after a statement as another system writes it."""
    return (
        is_object(state)
        and {"checkpoint_id", "execution_state", "metadata"} <= state.keys()
        and isinstance(state["execution_state"], dict)
        and isinstance(state["metadata"], dict)
    )


def variables_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """The variables of the program, those of its namespace first."""
    found: dict[str, Any] = {}
    for part in (state.get("namespace"), state["execution_state"].get("variables")):
        if is_object(part):
            found.update({k: v for k, v in part.items() if k.isidentifier() and not k.startswith("__")})
    return found


def context_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """What belongs to the program besides: agents, meetings, the call stack, and the model's whole answer."""
    execution = state["execution_state"]
    context = {name: execution[name] for name in ("agents", "meetings", "call_stack") if name in execution}
    if "llm_response" in state["metadata"]:
        context["llm_response"] = state["metadata"]["llm_response"]
    return context


def defines(node: ast.stmt) -> bool:
    """Whether a statement only defines or imports: then it is executed again, because JSON holds neither."""
    return isinstance(node, _DEFINES)


def fill(namespace: dict[str, Any], executed: list[ast.stmt]) -> list[Trace]:
    """Puts into the namespace what raises at its use, for each name that the program has set and nobody kept."""
    lost: list[Trace] = []
    for node in executed:
        for name in sorted(_set_by(node)):
            if name not in namespace:
                namespace[name] = Lost("/" + name, "unknown", _UNKNOWN)
                lost.append(Trace("/" + name, "unknown", _UNKNOWN))
    return lost


def _set_by(node: ast.AST) -> set[str]:
    """The names that a statement sets in the program's own namespace, as far as the text says."""
    names: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            names.add(child.id)
        if not isinstance(child, (*_SCOPES, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            names |= _set_by(child)
    deleted: set[str] = {t.id for t in node.targets if isinstance(t, ast.Name)} if isinstance(node, ast.Delete) else set()
    return names - deleted
