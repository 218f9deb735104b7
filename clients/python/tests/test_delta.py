"""Changes make the very bytes, and are small where little changed."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

from ckptsidecar import _delta as delta
from ckptsidecar._base_cache import AckedStates, Pace

from .harness import World


def words(chance: random.Random, count: int) -> str:
    return " ".join("".join(chance.choices("abcdefghijklmnop", k=chance.randrange(2, 9))) for _ in range(count))


class Changes(World):
    def wire(self, base: bytes, state: bytes) -> bytes:
        operations, literals = delta.compare(base, state)
        line = json.dumps([list(op) if isinstance(op, tuple) else op for op in operations]).encode()
        made = line + b"\n" + b"".join(literals)
        self.assertEqual(delta.apply(base, made), state)
        return made

    def test_edits_of_all_sorts(self) -> None:
        chance = random.Random(1)
        for _ in range(1500):
            letters = chance.choice([2, 4, 250])
            base = bytes(chance.choices(range(letters), k=chance.randrange(3000)))
            state = bytearray(base)
            for _ in range(chance.randrange(6)):
                at = chance.randrange(len(state) + 1)
                state[at : at + chance.randrange(400)] = bytes(chance.choices(range(letters), k=chance.randrange(400)))
            self.wire(base, bytes(state))

    def test_little_travels_where_little_changed(self) -> None:
        chance = random.Random(2)
        messages = [{"role": "user", "content": words(chance, 300)} for _ in range(250)]
        before = json.dumps({"step": 99, "messages": messages, "end": words(chance, 50)}).encode()
        after = json.dumps({"step": 100, "messages": [*messages, {"role": "x", "content": "new"}], "end": "other"}).encode()
        compacted = json.dumps({"step": 101, "messages": messages[120:], "end": "other"}).encode()
        moved = before[300_000:] + before[:300_000]
        for name, base, state, most in (
            ("grown", before, after, 600), ("compacted", after, compacted, 500), ("the same", before, before, 60),
            ("one byte", before, before[:9] + b"X" + before[10:], 200), ("moved", before, moved, 2000),
            ("cut", before, before[:200_000], 60), ("empty base", b"", before, len(before) + 60),
        ):  # fmt: skip
            with self.subTest(name):
                self.assertLess(len(self.wire(base, state)), most)

    def test_nothing_in_common_is_sent_whole(self) -> None:
        chance = random.Random(3)
        a, b = (chance.getrandbits(8 * 400_000).to_bytes(400_000, "big") for _ in range(2))
        self.assertIsNone(delta.change(a, b))
        self.assertIsNone(delta.change(a, a[:100]))  # too small to be worth it

    def test_the_daemon_makes_the_same_bytes(self) -> None:
        self.start()
        sidecar = self.sidecar(send="changes")
        sent: list[tuple[str, int]] = []
        link = sidecar._delivery.link
        exchange = link._exchange

        def watched(ask: Any, until: float) -> Any:
            sent.append((ask.headers.get("Content-Type", ""), len(ask.body)))
            return exchange(ask, until)

        link._exchange = watched  # type: ignore[method-assign]
        agent = sidecar.agent("grows")
        chance = random.Random(4)
        state: dict[str, Any] = {"step": 0, "messages": []}
        for n in range(60):
            state["step"] = n
            state["messages"].append({"content": words(chance, 100), "n": n})
            if n == 40:
                del state["messages"][5:30]
            saved = agent.save(state)
            data = json.dumps(state, separators=(",", ":")).encode()
            self.assertEqual((saved.sha256, saved.size), (hashlib.sha256(data).hexdigest(), len(data)))
        latest = agent.latest()
        assert latest is not None
        self.assertEqual(latest.state, state)
        small = [size for kind, size in sent if kind.endswith(".delta")]
        self.assertGreater(len(small), 40)
        self.assertLess(max(small), 2000)
        self.daemon.sound(self)

    def test_a_base_that_is_gone(self) -> None:
        self.start()
        agent = self.sidecar(send="changes").agent("gone")
        state = {"text": "x" * 20_000, "n": 0}
        first = agent.save(state, run="r")
        agent.sidecar.delete(first.id)
        state["n"] = 1
        self.assertEqual(agent.save(state, run="r").seq, 2)
        agent.erase()
        state["n"] = 2
        self.assertEqual(agent.save(state, run="r").seq, 1)

    def test_redacted_states_are_no_base(self) -> None:
        self.start()
        sidecar = self.sidecar(send="changes")
        agent = sidecar.agent("secret")
        agent.set_policy(secrets="redact")
        state = {"api_key": "sk-" + "a" * 40, "text": "x" * 20_000}
        for n in range(3):
            saved = agent.save({**state, "n": n})
        latest = agent.latest()
        assert latest is not None and sidecar._acked is not None
        self.assertEqual((saved.seq, latest.state["n"]), (3, 2))
        self.assertNotIn("sk-", json.dumps(latest.state))
        self.assertIsNone(sidecar._acked.last(("secret", "main")))

    def test_the_faster_form_is_used(self) -> None:
        for change, whole in ((1.0, 2.0), (2.0, 1.0)):
            pace, used = Pace("auto"), []
            for _ in range(200):
                used.append(pace.change())
                pace.note(used[-1], change if used[-1] else whole, 500_000)
            self.assertEqual(used[:8], [False, True] * 4)  # both, at first
            self.assertEqual(sum(used[8:]), 186 if change < whole else 6)  # then the faster, and the other now and then

    def test_changes_and_wholes_in_turns(self) -> None:
        """With "auto" both go over the wire, and the daemon makes the same of them."""
        self.start()
        agent = self.sidecar().agent("turns")
        state: dict[str, Any] = {"n": 0, "text": words(random.Random(5), 8000)}
        for n in range(80):
            state["n"] = n
            saved = agent.save(state)
            data = json.dumps(state, separators=(",", ":")).encode()
            self.assertEqual(saved.sha256, hashlib.sha256(data).hexdigest())
        latest = agent.latest()
        assert latest is not None
        self.assertEqual(latest.state, state)

    def test_what_a_client_keeps_is_bounded(self) -> None:
        from ckptsidecar._base_cache import MOST, Acked

        states = AckedStates()
        for n in range(100):
            states.put(("a", str(n)), Acked("id", "sha", bytes(MOST // 10)))
        self.assertLessEqual(states._held, MOST)
        self.assertIsNone(states.last(("a", "0")))
        self.assertIsNotNone(states.last(("a", "99")))
