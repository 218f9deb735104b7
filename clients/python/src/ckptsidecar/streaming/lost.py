"""What stands in a rebuilt namespace for a value that could not be saved."""

from __future__ import annotations

from typing import Any, NoReturn

from ..errors import CkptError


class LostValue(CkptError):
    """The program uses a value that the checkpoint could not keep."""

    code = "lost_value"


def _use(self: "Lost", *_: Any, **__: Any) -> NoReturn:
    raise LostValue(
        f"{self._path} was a value of type {self._type}, which {self._reason}, so the checkpoint does not contain it: "
        "create it again before you use it, or give the executor a codec for its type"
    )


class Lost:
    """Raises LostValue at any use."""

    def __init__(self, path: str, type: str, reason: str) -> None:
        self._path = path
        self._type = type
        self._reason = reason

    def __repr__(self) -> str:
        return f"<lost {self._path}: {self._type} {self._reason}>"

    __getattr__ = __call__ = __iter__ = __next__ = __len__ = __getitem__ = __setitem__ = __delitem__ = _use
    __contains__ = __bool__ = __int__ = __float__ = __index__ = __enter__ = __exit__ = __await__ = _use
    __aenter__ = __aexit__ = __aiter__ = __anext__ = __lt__ = __le__ = __gt__ = __ge__ = _use
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _use
    __floordiv__ = __mod__ = __pow__ = __and__ = __or__ = __xor__ = __neg__ = _use
