"""Runs a program that a model has written, statement by statement, so that it goes on after a crash.

Kill it with ``kill -9`` at any time and start it again: the statements that have run do not run
again, and each search is made once.

    python3 generated.py [SECONDS]
"""

from __future__ import annotations

import asyncio
import sys

import ckptsidecar
from ckptsidecar.streaming import StreamingExecutor

PAUSE = float(sys.argv[1]) if len(sys.argv) > 1 else 0.5

PROGRAM = """
notes = []
seen = set()

def note(text):
    notes.append(f"{len(notes) + 1}. {text}")

for topic in ["checkpoints", "sidecars", "agents"]:
    found = await search(topic)
    seen.update(found)
    note(f"{topic}: {len(found)} pages")

both = await asyncio.gather(search("resume"), search("fencing"))
note(f"two more: {sum(len(found) for found in both)} pages")
await publish("\\n".join(notes))
len(seen)
"""


async def search(topic: str) -> list[str]:
    """Stands for a tool of the agent."""
    await asyncio.sleep(PAUSE)
    print(f"  searching {topic}", flush=True)
    return [f"{topic}/{n}" for n in range(len(topic))]


async def publish(text: str) -> None:
    """Stands for a tool that changes the world."""
    print(text, flush=True)


async def main() -> None:
    async with ckptsidecar.AsyncSidecar() as sidecar:
        async with sidecar.agent("generated-example").run() as run:
            tools = {"search": search, "publish": publish}
            executor = StreamingExecutor(run, tools, {"asyncio": asyncio}, context={"model": "m-1"})
            print(f"{run.plan.verdict}: {executor.executed} of {len(PROGRAM.encode())} bytes have run", flush=True)
            print("pages:", await executor.execute(PROGRAM), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
