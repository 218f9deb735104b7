"""Values of JSON that was read, with their types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeGuard


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def is_array(value: Any) -> TypeGuard[list[Any]]:
    """Whether a value is a JSON array."""
    return isinstance(value, list)


def is_text(value: Any) -> TypeGuard[str]:
    """Whether a value is text that is not empty."""
    return isinstance(value, str) and value != ""


def object_of(value: Any) -> dict[str, Any]:
    """The value if it is a JSON object, otherwise an empty one."""
    return value if is_object(value) else {}
