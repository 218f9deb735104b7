"""An agent's loop that survives kill -9.

Start a daemon (``ckptsidecar serve``), then this, and kill it as often as you like: ``kill -9`` its
pid, start it again, and it goes on where it was. Each item is worked on once, each mail is sent once.

    python3 loop.py [ITEMS] [SECONDS]
"""

from __future__ import annotations

import os
import sys
import time

import ckptsidecar

ITEMS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
PAUSE = float(sys.argv[2]) if len(sys.argv) > 2 else 0.3
OUTBOX = os.environ.get("OUTBOX", "outbox.txt")


def think(item: int) -> str:
    """Stands for a call of a model: slow, and not to be paid for twice."""
    time.sleep(PAUSE)
    return f"thought {item}"


def send(text: str) -> int:
    """Stands for something that changes the world: a mail, a payment, a deployment."""
    with open(OUTBOX, "a", encoding="utf-8") as file:
        return file.write(text + "\n")


def was_sent(operation: dict[str, object]) -> ckptsidecar.Done | ckptsidecar.NotDone:
    """Asked after a crash in the middle of a send: the agent looks at the world."""
    if not os.path.exists(OUTBOX):
        return ckptsidecar.NotDone()
    with open(OUTBOX, encoding="utf-8") as file:
        return ckptsidecar.Done() if f"mail {operation['key']}\n" in file else ckptsidecar.NotDone()


def main() -> None:
    with ckptsidecar.agent("loop-example").run(resolve=was_sent) as run:
        state = run.state or {"next": 0, "thoughts": []}
        print(f"pid {os.getpid()}, {run.plan.verdict}: from item {state['next']} on", flush=True)
        for item in range(state["next"], ITEMS):
            thought = run.step(f"think-{item}")(think, item)
            if item % 5 == 4:
                key = f"mail-{item}"
                run.operation("send", state, key=key)(send, f"mail {key}")
            state = {"next": item + 1, "thoughts": [*state["thoughts"], thought]}
            run.save(state)
            print(f"item {item} done", flush=True)
        run.end("completed", result={"thoughts": len(state["thoughts"])})
    print(f"finished with {len(state['thoughts'])} thoughts", flush=True)


if __name__ == "__main__":
    main()
