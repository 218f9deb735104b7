"""Running generated code so that it survives the death of the process: see StreamingExecutor."""

from .classes import CannotRebuild
from .executor import LossRefused, ProgramChanged, StreamingExecutor
from .foreign import CannotAdopt
from .graph import Codec
from .lost import Lost, LostValue
from .source import Statement
from .tools import Diverged

__all__ = [
    "CannotAdopt", "CannotRebuild", "Codec", "Diverged", "LossRefused", "Lost", "LostValue", "ProgramChanged",
    "Statement", "StreamingExecutor",
]  # fmt: skip
