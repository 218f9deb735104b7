"""What a save costs. Nothing here asserts a time: the numbers are printed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import time
from typing import Any

from .harness import World, binary, ckptsidecar, percentile, report


class Cost(World):
    def test_beside_json(self) -> None:
        """The processor time of this process for a save of a growing history, against that of json.dumps."""
        self.start()
        chance = random.Random(7)
        words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(3000)]
        for size in (64 << 10, 512 << 10):
            messages = [{"role": "user", "n": n, "content": " ".join(chance.choices(words, k=120))} for n in range(size // 800)]
            agent, ours, theirs = self.sidecar().agent(f"cost-{size}"), 0.0, 0.0
            for n in range(40):
                messages.append({"role": "assistant", "n": n, "content": " ".join(chance.choices(words, k=120))})
                began = time.process_time()
                agent.save({"messages": messages})
                between = time.process_time()
                text = json.dumps({"messages": messages})
                if n >= 8:
                    ours, theirs = ours + between - began, theirs + time.process_time() - between
            report(f"a history of {len(text) >> 10} KiB: a save {ours / 32 * 1e3:.2f} ms, json.dumps {theirs / 32 * 1e3:.2f} ms, {ours / theirs:.2f} times")

    def test_only_the_change(self) -> None:
        """Show 6: a step of 1.6 KB of a 526 KB history, against the same client that sends the whole."""
        self.start()
        chance = random.Random(6)
        letters = "abcdefghijklmnopqrstuvwxyz      .,\n"
        messages = [{"role": "user", "content": "".join(chance.choices(letters, k=1550))} for _ in range(330)]
        agents = {}
        for name, send in (("change", "changes"), ("whole", "whole"), ("auto", "auto")):
            sidecar = self.sidecar(send=send)
            agents[name] = (sidecar.agent(name + "-bytes"), sidecar.agent(name + "-objects"))
        took: dict[str, list[float]] = {}
        hashes: dict[str, list[str]] = {}
        state: dict[str, Any] = {"step": 0, "messages": messages, "end": {"tokens": 0}}
        for n in range(60):
            state["step"], state["end"]["tokens"] = n, n * 812
            state["messages"].append({"role": "assistant", "content": "".join(chance.choices(letters, k=1550))})
            data = json.dumps(state, separators=(",", ":")).encode()
            for name, (of_bytes, of_objects) in agents.items():
                for form, agent, value, kind in (("bytes", of_bytes, data, "application/json"), ("objects", of_objects, state, None)):
                    began = time.perf_counter()
                    saved = agent.save(value, content_type=kind)
                    if n:
                        took.setdefault(f"{name} {form}", []).append(time.perf_counter() - began)
                    hashes.setdefault(f"{name} {form}", []).append(saved.sha256)
            self.assertEqual(saved.sha256, hashlib.sha256(data).hexdigest())
        self.assertEqual(len({tuple(h) for h in hashes.values()}), 1)  # identical states, by hash
        p50 = {name: percentile(values, 0.5) for name, values in took.items()}
        report(
            f"show 6, {len(data) // 1000} KB states, p50 of a save: as bytes {p50['change bytes']:.2f} ms with only the change sent, "
            f"{p50['whole bytes']:.2f} whole: {p50['whole bytes'] / p50['change bytes']:.1f} times faster; "
            f"as objects {p50['change objects']:.2f} and {p50['whole objects']:.2f}: {p50['whole objects'] / p50['change objects']:.1f} times; "
            f"with what the client finds out itself {p50['auto bytes']:.2f} and {p50['auto objects']:.2f}"
        )
        self.daemon.sound(self)

    def bench(self) -> float:
        """The p50 of the Go client, by the program's own measure."""
        command = [binary(), "bench", "save", "--json", "--clients", "1", "--sizes", "2KiB", "--rounds", "1", "--duration", "700ms", "--dir", self.folder]
        env = {**os.environ, "CKPTSIDECAR_SOCKET": ""}
        out = subprocess.run(command, capture_output=True, text=True, env=env)
        if "free: measure less" in out.stderr:
            self.skipTest(out.stderr)
        self.assertEqual(out.returncode, 0, out.stderr)
        return float(json.loads(out.stdout)["cells"][0]["save"]["p50_ms"])

    def test_three_lines(self) -> None:
        """Show 7: a save of 2 KiB, beside the Go client on the same disk, in turns."""
        self.start()
        agent = self.sidecar().agent("small")
        state = {"text": "".join(random.Random(7).choices("abcdefgh \n", k=2000))}
        ours, theirs = [], []
        for _ in range(3):
            theirs.append(self.bench())
            took = []
            end = time.perf_counter() + 0.7
            while time.perf_counter() < end:
                began = time.perf_counter()
                agent.save(state)
                took.append(time.perf_counter() - began)
            ours.append(percentile(took, 0.5))
        ours.sort()
        theirs.sort()
        report(f"show 7, a save of 2 KiB, p50: {ours[1]:.2f} ms, the Go client {theirs[1]:.2f} ms: {ours[1] / theirs[1]:.2f} times")
        self.assertIsInstance(agent.restore(), ckptsidecar.Checkpoint)
