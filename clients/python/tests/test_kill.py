"""Show 4: an agent that is killed again and again in a loop of steps and operations finishes by resuming."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from typing import Any

from .harness import World, child, ckptsidecar, report, until, wait

ITEMS = 80


class Killed(World):
    def agent(self) -> None:
        """The loop: for each item a step, and for each third one an operation; both have an effect in a file."""
        path = os.path.join(self.folder, "effects")

        def effect(key: str) -> str:
            with open(path, "a") as file:
                file.write(key + "\n")
            time.sleep(0.004)  # so that it can die between an effect and its report
            return "result of " + key

        def happened(operation: dict[str, Any]) -> Any:
            key = operation["key"]
            with open(path) as file:
                return ckptsidecar.Done("result of " + key) if key + "\n" in file else ckptsidecar.NotDone()

        with ckptsidecar.Sidecar(self.daemon.socket).agent("k").run("r", resolve=happened, heartbeat=1) as run:
            with open(os.path.join(self.folder, "interrupted"), "a") as file:
                file.writelines(step["key"] + "\n" for step in run.plan.interrupted_steps)
            state = run.state or {"next": 0, "results": []}
            for n in range(state["next"], ITEMS):
                got = [run.step(f"step{n}")(effect, f"step{n}")]
                if n % 3 == 0:
                    got.append(run.operation("op", state, key=f"op{n}")(effect, f"op{n}"))
                state = {"next": n + 1, "results": [*state["results"], *got]}
                run.save(state)
            run.end("completed", result=len(state["results"]))

    def kill(self, pid: int, effects: int, more: float) -> None:
        """Kills the agent when it has had some effects, and a little later."""
        path = os.path.join(self.folder, "effects")

        def count() -> int:
            return os.path.getsize(path) if os.path.exists(path) else 0

        before = count()
        until(lambda: count() - before >= 6 * effects)
        time.sleep(more)
        os.kill(pid, 9)

    def test_twenty_times(self) -> None:
        self.start()
        chance = random.Random(20)
        kills = 0
        for _ in range(21):
            pid = child(self.agent)
            killer = threading.Thread(target=self.kill, args=(pid, chance.randrange(1, 4), chance.uniform(0, 0.01)))
            if kills < 20:
                killer.start()
            ended = wait(pid)
            if killer.is_alive():
                killer.join()
            if ended == 0:
                break
            self.assertEqual(ended, -9)
            kills += 1
        self.assertEqual(ended, 0)
        self.assertEqual(kills, 20)
        keys = [f"step{n}" for n in range(ITEMS)] + [f"op{n}" for n in range(0, ITEMS, 3)]
        with open(os.path.join(self.folder, "effects")) as file:
            effects = Counter(file.read().split())
        with open(os.path.join(self.folder, "interrupted")) as file:
            interrupted = set(file.read().split())
        self.assertEqual(set(effects), set(keys))
        twice = {key for key, count in effects.items() if count > 1}
        # An effect that was never reported may be there twice, and then the plan has named it.
        self.assertLessEqual(twice, interrupted)
        self.assertEqual([k for k in twice if k.startswith("op")], [])
        steps = self.daemon.rows("SELECT key, status, result FROM audit_steps")
        self.assertEqual({k: (s, json.loads(r)) for k, s, r in steps}, {f"step{n}": ("succeeded", f"result of step{n}") for n in range(ITEMS)})
        operations = self.daemon.rows("SELECT key FROM audit_operations WHERE status = 'succeeded'")
        self.assertEqual(sorted(k for (k,) in operations), sorted(k for k in keys if k.startswith("op")))
        state = self.sidecar().agent("k").restore(run="r").state
        wanted = []
        for n in range(ITEMS):
            wanted += [f"result of step{n}"] + ([f"result of op{n}"] if n % 3 == 0 else [])
        self.assertEqual(state, {"next": ITEMS, "results": wanted})
        self.daemon.sound(self)
        report(
            f"show 4, kill -9: {kills} kills, finished by resuming; {len(keys)} effects reported once each; "
            f"{len(twice)} unreported ones repeated, all of them named as interrupted by the plan"
        )
