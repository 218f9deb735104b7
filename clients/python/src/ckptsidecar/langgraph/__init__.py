"""A checkpointer for LangGraph: graphs that survive their process, with their history on disk.

::

    from ckptsidecar.langgraph import SidecarSaver

    graph = builder.compile(checkpointer=SidecarSaver())

It needs LangGraph (``pip install langgraph-checkpoint``); nothing else of this package does.
docs/LANGGRAPH.md says what is stored and how.
"""

from .saver import SidecarSaver

__all__ = ["SidecarSaver"]
