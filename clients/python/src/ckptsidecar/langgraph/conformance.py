"""Runs LangGraph's own conformance suite over a daemon: ``python -m ckptsidecar.langgraph.conformance``.

It needs ``pip install langgraph-checkpoint-conformance``, and leaves nothing in the daemon.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, AsyncIterator

from .._client import Sidecar
from ..errors import NotFound
from .._ids import new_id
from .saver import SidecarSaver


async def check() -> bool:
    """Whether all nine capabilities pass; the report is printed."""
    from langgraph.checkpoint.conformance import checkpointer_test, validate

    sidecar = Sidecar()
    agents: list[str] = []

    async def fresh() -> AsyncIterator[Any]:
        agents.append(f"conformance-{new_id()}")
        yield SidecarSaver(sidecar, agent=agents[-1])

    try:
        report = await validate(checkpointer_test(name="SidecarSaver")(fresh))
    finally:
        for agent in agents:
            try:
                sidecar.agent(agent).erase()
            except NotFound:
                pass
        sidecar.close()
    report.print_report()
    for name, result in report.results.items():
        for failure in result.failures or []:
            print(f"{name}: {failure}")
    return bool(report.passed_all())


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(check()) else 1)
