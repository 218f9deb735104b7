"""What ckptsidecar.langgraph needs of LangGraph, for machines where that is not installed.

It is written from LangGraph's interface and has its words: the base class, the tuple, the places of
special writes, what of a config belongs to the metadata, and a serializer of typed bytes.
"""

from __future__ import annotations

import importlib.util
import json
import pickle
import sys
import types
from typing import Any, NamedTuple, Optional

EXCLUDED = {
    "thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map", "langgraph_step", "langgraph_node",
    "langgraph_triggers", "langgraph_path", "langgraph_checkpoint_ns",
}  # fmt: skip


class Serializer:
    """Values as a type and bytes."""

    def dumps_typed(self, value: Any) -> tuple[str, bytes]:
        if value is None:
            return "null", b""
        if isinstance(value, bytes):
            return "bytes", value
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
            if json.loads(text) == value and "(" not in repr(value):
                return "json", text.encode()
        except (TypeError, ValueError):
            pass
        return "pickle", pickle.dumps(value)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, raw = data
        load = {"null": lambda _: None, "bytes": bytes, "json": json.loads, "pickle": pickle.loads}[kind]
        return load(raw)


class CheckpointTuple(NamedTuple):
    config: Any
    checkpoint: Any
    metadata: Any
    parent_config: Any = None
    pending_writes: Optional[list[Any]] = None


class BaseCheckpointSaver:
    serde: Any = Serializer()

    def __init__(self, *, serde: Any = None) -> None:
        self.serde = serde or self.serde

    def get(self, config: Any) -> Any:
        found = self.get_tuple(config)
        return found.checkpoint if found else None

    async def aget(self, config: Any) -> Any:
        found = await self.aget_tuple(config)
        return found.checkpoint if found else None

    def get_next_version(self, current: Any, channel: None) -> Any:
        if isinstance(current, str):
            raise NotImplementedError
        return 1 if current is None else current + 1


def _refuses(name: str) -> Any:
    def refuse(self: Any, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError(name)

    return refuse


for _name in ("get_tuple", "list", "put", "put_writes", "delete_thread", "delete_for_runs", "copy_thread", "prune"):
    for _prefix in ("", "a"):
        setattr(BaseCheckpointSaver, _prefix + _name, _refuses(_prefix + _name))


def get_checkpoint_id(config: Any) -> Optional[str]:
    found: Optional[str] = config["configurable"].get("checkpoint_id")
    return found


def get_checkpoint_metadata(config: Any, metadata: Any) -> Any:
    def clean(value: Any) -> Any:
        return value.replace("\0", "") if isinstance(value, str) else value

    merged = {key: clean(value) for key, value in metadata.items()}
    for more in (config.get("metadata") or {}, config.get("configurable") or {}):
        for key, value in more.items():
            if key not in merged and key not in EXCLUDED and not key.startswith("__") and isinstance(value, (str, int, bool, float)):
                merged[key] = clean(value)
    return merged


def install() -> bool:
    """Stands in for LangGraph where it is not there; whether it does."""
    if importlib.util.find_spec("langgraph") is not None:
        return False
    names = ("langgraph", "langgraph.checkpoint", "langgraph.checkpoint.base")
    for name in names:
        sys.modules[name] = types.ModuleType(name)
    base = sys.modules[names[-1]]
    for thing in (BaseCheckpointSaver, CheckpointTuple, get_checkpoint_id, get_checkpoint_metadata):
        setattr(base, thing.__name__, thing)
    setattr(base, "WRITES_IDX_MAP", {"__error__": -1, "__scheduled__": -2, "__interrupt__": -3, "__resume__": -4})
    return True
